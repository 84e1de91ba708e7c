"""Memory of the framework's allocator on each GPU over time, with its peak and its largest growth."""

from __future__ import annotations

from typing import Any, Final

import polars as pl

from ...ingest.store.store import Store
from ..report.device import AllocatorMemory
from ..toolkit.places import Place, Places

POINTS: Final = 400  # points per curve; an allocator with more events gets lowest and highest per interval of equal length
ALL_POINTS: Final = 12_800  # points of all curves together, but at least LEAST per curve
LEAST: Final = 20

_EVENTS: Final = """
    SELECT node, process, device, start_ns AS time, allocated, reserved FROM allocation
    WHERE allocated IS NOT NULL AND device IS NOT NULL ORDER BY node, process, device, start_ns, id
"""
_MEMORY: Final = "SELECT node, index AS device, max(memory_bytes) AS total FROM device GROUP BY ALL"


def allocator_memory(store: Store) -> tuple[AllocatorMemory, ...]:
    """Return a row per process and GPU with recorded allocations, in order."""
    if not store.has_rows("allocation") or (events := store.frame(_EVENTS)).is_empty():
        return ()
    places = Places(store)
    totals = {(node, device): total for node, device, total in store.frame(_MEMORY).rows()}
    rows = []
    allocators = events.partition_by("node", "process", "device", as_dict=True, maintain_order=True)
    most = max(LEAST, min(POINTS, ALL_POINTS // len(allocators)))
    for (node, process, device), allocations in allocators.items():
        location = places.process(process, node)
        rows.append(((location.order, device), _row(location, device, totals.get((node, device)), allocations, most)))
    return tuple(row for _, row in sorted(rows, key=lambda one: one[0]))


def _row(location: Place, device: int, total: int | None, allocations: pl.DataFrame, most: int) -> AllocatorMemory:
    allocations = allocations.with_columns(rise=pl.col("allocated") - pl.col("allocated").cum_min())
    peak = allocations.row(_first(allocations, "allocated"), named=True)
    top = _first(allocations, "rise")
    before = allocations.head(top + 1)
    bottom = int(before.filter(pl.col("allocated") == before["allocated"].min())["time"].tail(1).item())
    points = _drawn(allocations, most)
    curves: dict[str, Any] = {column: tuple(points[column]) for column in ("time_ns", "low", "high", "reserved")}
    return AllocatorMemory(
        *location,
        device=device,
        events=allocations.height,
        total=total,
        first=allocations["allocated"][0],
        last=allocations["allocated"][-1],
        peak=peak["allocated"],
        peak_at_ns=peak["time"],
        reserved_at_peak=peak["reserved"],
        reserved_peak=allocations.select(pl.col("reserved").max()).item(),
        growth=allocations["rise"][top],
        growth_from_ns=bottom,
        growth_to_ns=allocations["time"][top],
        **curves,
    )


def _first(rows: pl.DataFrame, column: str) -> int:
    """Return the number of the first row in which the column is largest."""
    index: Any = rows[column].arg_max()
    return int(index)


def _drawn(allocations: pl.DataFrame, most: int) -> pl.DataFrame:
    """Return every event, or lowest and highest memory per interval of equal length."""
    first, last = allocations["time"][0], allocations["time"][-1]
    if allocations.height <= most:
        return allocations.select("reserved", time_ns="time", low="allocated", high="allocated")
    held = pl.col("allocated").shift(1)
    width = (last - first) // most + 1
    pieces = allocations.with_columns(number=(pl.col("time") - first) // width, held=held).group_by("number", maintain_order=True)
    return pieces.agg(
        time_ns=pl.col("time").min(),
        low=pl.min_horizontal(pl.col("allocated").min(), pl.col("held").first()),
        high=pl.max_horizontal(pl.col("allocated").max(), pl.col("held").first()),
        reserved=pl.col("reserved").max(),
    )
