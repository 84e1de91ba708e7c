"""How long did the annotated ranges take?"""

from __future__ import annotations

from collections.abc import Sequence

from ...analysis.report import AnnotationGroup, Report
from ..blocks import Column, Figure, Section, say, table, value, word
from ..figures.histogram import panels
from ..formats import clip, count, duration, plural
from .distribution import bins_of, worth_drawing

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
    made.add(_figure([group for name in found.histograms for group in found.groups if group.name == name][:_FIGURES]))
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
            pdf_rows=8,
        )
    )
    return made


def _figure(groups: Sequence[AnnotationGroup]) -> Figure | None:
    """A panel per group; those of few or nearly equal values are named in a sentence instead."""
    drawn = [group for group in groups if worth_drawing(group.quantiles)]
    same = [group for group in groups if not worth_drawing(group.quantiles)]
    if not drawn:
        return None
    details = []
    for group in drawn:
        found = group.quantiles
        tail = (
            f"{count(group.histogram.beyond)} above {duration(group.histogram.edges[-1])} not drawn"
            if group.histogram.beyond
            else f"p95 {duration(found.p95)}"
        )
        details.append(f"{plural(found.count, 'range')}, median {duration(found.p50)}, {tail}")
    named = [f"{_name(group)} ({duration(group.quantiles.p50)})" for group in same]
    constant = say(" Few or nearly equal values, and so not drawn: {}.", ", ".join(named)) if same else ""
    first = drawn[0]
    return Figure(
        "annotations-histograms",
        panels(
            [bins_of(_name(group), group.histogram, group.quantiles.p50) for group in drawn],
            details,
            ["computation" if group.side == "device" else "host" for group in drawn],
        ),
        f"Durations of {plural(len(drawn), 'annotated range')}: {_name(first)}, {details[0]}",
        say("Durations, each with its own axis; dashed: the median. Two humps are two kinds of work under one name.{}", constant),
    )


def _name(group: AnnotationGroup) -> str:
    return clip(group.name, 40) + (f" ({group.phase})" if group.phase and group.phase != group.name else "") + f" on the {group.side}"
