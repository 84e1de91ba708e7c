"""On which lane of its track does an event lie, so that no two on a lane overlap without one holding the other?

Viewers draw a stack of events per lane: two that overlap in part would hide one, or end the wrong one.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import Final

import numpy as np
from numpy.typing import NDArray

MOST: Final = 1 << 12  # Lanes of one track at most; what finds none free is put on the last one
_NEVER: Final = 1 << 64


@dataclass(frozen=True, slots=True)
class Ends:
    """Events that are over: when, and on which lane of which track."""

    times: NDArray[np.int64]
    tracks: NDArray[np.int64]
    lanes: NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Placed:
    """``lanes``: of each event. ``ends``: what is over before an event begins, those of the first event first; ``over`` says where those of
    each event begin (one entry more than there are events). ``fresh``: track and lane of each lane that was not there before."""

    lanes: NDArray[np.int64]
    ends: Ends
    over: NDArray[np.int32]
    fresh: list[tuple[int, int]]


class Lanes:
    """The lanes of the tracks of one kind. Give it the events track by track, in order of start, of those that start together the longest
    first.

    ``nested``: whether an event may lie in another one (calls of a thread); runs on a stream lie beside each other.
    """

    def __init__(self, *, nested: bool) -> None:
        self.nested = nested
        self._track = -1
        self._open: list[list[int]] = [[_NEVER]]
        self._times: list[int] = []
        self._over: list[int] = []
        self._lanes: list[tuple[int, int]] = []
        self._fresh: list[tuple[int, int]] = []

    def place(self, tracks: NDArray[np.int64], starts: NDArray[np.int64], ends: NDArray[np.int64]) -> Placed:
        """The next events. Each ends when it starts, or later."""
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
            for place, lane in others:
                lanes[begin + place] = lane
            special += lanes_of_ends
            pieces.append((self._track, len(self._times)))
        over = np.array([0, *self._over], np.int32)  # what is over is noted before the event that comes after it
        return Placed(lanes, self._ends(pieces, special), over, self._fresh)

    def rest(self) -> Ends:
        """What is still open when there are no more events."""
        self._times = []
        special = self._close()
        return self._ends([(self._track, len(self._times))], special)

    def _run(self, starts: list[int], ends: list[int]) -> tuple[list[tuple[int, int]], list[tuple[int, int]]]:
        """Events of one track: the lanes of those that are not on the first one, and of the ends that are not."""
        others: list[tuple[int, int]] = []
        special: list[tuple[int, int]] = []
        nested, first, times, over = self.nested, self._open[0], self._times, self._over
        for place, (start, end) in enumerate(zip(starts, ends, strict=True)):
            while first[-1] <= start:
                times.append(first.pop())
            if end <= first[-1] if nested else first[-1] == _NEVER:
                first.append(end)
            else:
                others.append((place, self._elsewhere(start, end, special)))
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
        for place, lane in special:
            lanes[place] = lane
        upto = np.array([0, *(end for _, end in pieces)])
        tracks = np.repeat(np.array([track for track, _ in pieces], np.int64), np.diff(upto))
        return Ends(np.array(self._times, np.int64), tracks, lanes)
