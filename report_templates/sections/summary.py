"""The first page: headline, tiles, what to do first, and all verdicts."""

from __future__ import annotations

import itertools
import re
from collections.abc import Sequence

from markupsafe import Markup

from ...analysis.framework.host_records import leading_functions
from ...analysis.report.model import Report
from ...analysis.report.run import Tile
from ..blocks import Figure, Section, meaning_of, of_all, plain, say, spread
from ..blocks.tables import Cell, Col, Table, table, word
from ..figures.donut import shaded
from ..figures.lines import lines
from ..figures.strips import Piece, Strip, strips
from ..text import labels
from ..text.formats import UNKNOWN, clip, count, duration, first_sentences, glued, numbered, percent, percent_of, plural, sentences
from ..text.signs import ERROR, FINE, ISSUE, NOT_EVALUATED, SIGNS
from .steps import parts_of, telling, wall_and_device
from .system_usage import panel
from .time_breakdown import FIRST_PAGE, bars, wasted
from .verdicts import ABSENT, FIRST, Judged, counted, findings, judged, overlap

_PAGE = 600  # points of a page of the smaller paper, less title, captions and margins
_SMALL = 0.5  # percent; less is invisible in a strip
_COSTLIEST = 5
_HEADLINE = 2  # sentences in large type
_MAX_ROWS = 6  # rules with a verdict; if there are more, those without an issue have no rows
_REASONS = 4
_REASON = 100  # letters of a reason


def summary(report: Report, *, rules: bool = True) -> Section:
    """Make the first page. ``rules``: whether the report has that section."""
    headline, further = first_sentences(numbered(glued(report.summary.headline)), _HEADLINE)
    section = Section("summary", "Summary", say("{}", headline))
    section.facts["further"] = further or _most(report)
    section.facts["tiles"] = _tiles(report)
    drawn = spread(report.time_breakdown, FIRST_PAGE, wasted)
    if drawn:
        more = of_all(len(drawn), len(report.time_breakdown), "device", "time without computation")
        section.add(bars("summary-time", drawn, say("Where the time of each GPU went, in percent of its span.{}", more)))
    numbers = itertools.count(1)
    section.add(
        _costs(report),
        _utilization(report),
        table(
            "summary-kernels",
            "Longest kernels",
            report.kernels[: _most_rows(report)],
            Col("#", lambda _: next(numbers), str),
            Col("Kernel", lambda kernel: word(kernel.short_name, full=kernel.name, limit=60), kind="name", code=True),
            Col("Category", lambda kernel: labels.category(kernel.category)),
            Col("Precision", lambda kernel: kernel.precision),
            Col("Total", lambda kernel: kernel.total_ns, duration),
            Col("Of kernel time", lambda kernel: kernel.share_of_kernel_time, percent),
            sortable=False,
        ),
    )
    if not report.kernels:
        section.add(_operators(report))
    if not report.kernels and not report.framework.cpu_operators:
        section.add(_functions(report), _collectives(report))
    first = findings(report)[:FIRST]
    section.facts["findings"], section.facts["note"] = first, overlap(first)
    verdicts = judged(report)
    section.facts["nothing"] = None if first else _nothing(verdicts)
    listed = _listed(verdicts)
    kept = _kept(report, len(first), listed, verdicts)
    section.facts["counted"] = f"Rules: {counted(verdicts)}" if verdicts else None
    section.facts["named"] = _named(verdicts[len(listed) :], rules=rules)
    section.facts["unlisted"] = _named(verdicts[kept:], rules=rules)
    section.add(
        table(
            "summary-rules",
            f"Rules: {counted(verdicts)}",
            listed,
            Col("Rule", lambda row: row.name, kind="name"),
            Col("Verdict", lambda row: row.cell),
            Col("What was found", _finding),
            sortable=False,
            pdf_rows=kept,
            rest=Markup(),
        )
    )
    return section


def _tiles(report: Report) -> Sequence[Tile]:
    """Return the tiles, or none if all are unknown, which the headline states."""
    return report.summary.tiles if any(tile.value != UNKNOWN for tile in report.summary.tiles) else ()


def _most_rows(report: Report) -> int:
    """Return the number of rows of the tables: five, or --top if that is less."""
    return min(_COSTLIEST, int(report.options.get("top", _COSTLIEST)))


