"""Section "Annotations": the durations of annotated ranges, and the counters that the program recorded."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence, Set

from markupsafe import Markup

from ...analysis.report.framework import AnnotationGroup
from ...analysis.report.machine import CounterSeries
from ...analysis.report.model import Report
from ..blocks import Block, Details, Figure, Only, Section, bins_of, say, spread, worth_drawing
from ..blocks.tables import Col, Table, table
from ..figures.histogram import panels
from ..figures.lines import Line, Panel, lines
from ..figures.svg import THIRD
from ..text import labels
from ..text.formats import UNKNOWN, clip, count, duration, plural, significant

_FIGURES = 8
_FURTHER = 48  # histograms of the HTML besides the chosen ones
_DRAWN = 6  # counters over time
_NAMED = 4
_Twins = Set[tuple[str, str]]
_DRAWABLE = 1e100  # axes of larger numbers, or of smaller ones than its inverse, are of no use, and their length may be no number


def annotated_ranges(report: Report) -> Section:
    ranges = report.annotations
    if not ranges.groups and report.counters:
        names = list(dict.fromkeys(series.name for series in report.counters))
        listed = ", ".join(clip(name, 40) for name in names[:_NAMED]) + (" and others" if len(names) > _NAMED else "")
        lead = say("No range is annotated; {}: {}.", plural(len(names), "counter"), listed)
        return Section("annotations", "Annotations", lead, [None, None, *_over_time(report), _counters(report)])
    if not ranges.groups:
        lead = say(
            "{}", ranges.absent or "No range is annotated in this run: mark ranges with record_function, NVTX or postrun.capture.annotate."
        )
        return Section("annotations", "Annotations", lead)
    longest = max(ranges.groups, key=lambda group: group.total_ns)
    lead = say(
        "{} annotated. The largest is {}: {} over {}{}, median {}.",
        plural(len(ranges.groups), "range name is", "range names are"),
        clip(longest.name, 60),
        duration(longest.total_ns),
        plural(longest.quantiles.count, "range"),
        f" of {plural(longest.processes, 'process', 'processes')}" if longest.processes > 1 else "",
        duration(longest.quantiles.p50),
    )
    twins = _twins(ranges.groups)
    first = [group for name in ranges.histograms for group in ranges.groups if group.name == name][:_FIGURES]
    blocks: list[Block | Only] = [_figure(first, twins)]
    further = [group for group in ranges.groups if group not in first and worth_drawing(group.quantiles)]
    if further:
        rest = f", those with the most time of {count(len(further))}" if len(further) > _FURTHER else ""
        summary = f"Durations of {plural(min(len(further), _FURTHER), 'further name')}{rest}"
        figures = [
            _figure(further[at : min(at + _FIGURES, _FURTHER)], twins, f"annotations-further-{number}")
            for number, at in enumerate(range(0, min(len(further), _FURTHER), _FIGURES), 1)
        ]
        blocks.append(Only("html", Details(summary, figures, "annotations-further")))
    phases = any(group.phase for group in ranges.groups)
    blocks.append(
        table(
            "annotations-table",
            "Annotated ranges (trailing numbers removed)" + (" and by phase" if phases else ""),
            ranges.groups,
            Col("Name", lambda group: group.name, kind="name", limit=64),
            Col("Phase", lambda group: group.phase, kind="name", limit=64, when=phases),
            Col("Side", lambda group: group.side),
            Col("Source", lambda group: ", ".join(group.formats), html_only=True, when=bool(twins)),
            Col("Processes", lambda group: group.processes, count, html_only=phases),
            Col("Count", lambda group: group.quantiles.count, count),
            Col("Total", lambda group: group.total_ns, duration),
            Col("p50", lambda group: group.quantiles.p50, duration),
            Col("p95", lambda group: group.quantiles.p95, duration),
            Col("max", lambda group: group.quantiles.max, duration),
            pdf_rows=8,
        )
    )
    return Section("annotations", "Annotations", lead, [*blocks, *_over_time(report), _counters(report)])


def _over_time(report: Report) -> list[Figure]:
    """Draw a figure per counter, with a line per process."""
    drawable = [series for series in report.counters if _drawable(series)]
    values: Counter[str] = Counter()
    for series in drawable:
        values[series.name] += series.values
    most = sorted(values, key=lambda name: -values[name])[:_DRAWN]
    start = report.run.started_at_ns
    if start is None:
        start = min((series.time_ns[0] for series in report.counters if series.time_ns), default=0)
    figures = []
    for number, name in enumerate((name for name in values if name in most), 1):
        those = [series for series in drawable if series.name == name]
        chosen = spread(those, _NAMED, lambda series: series.last or 0.0)
        of_processes = (
            say(" {} of {} processes are drawn.", count(len(chosen)), count(len(those))) if len(chosen) < len(those) else Markup("")
        )
        of_counters = (
            say(" {} of {} counters are drawn.", count(len(most)), count(len(values)))
            if number == 1 and len(most) < len(values)
            else Markup("")
        )
        ends = f"{clip(name, 40)}, from {_number(chosen[0].first)} to {_number(chosen[0].last)}"
        curves = [Line(labels.process(s.node, s.rank, s.pid), [t - start for t in s.time_ns], s.mean, s.low, s.high) for s in chosen]
        figures.append(
            Figure(
                f"annotations-counter-{number}",
                lines([Panel(clip(name, 60), curves)], "time since the start of the run", x_time=True, height=58, width=THIRD),
                f"Counter {ends}",
                say("Counter {}.{}{}", ends, of_processes, of_counters),
            )
        )
    return figures


def _drawable(series: CounterSeries) -> bool:
    largest = max(abs(series.min or 0), abs(series.max or 0))
    return len(series.time_ns) > 1 and (largest == 0 or 1 / _DRAWABLE < largest < _DRAWABLE)


def _counters(report: Report) -> Table | None:
    every = report.counters
    odd = [series for series in every if series.not_finite]
    note = None
    if odd:
        start = report.run.started_at_ns or 0
        values = "; ".join(
            f"{clip(series.name, 40)} of {labels.process(series.node, series.rank, series.pid)}: {count(series.not_finite)},"
            f" the first after {duration((series.first_not_finite_ns or 0) - start)}"
            for series in odd[:_NAMED]
        )
        others = " and others" if len(odd) > _NAMED else ""
        note = f"Values that are no finite number (NaN, infinite) are in no other figure: {values}{others}."
    return table(
        "annotations-counters",
        "Counters",
        every,
        Col("Name", lambda series: series.name, kind="name", limit=64),
        Col("Process", lambda series: labels.process(series.node, series.rank, series.pid)),
        Col("Values", lambda series: series.values, count),
        Col("Not finite", lambda series: series.not_finite, count, when=bool(odd)),
        Col("First", lambda series: series.first, _number),
        Col("Last", lambda series: series.last, _number),
        Col("Lowest", lambda series: series.min, _number),
        Col("Highest", lambda series: series.max, _number),
        pdf_rows=8,
        note=note,
    )


def _number(value: float | None) -> str:
    if value is None:
        return UNKNOWN
    plain = value == 0 or 1e-6 <= abs(value) < 1e15
    return significant(value) if plain else f"{value:.3g}".replace("-", "−")


def _figure(groups: Sequence[AnnotationGroup], twins: _Twins, id: str = "annotations-histograms") -> Figure | None:
    """Draw a panel per group; only name groups of few or nearly equal values."""
    drawn = [group for group in groups if worth_drawing(group.quantiles)]
    same = [group for group in groups if not worth_drawing(group.quantiles)]
    if not drawn:
        return None
    details = [
        f"{plural(found.count, 'range')}, median {duration(found.p50)}, p95 {duration(found.p95)}"
        for found in (group.quantiles for group in drawn)
    ]
    sides = sorted({group.side for group in groups})
    named = [f"{_name(group, sides, twins)} ({duration(group.quantiles.p50)})" for group in same]
    constant = say(" Not drawn (too few or nearly equal values): {}.", ", ".join(named)) if same else ""
    first = drawn[0]
    bins = [bins_of(_name(group, sides, twins), group.histogram, group.quantiles.p50) for group in drawn]
    meanings = ["computation" if group.side == "device" else "host" for group in drawn]
    return Figure(
        id,
        panels(bins, details, meanings),
        f"Durations of {plural(len(drawn), 'annotated range')}: {_name(first, sides, twins)}, {details[0]}",
        say(
            "Durations{}, each with its own axis; dashed: the median. Two peaks suggest two kinds of work under one name.{}",
            f" on the {sides[0]}" if len(sides) == 1 else "",
            constant,
        ),
        small=panels(bins, details, meanings, columns=1),
    )


def _name(group: AnnotationGroup, sides: Sequence[str], twins: _Twins) -> str:
    """Name a group, with its side if there are two, and its source if it has a twin."""
    phase = f" ({group.phase})" if group.phase and group.phase != group.name else ""
    source = f", {', '.join(group.formats)}" if (group.name, group.side) in twins else ""
    return clip(group.name, 40) + phase + (f" on the {group.side}" if len(sides) > 1 else "") + source


def _twins(groups: Sequence[AnnotationGroup]) -> _Twins:
    """Return the names and sides that groups of several formats have."""
    sources: dict[tuple[str, str], set[tuple[str, ...]]] = {}
    for group in groups:
        sources.setdefault((group.name, group.side), set()).add(group.formats)
    return {key for key, formats in sources.items() if len(formats) > 1}
