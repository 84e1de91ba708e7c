"""The time that utilization and energy are measured over: the steps, else the iterations of an engine, else the profile windows."""

from __future__ import annotations

from typing import Final, NamedTuple

import polars as pl

from ...ingest.store.store import Store
from ..causes.iterations import iteration_periods
from ..steps.data import StepData
from ..steps.times import steps_with_start
from ..toolkit.intervals import union

STEPS: Final = "steps"
ITERATIONS: Final = "iterations"
PROFILE: Final = "profile window"

_SPANS: Final = """
    SELECT process, min(start_ns) AS start, max(end_ns) AS "end" FROM device_run GROUP BY process
"""


class MeasuredTime(NamedTuple):
    """``basis``: STEPS, ITERATIONS or PROFILE. ``launching``: disjoint times of the host (process, start, end) in which the measured work
    is launched; None if all work counts. ``elapsed``: disjoint times (process, start, end) that it takes, from the end of one step to the
    end of the next. ``periods``: number of steps or iterations, the largest of a process; 0 for the profile window."""

    basis: str
    launching: pl.DataFrame | None
    elapsed: pl.DataFrame
    periods: int


def measured_time(store: Store, steps: StepData) -> MeasuredTime:
    """Return the steps with device work, without those whose begin is not known."""
    if store.has_rows("step"):
        walled = steps_with_start(steps.walled).filter(pl.col("until") > pl.col("begin"))
        if walled.height:
            host = walled.select("process", start="host_start_ns", end=pl.col("host_start_ns") + pl.col("host_duration_ns"))
            elapsed = walled.select("process", start="begin", end="until")
            return MeasuredTime(STEPS, union(host, ["process"]), union(elapsed, ["process"]), _most(walled))
    periods = iteration_periods(store)
    if periods.height:
        times = union(periods, ["process"])
        return MeasuredTime(ITERATIONS, times, times, _most(periods))
    none = pl.DataFrame(schema={"process": pl.Int32, "start": pl.Int64, "end": pl.Int64})
    return MeasuredTime(PROFILE, None, store.frame(_SPANS) if store.has_rows("device_event") else none, 0)


def _most(rows: pl.DataFrame) -> int:
    return max(rows.group_by("process").len()["len"].to_list(), default=0)
