"""How busy was a device whose utilisation nobody sampled? Derived from its kernels, copies and memsets."""

from __future__ import annotations

import math
from typing import Final

import polars as pl

from ..ingest.store import Store
from .intervals import union

LABEL: Final = "derived from kernel activity"
_BUCKETS: Final = 2000
_MOST_BUCKETS: Final = 200_000
_LEAST_NS: Final = 1_000_000

_SCHEMA: Final = {"node": pl.Int32, "unit": pl.Int32, "time_ns": pl.Int64, "value": pl.Float64}


def derived_utilisation(store: Store) -> pl.DataFrame:
    """Utilisation of every device that has events but no sampled utilisation: node, unit (device index), time_ns, value in percent.

    ``value`` is the share of a bucket during which a kernel, copy or memset ran, of all streams and processes; ``time_ns`` the start of
    the bucket. Buckets are as long as :func:`bucket_ns` says and cover the device's profile span; the first and the last are cut to it.
    Sorted by node, unit and time.
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
    width = bucket_ns(max(device["last"] for device in devices) - origin, _interval(store))
    parts = []
    for device in devices:
        events = store.frame(
            'SELECT start_ns - ?::BIGINT AS start, start_ns - ?::BIGINT + duration_ns AS "end" FROM device_event'
            " WHERE kind <> 'sync' AND node = ? AND device = ?",
            [origin, origin, device["node"], device["unit"]],
        )
        buckets = _busy_share(union(events), device["first"] - origin, device["last"] - origin, width)
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
    """Per bucket of ``width`` from ``first`` to ``last``: start (not before ``first``) and percent of it covered by ``busy`` segments."""
    start, end = pl.col("start"), pl.col("end")
    pieces = (
        busy.with_columns(bucket=pl.int_ranges(start // width, (end - 1) // width + 1))
        .explode("bucket")
        .group_by("bucket")
        .agg(busy=(pl.min_horizontal(end, (pl.col("bucket") + 1) * width) - pl.max_horizontal(start, pl.col("bucket") * width)).sum())
    )
    grid = pl.DataFrame({"bucket": pl.int_range(first // width, (last - 1) // width + 1, eager=True)})
    begin = pl.max_horizontal(pl.col("bucket") * width, pl.lit(first))
    length = pl.min_horizontal((pl.col("bucket") + 1) * width, pl.lit(last)) - begin
    return grid.join(pieces, on="bucket", how="left").sort("bucket").select(start=begin, value=100.0 * pl.col("busy").fill_null(0) / length)


def _interval(store: Store) -> int | None:
    """The run's sampling interval: the median distance of successive samples of one series."""
    found = store.frame("""
        SELECT median(step) AS step FROM (
            SELECT time_ns - lag(time_ns) OVER (PARTITION BY node, metric, unit ORDER BY time_ns) AS step FROM sample
        ) WHERE step > 0
    """).item()
    return None if found is None else round(found)
