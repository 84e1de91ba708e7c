"""Copies and memsets: time, bytes and bandwidth by kind."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

import polars as pl

from ...ingest.store.store import Store
from ..report.device import MemoryOperation
from ..toolkit.contents import kinds
from ..toolkit.shares import percent_of

_KIND: Final = "CASE WHEN e.kind = 'memset' THEN 'Memset' ELSE coalesce(e.copy_kind, n.text, 'unknown') END AS kind"
_MEMORY: Final = "CASE WHEN e.kind = 'memset' THEN NULL WHEN e.pageable THEN 'pageable' WHEN NOT e.pageable THEN 'pinned' END AS memory"


def memory_operations(store: Store) -> tuple[MemoryOperation, ...]:
    """Sum copies by kind and host memory, and memsets ("Memset"), longest total first.

    Bandwidth is bytes / time in 10^9 bytes per second, over the operations whose size is known; None if their time is 0. Percent is of
    the summed time of all memory operations. A copy of unknown kind keeps the name of its event.
    """
    if kinds(store, "device_event").isdisjoint({"memcpy", "memset"}):
        return ()
    rows = store.frame(f"""
        SELECT {_KIND}, {_MEMORY},
               count(*) AS count, sum(e.duration_ns)::BIGINT AS total_ns, sum(e.bytes)::BIGINT AS total_bytes,
               sum(e.bytes)::BIGINT / nullif((sum(e.duration_ns) FILTER (e.bytes IS NOT NULL))::BIGINT, 0) AS bandwidth_gb_per_s
        FROM device_event AS e LEFT JOIN name AS n ON n.id = e.name
        WHERE e.kind IN ('memcpy', 'memset') GROUP BY ALL ORDER BY total_ns DESC, kind, memory NULLS LAST
    """).rows(named=True)
    total = sum(row["total_ns"] for row in rows)
    return tuple(MemoryOperation(percent=percent_of(row["total_ns"], total), **row) for row in rows)


def with_outside(store: Store, operations: tuple[MemoryOperation, ...], outside: pl.DataFrame) -> tuple[MemoryOperation, ...]:
    """Add the operations that were launched outside of the recorded steps.

    ``outside``: :func:`...steps.outside.outside_steps`."""
    if not operations or outside.is_empty():
        return operations
    first, last = outside.select(first=pl.col("start").min(), last=pl.col("start").max()).row(0)
    events = store.frame(f"""
        SELECT e.process, e.device, e.stream, e.start_ns AS start, e.start_ns + e.duration_ns AS "end", e.bytes, {_KIND}, {_MEMORY}
        FROM device_event AS e LEFT JOIN name AS n ON n.id = e.name
        WHERE e.kind IN ('memcpy', 'memset') AND e.start_ns BETWEEN {first} AND {last}
    """)
    key = ["process", "device", "stream", "start", "end"]
    keys = outside.select(pl.col(name).cast(events.schema[name]) for name in key)
    sums = events.join(keys, on=key, how="semi", nulls_equal=True).group_by("kind", "memory")
    rows = sums.agg(count=pl.len(), time=(pl.col("end") - pl.col("start")).sum(), bytes=pl.col("bytes").sum()).iter_rows()
    known = {(kind, memory): rest for kind, memory, *rest in rows}
    return tuple(
        replace(operation, outside_count=count, outside_ns=time, outside_bytes=size)
        for operation in operations
        for count, time, size in [known.get((operation.kind, operation.memory), (0, 0, 0))]
    )
