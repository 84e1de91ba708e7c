"""What was copied and set, how much of it, how fast?"""

from __future__ import annotations

from ...ingest.store.store import Store
from ..report.model import MemoryOperation
from ..toolkit.shares import percent_of


def memory_operations(store: Store) -> tuple[MemoryOperation, ...]:
    """Copies by kind and host memory, and memsets ("Memset"), longest total first; empty without any.

    Bandwidth is bytes / time in 10^9 bytes per second, over the operations whose size is known; None where none is, or where they took
    no time. Percent is of the summed time of all memory operations. A copy whose kind the source does not say keeps its own name.
    """
    rows = store.frame("""
        SELECT CASE WHEN e.kind = 'memset' THEN 'Memset' ELSE coalesce(e.copy_kind, n.text, 'unknown') END AS kind,
               CASE WHEN e.kind = 'memset' THEN NULL WHEN e.pageable THEN 'pageable' WHEN NOT e.pageable THEN 'pinned' END AS memory,
               count(*) AS count, sum(e.duration_ns)::BIGINT AS total, sum(e.bytes)::BIGINT AS bytes,
               (sum(e.duration_ns) FILTER (e.bytes IS NOT NULL))::BIGINT AS timed
        FROM device_event AS e LEFT JOIN name AS n ON n.id = e.name
        WHERE e.kind IN ('memcpy', 'memset') GROUP BY ALL ORDER BY total DESC, kind, memory NULLS LAST
    """).rows(named=True)
    whole = sum(row["total"] for row in rows)
    return tuple(
        MemoryOperation(
            kind=row["kind"],
            memory=row["memory"],
            count=row["count"],
            total_ns=row["total"],
            total_bytes=row["bytes"],
            bandwidth_gb_per_s=row["bytes"] / row["timed"] if row["bytes"] is not None and row["timed"] else None,
            percent=percent_of(row["total"], whole),
        )
        for row in rows
    )
