"""Did the steps of a process become longer or shorter over the run, and by which part?"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final

import polars as pl

from ..report.model import Step, StepTrend
from ..toolkit import wording

FEWEST: Final = 30  # Steps from which on a group can have a trend
RATIO: Final = 1.25  # The longer of the medians of the first and the last quarter / the shorter, from which on steps have a trend
LEAST_CORRELATION: Final = 0.5
DEVIATIONS: Final = 4.0  # Rank correlation in standard deviations of that of steps in random order, from which on a trend is no chance

# Parts of a step as sentences call them; ranges that the program annotated have their own names.
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
    """Median of the first and of the last quarter of durations in the order of their steps, where they have a trend; else None.

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
    """The half of ``windows`` (start, end) whose lengths are nearest to the median of them: without warm-up and single peaks."""
    length = pl.col("end") - pl.col("start")
    return windows.filter(length.is_between(length.quantile(0.25, "lower"), length.quantile(0.75, "higher")))


def part_that_changed_most(first: dict[str, float], last: dict[str, float], other: str) -> str | None:
    """The part with the largest change in the direction of the whole step; None where that is ``other`` or less than a quarter of the
    whole change. ``first``, ``last``: the mean time of each part in the first and the last quarter."""
    change = {name: last.get(name, 0.0) - first.get(name, 0.0) for name in {**first, **last}}
    whole = sum(change.values())
    if not whole:
        return None
    most = max(change, key=lambda name: (change[name] / whole, name))
    return most if most != other and change[most] / whole >= 0.25 else None


def sentence(timed: Sequence[Step], trends: Sequence[StepTrend]) -> str | None:
    """What the report says of the trends among the steps ``timed``: of the one that changed most, by name if processes are several."""
    shown = [trend for trend in trends if timed and (trend.phase, trend.on_device) == (timed[0].phase, timed[0].on_device)]
    if not shown:
        return None
    several = len({(step.node, step.rank, step.pid) for step in timed}) > 1
    most = max(shown, key=lambda trend: abs(math.log(trend.last_ns / trend.first_ns)))
    verb = "grew" if most.last_ns > most.first_ns else "shrank"
    who = f" of {wording.process(most.node, most.rank, most.pid)}" if several else ""
    how = f"medians of the first and the last quarter of {wording.count(most.steps)}"
    part = f"; {_PARTS.get(most.part, most.part)} {verb} most" if most.part else ""
    return f"Steps{who} {verb} from {wording.duration(most.first_ns)} to {wording.duration(most.last_ns)} over the run ({how}){part}."
