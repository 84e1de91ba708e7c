"""The first page: headline, tiles, what to do first, and all verdicts."""

from __future__ import annotations

import itertools
import re
from collections.abc import Sequence

from markupsafe import Markup

from ...analysis.framework.host_records import leading_functions
from ...analysis.report.model import Report, Tile
from ..blocks import Figure, Section, meaning_of, of_all, plain, say, spread
from ..blocks.tables import Cell, Col, Table, table, word
from ..figures.donut import shaded
from ..figures.lines import lines
from ..figures.strips import Piece, Strip, strips
from ..text.formats import UNKNOWN, clip, count, duration, first_sentences, glued, percent, percent_of, plural, sentences
from ..text.signs import ERROR, FINE, ISSUE, NOT_EVALUATED, SIGNS
from .findings import FIRST, findings, overlap
from .steps import parts_of, telling, wall_and_device
from .system_usage import panel
from .time_breakdown import FIRST_PAGE, bars, wasted
from .verdicts import ABSENT, Judged, counted, judged

_PAGE = 600  # points of a page of the smaller paper, less title, captions and margins
_NODES = 3
_PIECES = 7
_SMALL = 0.5  # percent; less is not to be seen in a strip
_COSTLIEST = 5
_HEADLINE = 2  # sentences in large type
_FEW = 6  # rules with a verdict that have a row each, whatever it is; of more, those without an issue are named
_REASON = 80
_REASONS = 4


def summary(report: Report, *, rules: bool = True) -> Section:
    """``rules``: whether the section of that name is shown, which tells what the rules found that are only named here."""
    headline, further = first_sentences(glued(report.summary.headline), _HEADLINE)
    made = Section("summary", "Summary", say("{}", headline))
    made.facts["further"] = further or _most(report)
    made.facts["tiles"] = _tiles(report)
    shown = spread(report.time_breakdown, FIRST_PAGE, wasted)
    if shown:
        more = of_all(len(shown), len(report.time_breakdown), "device", "time without computation")
        made.add(bars("summary-time", shown, say("Where the time of each GPU went, in percent of its span.{}", more)))
    numbers = itertools.count(1)
    made.add(
        _costs(report),
        _utilisation(report),
        table(
            "summary-kernels",
            "Longest kernels",
            report.kernels[: _most_rows(report)],
            Col("#", lambda _: next(numbers), str),
            Col("Kernel", lambda kernel: word(kernel.short_name, full=kernel.name, limit=60), kind="name"),
            Col("Category", lambda kernel: kernel.category),
            Col("Precision", lambda kernel: kernel.precision),
            Col("Total", lambda kernel: kernel.total_ns, duration),
            Col("Of kernel time", lambda kernel: kernel.share_of_kernel_time, percent),
            sortable=False,
        ),
    )
    if not report.kernels:
        made.add(_operators(report))
    if not report.kernels and not report.framework.cpu_operators:
        made.add(_functions(report), _collectives(report))
    first = findings(report)[:FIRST]
    made.facts["findings"], made.facts["note"] = first, overlap(first)
    found = judged(report)
    made.facts["nothing"] = None if first else _nothing(found)
    listed = _listed(found)
    kept = _kept(report, len(first), listed, found)
    made.facts["counted"] = f"Rules: {counted(found)}" if found else None
    made.facts["named"] = _named(found[len(listed) :], rules=rules)
    made.facts["unlisted"] = _named(found[kept:], rules=rules)
    made.add(
        table(
            "summary-rules",
            f"Rules: {counted(found)}",
            listed,
            Col("Rule", lambda row: row.name, kind="name"),
            Col("Verdict", lambda row: row.cell),
            Col("What was found", _told),
            sortable=False,
            pdf_rows=kept,
            rest=Markup(),
        )
    )
    return made


def _tiles(report: Report) -> Sequence[Tile]:
    """None where the run gives none of them: the headline says so already."""
    return report.summary.tiles if any(tile.value != UNKNOWN for tile in report.summary.tiles) else ()


def _most_rows(report: Report) -> int:
    """Of what cost most: five, or what --top asks for where that is less."""
    return min(_COSTLIEST, int(report.options.get("top", _COSTLIEST)))