def _most(report: Report) -> str:
    """Name the categories with the largest kernel times."""
    most = sorted(report.categories, key=lambda share: -share.percent)[:2]
    if not most or not most[0].percent:
        return ""
    named = [f"{labels.category(share.name)}, {percent(share.percent)}" for share in most if share.percent >= _SMALL]
    return f"Most kernel time went to {', then '.join(named)}."


def _finding(verdict: Judged) -> Cell:
    text = verdict.rule.finding or verdict.rule.reason or ""
    return word(plain(sentences(text, 300)), full=plain(text), limit=1000)


def _nothing(verdicts: Sequence[Judged]) -> str | None:
    """Write the text that replaces missing findings."""
    if not verdicts:
        return None
    if any(one.kind == ISSUE for one in verdicts):
        return "The rules found issues without a cost in time."
    judging = sum(one.kind == FINE for one in verdicts)
    absent = sum(one.kind == NOT_EVALUATED for one in verdicts)
    text = f"No rule found an issue; {plural(judging, 'rule')} could evaluate the run." if judging else "No rule could evaluate the run."
    return text + (f" {plural(absent, 'rule')} had too little data, as listed below." if absent else "")


def _listed(verdicts: Sequence[Judged]) -> Sequence[Judged]:
    """Choose the rules with rows: issues and errors, or all evaluated ones if few."""
    evaluated = [one for one in verdicts if one.kind != NOT_EVALUATED]
    return evaluated if len(evaluated) <= _MAX_ROWS else [one for one in evaluated if one.kind in (ISSUE, ERROR)]


