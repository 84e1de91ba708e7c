"""Correlations of a tracer that counted its calls beyond 32 bits, restored so that each launch has its kernel execution.

Correlations are counted in 32 bits and begin again at 0. In order of time, consecutive calls or executions differ by far less than
half of that, so the full count follows from the differences.
"""

from __future__ import annotations

from typing import Final

import polars as pl

HALF: Final = 1 << 31  # Correlations of one window that are this far apart are of a count that began again


def full_counts(rows: pl.DataFrame, base: int, distance: int) -> pl.DataFrame:
    """Return ``row`` and restored ``correlation`` of the rows of one count.

    The count is of the rows with a correlation of ``base`` to ``base + distance - 1``; no row if it did not begin again. ``rows``:
    ``row``, ``host`` (whether it is a call), ``start_ns`` and ``correlation``.
    """
    count = pl.col("count")
    counts = rows.with_columns(count=pl.col("correlation") - base).filter(count.is_between(0, distance - 1))
    least, most = counts.select(least=count.min(), most=count.max()).row(0)
    if least is None or most - least < HALF or most >= 2 * HALF:
        return counts.clear().select("row", "correlation")
    step = (count - count.shift(1) + 3 * HALF) % (2 * HALF) - HALF
    ordered = counts.sort("start_ns", "host", "count", "row", descending=[False, True, False, False])
    full = ordered.select("row", full=step.fill_null(count).cum_sum())
    first = base - min(full["full"].min() // (2 * HALF), 0) * 2 * HALF  # type: ignore[operator]  # a number: there are rows
    return full.select("row", correlation=pl.col("full") + first)
