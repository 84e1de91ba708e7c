"""Snapshots: samples of a node that were taken together.

Samplers write the values of one moment one after the other, so their times differ slightly.
"""

from __future__ import annotations

import math
from typing import Final

import polars as pl

SNAPSHOT_NS: Final = 20_000_000


def sampling_interval(samples: pl.DataFrame) -> int | None:
    """Return the median interval of a series in ns; None without two different times.

    ``samples``: columns metric, unit and time_ns, and node if there are several nodes.
    """
    series = [column for column in ("node", "metric", "unit") if column in samples.columns]
    # Sorting by time alone and grouping by series is ten times faster than also sorting by the names of the series.
    steps = samples.sort("time_ns").select(step=pl.col("time_ns").diff().over(series)).filter(pl.col("step") > 0)
    median = steps["step"].median()
    return round(median) if isinstance(median, int | float) else None


def with_snapshots(samples: pl.DataFrame) -> pl.DataFrame:
    """Add ``snapshot_ns``, the time of the first sample of the snapshot; sort by it.

    All ``samples`` belong to one node. A snapshot contains the samples within 20 ms of its first one and less than half the sampling
    interval from it; the next sample begins the next snapshot.
    """
    times = samples["time_ns"].unique().sort()
    ordered = samples.sort("time_ns", maintain_order=True)
    # Most samplers give all values of a moment the same time, so no snapshot contains two times.
    if (times.diff() > SNAPSHOT_NS).all():
        return ordered.with_columns(snapshot_ns="time_ns")
    starts = times.gather(begins(times, tolerance_ns(sampling_interval(samples)))).alias("snapshot_ns")
    return ordered.join_asof(starts.to_frame(), left_on="time_ns", right_on="snapshot_ns", coalesce=False)


def tolerance_ns(interval: int | None) -> int:
    """Return the longest snapshot: 20 ms, and less than half the interval."""
    return SNAPSHOT_NS if interval is None else max(min(SNAPSHOT_NS, math.ceil(interval / 2) - 1), 0)


def begins(times: pl.Series, tolerance: int | pl.Series) -> pl.Series:
    """Return the indices into the ascending ``times`` at which a snapshot begins.

    A snapshot reaches to the first time beyond its tolerance, which is one for all or one per time. The chain is followed by doubling: with
    the first n starts and the way n starts ahead, the next n are one look-up.
    """
    end = len(times)
    ahead = pl.concat([times.search_sorted(times + tolerance, side="right").cast(pl.Int64), pl.Series([end], dtype=pl.Int64)])
    starts = pl.Series([0] if end else [], dtype=pl.Int64)
    while True:
        reached = ahead.gather(starts)
        inside = reached.filter(reached < end)
        starts = pl.concat([starts, inside])
        if len(inside) < len(reached) or not end:
            return starts
        ahead = ahead.gather(ahead)