def _most(report: Report) -> str:
    """What the kernel time went to most, where the headline has nothing to add."""
    most = sorted(report.categories, key=lambda share: -share.percent)[:2]
    if not most or not most[0].percent:
        return ""
    named = [f"{share.name}, {percent(share.percent)}" for share in most if share.percent >= _SMALL]
    return f"Most kernel time went to {', then '.join(named)}."


def _told(one: Judged) -> Cell:
    text = one.rule.finding or one.rule.reason or ""
    return word(plain(sentences(text, 300)), full=plain(text), limit=1000)


def _nothing(found: Sequence[Judged]) -> str | None:
    """What stands in the place of the findings where there are none."""
    if not found:
        return None
    if any(one.kind == ISSUE for one in found):
        return "What the rules found costs no time that could be told."
    judging = sum(one.kind == FINE for one in found)
    absent = sum(one.kind == NOT_EVALUATED for one in found)
    told = f"No rule found an issue; {plural(judging, 'rule')} could judge the run." if judging else "No rule could judge the run."
    return told + (f" {plural(absent, 'rule')} had too little data, as said below." if absent else "")


def _listed(found: Sequence[Judged]) -> Sequence[Judged]:
    """The rules with a row of their own: what needs a look, and all that could be evaluated where these are few."""
    evaluated = [one for one in found if one.kind != NOT_EVALUATED]
    return evaluated if len(evaluated) <= _FEW else [one for one in evaluated if one.kind in (ISSUE, ERROR)]


