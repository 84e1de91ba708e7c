"""How much memory did the framework's allocator hold on each GPU, over time, and when did it grow most?"""

from __future__ import annotations

from typing import Any, Final

import polars as pl

from ...ingest.store.store import Store
from ..report.model import AllocatorMemory
from ..toolkit.places import Place, Places

POINTS: Final = 400  # How many events of one allocator are kept; of more, as many stretches of equal time with their lowest and highest
ALL_POINTS: Final = 12_800  # Of all allocators together, but at least :data:`LEAST` of each
LEAST: Final = 20

_EVENTS: Final = """
    SELECT node, process, device, start_ns AS time, allocated, reserved FROM allocation
    WHERE allocated IS NOT NULL AND device IS NOT NULL ORDER BY node, process, device, start_ns, rowid
"""
_MEMORY: Final = "SELECT node, index AS device, max(memory_bytes) AS total FROM device GROUP BY ALL"


def allocator_memory(store: Store) -> tuple[AllocatorMemory, ...]:
    """A row per process and GPU of which the profiler recorded allocations, by host name, rank and number."""
    events = store.frame(_EVENTS)
    if events.is_empty():
        return ()
    places = Places(store)
    totals = {(node, device): total for node, device, total in store.frame(_MEMORY).rows()}
    found = []
    allocators = events.partition_by("node", "process", "device", as_dict=True, maintain_order=True)
    most = max(LEAST, min(POINTS, ALL_POINTS // len(allocators)))
    for (node, process, device), own in allocators.items():
        place = places.process(process, node)
        found.append(((place.order, device), _row(place, device, totals.get((node, device)), own, most)))
    return tuple(row for _, row in sorted(found, key=lambda one: one[0]))


def _row(place: Place, device: int, total: int | None, own: pl.DataFrame, most: int) -> AllocatorMemory:
    own = own.with_columns(rise=pl.col("allocated") - pl.col("allocated").cum_min())
    peak = own.row(_first(own, "allocated"), named=True)
    top = _first(own, "rise")
    before = own.head(top + 1)
    bottom = int(before.filter(pl.col("allocated") == before["allocated"].min())["time"].tail(1).item())
    points = _drawn(own, most)
    return AllocatorMemory(
        node=place.node,
        rank=place.rank,
        pid=place.pid,
        device=device,
        events=own.height,
        total=total,
        first=own["allocated"][0],
        last=own["allocated"][-1],
        peak=peak["allocated"],
        peak_at_ns=peak["time"],
        reserved_at_peak=peak["reserved"],
        reserved_peak=own.select(pl.col("reserved").max()).item(),
        growth=own["rise"][top],
        growth_from_ns=bottom,
        growth_to_ns=own["time"][top],
        time_ns=tuple(points["time"]),
        low=tuple(points["low"]),
        high=tuple(points["high"]),
        reserved=tuple(points["reserved"]),
    )


def _first(rows: pl.DataFrame, column: str) -> int:
    """The number of the first row in which the column is largest."""
    found: Any = rows[column].arg_max()
    return int(found)


def _drawn(own: pl.DataFrame, most: int) -> pl.DataFrame:
    """Each event, or the lowest and highest of stretches of equal time: what was held when one began counts for it, too."""
    first, last = own["time"][0], own["time"][-1]
    if own.height <= most:
        return own.select("time", "reserved", low="allocated", high="allocated")
    held = pl.col("allocated").shift(1)
    width = (last - first) // most + 1
    pieces = own.with_columns(number=(pl.col("time") - first) // width, held=held).group_by("number", maintain_order=True)
    return pieces.agg(
        time=pl.col("time").min(),
        low=pl.min_horizontal(pl.col("allocated").min(), pl.col("held").first()),
        high=pl.max_horizontal(pl.col("allocated").max(), pl.col("held").first()),
        reserved=pl.col("reserved").max(),
    )
