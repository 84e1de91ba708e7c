"""Lane of each event in its track, so that no two events of a lane overlap.

An event gets the first free lane from the top, so nested events are below the event that contains them.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Final

import numpy as np
import numpy.typing as npt
import polars as pl

MOST: Final = 1000  # lanes of a track; an event without a free lane gets lane -1

Numbers = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]


def with_lanes(events: pl.DataFrame) -> pl.DataFrame:
    """Sort ``events`` by track and start, longest first, and add ``lane``."""
    order = _order(events)
    ordered = events if order is None else events[order]
    track, start = ordered["track"].to_numpy(), ordered["start"].to_numpy()
    end = start + ordered["duration"].to_numpy()
    lane = np.zeros(len(track), np.int16)
    bounds = [0, *(np.flatnonzero(np.diff(track)) + 1).tolist(), len(track)]
    for first, last in pairwise(bounds):
        lanes = _lanes(start[first:last], end[first:last])
        lane[first:last] = np.where(lanes < MOST, lanes, -1)
    return ordered.with_columns(lane=pl.Series(lane))


def _order(events: pl.DataFrame) -> Numbers | None:
    """Return the order that sorts the table; None if it is sorted, as most are."""
    track = events["track"].to_numpy()
    order = None if (np.diff(track) >= 0).all() else np.argsort(track, kind="stable")
    held = track if order is None else track[order]
    bounds = [0, *(np.flatnonzero(np.diff(held)) + 1).tolist(), len(held)]
    ties = [events[column].to_numpy() for column in ("row", "source") if column in events.columns]
    start, duration = events["start"].to_numpy(), events["duration"].to_numpy()
    for first, last in pairwise(bounds):
        part = slice(first, last) if order is None else order[first:last]
        keys = [*(column[part] for column in ties), -duration[part], start[part]]
        if not _sorted(keys[::-1]):
            if order is None:
                order = np.arange(len(held))
            order[first:last] = order[first:last][np.lexsort(keys)]
    return order


def _sorted(keys: list[Numbers]) -> bool:
    """Return whether the rows are in lexicographic order of the keys."""
    equal: Flags | None = None
    for key in keys:
        wrong = key[1:] < key[:-1]
        if (wrong if equal is None else wrong & equal).any():
            return False
        same = key[1:] == key[:-1]
        equal = same if equal is None else equal & same
        if not equal.any():
            return True
    return True


def _lanes(start: Numbers, end: Numbers) -> Numbers:
    """Return the lanes of a track's events, which are by start, longest first."""
    overlaps = np.zeros(len(start), np.bool_)
    overlaps[1:] = start[1:] < np.maximum.accumulate(end)[:-1]
    if not overlaps.any():
        return np.zeros(len(start), np.int64)
    # The number of other events at the start of each event; events without duration never count.
    long = end > start
    depth = np.cumsum(long) - long - np.searchsorted(np.sort(end[long]), start, "right")
    crossing = _crossing(start, end, depth)
    if crossing.any():
        # A stretch is from one event that overlaps no earlier one to the next.
        stretch = np.cumsum(~overlaps, dtype=np.int64)
        mixed = np.zeros(int(stretch[-1]) + 1, np.bool_)
        mixed[stretch[crossing]] = True
        chosen = np.flatnonzero(mixed[stretch])
        depth[chosen] = _first_free(start[chosen], end[chosen], stretch[chosen])
    return depth.astype(np.int64)


def _crossing(start: Numbers, end: Numbers, depth: Numbers) -> Flags:
    """Mark events that overlap another one of the same depth, as they are not nested."""
    crossing = np.zeros(len(start), np.bool_)
    # The stable sort of short integers is a radix sort.
    small = int(depth.max(initial=0)) < 2**15
    by_depth = np.argsort(depth.astype(np.int16) if small else depth, kind="stable")
    bounds = [0, *(np.flatnonzero(np.diff(depth[by_depth])) + 1), len(depth)]
    for first, last in pairwise(bounds):
        members = by_depth[first:last]
        crossing[members[1:]] = start[members[1:]] < np.maximum.accumulate(end[members])[:-1]
    return crossing


def _first_free(start: Numbers, end: Numbers, stretch: Numbers) -> list[int]:
    """Assign the first free lane, for the few events that overlap without nesting."""
    lanes: list[int] = []
    ends: list[int] = []
    last = -1
    for begins, stops, number in zip(start.tolist(), end.tolist(), stretch.tolist(), strict=True):
        if number != last:
            ends, last = [], number
        for lane, busy in enumerate(ends):
            if busy <= begins:
                ends[lane] = stops
                break
        else:
            lane = len(ends)
            if lane < MOST:
                ends.append(stops)
        lanes.append(lane)
    return lanes
