"""The idle time of devices that blocking calls of the host cause: gaps and calls -> sums per device, and the charge of each call.

Without a blocking call the host would be ahead by its length, so that the host waits after it would be shorter by that time.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import polars as pl

from ....ingest.store.store import Store
from ...device.device_gaps import DeviceGaps, GapGroup, IdleDevice
from ...toolkit.intervals import difference, intersection, length_inside, union
from .host_time import with_a_cause
from .sync_calls import begun_inside, blocking_calls

_NO_CHARGE: Final = {
    "number": pl.lit(0, pl.UInt32), "row": pl.lit(0, pl.Int32), "blocked": pl.lit(0, pl.Int64), "caused": pl.lit(0, pl.Int64)
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Blocking:
    """The blocking calls of the processes of some devices.

    ``sums``: of each device with calls, by ``row``: ``length`` of their union, its idle part ``blocked``, and ``caused``, in ns.
    ``drained``: idle gaps that begin during a call, to their ends. ``calls``: a row per device and call, as of
    :func:`.sync_calls.blocking_calls`, with ``row``, ``number`` (of the call), and its ``blocked`` and ``caused`` time."""

    devices: tuple[IdleDevice, ...]
    sums: dict[int, tuple[int, int, int]]
    drained: dict[int, int]
    calls: pl.DataFrame


def blocking(store: Store, gaps: DeviceGaps) -> tuple[Blocking, ...]:
    """Return the blocking calls of all devices, in the groups of ``gaps``."""
    return tuple(_blocking(store, gaps))


def _blocking(store: Store, gaps: DeviceGaps) -> Iterator[Blocking]:
    for group in gaps.groups():
        calls = blocking_calls(store, {process for device in group.devices for process in device.processes})
        if calls.is_empty():
            yield Blocking(group.devices, {}, {}, calls.with_columns(**_NO_CHARGE))
            continue
        on_device = calls.with_row_index("number").join(group.rows(), on="process")
        merged = union(on_device, ["row"])
        blocks = _caused(store, merged, group)
        totals = blocks.group_by("row").agg(pl.col("length", "blocked", "caused").sum())
        drained = begun_inside(group.gaps, merged, "row").group_by("row").agg((pl.col("end") - pl.col("start")).sum())
        yield Blocking(
            group.devices,
            {row: (length, blocked, caused) for row, length, blocked, caused in totals.iter_rows()},
            dict(drained.iter_rows()),
            _charged(on_device, blocks, group.gaps),
        )


def _charged(calls: pl.DataFrame, blocks: pl.DataFrame, gaps: pl.DataFrame) -> pl.DataFrame:
    """Charge the longest call of each block, because calls that overlap are one wait."""
    timed = calls.with_columns(blocked=length_inside(calls, gaps, "row"), length=pl.col("end") - pl.col("start"))
    in_block = timed.sort("start").join_asof(
        blocks.select("row", "start", "caused", block="start").sort("start"), on="start", by="row", check_sortedness=False
    )
    main = pl.col("number") == pl.col("number").sort_by("length", "number", descending=[True, False]).first().over("row", "block")
    return in_block.with_columns(caused=pl.when(main).then("caused").otherwise(0).fill_null(0)).drop("length", "block")


def _caused(store: Store, merged: pl.DataFrame, group: GapGroup) -> pl.DataFrame:
    """Return the blocks of each device with ``length``, ``blocked`` and ``caused``.

    A block is calls that overlap, or between which the device waits for the host all the time: a copy and the synchronization after it.
    ``blocked``: the idle time inside. ``caused``: the host waits of the device from the start of the block to the next one, but at most the
    length of the block. Host waits with a cause of their own do not count (:func:`.host_time.with_a_cause`). Of gaps before work whose
    launch is not in the trace only the part inside of a block counts."""
    unknown = intersection(group.gaps.filter(pl.col("ready").is_null()), merged, ["row"])
    waits = pl.concat([group.host_waits().select("row", "start", "end"), unknown.select("row", "start", "end")]).sort("row", "start")
    processes = group.rows()
    if waits.height and merged.height:
        times = union(waits.join(processes, on="row").select("process", "start", "end"), ["process"])
        waits = difference(waits, with_a_cause(store, times).join(processes, on="process").select("row", "start", "end"), ["row"])
    length, start, end = pl.col("end") - pl.col("start"), pl.col("start"), pl.col("end")
    calls = merged.sort("row", "start").with_columns(length=length, blocked=length_inside(merged.sort("row", "start"), group.gaps, "row"))
    between = calls.select("row", start=end.shift(1).over("row").fill_null(start), end=start)
    joined = (length_inside(between, waits, "row") == between["end"] - between["start"]) & (between["end"] > between["start"])
    blocks = calls.group_by("row", (~joined).cum_sum().alias("block"), maintain_order=True).agg(
        start.first(), finish=end.last(), **{name: pl.col(name).sum() for name in ("length", "blocked")}
    )
    later = start.shift(-1).over("row").fill_null(pl.max_horizontal("finish", waits["end"].max()))
    until = blocks.with_columns(end=later)
    return until.with_columns(caused=pl.min_horizontal(length_inside(until, waits, "row"), "length")).drop("block", "end", "finish")
