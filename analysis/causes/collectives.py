"""Collectives by operation and size, their speed, and the part of their time that is waiting for other ranks."""

from __future__ import annotations

from typing import Any, Final

import polars as pl

from ...ingest.store.store import Store
from ..device.collectives import ONE_TO_ONE, bus_factor
from ..report.model import Collective, Collectives, CollectiveWait
from ..toolkit.places import Places
from ..toolkit.shares import percent_of
from .matching import matched_collectives

MOST: Final = 200

_ABSENT: Final = (
    "No communication kernel in this run. A profile of several ranks with activities CPU and CUDA shows them; PyTorch 2.3 or newer writes"
    " the sizes of collectives, too."
)
_SIZE: Final = ("operation", "element_type", "group_size", "assumed", "bytes")


def collectives(store: Store) -> Collectives:
    """Combine communication kernels into collectives, summed by operation and size."""
    calls = matched_collectives(store)
    if calls.is_empty():
        return Collectives((), 0, 0, 0, None, 0, 0, (), _ABSENT)
    # A call that is not matched counts alone.
    numbered = calls.with_columns(match=pl.when(pl.col("operation").is_in(ONE_TO_ONE)).then(None).otherwise("match"))
    unmatched = numbered.filter(pl.col("known") > 1, ~pl.col("operation").is_in(ONE_TO_ONE), pl.col("match").is_null()).height
    numbered = numbered.with_columns(match=pl.coalesce("match", -1 - pl.int_range(pl.len(), dtype=pl.Int64)))
    every = numbered.group_by("match", maintain_order=True).agg(
        pl.col("operation", "element_type", "group_size", "assumed").first(),
        pl.col("bytes").max(),
        pl.col("kernels").sum(),
        ranks=pl.col("process").n_unique(),
        parts=pl.len(),
        total=pl.col("duration").sum(),
        shortest=pl.col("duration").min(),
    )
    speed = pl.when(pl.col("shortest") > 0).then(pl.col("bytes") / pl.col("shortest"))
    rows = (
        every.with_columns(speed=speed)
        .group_by(*_SIZE, "ranks")
        .agg(
            count=pl.len(),
            kernels=pl.col("kernels").sum(),
            total_ns=pl.col("total").sum(),
            shortest_ns=pl.col("shortest").sum(),
            wait_ns=(pl.col("total") - pl.col("parts") * pl.col("shortest")).sum(),
            best=pl.col("speed").max(),
        )
        .sort("total_ns", *_SIZE, "ranks", descending=[True, *(False for _ in _SIZE), False], nulls_last=True)
    )
    total = int(rows["total_ns"].sum())
    sized = int(rows.filter(pl.col("bytes").is_not_null())["total_ns"].sum())
    return Collectives(
        rows=tuple(_row(row) for row in rows.head(MOST).to_dicts()),
        further=max(0, len(rows) - MOST),
        further_ns=int(rows.slice(MOST)["total_ns"].sum()),
        total_ns=total,
        sized_percent=percent_of(sized, total),
        matched=every.filter(pl.col("ranks") > 1).height,
        unmatched=unmatched,
        waits=_waits(store, numbered),
        absent=None,
    )


def _waits(store: Store, numbered: pl.DataFrame) -> tuple[CollectiveWait, ...]:
    parts = numbered.filter(pl.col("process").n_unique().over("match") > 1)
    if parts.is_empty():
        return ()
    places = Places(store)
    waits = (
        parts.with_columns(wait=pl.col("duration") - pl.col("duration").min().over("match"))
        .group_by("node", "process")
        .agg(pl.len(), pl.col("duration").sum(), pl.col("wait").sum())
    )
    rows = []
    for node, process, collectives, total, wait in waits.iter_rows():
        location = places.process(process, node)
        rows.append((location.order, CollectiveWait(*location, collectives, total, wait)))
    return tuple(wait for _, wait in sorted(rows, key=lambda one: one[0]))


def _row(row: dict[str, Any]) -> Collective:
    factor, best = bus_factor(row["operation"], row["group_size"]), row.pop("best")
    size, shortest = row["bytes"], row["shortest_ns"]
    speed = size * row["count"] / shortest if size is not None and shortest else None  # bytes / ns = GB / s
    wait = row.pop("wait_ns")
    return Collective(
        wait_ns=wait if row["ranks"] > 1 else None,
        algorithm_gb_per_s=speed,
        bus_gb_per_s=None if speed is None or factor is None else speed * factor,
        best_bus_gb_per_s=best * factor if best is not None and factor is not None else None,
        group_size_assumed=row.pop("assumed"),
        **row,
    )
