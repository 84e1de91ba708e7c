"""In which step was an event launched? By the time of its launch call within the host's range of a step, else by its own time."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import polars as pl

from .events import DEVICE, STEP

Numbers = npt.NDArray[np.int64]
_LONGER = 2**61  # Than any step


def steps_around(
    kept: pl.DataFrame, partner: npt.NDArray[np.int32], moved: pl.DataFrame, process_of: dict[int, int]
) -> npt.NDArray[np.int32]:
    """Of every kept event the index of the step's own event, -1 for none. Where several hold it: of those timed on the device, if there
    are any, the shortest.

    ``moved``: the steps, with ``host_begin``, ``host_end``, ``shown_ns`` and ``duration`` from the timeline's origin.
    """
    found = np.full(kept.height, -1, np.int32)
    best = np.full(kept.height, np.iinfo(np.int64).max, np.int64)
    source, start, track = (kept[column].to_numpy() for column in ("source", "start", "track"))
    own = kept.filter((pl.col("source") == STEP) & (pl.col("count") == 1)).select("row", "index")
    listed = moved.join(own.with_columns(pl.col("row").cast(moved.schema["row"])), on="row")
    by_track = {number: slice(*np.searchsorted(track, [number, number + 1]).tolist()) for number in process_of}
    for (process, _, on_device), steps in listed.group_by("process", "phase", "on_device", maintain_order=True):
        later = 0 if on_device else _LONGER
        on_host = _ranges(steps, "host_begin", pl.col("host_end"))
        shown = _ranges(steps, "shown_ns", pl.col("shown_ns") + pl.col("duration"))
        for number, owner in process_of.items():
            if owner != process:
                continue
            part = by_track[number]
            other, from_device = partner[part], source[part] == DEVICE
            launched = from_device & (other >= 0)
            time = np.where(launched, start[other], start[part])
            for ranges, wanted in ((on_host, ~from_device | launched), (shown, from_device & ~launched)):
                index, length = _holding(ranges, time)
                length = length + later
                better = wanted & (index >= 0) & (length < best[part]) & (source[part] != STEP)
                found[part] = np.where(better, index, found[part])
                best[part] = np.where(better, length, best[part])
    return found


def _ranges(steps: pl.DataFrame, begin: str, end: pl.Expr) -> tuple[Numbers, Numbers, Numbers]:
    rows = steps.select(begin=pl.col(begin), end=end, index=pl.col("index").cast(pl.Int64)).drop_nulls().sort("begin", "end")
    return rows["begin"].to_numpy(), rows["end"].to_numpy(), rows["index"].to_numpy()


def _holding(ranges: tuple[Numbers, Numbers, Numbers], time: Numbers) -> tuple[Numbers, Numbers]:
    """The last range that begins before each time, where it has not ended; else -1."""
    begin, end, index = ranges
    if not len(begin):
        return np.full(len(time), -1, np.int64), np.zeros(len(time), np.int64)
    place = np.searchsorted(begin, time, "right") - 1
    inside = (place >= 0) & (time < end[place])
    return np.where(inside, index[place], -1), np.where(inside, end[place] - begin[place], 0)
