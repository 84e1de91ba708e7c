"""Host and device time of ranges, operators, and kernels within a few steps."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import polars as pl

from ...ingest.store.store import Store
from ..toolkit.names import base_name

# Activity in each step: device work during its device time, calls and ranges of its process during its host time, cut to the step. Ranges
# around the whole step carry no information. The hosted profiler's functions of a device are projections of those on the host.
_RAN: Final = """
    WITH part(id, process, host_start, host_end, device_start, device_end) AS (VALUES {parts}),
    found AS (
        SELECT p.id, e.kind::VARCHAR AS kind, e.name,
            least(e.start_ns + e.duration_ns, p.device_end) - greatest(e.start_ns, p.device_start) AS time
        FROM device_event AS e JOIN part AS p ON e.process IS NOT DISTINCT FROM p.process
            AND e.start_ns < p.device_end AND e.start_ns + e.duration_ns > p.device_start
        WHERE e.kind <> 'sync'
        UNION ALL
        SELECT p.id, e.kind::VARCHAR, e.name,
            least(e.start_ns + e.duration_ns, p.host_end) - greatest(e.start_ns, p.host_start)
        FROM host_event AS e JOIN part AS p ON e.process IS NOT DISTINCT FROM p.process
            AND e.start_ns < p.host_end AND e.start_ns + e.duration_ns > p.host_start
        WHERE e.kind IN ('operator', 'loader', 'sync')
        UNION ALL
        SELECT p.id, CASE WHEN e.phase IN ('DataLoaderIter', 'DataIterator') THEN 'loader'
                WHEN e.phase = 'cpu_functions' THEN 'operator' ELSE 'annotation' END, e.name,
            least(e.start_ns + e.duration_ns, p.host_end) - greatest(e.start_ns, p.host_start)
        FROM annotation AS e JOIN part AS p ON e.process IS NOT DISTINCT FROM p.process
            AND e.start_ns < p.host_end AND e.start_ns + e.duration_ns > p.host_start
        WHERE e.side = 'host' AND e.complete IS NOT FALSE
            AND NOT (e.start_ns <= p.host_start AND e.start_ns + e.duration_ns >= p.host_end)
    )
    SELECT f.id, f.kind, coalesce(n.short, n.text) AS name, sum(f.time)::BIGINT AS time
    FROM found AS f JOIN name AS n ON n.id = f.name GROUP BY ALL
"""


def ran_in_steps(store: Store, rows: Sequence[Mapping[str, Any]]) -> list[dict[tuple[str, str], int]]:
    """Sum the time in each step by kind and name, including nested ranges."""
    parts = []
    for at, row in enumerate(rows):
        start = row["host_start_ns"]
        end = start + row["host_duration_ns"]
        on_device = row["device_duration_ns"] is not None
        first = row["device_start_ns"] if on_device else start
        last = first + row["device_duration_ns"] if on_device else end
        process = "NULL::INTEGER" if row["process"] is None else int(row["process"])
        parts.append(f"({at}, {process}, {start}::BIGINT, {end}::BIGINT, {first}::BIGINT, {last}::BIGINT)")
    times_of_row: list[dict[tuple[str, str], int]] = [{} for _ in rows]
    if parts:
        times = store.frame(_RAN.format(parts=", ".join(parts)))
        name = pl.when(pl.col("kind") == "annotation").then(base_name(pl.col("name"))).otherwise("name")
        summed = times.group_by("id", "kind", name.alias("name")).agg(pl.col("time").sum()).sort("id", "kind", "name")
        for at, kind, text, time in summed.iter_rows():
            times_of_row[at][kind, text] = time
    return times_of_row
