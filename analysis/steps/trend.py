"""Trend of the step times of a process over the run, and the part of the step that caused it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final

import polars as pl

from ..report.steps import Step, StepTrend
from ..toolkit import wording

FEWEST: Final = 30  # steps that a group needs for a trend
RATIO: Final = 1.25  # smallest ratio of the longer to the shorter of the medians of first and last quarter that is a trend
LEAST_CORRELATION: Final = 0.5
DEVIATIONS: Final = 4.0  # smallest rank correlation of a trend, in standard deviations of the correlation of randomly ordered steps

# Names of the parts of a step in sentences; ranges that the program annotated keep their own names.
_PARTS: Final = {
    "kernel": "time in kernels",
    "memcpy": "time in copies",
    "memset": "time in memsets",
    "communication": "communication",
    "runtime": "time in runtime calls",
    "data_loader": "data loading",
    "cpu_op": "time in CPU operators",
}


def trend_of(durations: Sequence[int] | pl.Series) -> tuple[float, float] | None:
    """Return the median durations of the first and last quarter if there is a trend.

    A trend is a ratio of at least RATIO between the two, and a rank correlation (Spearman) of duration and order of at least
    LEAST_CORRELATION and at least DEVIATIONS / sqrt(n - 1). Medians and ranks leave a slow first step and single peaks without weight.
    """
    series = pl.Series(durations, dtype=pl.Float64)
    n = len(series)
    if n < FEWEST:
        return None
    quarter = n // 4
    first, last = series.head(quarter).median(), series.tail(quarter).median()
    assert isinstance(first, float)
    assert isinstance(last, float)
    if min(first, last) <= 0 or max(first, last) < RATIO * min(first, last):
        return None
    ranks = pl.DataFrame({"order": pl.int_range(n, eager=True), "rank": series.rank("average")})
    correlation = ranks.select(pl.corr("order", "rank")).item()
    if abs(correlation) < max(LEAST_CORRELATION, DEVIATIONS / math.sqrt(n - 1)) or (correlation > 0) != (last > first):
        return None
    return first, last


def middle_half(windows: pl.DataFrame) -> pl.DataFrame:
    """Return the half of ``windows`` (start, end) with lengths nearest to the median."""
    length = pl.col("end") - pl.col("start")
    return windows.filter(length.is_between(length.quantile(0.25, "lower"), length.quantile(0.75, "higher")))


def part_that_changed_most(first: dict[str, float], last: dict[str, float], remainder: str) -> str | None:
    """Return the part with the largest change in the direction of the whole step.

    None if that is ``remainder`` or less than a quarter of the whole change. ``first``, ``last``: the mean time of each part in the first
    and the last quarter.
    """
    change = {name: last.get(name, 0.0) - first.get(name, 0.0) for name in {**first, **last}}
    total = sum(change.values())
    if not total:
        return None
    most = max(change, key=lambda name: (change[name] / total, name))
    return most if most != remainder and change[most] / total >= 0.25 else None


def sentence(timed: Sequence[Step], trends: Sequence[StepTrend]) -> str | None:
    """Word the largest trend of the ``timed`` steps, with its process if several."""
    candidates = [trend for trend in trends if timed and (trend.phase, trend.on_device) == (timed[0].phase, timed[0].on_device)]
    if not candidates:
        return None
    several = len({(step.node, step.rank, step.pid) for step in timed}) > 1
    most = max(candidates, key=lambda trend: abs(math.log(trend.last_ns / trend.first_ns)))
    verb = "grew" if most.last_ns > most.first_ns else "shrank"
    who = f" of {wording.process(most.node, most.rank, most.pid)}" if several else ""
    how = f"medians of the first and the last quarter of {wording.count(most.steps)}"
    part = f"; {_PARTS.get(most.part, most.part)} {verb} most" if most.part else ""
    return f"Steps{who} {verb} from {wording.duration(most.first_ns)} to {wording.duration(most.last_ns)} over the run ({how}){part}."
