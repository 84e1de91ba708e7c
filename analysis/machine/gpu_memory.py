"""Memory in use of each GPU over time."""

from __future__ import annotations

from typing import Final

import polars as pl

from ...ingest.store.store import Store
from ..report.machine import GpuMemory
from ..toolkit.places import Places, in_order

POINTS: Final = 400  # samples per GPU; more are averaged, with lowest and highest, over intervals of equal length

# In bytes if these were sampled, else in percent.
_USED: Final = """
    used AS (
        SELECT node, unit, metric, time_ns, value FROM sample
        WHERE metric IN ('gpu_memory_used_bytes', 'gpu_memory_used_percent') AND unit IS NOT NULL AND isfinite(value)
        QUALIFY metric = min(metric) OVER (PARTITION BY node, unit)
    ), whole AS (
        SELECT node, unit, min(metric) AS metric, count(*) AS samples, min(time_ns) AS start_ns, max(time_ns) AS end_ns,
            arg_min(value, time_ns) AS first, arg_max(value, time_ns) AS last, min(value) AS "min", max(value) AS "max",
            min_by(time_ns, (-value, time_ns)) AS max_at_ns
        FROM used GROUP BY node, unit
    )
"""
_SUMMARY: Final = f"""
    WITH {_USED}, sampled AS (
        SELECT node, unit, max(value) AS bytes FROM sample WHERE metric = 'gpu_memory_total_bytes' AND isfinite(value) GROUP BY ALL
    ), listed AS (
        SELECT node, index AS unit, max(memory_bytes) AS bytes FROM device GROUP BY ALL
    )
    SELECT w.*, coalesce(s.bytes, l.bytes::DOUBLE) AS bytes FROM whole AS w
    LEFT JOIN sampled AS s USING (node, unit) LEFT JOIN listed AS l USING (node, unit)
"""
# Rounding may move a mean beyond its ends.
_DRAWN: Final = f"""
    WITH {_USED}
    SELECT node, unit, min(u.time_ns) AS time_ns, least(greatest(avg(u.value), min(u.value)), max(u.value)) AS mean,
        min(u.value) AS low, max(u.value) AS high
    FROM used AS u JOIN whole AS w USING (node, unit)
    GROUP BY node, unit, CASE WHEN w.samples <= {POINTS} THEN u.time_ns - w.start_ns
        ELSE (u.time_ns - w.start_ns) // ((w.end_ns - w.start_ns) // {POINTS} + 1) END
    ORDER BY time_ns
"""


def gpu_memory(store: Store) -> tuple[GpuMemory, ...]:
    """Return a row per GPU whose memory was sampled, by host name and number."""
    if not store.has_rows("sample"):
        return ()
    rows = store.frame(_SUMMARY)
    if rows.is_empty():
        return ()
    places = Places(store)
    drawn = store.frame(_DRAWN).partition_by("node", "unit", as_dict=True)
    memories = []
    for row in rows.iter_rows(named=True):
        in_bytes = row["metric"] == "gpu_memory_used_bytes"
        points: pl.DataFrame = drawn[row["node"], row["unit"]]
        fields = {column: row[column] for column in ("samples", "first", "last", "min", "max", "max_at_ns")}
        fields |= {column: tuple(points[column]) for column in ("time_ns", "mean", "low", "high")}
        total = row["bytes"] if in_bytes else 100.0
        memories.append(GpuMemory(node=places.node(row["node"]), device=row["unit"], unit="B" if in_bytes else "%", total=total, **fields))
    return tuple(sorted(memories, key=lambda row: (in_order(row.node), row.device)))
