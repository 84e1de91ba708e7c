"""Integers that occur often, as distinct values with their numbers: parts of a long column -> its order statistics in less memory."""

from __future__ import annotations

import math
from typing import Final

import polars as pl

from ..report.rows import Histogram, Quantiles
from .quantiles import log_bins, of_ordered

MOST: Final = 4_000_000  # values that are sorted in one column; of more, only distinct ones are in memory


class Counted:
    """Integers in ascending order, which :meth:`add` takes part by part."""

    def __init__(self) -> None:
        self._values = pl.Series(dtype=pl.Int64)  # distinct ones
        self._numbers = pl.Series(dtype=pl.Int64)  # of each
        self._ends = pl.Series(dtype=pl.Int64)  # values up to each

    def add(self, part: pl.Series) -> None:
        """Add integers without null."""
        known = pl.LazyFrame({"value": self._values, "number": self._numbers})
        added = part.cast(pl.Int64).alias("value").to_frame().lazy().with_columns(number=pl.lit(1, pl.Int64))
        counts = pl.concat([known, added]).group_by("value").agg(pl.col("number").sum()).sort("value")
        counted = counts.with_columns(end=pl.col("number").cum_sum()).collect()
        self._values, self._numbers, self._ends = counted.get_columns()

    def __len__(self) -> int:
        return int(self._ends[-1]) if len(self._ends) else 0

    def __getitem__(self, position: int) -> int:
        return int(self._values[int(self._ends.search_sorted(range(len(self))[position], side="right"))])

    def below(self, limits: pl.Series) -> pl.Series:
        """Return how many values are below each limit (f64)."""
        before = self._ends.shift(1, fill_value=0).extend_constant(len(self), 1)
        return before.gather(self._values.cast(pl.Float64).search_sorted(limits, side="left"))

    def column(self) -> pl.Series:
        """Return all values."""
        return self._values.repeat_by(self._numbers).explode() if len(self) else self._values

    def quantiles(self) -> Quantiles | None:
        """Return the quantiles, mean and population standard deviation; None if empty."""
        if not len(self):
            return None
        mean = int((self._values * self._numbers).sum()) / len(self)
        squares = ((self._values.cast(pl.Float64) - mean) ** 2 * self._numbers).to_list()
        return of_ordered(self, mean, math.fsum(squares))

    def log_histogram(self) -> Histogram | None:
        """Count the values in logarithmic bins, as :func:`.quantiles.log_histogram`."""
        if not len(self):
            return None
        below = int(self.below(pl.Series([1.0]))[0])
        positive = (float(self[below]), float(self[-1])) if below < len(self) else (1.0, 1.0)
        return log_bins(below, len(self), *positive, self.below)
