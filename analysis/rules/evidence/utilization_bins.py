"""Samples of utilization per bin of 2%, of each series."""

from __future__ import annotations

import math
from typing import Final

import polars as pl

from ...machine.series import MetricSeries

BINS: Final = 50
_ENDS: Final = pl.Series([*range(100 // BINS, 100, 100 // BINS), math.inf], dtype=pl.Float64)
"""End of each bin; values below 0 are in the first, above 100 in the last."""


def bin_counts(series: MetricSeries) -> pl.Series:
    """Return a list of counts per series, in the order of its table."""
    number = len(series.table)
    if not number:
        return pl.Series(dtype=pl.List(pl.UInt32))
    below = series.ordered.below(pl.concat([_ENDS] * number))
    is_first = pl.int_range(pl.len()) % BINS == 0
    counts = below.to_frame("n").select(pl.when(is_first).then("n").otherwise(pl.col("n").diff()).cast(pl.UInt32)).to_series()
    return counts.reshape((number, BINS)).arr.to_list()
