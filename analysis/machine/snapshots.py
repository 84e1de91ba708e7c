"""Which samples of a machine were taken together, and how far apart are they?

The samplers write the values of one moment one after the other, so their times differ by a little.
"""

from __future__ import annotations

import math
from typing import Final

import polars as pl

SNAPSHOT_NS: Final = 20_000_000


def sampling_interval(samples: pl.DataFrame) -> int | None:
    """Median distance in nanoseconds between successive samples of one series; None where no series has two at different times.

    ``samples``: columns metric, unit and time_ns, and node where there is more than one machine.
    """
    series = [column for column in ("node", "metric", "unit") if column in samples.columns]
    # Sorting by time alone and grouping by series is ten times faster than sorting by the series' names too.
    steps = samples.sort("time_ns").select(step=pl.col("time_ns").diff().over(series)).filter(pl.col("step") > 0)
    median = steps["step"].median()
    return round(median) if isinstance(median, int | float) else None


def with_snapshots(samples: pl.DataFrame) -> pl.DataFrame:
    """``samples`` of one machine with ``snapshot_ns``: the time of the first sample of the snapshot that each belongs to.

    A snapshot holds the samples within 20 ms of its first one and less than half the sampling interval from it; the next sample
    after these begins the next snapshot. Sorted by time.
    """
    times = samples["time_ns"].unique().sort()
    ordered = samples.sort("time_ns", maintain_order=True)
    # Most samplers give all values of a moment one time: then no snapshot holds two times.
    if (times.diff() > SNAPSHOT_NS).all():
        return ordered.with_columns(snapshot_ns="time_ns")
    starts = times.gather(begins(times, tolerance_ns(sampling_interval(samples)))).alias("snapshot_ns")
    return ordered.join_asof(starts.to_frame(), left_on="time_ns", right_on="snapshot_ns", coalesce=False)


def tolerance_ns(interval: int | None) -> int:
    """How far from the first sample of a snapshot its last one may lie: 20 ms, and less than half the sampling interval."""
    return SNAPSHOT_NS if interval is None else max(min(SNAPSHOT_NS, math.ceil(interval / 2) - 1), 0)


def begins(times: pl.Series, tolerance: int | pl.Series) -> pl.Series:
    """Indices into the ascending ``times`` at which a snapshot begins: from each begin to the first time beyond its tolerance (one for
    all, or one for each time).

    The chain is followed by doubling: with the first n begins and the way n begins ahead, the next n are one look-up.
    """
    end = len(times)
    ahead = pl.concat([times.search_sorted(times + tolerance, side="right").cast(pl.Int64), pl.Series([end], dtype=pl.Int64)])
    found = pl.Series([0] if end else [], dtype=pl.Int64)
    while True:
        reached = ahead.gather(found)
        inside = reached.filter(reached < end)
        found = pl.concat([found, inside])
        if len(inside) < len(reached) or not end:
            return found
        ahead = ahead.gather(ahead)