def _kept(report: Report, first: int, listed: Sequence[Judged], verdicts: Sequence[Judged]) -> int:
    """Estimate the number of verdict rows that fit on the first page of the PDF.

    Lengths are in points, from pdf.css; the layout itself follows later.
    """

    def lines(text: str, wide: int) -> int:
        return -(-len(text) // wide)

    headline, further = first_sentences(report.summary.headline, _HEADLINE)
    room = _PAGE - 17 * lines(headline, 58) - 14 * lines(further, 84) - (22 if report.summary.warnings else 0)
    if tiles := _tiles(report):
        room -= 40 + 10 * max(lines(tile.detail, 15) + (len(tile.value) > 12) * lines(tile.value, 14) for tile in tiles)
    room -= 38 + 26 * first
    room -= 10 * lines(", ".join(one.rule.rule for one in verdicts), 100) + 60  # names of the others
    for number, verdict in enumerate(listed):
        room -= 4 + 10 * lines(_finding(verdict).text, 84)
        if room < 0:
            return number
    return len(listed)


def _named(left: Sequence[Judged], *, rules: bool) -> list[Markup]:
    """Name the rules without rows by verdict, or by the missing data."""
    items = []
    for kind, sign in SIGNS.items():
        named = [one for one in left if one.kind == kind]
        if not named:
            continue
        mark = Markup('<span class="{}">{}</span>').format(sign.mark, sign.text)
        if kind == NOT_EVALUATED:
            why: dict[str, list[Judged]] = {}
            for verdict in named:
                why.setdefault(re.split(r"[:;,.](?: |$)", plain(verdict.rule.reason) or "", maxsplit=1)[0], []).append(verdict)
            most = sorted(why.items(), key=lambda pair: -len(pair[1]))
            listed = [
                say("{} ({})", _names(those), clip(reason, _REASON)) if reason else _names(those) for reason, those in most[:_REASONS]
            ]
            listed += [_names([one for _, those in most[_REASONS:] for one in those])] if len(most) > _REASONS else []
            text = Markup("; ").join(listed)
            more = Markup(' <a href="#{}">What would supply it</a> is listed in Rules.').format(ABSENT)
        else:
            text, more = _names(named), Markup()
        items.append(say("{}: {}.{}", mark, text, more if rules else ""))
    if rules and any(one.kind != NOT_EVALUATED for one in left):
        items[0] += Markup(' What each of the rules found is told in <a href="#rules">Rules</a>.')
    return items


def _names(those: Sequence[Judged]) -> Markup:
    return Markup(", ").join(Markup('<a href="#{}">{}</a>').format(one.anchor, clip(one.rule.rule, 40)) for one in those)


def _costs(report: Report) -> Figure | None:
    """Draw kernel time by category, and an average step by part."""
    drawn = []
    apart = ""
    if report.categories:
        ordered = sorted(report.categories, key=lambda share: -share.percent)
        head = [(labels.category(share.name), share.percent, meaning_of(share.name)) for share in ordered[:7] if share.percent >= _SMALL]
        total = sum(share.total_ns for share in report.categories)
        drawn.append(_strip(f"Kernel time by category: {duration(total)}", head))
    if report.steps.parts:
        inference = report.program is not None and report.program.kind == "inference"
        example = telling(report.steps.parts, "iteration" if inference else "step")
        breakdown = example.part
        apart = wall_and_device(report, breakdown)
        parts = [
            (part.name, 100.0 * breakdown.mean_ns.get(key, 0.0) / breakdown.mean_step_ns, part.meaning)
            for key, part in parts_of([breakdown]).items()
            if breakdown.mean_step_ns
        ]
        drawn.append(_strip(example.title, [part for part in parts if part[1] >= _SMALL]))
    drawn = [strip for strip in drawn if strip.pieces]
    if not drawn:
        return None
    alt = "; ".join(f"{strip.title}, most of it {max(strip.pieces, key=lambda p: p.percent).name}" for strip in drawn)
    return Figure("summary-costs", strips(drawn), alt, say("What the time was spent on. Parts below 0.5% are not named.{}", apart))


def _strip(title: str, parts: Sequence[tuple[str, float, str]]) -> Strip:
    shades = shaded(parts)
    pieces = [Piece(sector.name, sector.percent, percent(sector.percent), sector.meaning, sector.shade) for sector in shades]
    if (rest := 100.0 - sum(piece.percent for piece in pieces)) >= _SMALL:
        pieces.append(Piece("further", rest, percent(rest), "other"))
    return Strip(title, pieces)


def _utilization(report: Report) -> Figure | None:
    """Draw the utilization of the GPUs, or of the processors, over time."""
    for metric in ("gpu", "cpu"):
        sampled = [series for series in report.system_usage.series if series.metric == metric and len(series.time_ns) > 1]
        if sampled:
            selected = spread(sampled, 3, lambda series: sum(series.mean) / len(series.mean))
            named = {series.node for series in selected}
            start = min(series.time_ns[0] for series in selected)
            drawn = lines([panel(metric, selected, named, start)], "time since the first sample", x_time=True, height=64)
            mean = sum(sum(series.mean) / len(series.mean) for series in sampled) / len(sampled)
            source = " (derived from kernel activity)" if sampled[0].derived else ""
            what = "GPU utilization" if metric == "gpu" else "CPU utilization"
            more = of_all(len(selected), len(sampled), "node", "utilization")
            return Figure(
                "summary-utilization",
                drawn,
                f"{what} over time, on average {percent(mean)}",
                say("{}{} over time, mean of the units of each node; on average {}.{}", what, source, percent(mean), more),
            )
    return None


def _operators(report: Report) -> Table | None:
    """List the most costly operators of a run without kernels."""
    rows = report.framework.cpu_operators[: _most_rows(report)]
    return table(
        "summary-operators",
        f"CPU operators with most time{f', traced {report.steps.traced}' if report.steps.traced else ''}",
        rows,
        Col("Operator", lambda row: row.name, kind="name", code=True, limit=60),
        Col("Cumulative time", lambda row: row.total_ns, duration),
        Col("Of operator time", lambda row: row.percent, percent),
        sortable=False,
    )


def _functions(report: Report) -> Table | None:
    """List the most costly Python functions of a run without kernels and operators."""
    functions = leading_functions(report.python_profile)
    if functions is None:
        return None
    group, rows = functions
    return table(
        "summary-functions",
        "Python functions with most own time",
        rows[: _most_rows(report)],
        Col("Function", lambda row: word(row.short or row.function, full=row.function, limit=72), kind="name", code=True),
        Col("Own time", lambda row: round(row.total_s * 1e9), duration),
        Col("Of own time", lambda row: percent_of(row.total_s, group.total_s) or 0.0, percent),
        Col("Calls", lambda row: row.calls, count),
        sortable=False,
    )


def _collectives(report: Report) -> Table | None:
    """List the collectives of a run without kernels and operators."""
    return table(
        "summary-collectives",
        "Collectives with most time",
        report.framework.collectives[: _most_rows(report)],
        Col("Collective", lambda share: share.name, kind="name", code=True, limit=60),
        Col("Total", lambda share: share.total_ns, duration),
        Col("Of collective time", lambda share: share.percent, percent),
        Col("Count", lambda share: share.count, count),
        sortable=False,
    )
