"""Copies and memsets: time, bytes and bandwidth by kind."""

from __future__ import annotations

from ...ingest.store.store import Store
from ..report.device import MemoryOperation
from ..toolkit.contents import kinds
from ..toolkit.shares import percent_of


def memory_operations(store: Store) -> tuple[MemoryOperation, ...]:
    """Sum copies by kind and host memory, and memsets ("Memset"), longest total first.

    Bandwidth is bytes / time in 10^9 bytes per second, over the operations whose size is known; None if their time is 0. Percent is of
    the summed time of all memory operations. A copy of unknown kind keeps the name of its event.
    """
    if kinds(store, "device_event").isdisjoint({"memcpy", "memset"}):
        return ()
    rows = store.frame("""
        SELECT CASE WHEN e.kind = 'memset' THEN 'Memset' ELSE coalesce(e.copy_kind, n.text, 'unknown') END AS kind,
               CASE WHEN e.kind = 'memset' THEN NULL WHEN e.pageable THEN 'pageable' WHEN NOT e.pageable THEN 'pinned' END AS memory,
               count(*) AS count, sum(e.duration_ns)::BIGINT AS total_ns, sum(e.bytes)::BIGINT AS total_bytes,
               sum(e.bytes)::BIGINT / nullif((sum(e.duration_ns) FILTER (e.bytes IS NOT NULL))::BIGINT, 0) AS bandwidth_gb_per_s
        FROM device_event AS e LEFT JOIN name AS n ON n.id = e.name
        WHERE e.kind IN ('memcpy', 'memset') GROUP BY ALL ORDER BY total_ns DESC, kind, memory NULLS LAST
    """).rows(named=True)
    total = sum(row["total_ns"] for row in rows)
    return tuple(MemoryOperation(percent=percent_of(row["total_ns"], total), **row) for row in rows)
