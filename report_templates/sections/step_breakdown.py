"""Section "Time of each step": the parts of every step, in the mean and on the ranks that differ most."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from typing import Final

from ...analysis.report.model import Report
from ...analysis.report.steps import StepBar
from ...analysis.steps.step_time import FROM_STEP_TO_STEP, step_times
from ..blocks import Figure, Only, Section, say
from ..blocks.tables import Cell, Col, table
from ..figures.axes import time_unit
from ..figures.stacked_bars import Part
from ..figures.step_bars import Bar, step_bars
from ..figures.svg import SMALL
from ..text import labels
from ..text.formats import count, duration, percent, plural, significant
from .time_breakdown import PARTS, part_times

HIDDEN: Final = Part("hidden communication", "communication", 0.45)
_LONG: Final = 1.5  # times the median; a longer step has a note
_NOTED: Final = 2  # bars with a note at most
_CUT: Final = 3.0  # times the median; a longer step would press all others flat


def step_breakdown(report: Report) -> Section:
    breakdown = report.step_breakdown
    lead = _lead(report)
    section = Section("step-breakdown", "Time of each step", say("{}", lead))
    if not breakdown.mean:
        return section
    what = "Each bar is one step" if breakdown.pooled == 1 else f"Each bar is the mean of {count(breakdown.pooled)} neighboring steps"
    who = f", mean of {plural(breakdown.processes, 'process', 'processes')}" if breakdown.processes > 1 else ""
    if breakdown.devices > 1:
        who += f", of up to {plural(breakdown.devices, 'GPU')} of a process the one that computes most"
    hidden = " Below zero: communication hidden behind computation."
    hidden = hidden if any(bar.hidden_communication_ns for bar in breakdown.mean) else ""
    section.add(
        _figure(
            "step-breakdown-mean",
            breakdown.mean,
            lead,
            f"{what}{who}, from the end of the previous step to its own end on the device.{hidden}",
        )
    )
    for number, rank in enumerate(breakdown.ranks):
        name = labels.device(rank.node, rank.rank, rank.device)
        summary = f"{name}: {_parts(rank.bars)}"
        section.add(Only("html", _figure(f"step-breakdown-rank-{number}", rank.bars, summary, f"{summary}.")))
    section.add(
        table(
            "step-breakdown-table",
            "Mean time per step",
            breakdown.mean,
            Col("Steps", lambda bar: Cell(_label(bar), sort=bar.first), kind="name"),
            Col("Step", lambda bar: bar.step_ns / bar.steps, duration),
            Col("Computation", lambda bar: bar.computation_ns / bar.steps, duration),
            Col("Exposed communication", lambda bar: bar.exposed_communication_ns / bar.steps, duration),
            Col("Exposed memory operations", lambda bar: bar.exposed_memory_ns / bar.steps, duration),
            Col("Idle", lambda bar: bar.idle_ns / bar.steps, duration),
            Col("Hidden communication", lambda bar: bar.hidden_communication_ns / bar.steps, duration),
            pdf_rows=0,
        )
    )
    return section


def _lead(report: Report) -> str:
    breakdown = report.step_breakdown
    if not breakdown.mean:
        return breakdown.absent or "The report was made by a version of postrun that did not divide the single steps."
    who = f" of {plural(breakdown.processes, 'process', 'processes')}" if breakdown.processes > 1 else ""
    times = step_times(report.steps)
    if breakdown.average is None or times is None or times.measure != FROM_STEP_TO_STEP:
        return f"Over {plural(breakdown.steps, 'step')}{who}: {_parts(breakdown.mean)}."
    average = f"{_parts([breakdown.average])}; the mean excludes the first step, because the wait before it is not known"
    return f"The step time is {duration(times.median_ns)} (median). Mean{who}: {average}."


def _parts(bars: Sequence[StepBar]) -> str:
    total_ns = sum(bar.step_ns for bar in bars) or 1
    steps = sum(bar.steps for bar in bars) or 1
    totals = [sum(times) for times in zip(*map(part_times, bars), strict=True)]
    named = ", ".join(f"{percent(100 * total / total_ns)} {part.name}" for total, part in zip(totals, PARTS, strict=True))
    return f"{duration(total_ns / steps)} per step: {named}"


def _label(bar: StepBar) -> str:
    return str(bar.first) if bar.first == bar.last else f"{bar.first}–{bar.last}"


def _figure(id: str, bars: Sequence[StepBar], alt: str, caption: str) -> Figure:
    means = [bar.step_ns / bar.steps for bar in bars]
    usual = sorted(means)[(len(means) - 1) // 2]
    top = max((mean for mean in means if mean <= _CUT * usual), default=max(means)) or max(means) or 1.0
    unit = time_unit(top)
    notes = _notes(bars, usual)
    drawn = [
        Bar(
            _label(bar),
            [time / bar.steps / unit.nanoseconds for time in part_times(bar)],
            bar.hidden_communication_ns / bar.steps / unit.nanoseconds,
            notes.get(number, ""),
        )
        for number, bar in enumerate(bars)
    ]
    cut = sum(mean > top for mean in means)
    more = f" {plural(cut, 'bar')} above {significant(top / unit.nanoseconds)} {unit.name} cut, with the length on top." if cut else ""
    ends = top / unit.nanoseconds
    return Figure(
        id,
        step_bars(PARTS, drawn, HIDDEN, unit.name, top=ends),
        f"Time of each step. {alt}",
        say("{}{}", caption, more),
        small=step_bars(PARTS, drawn, HIDDEN, unit.name, top=ends, width=SMALL),
    )


def _notes(bars: Sequence[StepBar], usual: float) -> dict[int, str]:
    """Write what the longest bars have more than the median one, by their place."""
    means = [[time / bar.steps for time in part_times(bar)] for bar in bars]
    typical = [statistics.median(times) for times in zip(*means, strict=True)]
    longest = sorted(range(len(bars)), key=lambda number: -sum(means[number]))[:_NOTED]
    notes = {}
    for number in longest:
        if sum(means[number]) > _LONG * usual:
            more = [time - median for time, median in zip(means[number], typical, strict=True)]
            part = PARTS[more.index(max(more))]
            notes[number] = f"step {_label(bars[number])}: +{duration(max(more))} {part.name}"
    return notes
