"""Order statistics of series of numbers that follow one another in one column.

Each series is sorted once; quantiles of the series and of windows of it, and counts below limits, are looked up in the sorted values. The
extension in C does it if it is installed (``native/src/series``), otherwise Polars, with equal results.
"""

from __future__ import annotations

from collections.abc import Sequence
from types import ModuleType
from typing import Any, Final

import polars as pl

try:
    from ...native import _native
except ImportError:  # installed without a C compiler
    _native = None  # type: ignore[assignment]

NATIVE: ModuleType | None = _native
_WINDOW_ROWS: Final = 4_000_000  # of all windows whose quantiles Polars takes at once


class Ordered:
    """The values of series in ascending order.

    ``values``: f64 without null or NaN. ``ends``: i64, the row after the last of each series; no series is empty."""

    def __init__(self, values: pl.Series, ends: pl.Series) -> None:
        self._values = values
        self._ends = ends
        self._begins = ends.shift(1, fill_value=0)
        self._native = NATIVE
        if self._native is not None:
            # Ranks: the position of each value in its sorted series.
            sorted_values, self._ranks = self._native.sort_series(_buffer(values, 8), _buffer(ends, 8))
            self.values = _column(sorted_values, pl.Float64)
        else:
            parts = [values.slice(begin, end - begin).sort() for begin, end in zip(self._begins, ends, strict=True)]
            self.values = pl.concat(parts, rechunk=True) if parts else values

    def quantile(self, fraction: float) -> pl.Series:
        """Return a quantile of each series by linear interpolation. ``fraction``: 0..1."""
        rows = pl.DataFrame({"begin": self._begins, "size": self._ends - self._begins})
        below = (fraction * (pl.col("size") - 1)).floor().cast(pl.Int64)
        above = pl.min_horizontal(below + 1, pl.col("size") - 1)
        return rows.select(self._between(below + pl.col("begin"), above + pl.col("begin"), fraction)).to_series()

    def windows(self, first: pl.Series, last: pl.Series, fractions: Sequence[float]) -> list[pl.Series]:
        """Return quantiles of the rows from ``first`` up to, not including, ``last``.

        A window (i64 rows of ``values`` as they were given) is not empty and is part of one series."""
        if self._native is None or first.is_empty():
            return self._windows(first, last, fractions)
        wanted = _buffer(pl.Series(fractions, dtype=pl.Float64), 8)
        ranks = _column(
            self._native.window_ranks(self._ranks, _buffer(self._ends, 8), _buffer(first, 8), _buffer(last, 8), wanted), pl.UInt32
        )
        rows = pl.DataFrame({"size": last - first, "begin": self._begins.gather(self._ends.search_sorted(first, side="right"))})
        step = 2 * len(fractions)
        parts = []
        for number, part in enumerate(fractions):
            below, above = (pl.lit(ranks).gather_every(step, 2 * number + offset) + pl.col("begin") for offset in (0, 1))
            parts.append(self._between(below, above, part).alias(str(number)))
        return rows.select(parts).get_columns()

    def below(self, limits: pl.Series) -> pl.Series:
        """Return how many values are below each limit, i64.

        ``limits``: the limits of the first series, then those of the next, of each as many."""
        if self._native is not None:
            return _column(self._native.count_below(_buffer(self.values, 8), _buffer(self._ends, 8), _buffer(limits, 8)), pl.Int64)
        each = len(limits) // max(len(self._ends), 1)
        parts = [
            self.values.slice(begin, end - begin).search_sorted(limits.slice(number * each, each), side="left").cast(pl.Int64)
            for number, (begin, end) in enumerate(zip(self._begins, self._ends, strict=True))
        ]
        return pl.concat(parts) if parts else pl.Series(dtype=pl.Int64)

    def _between(self, below: pl.Expr, above: pl.Expr, fraction: float) -> pl.Expr:
        """Interpolate between the sorted values of two rows; column ``size``: values."""
        values = pl.lit(self.values)
        low, high = values.gather(below), values.gather(above)
        return _interpolated(low, high, fraction)

    def _windows(self, first: pl.Series, last: pl.Series, fractions: Sequence[float]) -> list[pl.Series]:
        """Compute the quantiles of the windows from copies of their rows."""
        names = [f"q{number}" for number in range(len(fractions))]
        named = list(zip(names, fractions, strict=True))
        ordered = pl.col("value").sort()
        windows = pl.DataFrame({"first": first, "last": last})
        longest = (last - first).max()
        parts = [pl.DataFrame(schema=dict.fromkeys(names, pl.Float64))]
        for part in windows.iter_slices(max(1, _WINDOW_ROWS // longest) if isinstance(longest, int) else 1):
            rows = part.with_row_index("window").select("window", row=pl.int_ranges("first", "last")).explode("row")
            parts.append(
                rows.select("window", value=self._values.gather(rows["row"]))
                .group_by("window", maintain_order=True)
                .agg(
                    pl.len().alias("size"),
                    *(ordered.get((fraction * (pl.len() - 1)).floor().cast(pl.Int64)).alias(f"{name}low") for name, fraction in named),
                    *(ordered.get((fraction * (pl.len() - 1)).ceil().cast(pl.Int64)).alias(f"{name}high") for name, fraction in named),
                )
                .with_columns(_interpolated(pl.col(f"{name}low"), pl.col(f"{name}high"), fraction).alias(name) for name, fraction in named)
                .select(names)
            )
        return pl.concat(parts).get_columns()


def _interpolated(low: pl.Expr, high: pl.Expr, fraction: float) -> pl.Expr:
    """Interpolate between the values next to a quantile; column ``size``: values."""
    position = fraction * (pl.col("size") - 1)
    return (position - position.floor()) * (high - low) + low


def repeated(values: pl.Series, times: pl.Series) -> pl.Series:
    """Repeat each value as often as ``times`` states (>= 1)."""
    return pl.select(pl.lit(values).repeat_by(pl.lit(times)).explode()).to_series() if len(values) else values


def _buffer(values: pl.Series, size: int) -> memoryview:
    """Return the numbers of a column as a buffer; ``size``: bytes of each."""
    array: Any = values.rechunk().to_arrow()
    if array.null_count:
        raise ValueError("series have no null values")
    if not len(array):
        return memoryview(b"")
    return memoryview(array.buffers()[1])[array.offset * size : (array.offset + len(array)) * size]


def _column(data: bytes, kind: Any) -> pl.Series:
    """Return the numbers of a buffer as a column, without a copy."""
    import pyarrow as pa

    arrow = {pl.Float64: pa.float64(), pl.Int64: pa.int64(), pl.UInt32: pa.uint32()}[kind]
    column: Any = pl.from_arrow(pa.Array.from_buffers(arrow, len(data) * 8 // arrow.bit_width, [None, pa.py_buffer(data)]))
    return column  # type: ignore[no-any-return]
