"""How long did the annotated ranges take?"""

from __future__ import annotations

from ...analysis.report import AnnotationGroup, Report
from ..blocks import Column, Figure, Section, say, table, value, word
from ..figures.histogram import Bins, histogram
from ..formats import clip, count, duration, percent, plural

_FIGURES = 8


def annotated_ranges(report: Report) -> Section:
    found = report.annotations
    if not found.groups:
        lead = say(
            "{}", found.absent or "No range is annotated in this run: mark ranges with record_function, NVTX or postrun.capture.annotate."
        )
        return Section("annotations", "Annotations", lead)
    longest = max(found.groups, key=lambda group: group.total_ns)
    made = Section(
        "annotations",
        "Annotations",
        say(
            "{} are annotated; most time was spent in {}: {} over {}, median {}.",
            plural(len(found.groups), "kind of range", "kinds of ranges"),
            clip(longest.name, 60),
            duration(longest.total_ns),
            plural(longest.quantiles.count, "range"),
            duration(longest.quantiles.p50),
        ),
    )
    drawn = [group for name in found.histograms for group in found.groups if group.name == name and any(group.histogram.counts)]
    for number, group in enumerate(drawn[:_FIGURES]):
        made.add(_figure(group, number))
    made.add(
        table(
            "annotations-table",
            "Annotated ranges, by name without its number",
            [
                Column("Name", "name"),
                Column("Side"),
                Column("Phase", html_only=True),
                Column("Processes", "number"),
                Column("Count", "number"),
                Column("Total", "number"),
                *(Column(label, "number") for label in ("p50", "p95", "max")),
            ],
            [
                [
                    word(group.name, limit=64),
                    word(group.side),
                    word(group.phase),
                    value(group.processes, count),
                    value(group.quantiles.count, count),
                    value(group.total_ns, duration),
                    value(group.quantiles.p50, duration),
                    value(group.quantiles.p95, duration),
                    value(group.quantiles.max, duration),
                ]
                for group in found.groups
            ],
        )
    )
    return made


def _figure(group: AnnotationGroup, number: int) -> Figure:
    name = clip(group.name, 60) + (f" ({group.phase})" if group.phase else "")
    quantiles = group.quantiles
    spread = percent(100.0 * quantiles.std / quantiles.mean) if quantiles.mean else "–"
    finding = (
        f"{plural(quantiles.count, 'range')}, median {duration(quantiles.p50)}, p95 {duration(quantiles.p95)}, "
        f"deviation {spread} of the mean"
    )
    meaning = "computation" if group.side == "device" else "host"
    drawn = histogram(
        [Bins("", group.histogram.edges, group.histogram.counts, quantiles.p50)], meaning, "ranges", logarithmic=group.histogram.logarithmic
    )
    return Figure(
        f"annotations-{number}",
        drawn,
        f"Durations of {name} on the {group.side}: {finding}",
        say("{} on the {}: {}.", name, group.side, finding),
    )
