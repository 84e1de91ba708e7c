"""In which lane of its track does an event lie, so that no two events of a lane overlap?

The first free lane from the top: what is nested lies below what it is nested in.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Final

import numpy as np
import numpy.typing as npt
import polars as pl

MOST: Final = 1000  # Lanes of one track; an event for which none of these is free gets lane -1

Numbers = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]


def with_lanes(events: pl.DataFrame) -> pl.DataFrame:
    """``events`` (columns track, start, duration; no duration below 0) sorted by track and start, longest first, with ``lane``."""
    order = _order(events)
    ordered = events if order is None else events[order]
    track, start = ordered["track"].to_numpy(), ordered["start"].to_numpy()
    end = start + ordered["duration"].to_numpy()
    lane = np.zeros(len(track), np.int16)
    bounds = [0, *(np.flatnonzero(np.diff(track)) + 1).tolist(), len(track)]
    for first, last in pairwise(bounds):
        found = _lanes(start[first:last], end[first:last])
        lane[first:last] = np.where(found < MOST, found, -1)
    return ordered.with_columns(lane=pl.Series(lane))


def _order(events: pl.DataFrame) -> Numbers | None:
    """Where each event of the sorted table stands now; None where it is sorted. Traces mostly are, track by track."""
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
    """Whether the rows are in order of the first key, those with equal ones in order of the second, and so on."""
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
    """Of the events of one track, by start and the longest first."""
    overlaps = np.zeros(len(start), np.bool_)
    overlaps[1:] = start[1:] < np.maximum.accumulate(end)[:-1]
    if not overlaps.any():
        return np.zeros(len(start), np.int64)
    # How many others are going on when an event starts; those without duration never are.
    long = end > start
    depth = np.cumsum(long) - long - np.searchsorted(np.sort(end[long]), start, "right")
    crossing = _crossing(start, end, depth)
    if crossing.any():
        # From one event that overlaps none before it to the next.
        stretch = np.cumsum(~overlaps, dtype=np.int64)
        mixed = np.zeros(int(stretch[-1]) + 1, np.bool_)
        mixed[stretch[crossing]] = True
        chosen = np.flatnonzero(mixed[stretch])
        depth[chosen] = _first_free(start[chosen], end[chosen], stretch[chosen])
    return depth.astype(np.int64)


def _crossing(start: Numbers, end: Numbers, depth: Numbers) -> Flags:
    """Which events overlap another one of the same depth, as those do that overlap without nesting."""
    found = np.zeros(len(start), np.bool_)
    # Of short integers the stable sort is a radix sort.
    small = int(depth.max(initial=0)) < 2**15
    by_depth = np.argsort(depth.astype(np.int16) if small else depth, kind="stable")
    bounds = [0, *(np.flatnonzero(np.diff(depth[by_depth])) + 1), len(depth)]
    for first, last in pairwise(bounds):
        members = by_depth[first:last]
        found[members[1:]] = start[members[1:]] < np.maximum.accumulate(end[members])[:-1]
    return found


def _first_free(start: Numbers, end: Numbers, stretch: Numbers) -> list[int]:
    """Lane by lane from the top, stretch by stretch. Only for events that overlap without nesting, which are few."""
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
