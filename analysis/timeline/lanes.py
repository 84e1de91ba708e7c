"""Lane of each event in its track, so that no two events of a lane overlap.

An event gets the first free lane from the top, so nested events are below the event that contains them.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import accumulate, pairwise
from typing import Any, Final

import numpy as np
import numpy.typing as npt

MOST: Final = 1000  # lanes of a track
_BLOCK: Final = 1 << 16  # events that are handled together, so that arrays stay in the cache
_LATEST: Final = 2**62

Numbers = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]
Columns = dict[str, npt.NDArray[Any]]


def of_track(track: npt.NDArray[Any], number: int) -> slice:
    """Return the entries of a track in the sorted column ``track``."""
    same_type = track.dtype.type(number)  # else the column would be converted
    return slice(int(np.searchsorted(track, same_type, "left")), int(np.searchsorted(track, same_type, "right")))


def assign_lanes(events: Columns) -> int:
    """Sort events by track, lane and start; return how many are left out.

    Adds ``lane``. Events that no lane has room for are left out. Of events of a track that start together, the longest gets the first
    lane, of equally long ones the first row. ``events``, of one source: ``row``, ``track``, ``start`` and ``duration``.
    """
    track = events["track"]
    # The stable sort of short integers is a radix sort, and of times in long runs a merge.
    order = np.arange(len(track)) if (track[1:] >= track[:-1]).all() else np.argsort(track, kind="stable")
    lane = np.empty(len(track), np.int16)
    done = 0
    for first, last in _blocks(track[order]):
        part, lanes = _block(order[first:last], events)
        order[done : done + len(part)], lane[done : done + len(part)] = part, lanes
        done += len(part)
    for column in ("row", "track", "start", "duration"):
        events[column] = events[column][order[:done]]
    events["lane"] = lane[:done]
    return len(lane) - done


def _blocks(track: npt.NDArray[Any]) -> Iterator[tuple[int, int]]:
    """Yield the bounds of blocks of whole tracks."""
    first = 0
    for begin, end in pairwise([*np.flatnonzero(np.diff(track, prepend=-1)).tolist(), len(track)]):
        if end - first > _BLOCK and begin > first:
            yield first, begin
            first = begin
    if len(track):
        yield first, len(track)


def _block(part: Numbers, events: Columns) -> tuple[Numbers, npt.NDArray[np.int16]]:
    """Return the events ``part``, whole tracks, by track, lane and start, and lanes."""
    track, start, duration = (events[column][part] for column in ("track", "start", "duration"))
    firsts = np.flatnonzero(np.diff(track, prepend=-1))
    if len(firsts) > 1:
        # Tracks one after the other are like one track with pauses.
        lows = np.minimum.reduceat(start, firsts).tolist()
        highs = np.maximum.reduceat(start + duration, firsts).tolist()
        ends = list(accumulate(high - low + 1 for low, high in zip(lows, highs, strict=True)))
        if ends[-1] > _LATEST:
            pieces = [_block(piece, events) for piece in np.split(part, firsts[1:])]
            return np.concatenate([piece for piece, _ in pieces]), np.concatenate([lanes for _, lanes in pieces])
        moved = [end - high - 1 for end, high in zip(ends, highs, strict=True)]
        start += np.repeat(np.array(moved, np.int64), np.diff(firsts, append=len(part)))
    order = _order(start, duration, events["row"][part])
    if order is not None:
        part, start, duration = part[order], start[order], duration[order]
    lanes = _lanes(start, start + duration)
    if not lanes.any():
        return part, lanes
    by_lane = np.argsort(lanes, kind="stable")
    by_lane = by_lane[int((lanes < 0).sum()) :]
    if len(firsts) > 1:
        by_lane = by_lane[np.argsort(track[by_lane], kind="stable")]
    return part[by_lane], lanes[by_lane]


def _order(start: Numbers, duration: Numbers, row: Numbers) -> Numbers | None:
    """Return the order by start, longest first, then by row; None if it is so."""
    order = None if (start[1:] >= start[:-1]).all() else np.argsort(start, kind="stable")
    ordered = start if order is None else start[order]
    same = ordered[1:] == ordered[:-1]
    if same.any():
        order = np.arange(len(start)) if order is None else order
        alike = np.flatnonzero(np.append(same, False) | np.append(False, same))
        members = order[alike]
        order[alike] = members[np.lexsort((row[members], -duration[members], start[members]))]
    return order


def _lanes(start: Numbers, end: Numbers) -> npt.NDArray[np.int16]:
    """Return the lanes of events by start, longest first; -1 if no lane is free."""
    lanes = np.zeros(len(start), np.int16)
    # A stretch is from one event that overlaps no earlier one to the next.
    stretches = np.flatnonzero(np.append(True, start[1:] >= np.maximum.accumulate(end)[:-1]))[: len(start)]
    if len(stretches) < len(start):
        cuts = np.unique(np.searchsorted(stretches, np.arange(0, len(start), _BLOCK)))
        bounds = np.append(stretches, len(start))[np.append(cuts, len(stretches))].tolist()
        for first, last in pairwise(bounds):
            lanes[first:last] = _lanes_of_stretches(start[first:last], end[first:last])
    return lanes


def _lanes_of_stretches(start: Numbers, end: Numbers) -> npt.NDArray[np.int16]:
    # The number of other events at the start of each event; events without duration never count.
    long = end > start
    depth = np.cumsum(long, dtype=np.int32)
    depth -= long
    depth -= np.searchsorted(np.sort(end[long]), start, "right")
    crossing = _crossing(start, end, depth)
    if crossing.any():
        stretch = np.cumsum(np.append(True, start[1:] >= np.maximum.accumulate(end)[:-1]))
        mixed = np.zeros(int(stretch[-1]) + 1, np.bool_)
        mixed[stretch[crossing]] = True
        chosen = np.flatnonzero(mixed[stretch])
        depth[chosen] = _first_free(start[chosen], end[chosen], stretch[chosen])
    return np.where(depth < MOST, depth, -1).astype(np.int16)


def _crossing(start: Numbers, end: Numbers, depth: npt.NDArray[np.int32]) -> Flags:
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
