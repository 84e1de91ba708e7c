"""How busy was a device whose utilisation nobody sampled? Derived from its kernels, copies and memsets."""

from __future__ import annotations

import math
from typing import Final

import polars as pl

from ..ingest.store import MEASURED, Store
from .intervals import union
from .windows import pauses_ns, windows, with_window

LABEL: Final = "derived from kernel activity"
_BUCKETS: Final = 2000
_MOST_BUCKETS: Final = 200_000
_LEAST_NS: Final = 1_000_000

_SCHEMA: Final = {"node": pl.Int32, "unit": pl.Int32, "time_ns": pl.Int64, "value": pl.Float64}


def derived_utilisation(store: Store) -> pl.DataFrame:
    """Utilisation of every device that has events but no sampled utilisation: node, unit (device index), time_ns, value in percent.

    ``value`` is the share of a bucket during which a kernel, copy or memset ran, of all streams and processes; ``time_ns`` the start of
    the bucket, the same for all devices. Buckets are as long as :func:`bucket_ns` says and cover the device's profile span; of the first
    and the last (of each profile, where there were several) only the part in the span counts. Sorted by node, unit and time.
    """
    devices = store.frame("""
        SELECT node, device AS unit, min(start_ns) AS first, max(start_ns + duration_ns) AS last
        FROM device_event AS e
        WHERE kind <> 'sync' AND NOT EXISTS (
            FROM sample AS s WHERE s.node = e.node AND s.unit = e.device AND s.metric = 'gpu_utilization')
        GROUP BY ALL HAVING last > first ORDER BY ALL
    """).rows(named=True)
    if not devices:
        return pl.DataFrame(schema=_SCHEMA)
    origin = min(device["first"] for device in devices)
    profiled = windows(store, "node")
    width = bucket_ns(max(device["last"] for device in devices) - origin - pauses_ns(profiled), _interval(store))
    profiled = profiled.with_columns(pl.col("start") - origin)
    parts = []
    for device in devices:
        events = store.frame(
            'SELECT start_ns - ?::BIGINT AS start, start_ns - ?::BIGINT + duration_ns AS "end" FROM device_event'
            " WHERE kind <> 'sync' AND node = ? AND device = ?",
            [origin, origin, device["node"], device["unit"]],
        )
        numbered = with_window(events.with_columns(node=pl.lit(device["node"], pl.Int32)), profiled)
        profiles = numbered.group_by("window").agg(pl.col("start").min(), pl.col("end").max()).filter(pl.col("end") > pl.col("start"))
        segments = union(numbered, ["window"])
        shares = [
            _busy_share(segments.filter(pl.col("window") == window), first, last, width)
            for window, first, last in profiles.sort("window").iter_rows()
        ]
        # Two profiles can share a bucket: its value is the mean of both.
        buckets = pl.concat(shares).group_by("start").agg(pl.col("value").mean()).sort("start")
        parts.append(
            buckets.select(
                node=pl.lit(device["node"], pl.Int32),
                unit=pl.lit(device["unit"], pl.Int32),
                time_ns=pl.col("start") + origin,
                value="value",
            )
        )
    return pl.concat(parts)


def bucket_ns(span_ns: int, interval_ns: int | None) -> int:
    """Length of a bucket: the run's sampling interval, else 1/2000 of the span rounded up to 1, 2 or 5 times a power of ten; at least 1 ms.

    An interval that would make more than 200,000 buckets of the span counts as none.
    """
    if interval_ns is not None and span_ns <= interval_ns * _MOST_BUCKETS:
        return max(interval_ns, _LEAST_NS)
    least = max(math.ceil(span_ns / _BUCKETS), _LEAST_NS)
    power: int = 10 ** (len(str(least)) - 1)
    return next(factor * power for factor in (1, 2, 5, 10) if factor * power >= least)


def _busy_share(busy: pl.DataFrame, first: int, last: int, width: int) -> pl.DataFrame:
    """Per bucket of ``width`` that has a part between ``first`` and ``last``: its start, and percent of that part covered by ``busy``."""
    start, end, bucket = pl.col("start"), pl.col("end"), pl.col("bucket")
    pieces = (
        busy.with_columns(bucket=pl.int_ranges(start // width, (end - 1) // width + 1))
        .explode("bucket")
        .group_by("bucket")
        .agg(busy=(pl.min_horizontal(end, (bucket + 1) * width) - pl.max_horizontal(start, bucket * width)).sum())
    )
    grid = pl.DataFrame({"bucket": pl.int_range(first // width, (last - 1) // width + 1, eager=True)})
    length = pl.min_horizontal((bucket + 1) * width, pl.lit(last)) - pl.max_horizontal(bucket * width, pl.lit(first))
    joined = grid.join(pieces, on="bucket", how="left").sort("bucket")
    return joined.select(start=bucket * width, value=100.0 * pl.col("busy").fill_null(0) / length)


def _interval(store: Store) -> int | None:
    """The run's sampling interval: the median distance of successive samples of one series, of the machine with most samples."""
    found = store.frame(f"""
        SELECT median(step) AS step FROM (
            SELECT time_ns - lag(time_ns) OVER (PARTITION BY node, metric, unit ORDER BY time_ns) AS step FROM sample
            WHERE {MEASURED} AND node = (SELECT node FROM sample WHERE {MEASURED} GROUP BY node ORDER BY count(*) DESC, node LIMIT 1)
        ) WHERE step > 0
    """).item()
    return None if found is None else round(found)
