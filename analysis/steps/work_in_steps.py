"""Host and device time of ranges, operators, and kernels within a few steps."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import polars as pl

from ...ingest.store.store import Store
from ..toolkit.intervals import union_length
from ..toolkit.names import base_name

# Activity in each step: device work during its device time, calls and ranges of its process during its host time, cut to the step. Ranges
# around the whole step carry no information. The hosted profiler's functions of a device are projections of those on the host.
_RAN: Final = """
    WITH part(id, process, host_start, host_end, device_start, device_end) AS (VALUES {parts})
    SELECT p.id, e.kind::VARCHAR AS kind, e.name, false AS called, greatest(e.start_ns, p.device_start) AS start,
        least(e.end_ns, p.device_end) AS "end"
    FROM device_run AS e JOIN part AS p ON e.process IS NOT DISTINCT FROM p.process
        AND e.start_ns < p.device_end AND e.end_ns > p.device_start
    UNION ALL
    SELECT p.id, e.kind::VARCHAR, e.name, true, greatest(e.start_ns, p.host_start), least(e.start_ns + e.duration_ns, p.host_end)
    FROM host_event AS e JOIN part AS p ON e.process IS NOT DISTINCT FROM p.process
        AND e.start_ns < p.host_end AND e.start_ns + e.duration_ns > p.host_start
    WHERE e.kind IN ('operator', 'loader', 'sync')
    UNION ALL
    SELECT p.id, CASE WHEN e.phase IN ('DataLoaderIter', 'DataIterator') THEN 'loader'
            WHEN e.phase = 'cpu_functions' THEN 'operator' ELSE 'annotation' END, e.name, false,
        greatest(e.start_ns, p.host_start), least(e.start_ns + e.duration_ns, p.host_end)
    FROM annotation AS e JOIN part AS p ON e.process IS NOT DISTINCT FROM p.process
        AND e.start_ns < p.host_end AND e.start_ns + e.duration_ns > p.host_start
    WHERE e.side = 'host' AND e.complete IS NOT FALSE
        AND NOT (e.start_ns <= p.host_start AND e.start_ns + e.duration_ns >= p.host_end)
"""


class WorkInSteps:
    """Activity in some steps, read once. ``rows``: steps of :func:`.timed.timed_steps`, by name of the column."""

    def __init__(self, store: Store, rows: Sequence[Mapping[str, Any]]) -> None:
        self._store = store
        self._steps = len(rows)
        parts = ", ".join(_part(number, row) for number, row in enumerate(rows))
        self._events = store.frame(_RAN.format(parts=parts)) if parts else None

    def times(self) -> list[dict[tuple[str, str], int]]:
        """Sum the time in each step by kind and name, including nested ranges."""
        times_of_row: list[dict[tuple[str, str], int]] = [{} for _ in range(self._steps)]
        if self._events is None:
            return times_of_row
        length = pl.col("end") - pl.col("start")
        summed = self._events.group_by("id", "kind", "name").agg(time=length.sum())
        ids = summed["name"].drop_nulls().unique().to_list()
        names = self._store.frame("SELECT id AS name, coalesce(short, text) AS text FROM name WHERE list_contains(?, id)", [ids])
        named = summed.join(names, on="name").with_columns(
            text=pl.when(pl.col("kind") == "annotation").then(base_name(pl.col("text"))).otherwise("text")
        )
        for number, kind, text, time in (
            named.group_by("id", "kind", "text").agg(pl.col("time").sum()).sort("id", "kind", "text").iter_rows()
        ):
            times_of_row[number][kind, text] = time
        return times_of_row

    def operator_times(self) -> list[int]:
        """Return the time of each step in which an operator ran on any thread."""
        times = [0] * self._steps
        if self._events is not None:
            operators = self._events.filter(pl.col("called"), pl.col("kind") == "operator")
            for number, time in union_length(operators, ["id"]).iter_rows():
                times[number] = time
        return times


def _part(number: int, row: Mapping[str, Any]) -> str:
    start = row["host_start_ns"]
    end = start + row["host_duration_ns"]
    on_device = row["device_duration_ns"] is not None
    first = row["device_start_ns"] if on_device else start
    last = first + row["device_duration_ns"] if on_device else end
    process = "NULL::INTEGER" if row["process"] is None else int(row["process"])
    return f"({number}, {process}, {start}::BIGINT, {end}::BIGINT, {first}::BIGINT, {last}::BIGINT)"
