"""Slow steps of a run in which no process has both slow and typical ones."""

from __future__ import annotations

import polars as pl
from empty_stores import empty_store
from postrun.analysis.steps.slow import slow_steps
from postrun.analysis.steps.times import PARTS


def test_slow_steps_of_another_process_are_not_compared() -> None:
    rows = [(0, number, 10) for number in range(20)] + [(1, 100, 1000)]
    times = pl.DataFrame(rows, schema={"process": pl.Int32, "number": pl.Int64, "step": pl.Int64}, orient="row")
    times = times.with_columns(
        pl.lit(0, pl.Int32).alias("node"),
        pl.lit("TRAIN").alias("phase"),
        pl.lit(None, pl.String).alias("profiled"),
        *(pl.lit(0, pl.Int64).alias(part) for part in PARTS),
    )
    with empty_store() as store:
        result = slow_steps(store, times)
    assert (result.steps, result.slow) == (21, ())
    assert result.absent == "No process has both slow and typical steps, so nothing explains the slow ones."
