"""In which lane of its track does an event lie, so that no two events of a lane overlap?

The first free lane from the top: what is nested lies below what it is nested in.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Final

import numpy as np
import numpy.typing as npt
import polars as pl

MOST: Final = 1000
"""Lanes of one track; an event for which none of these is free gets lane -1."""

Numbers = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]


def with_lanes(events: pl.DataFrame) -> pl.DataFrame:
    """``events`` (columns track, start, duration; no duration below 0) sorted by track and start, longest first, with ``lane``."""
    order = [column for column in ("source", "row") if column in events.columns]
    ordered = events.sort("track", "start", "duration", *order, descending=[False, False, True, *(False for _ in order)])
    track, start = ordered["track"].to_numpy(), ordered["start"].to_numpy()
    end = start + ordered["duration"].to_numpy()
    lane = np.zeros(len(track), np.int64)
    bounds = [0, *(np.flatnonzero(np.diff(track)) + 1), len(track)]
    for first, last in pairwise(bounds):
        lane[first:last] = _lanes(start[first:last], end[first:last])
    return ordered.with_columns(lane=pl.Series(np.where(lane < MOST, lane, -1).astype(np.int16)))


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
    by_depth = np.argsort(depth, kind="stable")
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
