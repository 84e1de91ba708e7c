"""Verdict on two runs: faster, slower, same or "cannot say", from steps, else repeated ranges, else the same work by counts.

A run that does less work in the same time is slower. So without steps the time is divided by what both runs repeat: annotated ranges that
cover most of the time, or the kernels (else operators) of both runs, if nearly all of them ran less or more often by one factor.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Final

from ..report.comparison import Basis, StepComparison, Verdict
from ..report.framework import AnnotationGroup
from ..report.model import Report
from ..toolkit import wording
from .basis import SAME, SECOND_NS, SURE, UNDECIDED
from .steps import FASTER, FEWEST, SLOWER

CANNOT_SAY: Final = "cannot say"
STEPS: Final = "steps"
RANGES: Final = "ranges"
COUNTS: Final = "counts"

DIFFERENT_PROGRAMS: Final = "These runs execute different programs; compare totals with care."
BOUND_PERCENT: Final = 10.0  # runs are the same only if a larger change is ruled out
_COVERED: Final = 0.5  # share of the captured time that repeated ranges must cover to represent it
_TWICE: Final = 1.1  # ... and above which they overlap: nested ranges, or several threads
_ALIKE: Final = 0.02  # ratios of counts that differ by less are one ratio
_MOST: Final = 0.8  # share of the time of both runs whose counts have one ratio


@dataclass(frozen=True, slots=True)
class Repeated:
    """Something that both runs repeat: the unit of the comparison, and the verdict on its time."""

    basis: Basis
    verdict: Verdict


def of_steps(steps: StepComparison | None, threshold_percent: float) -> Verdict | None:
    """Return the verdict of the step times; None if there are none or too few."""
    if steps is None or steps.verdict == UNDECIDED:
        return None
    low, high = steps.shift_low_percent, steps.shift_high_percent
    assert low is not None
    assert high is not None
    state, text = steps.verdict, steps.text
    if state == SAME and max(abs(low), abs(high)) > max(BOUND_PERCENT, threshold_percent):
        state, text = CANNOT_SAY, f"The steps vary too much to tell: {text[:1].lower()}{text[1:]}"
    return Verdict(state, steps.change_percent, low, high, STEPS, text, steps.base.p50, steps.new.p50)


def none(steps: StepComparison | None, absent: str | None, on: Basis) -> Verdict:
    """Return the verdict without evidence."""
    if steps is not None:
        return Verdict(CANNOT_SAY, steps.change_percent, None, None, None, steps.text)
    why = f"No verdict: {absent}"
    repeated = ", and no range or kernel shows how much work both did" if on.unit == "second" and on.base and on.new else ""
    return Verdict(CANNOT_SAY, None, None, None, None, f"{why}{repeated}.")


def different_programs() -> Verdict:
    """Return the verdict on runs that execute different programs."""
    return Verdict(CANNOT_SAY, None, None, None, None, DIFFERENT_PROGRAMS)


def repeated_ranges(base: Report, new: Report, threshold_percent: float) -> Repeated | None:
    """Compare the mean duration of the annotated range that covers most of both runs."""
    sides = [{(group.name, group.side, group.phase): group for group in report.annotations.groups} for report in (base, new)]
    spans = [max((device.span_ns for device in report.time_breakdown), default=0) for report in (base, new)]
    if not all(spans):
        return None
    best: tuple[float, AnnotationGroup, AnnotationGroup] | None = None
    for key in sides[0].keys() & sides[1].keys():
        groups = [side[key] for side in sides]
        covered = [group.total_ns / group.processes / span for group, span in zip(groups, spans, strict=True) if group.processes]
        if len(covered) < 2 or min(covered) < _COVERED or max(covered) > _TWICE or min(g.quantiles.count for g in groups) < FEWEST:
            continue
        # Of several that cover the time, the shortest range shows its spread best.
        rank = min(group.quantiles.count for group in groups)
        if best is None or (rank, key) > (best[0], (best[1].name, best[1].side, best[1].phase)):
            best = rank, groups[0], groups[1]
    if best is None:
        return None
    _, before, after = best
    first, second = before.quantiles, after.quantiles
    error = SURE * (first.std**2 / (first.count - 1) + second.std**2 / (second.count - 1)) ** 0.5
    percent = 100 * (second.mean - first.mean) / first.mean
    low, high = percent - 100 * error / first.mean, percent + 100 * error / first.mean
    state = judged_by_interval(percent, low, high, threshold_percent)
    text = (
        f"{pace(state, percent, 'A range ' + before.name)}: {wording.duration(first.mean)} before, {wording.duration(second.mean)} now"
        f" (mean of {wording.count(first.count)} and {wording.count(second.count)}, {wording.signed_percent(percent)};"
        f" {interval(low, high)})."
    )
    basis = Basis("range", first.count, second.count, "the runs have no comparable steps", before.name)
    return Repeated(basis, Verdict(state, percent, low, high, RANGES, text, first.mean, second.mean))


def same_work(base: Report, new: Report, threshold_percent: float) -> Repeated | None:
    """Compare the GPU time for the same work, by counts of kernels or operators."""
    spans = [sum(device.span_ns for device in report.time_breakdown) for report in (base, new)]
    if not all(spans):
        return None
    what, work = "kernels", _ratio(*([(k.name, k.count, k.total_ns) for k in report.kernels] for report in (base, new)))
    if work is None:
        what, work = "operators", _ratio(*(_operators(report) for report in (base, new)))
    if work is None:
        return None
    ratio, share, runs = work
    percent = 100 * (spans[1] / ratio / spans[0] - 1)
    edge = 100 * (1 / runs[0] + 1 / runs[1])  # a profile cuts one repetition
    low, high = percent - edge, percent + edge
    state = judged_by_interval(percent, low, high, threshold_percent)
    often = "as often as before" if abs(ratio - 1) < _ALIKE else f"{wording.significant(ratio)} times as often"
    text = (
        f"{pace(state, percent, 'The same work')}: {wording.duration(spans[0])} of GPU time before,"
        f" {wording.duration(spans[1] / ratio)} now ({wording.signed_percent(percent)}, {wording.signed_percent(low)} to"
        f" {wording.signed_percent(high)} with what the edges of the profiles cut). The {what} of both runs, {wording.whole_percent(share)}"
        f" of the time, ran {often}; how much that time varies is not known."
    )
    seconds = spans[0] / SECOND_NS
    basis = Basis("work", seconds, seconds * ratio, "the runs have no comparable steps", what)
    return Repeated(basis, Verdict(state, percent, low, high, COUNTS, text, spans[0], spans[1] / ratio))


def _operators(report: Report) -> list[tuple[str, int, int]]:
    return [(row.name, row.calls, row.total_ns) for row in report.operators.rows] if report.operators else []


def _ratio(base: Iterable[tuple[str, int, int]], new: Iterable[tuple[str, int, int]]) -> tuple[float, float, tuple[int, int]] | None:
    """Return how many times as often the things of both runs ran in ``new``.

    ``base``, ``new``: name, count, time. Further results: the share of the time of both runs, in percent, of the things whose counts have
    this ratio, and their largest counts. None if these have too small a share.
    """
    sides = [{name: (count, time) for name, count, time in side if count} for side in (base, new)]
    shared = sorted(
        (sides[1][name][0] / sides[0][name][0], name)
        for name in sides[0].keys() & sides[1].keys()
        if min(sides[0][name][0], sides[1][name][0]) >= FEWEST
    )
    total = sum(time for side in sides for _, time in side.values())
    if not shared or not total:
        return None
    seen = list(accumulate(_time(sides, name) for _, name in shared))
    ratio = shared[bisect_left(seen, seen[-1] / 2)][0]  # the median, weighted by time
    alike = [name for other, name in shared if abs(other - ratio) <= max(_ALIKE * ratio, 1 / sides[0][name][0])]
    share = sum(_time(sides, name) for name in alike) / total
    if share < _MOST:
        return None
    runs = tuple(max(side[name][0] for name in alike) for side in sides)
    exact = sum(sides[1][name][0] for name in alike) / sum(sides[0][name][0] for name in alike)
    return exact, 100 * share, (runs[0], runs[1])


def _time(sides: Sequence[dict[str, tuple[int, int]]], name: str) -> int:
    return sides[0][name][1] + sides[1][name][1]


def judged_by_interval(percent: float, low: float, high: float, threshold_percent: float) -> str:
    """Decide on a change of the time by its 99% interval."""
    if abs(percent) >= threshold_percent and low * high > 0:
        return SLOWER if percent > 0 else FASTER
    return SAME if max(abs(low), abs(high)) <= max(BOUND_PERCENT, threshold_percent) else CANNOT_SAY


def pace(state: str, percent: float, subject: str) -> str:
    """Word a state: "A step takes 8.1% longer"."""
    if state in (SLOWER, FASTER):
        return f"{subject} takes {wording.percent(abs(percent))} {'longer' if state == SLOWER else 'less time'}"
    return f"{subject} takes as long as before" if state == SAME else f"{subject} varies too much to tell"


def interval(low: float, high: float) -> str:
    """Word the 99% interval of a change: "99% interval -1.2% to +0.9%"."""
    return f"99% interval {wording.signed_percent(low)} to {wording.signed_percent(high)}"
