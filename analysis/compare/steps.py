"""Step times of two runs, compared by a rank test: slower, faster, or within their spread."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import replace
from typing import Final

import polars as pl

from ..report.comparison import Spread, StepComparison
from ..report.model import Report
from ..steps.step_time import DEVICE, FROM_STEP_TO_STEP, HOST, from_step_to_step, main_steps, per_step
from ..toolkit import wording
from ..toolkit.quantiles import bin_counts, duration_histogram, quantile
from ..toolkit.rank_test import RankTest, rank_test
from .basis import SAME, SURE, UNDECIDED

SLOWER: Final = "slower"
FASTER: Final = "faster"

LEVEL: Final = 0.01  # largest probability of a difference by chance that counts as a real difference
FEWEST: Final = 5  # steps per run; with fewer, no order of the values is rarer than LEVEL


def compare_steps(base: Report, new: Report, threshold_percent: float) -> tuple[StepComparison | None, StepComparison | None, str | None]:
    """Compare the steps, and their GPU work next to it, or state why not."""
    sides = [main_steps(report.steps.steps) for report in (base, new)]
    lacking = [side for side, steps in zip(("base", "new"), sides, strict=True) if not steps]
    if lacking:
        return None, None, f"{' and '.join(lacking)} {'have' if len(lacking) > 1 else 'has'} no steps"
    if all(step.on_device for steps in sides for step in steps):
        periods = [from_step_to_step(steps) for steps in sides]
        work = _compared(DEVICE, [per_step(steps) for steps in sides], threshold_percent)
        if all(periods):
            return _compared(FROM_STEP_TO_STEP, periods, threshold_percent), work, None
        return work, None, None
    if any(steps[0].on_device for steps in sides):
        sides = [[step for step in steps if step.host_duration_ns > 0] for steps in sides]
        if not all(sides):
            return None, None, "the steps of one run are timed on the GPU, those of the other on the host"
    return _compared(HOST, [per_step(steps, host=True) for steps in sides], threshold_percent), None, None


def _compared(measure: str, values: Sequence[Sequence[float]], threshold_percent: float) -> StepComparison | None:
    first, second = values
    if not first or not second:
        return None
    base, new = _spread(first), _spread(second)
    test = rank_test(first, second)
    change = 100 * (new.p50 - base.p50) / base.p50
    too_few = min(len(first), len(second)) < FEWEST
    beyond = test.p_value < LEVEL and (test.ratio - 1) * (new.p50 - base.p50) > 0
    if too_few:
        verdict = UNDECIDED
    elif beyond and abs(change) >= threshold_percent:
        verdict = SLOWER if change > 0 else FASTER
    else:
        verdict = SAME
    edges, (base_counts, base_beyond), (new_counts, new_beyond) = _bins(first, second)
    return StepComparison(
        measure=measure,
        verdict=verdict,
        base=base,
        new=new,
        change_ns=new.p50 - base.p50,
        change_percent=change,
        p95_change_percent=100 * (new.p95 - base.p95) / base.p95,
        p_value=None if too_few else test.p_value,
        likelier=test.likelier,
        shift_percent=None if too_few else 100 * (test.ratio - 1),
        shift_low_percent=None if too_few else 100 * (test.low - 1),
        shift_high_percent=None if too_few else 100 * (test.high - 1),
        edges=edges,
        base_counts=base_counts,
        new_counts=new_counts,
        base_beyond=base_beyond,
        new_beyond=new_beyond,
        text=_text(verdict, base, new, change, beyond, threshold_percent, test),
    )


def _text(verdict: str, base: Spread, new: Spread, change: float, beyond: bool, threshold_percent: float, test: RankTest) -> str:
    medians = f"{wording.duration(base.p50)} before, {wording.duration(new.p50)} now (median"
    if verdict == UNDECIDED:
        counts = f"{wording.count(base.count)} and {wording.count(new.count)}"
        return f"Too few steps to tell from their spread ({counts}): {medians}, {wording.signed_percent(change)})."
    if verdict == SAME:
        if beyond:
            limit = wording.threshold_text(threshold_percent)
            return f"Steps differ by less than the threshold of {limit}: {medians}, {wording.signed_percent(change)})."
        bound = f"99% interval {wording.signed_percent(100 * (test.low - 1))} to {wording.signed_percent(100 * (test.high - 1))}"
        return f"Steps take as long as before: {medians}, {wording.signed_percent(change)}), within typical range of the steps ({bound})."
    longer = f"{wording.percent(abs(change))} {'longer' if verdict == SLOWER else 'shorter'}"
    if new.p50 >= 3 * base.p50:
        longer = f"{wording.significant(new.p50 / base.p50)} times as long"
    return f"Steps are {verdict}: {medians}), {longer}, beyond the spread of the steps."


def of_different_work(steps: StepComparison | None) -> StepComparison | None:
    """Return the times of steps without a test, because their work differs."""
    if steps is None:
        return None
    text = f"Step time: {wording.duration(steps.base.p50)} in base, {wording.duration(steps.new.p50)} in new (median), for different work."
    return replace(steps, verdict=UNDECIDED, p_value=None, shift_percent=None, shift_low_percent=None, shift_high_percent=None, text=text)


def within_base_runs(steps: StepComparison) -> StepComparison:
    """Return steps whose difference is not beyond that of several base runs."""
    medians = f"{wording.duration(steps.base.p50)} before, {wording.duration(steps.new.p50)} now"
    text = f"Steps differ by less than equal runs do: {medians} (median, {wording.signed_percent(steps.change_percent)})."
    return replace(steps, verdict=SAME, text=text)


def undecided_by_base_runs(steps: StepComparison) -> StepComparison:
    """Return steps that not every base run has such times of."""
    medians = f"{wording.duration(steps.base.p50)} before, {wording.duration(steps.new.p50)} now"
    change = wording.signed_percent(steps.change_percent)
    text = f"Not every base run has these times, so their spread is unknown: {medians} (median, {change})."
    return replace(steps, verdict=UNDECIDED, text=text)


def _spread(values: Sequence[float]) -> Spread:
    ordered = pl.Series(sorted(values), dtype=pl.Float64)
    p5, p25, p50, p75, p95 = (quantile(ordered, fraction) for fraction in (0.05, 0.25, 0.5, 0.75, 0.95))
    return Spread(len(values), p5, p25, p50, p75, p95, float(ordered[-1]))


def _bins(
    first: Sequence[float], second: Sequence[float]
) -> tuple[tuple[float, ...], tuple[tuple[int, ...], int], tuple[tuple[int, ...], int]]:
    """Return common bins, and the counts of each side in and above them."""
    together = duration_histogram(pl.Series([*first, *second], dtype=pl.Float64))
    assert together is not None
    edges = together.edges

    def counted(values: Sequence[float]) -> tuple[tuple[int, ...], int]:
        drawn = pl.Series(sorted(value for value in values if value <= edges[-1]), dtype=pl.Float64)
        return bin_counts(drawn, edges), len(values) - len(drawn)

    return edges, counted(first), counted(second)


def mean_noise(base: Report, new: Report) -> float | None:
    """Return the largest difference of the mean step times by chance, in ns.

    It is 2.58 standard errors; None if a run has too few steps. Times are from step to step, or durations of steps on the host. Waiting,
    such as idle time, varies as the steps do.
    """
    squares = 0.0
    for report in (base, new):
        steps = main_steps(report.steps.steps)
        values = from_step_to_step(steps) if all(step.on_device for step in steps) else per_step(steps, host=True)
        if len(values) < FEWEST:
            return None
        squares += statistics.variance(values) / len(values)
    return float(SURE * squares**0.5)
