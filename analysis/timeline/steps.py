"""Step that launched each event, by the time of its launch call within the host's range of a step, else by its own time."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import polars as pl

from .events import DEVICE, STEP
from .lanes import of_track

Numbers = npt.NDArray[np.int64]
_LONGER = 2**61  # ns, longer than any step


def steps_around(
    kept: pl.DataFrame, partner: npt.NDArray[np.int32], moved: pl.DataFrame, process_of: dict[int, int]
) -> npt.NDArray[np.int32]:
    """Return, for every kept event, the index of the event of its step, or -1.

    Of several steps, those timed on the device come first, then the shortest. ``moved``: the steps, with ``host_begin``, ``host_end``,
    ``shown_ns`` and ``duration`` from the timeline's origin.
    """
    steps_of_events = np.full(kept.height, -1, np.int32)
    best = np.full(kept.height, np.iinfo(np.int64).max, np.int64)
    source, start, track = (kept[column].to_numpy() for column in ("source", "start", "track"))
    single = kept.filter((pl.col("source") == STEP) & (pl.col("count") == 1)).select("row", "index")
    listed = moved.join(single.with_columns(pl.col("row").cast(moved.schema["row"])), on="row")
    by_track = {number: of_track(track, number) for number in process_of}
    for (process, _, on_device), steps in listed.group_by("process", "phase", "on_device", maintain_order=True):
        later = 0 if on_device else _LONGER
        on_host = _ranges(steps, "host_begin", pl.col("host_end"))
        on_device_alone = _ranges(steps, "shown_ns", pl.col("shown_ns") + pl.col("duration"))
        for number, owner in process_of.items():
            if owner != process:
                continue
            part = by_track[number]
            partners, from_device = partner[part], source[part] == DEVICE
            launched = from_device & (partners >= 0)
            time = np.where(launched, start[partners], start[part])
            for ranges, wanted in ((on_host, ~from_device | launched), (on_device_alone, from_device & ~launched)):
                index, length = _holding(ranges, time)
                length = length + later
                better = wanted & (index >= 0) & (length < best[part]) & (source[part] != STEP)
                steps_of_events[part] = np.where(better, index, steps_of_events[part])
                best[part] = np.where(better, length, best[part])
    return steps_of_events


def _ranges(steps: pl.DataFrame, begin: str, end: pl.Expr) -> tuple[Numbers, Numbers, Numbers]:
    rows = steps.select(begin=pl.col(begin), end=end, index=pl.col("index").cast(pl.Int64)).drop_nulls().sort("begin", "end")
    return rows["begin"].to_numpy(), rows["end"].to_numpy(), rows["index"].to_numpy()


def _holding(ranges: tuple[Numbers, Numbers, Numbers], time: Numbers) -> tuple[Numbers, Numbers]:
    """Return, per time, the last range that began before if it is open; else -1."""
    begin, end, index = ranges
    if not len(begin):
        return np.full(len(time), -1, np.int64), np.zeros(len(time), np.int64)
    index_before = np.searchsorted(begin, time, "right") - 1
    inside = (index_before >= 0) & (time < end[index_before])
    return np.where(inside, index[index_before], -1), np.where(inside, end[index_before] - begin[index_before], 0)