def _kept(report: Report, first: int, listed: Sequence[Judged], found: Sequence[Judged]) -> int:
    """How many of the rows of the verdicts have room on the first page of the PDF; the others are named. Lengths are in points, those of
    pdf.css; estimated, for layout itself comes later."""

    def lines(text: str, wide: int) -> int:
        return -(-len(text) // wide)

    headline, further = first_sentences(report.summary.headline, _HEADLINE)
    room = _PAGE - 17 * lines(headline, 58) - 14 * lines(further, 84) - (22 if report.summary.warnings else 0)
    if tiles := _tiles(report):
        room -= 40 + 10 * max(lines(tile.detail, 15) + (len(tile.value) > 12) * lines(tile.value, 14) for tile in tiles)
    room -= 38 + 26 * first
    room -= 10 * lines(", ".join(one.rule.rule for one in found), 100) + 60  # what names the others
    for number, one in enumerate(listed):
        room -= 4 + 10 * lines(_told(one).text, 84)
        if room < 0:
            return number
    return len(listed)


def _named(left: Sequence[Judged], *, rules: bool) -> list[Markup]:
    """The rules without a row, by their verdict: those that could not be evaluated by what is missing."""
    told = []
    for kind, sign in SIGNS.items():
        named = [one for one in left if one.kind == kind]
        if not named:
            continue
        mark = Markup('<span class="{}">{}</span>').format(sign.mark, sign.text)
        if kind == NOT_EVALUATED:
            why: dict[str, list[Judged]] = {}
            for one in named:
                why.setdefault(re.split(r"[:;,.](?: |$)", plain(one.rule.reason) or "", maxsplit=1)[0], []).append(one)
            most = sorted(why.items(), key=lambda pair: -len(pair[1]))
            listed = [
                say("{} ({})", _names(those), clip(reason, _REASON)) if reason else _names(those) for reason, those in most[:_REASONS]
            ]
            listed += [_names([one for _, those in most[_REASONS:] for one in those])] if len(most) > _REASONS else []
            text = Markup("; ").join(listed)
            more = Markup(' <a href="#{}">What would supply it</a> is told in Rules.').format(ABSENT)
        else:
            text, more = _names(named), Markup()
        told.append(say("{}: {}.{}", mark, text, more if rules else ""))
    if rules and any(one.kind != NOT_EVALUATED for one in left):
        told[0] += Markup(' What each of the rules found is told in <a href="#rules">Rules</a>.')
    return told


def _names(those: Sequence[Judged]) -> Markup:
    return Markup(", ").join(Markup('<a href="#{}">{}</a>').format(one.anchor, clip(one.rule.rule, 40)) for one in those)


def _costs(report: Report) -> Figure | None:
    """Kernel time by category, and the average step of the process that says most by part."""
    made = []
    apart = ""
    if report.categories:
        ordered = sorted(report.categories, key=lambda share: -share.percent)
        head = [(share.name, share.percent, meaning_of(share.name)) for share in ordered[:_PIECES] if share.percent >= _SMALL]
        total = sum(share.total_ns for share in report.categories)
        made.append(_strip(f"Kernel time by category: {duration(total)}", head))
    if report.steps.parts:
        told = telling(report.steps.parts)
        shown = told.part
        apart = wall_and_device(report, shown)
        parts = [
            (part.name, 100.0 * shown.mean_ns.get(key, 0.0) / shown.mean_step_ns, part.meaning)
            for key, part in parts_of([shown]).items()
            if shown.mean_step_ns
        ]
        made.append(
            _strip(
                told.title,
                [part for part in parts if part[1] >= _SMALL],
            )
        )
    made = [strip for strip in made if strip.pieces]
    if not made:
        return None
    alt = "; ".join(f"{strip.title}, most of it {max(strip.pieces, key=lambda p: p.percent).name}" for strip in made)
    return Figure("summary-costs", strips(made), alt, say("What the time was spent on. Parts below 0.5 % are not named.{}", apart))


def _strip(title: str, parts: Sequence[tuple[str, float, str]]) -> Strip:
    shades = shaded(parts)
    pieces = [Piece(sector.name, sector.percent, percent(sector.percent), sector.meaning, sector.shade) for sector in shades]
    if (rest := 100.0 - sum(piece.percent for piece in pieces)) >= _SMALL:
        pieces.append(Piece("further", rest, percent(rest), "other"))
    return Strip(title, pieces)


def _utilisation(report: Report) -> Figure | None:
    """Utilisation of the GPUs, or of the processors, over time."""
    for metric in ("gpu", "cpu"):
        given = [series for series in report.system_usage.series if series.metric == metric and len(series.time_ns) > 1]
        if given:
            shown = spread(given, _NODES, lambda series: sum(series.mean) / len(series.mean))
            named = {series.node for series in shown}
            start = min(series.time_ns[0] for series in shown)
            drawn = lines([panel(metric, shown, named, start)], "time since the first sample", x_time=True, height=64)
            mean = sum(sum(series.mean) / len(series.mean) for series in given) / len(given)
            source = " (derived from kernel activity)" if given[0].derived else ""
            what = "GPU utilisation" if metric == "gpu" else "CPU utilisation"
            more = of_all(len(shown), len(given), "node", "utilisation")
            return Figure(
                "summary-utilisation",
                drawn,
                f"{what} over time, on average {percent(mean)}",
                say("{}{} over time, mean of the units of each node; on average {}.{}", what, source, percent(mean), more),
            )
    return None


def _operators(report: Report) -> Table | None:
    """What cost most where no kernel was recorded."""
    rows = report.framework.cpu_operators[: _most_rows(report)]
    return table(
        "summary-operators",
        f"CPU operators with most time{f', traced {report.steps.traced}' if report.steps.traced else ''}",
        rows,
        Col("Operator", lambda row: row.name, kind="name", limit=60),
        Col("Cumulative time", lambda row: row.total_ns, duration),
        Col("Of operator time", lambda row: row.percent, percent),
        sortable=False,
    )


def _functions(report: Report) -> Table | None:
    """What cost most of a Python profile where neither kernels nor operators were recorded."""
    found = leading_functions(report.python_profile)
    if found is None:
        return None
    group, rows = found
    return table(
        "summary-functions",
        "Python functions with most own time",
        rows[: _most_rows(report)],
        Col("Function", lambda row: word(row.short or row.function, full=row.function, limit=72), kind="name"),
        Col("Own time", lambda row: round(row.total_s * 1e9), duration),
        Col("Of own time", lambda row: percent_of(row.total_s, group.total_s) or 0.0, percent),
        Col("Calls", lambda row: row.calls, count),
        sortable=False,
    )


def _collectives(report: Report) -> Table | None:
    """The collectives of a framework timeline where neither kernels nor operators were recorded."""
    return table(
        "summary-collectives",
        "Collectives with most time",
        report.framework.collectives[: _most_rows(report)],
        Col("Collective", lambda share: share.name, kind="name", limit=60),
        Col("Total", lambda share: share.total_ns, duration),
        Col("Of collective time", lambda share: share.percent, percent),
        Col("Count", lambda share: share.count, count),
        sortable=False,
    )
