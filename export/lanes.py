"""Lanes of a track for its events: two events on a lane do not overlap, except if one contains the other.

Viewers draw a stack of events per lane: two that overlap in part would hide one, or end the wrong one.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import Final

import numpy as np
from numpy.typing import NDArray

MOST: Final = 1 << 12  # Most lanes of one track; an event without a free lane goes to the last one
_NEVER: Final = 1 << 64


@dataclass(frozen=True, slots=True)
class Ends:
    """Events that have ended, with their time, track and lane."""

    times: NDArray[np.int64]
    tracks: NDArray[np.int64]
    lanes: NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Placed:
    """``lanes``: of each event. ``ends``: events that ended before an event begins, ordered by this event. ``over``: where those of each
    event begin (one entry more than there are events). ``fresh``: track and lane of each new lane."""

    lanes: NDArray[np.int64]
    ends: Ends
    over: NDArray[np.int32]
    fresh: list[tuple[int, int]]


class Lanes:
    """The lanes of the tracks of one kind; events come track by track, ordered by start, the longest first.

    ``nested``: whether an event may be inside another one (calls of a thread); kernels of a stream are next to each other.
    """

    def __init__(self, *, nested: bool) -> None:
        self.nested = nested
        self._track = -1
        self._open: list[list[int]] = [[_NEVER]]
        self._times: list[int] = []
        self._over: list[int] = []
        self._lanes: list[tuple[int, int]] = []
        self._fresh: list[tuple[int, int]] = []

    def assign(self, tracks: NDArray[np.int64], starts: NDArray[np.int64], ends: NDArray[np.int64]) -> Placed:
        """Assign lanes to the next events; each ends at or after its start."""
        self._times, self._over, self._fresh = [], [], []
        lanes = np.zeros(len(tracks), np.int64)
        pieces: list[tuple[int, int]] = []
        special: list[tuple[int, int]] = []
        cuts = [0, *(np.flatnonzero(np.diff(tracks)) + 1).tolist(), len(tracks)]
        for begin, end in pairwise(cuts):
            if begin == end:
                continue
            if tracks[begin] != self._track:
                special += self._close()
                pieces.append((self._track, len(self._times)))
                self._track, self._open = int(tracks[begin]), [[_NEVER]]
            others, lanes_of_ends = self._run(starts[begin:end].tolist(), ends[begin:end].tolist())
            for index, lane in others:
                lanes[begin + index] = lane
            special += lanes_of_ends
            pieces.append((self._track, len(self._times)))
        over = np.array([0, *self._over], np.int32)  # what is over is noted before the event that comes after it
        return Placed(lanes, self._ends(pieces, special), over, self._fresh)

    def rest(self) -> Ends:
        """Return the ends of the events that are open after the last event."""
        self._times = []
        special = self._close()
        return self._ends([(self._track, len(self._times))], special)

    def _run(self, starts: list[int], ends: list[int]) -> tuple[list[tuple[int, int]], list[tuple[int, int]]]:
        """Process one track's events; return lanes of events and ends not on lane 0."""
        others: list[tuple[int, int]] = []
        special: list[tuple[int, int]] = []
        nested, first, times, over = self.nested, self._open[0], self._times, self._over
        for index, (start, end) in enumerate(zip(starts, ends, strict=True)):
            while first[-1] <= start:
                times.append(first.pop())
            if end <= first[-1] if nested else first[-1] == _NEVER:
                first.append(end)
            else:
                others.append((index, self._elsewhere(start, end, special)))
            over.append(len(times))
        return others, special

    def _elsewhere(self, start: int, end: int, special: list[tuple[int, int]]) -> int:
        for lane, stack in enumerate(self._open[1:], 1):
            while stack[-1] <= start:
                special.append((len(self._times), lane))
                self._times.append(stack.pop())
            if (end <= stack[-1] if self.nested else stack[-1] == _NEVER) or lane == MOST - 1:
                stack.append(end)
                return lane
        self._open.append([_NEVER, end])
        self._fresh.append((self._track, len(self._open) - 1))
        return len(self._open) - 1

    def _close(self) -> list[tuple[int, int]]:
        """End what is open on every lane."""
        special: list[tuple[int, int]] = []
        for lane, stack in enumerate(self._open):
            for end in stack[:0:-1]:
                if lane:
                    special.append((len(self._times), lane))
                self._times.append(end)
        self._open = [[_NEVER]]
        return special

    def _ends(self, pieces: list[tuple[int, int]], special: list[tuple[int, int]]) -> Ends:
        lanes = np.zeros(len(self._times), np.int64)
        for index, lane in special:
            lanes[index] = lane
        upto = np.array([0, *(end for _, end in pieces)])
        tracks = np.repeat(np.array([track for track, _ in pieces], np.int64), np.diff(upto))
        return Ends(np.array(self._times, np.int64), tracks, lanes)
