"""The dips, the profile window, and the slow steps of a run, for every figure over its time or over its steps."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from ...analysis.report.first_page import Dip
from ...analysis.report.loop_details import SlowStep, StepOutlierDetails
from ...analysis.report.model import Report
from ...analysis.report.steps import Step
from ..figures.marks import Mark
from ..text.formats import duration, glued
from .actions import brief

WINDOW: Final = "profile window"


def dip_name(number: int, count: int) -> str:
    return "dip" if count == 1 else f"dip {number}"


def dip_label(dip: Dip, number: int, count: int, start: int) -> tuple[str, str]:
    """Return the two parts of the label of a dip: its depth and time, and its causes."""
    causes = glued(", ".join((*dip.rules, *dip.evidence))) or "unexplained"
    times = f"{duration(dip.start_ns - start)} to {duration(dip.end_ns - start)}"
    return f"{dip_name(number, count)} to {brief(dip.mean_percent)}, {times}", f": {causes}"


def slow_steps(report: Report) -> list[tuple[int, SlowStep]]:
    """Return the slowest outliers of StepOutlier with their numbers, longest first."""
    chosen: dict[int, SlowStep] = {}
    for rule in report.rules:
        if isinstance(rule.details, StepOutlierDetails):
            for step in sorted(rule.details.slowest, key=lambda step: -step.duration_ns):
                if step.outlier and step.index is not None:
                    chosen.setdefault(step.index, step)
    return list(chosen.items())


def time_marks(report: Report, origin: int) -> list[Mark]:
    """Return the marks over time, in ns since ``origin``.

    Label and ``more`` together are the words of the job strip. A report without a strip of the job has none.
    A slow step within a dip has no name, because the dip has one.
    """
    strip = report.job_strip
    if strip is None:
        return []
    dips = strip.dips
    marks = []
    for number, dip in enumerate(dips, 1):
        name, words = dip_name(number, len(dips)), "".join(dip_label(dip, number, len(dips), strip.start_ns))
        marks.append(Mark(name, words.removeprefix(name), dip.start_ns - origin, dip.end_ns - origin))
    if strip.window_start_ns is not None and strip.window_end_ns is not None:
        start, end = strip.window_start_ns, strip.window_end_ns
        marks.append(Mark(WINDOW, f", {duration(end - start)}", start - origin, end - origin, "window"))
    for index, step in slow_steps(report):
        within = any(dip.start_ns <= step.start_ns <= dip.end_ns for dip in dips)
        at = step.start_ns - origin
        text = f"slow step {index}"
        words = f"{text if within else ''}, {duration(step.duration_ns)}"
        marks.append(Mark("" if within else text, words, at, at + step.duration_ns, "slow"))
    return marks


def step_marks(report: Report, steps: Sequence[Step], profiled: Sequence[Step]) -> list[Mark]:
    """Return the marks over the numbers of steps; ``profiled``: the profile window."""
    numbers = {step.index for step in steps}
    dips = report.job_strip.dips if report.job_strip is not None else ()
    marks = []
    for number, dip in enumerate(dips, 1):
        inside = [step.index for step in steps if dip.start_ns <= step.start_ns <= dip.end_ns]
        if inside:
            marks.append(Mark(dip_name(number, len(dips)), "", min(inside), max(inside)))
    if profiled:
        marks.append(Mark(WINDOW, "", min(step.index for step in profiled), max(step.index for step in profiled), "window"))
    marks += [
        Mark(f"step {index}: {duration(step.duration_ns)}", "", index, index, "slow")
        for index, step in slow_steps(report)
        if index in numbers
    ]
    return marks
