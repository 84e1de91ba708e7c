"""What must a reader know after ten seconds? The first page: headline, tiles, what to do first, all verdicts."""

from __future__ import annotations

from collections.abc import Sequence

from markupsafe import Markup

from ...analysis.report import Report
from ..blocks import Cell, Column, Figure, Section, Table, meaning_of, of_all, plain, say, spread, table, value, word
from ..figures.donut import shaded
from ..figures.lines import lines
from ..figures.strips import Piece, Strip, strips
from ..formats import clip, duration, percent, plural, sentences
from .findings import FIRST, Advice, findings, overlap
from .steps import parts_of, telling
from .system_usage import panel
from .time_breakdown import FIRST_PAGE, bars, wasted
from .verdicts import ABSENT, FINE, INFORMATION, NOT_EVALUATED, SIGNS, Judged, counted, judged

_PAGE = 565  # points of a page of the smaller paper, less title, captions and the lines of what is left out
_NODES = 3
_PIECES = 7
_SMALL = 0.5  # percent; less is not to be seen in a strip
# What stands behind the names of rules that the first page of the PDF has no rows for.
_MORE = {
    FINE: Markup('What each of them found is told in <a href="#rules">Rules</a>.'),
    INFORMATION: Markup('Their figures are told in <a href="#rules">Rules</a>.'),
    NOT_EVALUATED: Markup('<a href="#{}">Why, and what would supply it</a>, is told in Rules.').format(ABSENT),
}


def summary(report: Report) -> Section:
    made = Section("summary", "Summary", say("{}", report.summary.headline))
    shown = spread(report.time_breakdown, FIRST_PAGE, wasted)
    if shown:
        more = of_all(len(shown), len(report.time_breakdown), "device", "time without computation")
        made.add(bars("summary-time", shown, say("Where the time of each GPU went, in percent of its span.{}", more)))
    made.add(
        _costs(report),
        _utilisation(report),
        table(
            "summary-kernels",
            "Longest kernels",
            [
                Column("#", "number"),
                Column("Kernel", "name"),
                Column("Category"),
                Column("Precision"),
                Column("Total", "number"),
                Column("Of kernel time", "number"),
            ],
            [
                [
                    Cell(str(number)),
                    word(kernel.short_name, full=kernel.name, limit=60),
                    word(kernel.category),
                    word(kernel.precision),
                    value(kernel.total_ns, duration),
                    value(kernel.share_of_kernel_time, percent),
                ]
                for number, kernel in enumerate(report.kernels[:5], 1)
            ],
            sortable=False,
        ),
    )
    if not report.kernels:
        made.add(_operators(report))
    first = findings(report)[:FIRST]
    made.facts["findings"], made.facts["note"] = first, overlap(first)
    found = judged(report)
    rows = [[one.name, one.cell, _told(one, first)] for one in found]
    kept = _kept(report, first, found, rows)
    line = _rest(found[kept:])
    made.facts["unlisted"] = None if kept else line
    made.add(
        table(
            "summary-rules",
            f"Rules: {counted(found)}",
            [Column("Rule", "name"), Column("Verdict"), Column("What was found")],
            rows,
            pdf_rows=kept,
            rest=line,
        )
    )
    return made


def _told(one: Judged, above: Sequence[Advice]) -> Cell:
    """The finding in a sentence; what stands above already is not said twice."""
    advice = next((advice for advice in above if advice.rank == one.rank), None)
    if advice is None:
        text = one.rule.finding or one.rule.reason or ""
        return word(plain(sentences(text, 300)), full=plain(text), limit=1000)
    return Cell(
        f"Finding {advice.rank} above: " + (f"costs {advice.cost}." if advice.costs else f"triggered {plural(one.rule.triggered, 'time')}.")
    )


def _kept(report: Report, first: Sequence[Advice], found: Sequence[Judged], rows: Sequence[Sequence[Cell]]) -> int:
    """How many rows of the verdicts the PDF has on its first page: not those of rules that could not be evaluated, and those of rules that
    are fine or inform only if all of them fit. Lengths are in points, those of pdf.css; estimated, for layout itself comes later."""

    def lines(text: str, wide: int) -> int:
        return -(-len(text) // wide)

    room = _PAGE - 17 * lines(report.summary.headline, 58) - (22 if report.summary.warnings else 0)
    if report.summary.tiles:
        room -= 40 + 10 * max(lines(tile.detail, 15) + (len(tile.value) > 12) * lines(tile.value, 14) for tile in report.summary.tiles)
    if first:
        room -= 38 + sum(10 + 10 * max(2, lines(one.title + one.rule + (one.where or ""), 62) + lines(one.evidence, 74)) for one in first)
    needed = [4 + 10 * lines(row[-1].text, 84) for row in rows]
    evaluated = sum(one.kind != NOT_EVALUATED for one in found)
    if sum(needed[:evaluated]) <= room:
        return evaluated
    return sum(one.kind not in (NOT_EVALUATED, FINE, INFORMATION) for one in found)


def _rest(left: Sequence[Judged]) -> Markup | None:
    """The rules that the table leaves out, by their verdict, on a line each."""
    told = []
    for kind, more in _MORE.items():
        named = [one for one in left if one.kind == kind]
        if named:
            sign = Markup('<span class="{}">{}</span>').format(SIGNS[kind].mark, SIGNS[kind].text)
            names = ", ".join(clip(one.rule.rule, 40) for one in named)
            told.append(say("{}: {}. {}", sign, names, more))
    return Markup("<br>").join(told) if told else None


def _costs(report: Report) -> Figure | None:
    """Kernel time by category, and the average step of the process that says most by part."""
    made = []
    if report.categories:
        ordered = sorted(report.categories, key=lambda share: -share.percent)
        head = [(share.name, share.percent, meaning_of(share.name)) for share in ordered[:_PIECES] if share.percent >= _SMALL]
        total = sum(share.total_ns for share in report.categories)
        made.append(_strip(f"Kernel time by category: {duration(total)}", head))
    if report.steps.parts:
        told = telling(report.steps.parts)
        shown = told.part
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
    return Figure("summary-costs", strips(made), alt, say("What the time was spent on. Parts below 0.5 % are not named."))


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
    rows = report.framework.cpu_operators[:5]
    return table(
        "summary-operators",
        "CPU operators with most time",
        [Column("Operator", "name"), Column("Cumulative time", "number"), Column("Of operator time", "number")],
        [[word(row.name, limit=60), value(row.total_ns, duration), value(row.percent, percent)] for row in rows],
        sortable=False,
    )
