"""Coverage of time intervals by the kernels of a device, in nanoseconds."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final, Literal

import polars as pl

from ...ingest.store.store import Store
from ..toolkit.intervals import length_inside, union, union_length
from ..toolkit.places import process_conditions

DEVICE: Final = ["node", "process", "device"]

Device = tuple[int | None, int | None, int]  # ids of node and process, and the index of the device
Kernels = Literal["computation", "communication", "kernel"]  # columns of device_run


def with_covered(
    store: Store, stretches: pl.DataFrame, kernels: Kernels, *, group: str | None = None, times: str | None = None
) -> pl.DataFrame:
    """Add ``covered`` to ``stretches``: the time of each, in ns, with kernels.

    Kernels of all streams count, each moment once. ``stretches`` has the columns node, process, device, ``start``, ``end``; the order of
    the rows changes. ``group``: the condition of :func:`process_conditions` that all stretches satisfy. ``times``: a condition on device
    events ``e`` that all stretches come from; only kernels near such events are read.
    """
    waiting = dict(_parts(stretches)) if len(stretches) else {}
    done = []
    groups = [group] if group else process_conditions(store)
    for condition in groups if waiting else ():
        near = store.frame(f"""
            SELECT e.node, e.process, e.device, e.start_ns AS start, e.end_ns AS "end" FROM device_run AS e
            WHERE e.{kernels} AND {condition} {_near(stretches, times, condition)}
        """)
        for device, events in _parts(near):
            if device in waiting:
                rows = waiting.pop(device)
                done.append(rows.with_columns(covered=covered_between(events, rows["start"], rows["end"])))
    done += [rest.with_columns(covered=pl.lit(0, pl.Int64)) for rest in waiting.values()]
    return pl.concat(done) if done else stretches.with_columns(covered=pl.lit(0, pl.Int64))


def union_lengths(events: pl.DataFrame) -> dict[Device, int]:
    """Return the length of the union of ``events`` (DEVICE, start, end) per device."""
    return {(node, process, device): length for node, process, device, length in union_length(events, DEVICE).rows()}


def _parts(rows: pl.DataFrame) -> Iterator[tuple[Device, pl.DataFrame]]:
    parts: dict[Any, pl.DataFrame] = rows.partition_by(DEVICE, as_dict=True, maintain_order=False)
    yield from parts.items()


_BUCKETS: Final = 65_536  # intervals of equal length into which the stretches' time is divided


def _near(stretches: pl.DataFrame, times: str | None, condition: str) -> str:
    """Select kernels in a bucket of time of one of the events, and long kernels."""
    if times is None:
        return ""
    first, last = stretches.select(pl.col("start").min(), pl.col("end").max()).row(0)
    width = max(1_000_000, (last - first) // _BUCKETS)
    device, start, end = "coalesce(e.device, -1)", f"e.start_ns // {width}", f"(e.start_ns + e.duration_ns) // {width}"
    near = f"(SELECT {device}, unnest(range({start}, {end} + 1)) FROM device_event AS e WHERE {times} AND {condition})"
    return f"AND (e.duration_ns >= {width} OR ({device}, {start}) IN {near} OR ({device}, {end}) IN {near})"


def covered_between(events: pl.DataFrame, starts: pl.Series, ends: pl.Series) -> pl.Series:
    """Return the time of each interval that the union of ``events`` covers, in ns."""
    return length_inside(pl.DataFrame({"start": starts, "end": ends}), union(events))
