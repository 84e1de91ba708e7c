"""GPU utilization derived from kernels, copies and memsets, for devices without samples."""

from __future__ import annotations

import math
from typing import Final

import polars as pl

from ...ingest.store.metrics import MEASURED
from ...ingest.store.store import Store
from ..toolkit.intervals import union
from ..toolkit.places import batches
from ..toolkit.shared import shared
from ..toolkit.windows import pauses_ns, windows, with_window

LABEL: Final = "derived from kernel activity"
_BUCKETS: Final = 2000
_MOST_BUCKETS: Final = 200_000
_LEAST_NS: Final = 1_000_000

_SCHEMA: Final = {"node": pl.Int32, "unit": pl.Int32, "time_ns": pl.Int64, "value": pl.Float64}


@shared
def derived_utilization(store: Store) -> pl.DataFrame:
    """Return the utilization of every device with events but without samples.

    Columns: node, unit (device index), time_ns, value in percent. ``value`` is the share of a bucket during which a kernel, copy or memset
    ran, of all streams and processes; ``time_ns`` is the start of the bucket, the same for all devices. Buckets have the length
    :func:`bucket_ns` and cover the device's profile window. Of the first and the last bucket (of each profile), only the part in the window
    counts. Sorted by node, unit and time.
    """
    if not store.has_rows("device_event"):
        return pl.DataFrame(schema=_SCHEMA)
    sampled = "EXISTS (FROM sample AS s WHERE s.node = e.node AND s.unit = e.device AND s.metric = 'gpu_utilization')"
    devices = store.frame(f"""
        SELECT node, device AS unit, min(start_ns) AS first, max(end_ns) AS last, count(*) AS events
        FROM device_run AS e
        WHERE node IS NOT NULL AND device IS NOT NULL AND NOT {sampled if store.has_rows("sample") else "false"}
        GROUP BY ALL HAVING last > first ORDER BY ALL
    """).rows(named=True)
    if not devices:
        return pl.DataFrame(schema=_SCHEMA)
    origin = min(device["first"] for device in devices)
    profiled = windows(store, "node")
    width = bucket_ns(max(device["last"] for device in devices) - origin - pauses_ns(profiled), _interval(store))
    profiled = profiled.with_columns(pl.col("start") - origin)
    parts = []
    for group in batches(((device["node"], device["unit"]), device["events"]) for device in devices):
        events = store.frame(
            'SELECT node, device AS unit, start_ns - ?::BIGINT AS start, end_ns - ?::BIGINT AS "end" FROM device_run'
            f" WHERE {' OR '.join(f'(node = {node} AND device = {unit})' for node, unit in group)}",
            [origin, origin],
        )
        numbered = with_window(events, profiled)
        by = ["node", "unit", "window"]
        profiles = numbered.group_by(by).agg(pl.col("start").min(), pl.col("end").max()).filter(pl.col("end") > pl.col("start"))
        # Two profiles can share a bucket: its value is the mean of both.
        shares = _busy_share(union(numbered, by), profiles, width)
        parts.append(shares.group_by("node", "unit", "start").agg(pl.col("value").sort_by("window").mean()))
    return pl.concat(parts).select("node", "unit", time_ns=pl.col("start") + origin, value="value").sort("node", "unit", "time_ns")


def bucket_ns(span_ns: int, interval_ns: int | None) -> int:
    """Return the length of a bucket: the sampling interval, or 1/2000 of the span.

    The latter is rounded up to 1, 2 or 5 times a power of ten. The minimum is 1 ms. An interval that would give more than 200,000 buckets
    is ignored.
    """
    if interval_ns is not None and span_ns <= interval_ns * _MOST_BUCKETS:
        return max(interval_ns, _LEAST_NS)
    least = max(math.ceil(span_ns / _BUCKETS), _LEAST_NS)
    power: int = 10 ** (len(str(least)) - 1)
    return next(factor * power for factor in (1, 2, 5, 10) if factor * power >= least)


def _busy_share(busy: pl.DataFrame, profiles: pl.DataFrame, width: int) -> pl.DataFrame:
    """Return the covered percentage of every bucket's part in a profile."""
    by = ["node", "unit", "window"]
    start, end, bucket = pl.col("start"), pl.col("end"), pl.col("bucket")
    numbers = pl.int_ranges(start // width, (end - 1) // width + 1)
    inside = pl.min_horizontal(end, (bucket + 1) * width) - pl.max_horizontal(start, bucket * width)
    pieces = busy.with_columns(bucket=numbers).explode("bucket").group_by(*by, "bucket").agg(busy=inside.sum())
    grid = profiles.with_columns(bucket=numbers).explode("bucket").join(pieces, on=[*by, "bucket"], how="left")
    return grid.select("node", "unit", "window", start=bucket * width, value=100.0 * pl.col("busy").fill_null(0) / inside)


def _interval(store: Store) -> int | None:
    """Return the median sampling interval, in ns, of the node sampled most often."""
    if not store.has_rows("sample"):
        return None
    interval = store.frame(f"""
        SELECT median(step) AS step FROM (
            SELECT time_ns - lag(time_ns) OVER (PARTITION BY node, metric, unit ORDER BY time_ns) AS step FROM sample
            WHERE {MEASURED} AND node = (SELECT node FROM sample WHERE {MEASURED} GROUP BY node ORDER BY count(*) DESC, node LIMIT 1)
        ) WHERE step > 0
    """).item()
    return None if interval is None else round(interval)
