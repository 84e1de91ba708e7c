"""Reduction of events while they are read: parts of the events of a long run -> at most a few million, with the same merged result.

A timeline merges short neighbors of a lane that start in the same interval of a width (:mod:`.merge`). Each width divides the powers of
ten above it. So if the events that were read so far exceed the cap at a power of ten, the final width is a larger multiple of it, and
events that are merged at this power of ten would be merged anyway.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Final

import numpy as np
import numpy.typing as npt

from .lanes import Columns
from .merge import WIDTHS, Flags, Merged, Numbers, begins, merge
from .views import Stretch

AT_ONCE: Final = 2_000_000  # events in memory, about, before the first are merged
_GROWTH: Final = 1.25  # from one attempt to merge with a larger width to the next

Recordings = Callable[[npt.NDArray[np.int32], Numbers], Numbers]
"""Tracks in order, and starts of events -> the number of the recording of each event."""


class Reduction:
    """Events of whole tracks, which :meth:`add` takes part by part. ``total``, ``whole_ns``: number and summed time of all.

    ``stretches``: those that a timeline shows without merging, if it can. ``recordings``: events of two recordings are never merged."""

    def __init__(self, cap: int, stretches: Sequence[Stretch], recordings: Recordings) -> None:
        self._cap = cap
        self._steps = [stretch for stretch in stretches if stretch.view.track is not None]
        self._recordings = recordings
        self._parts: list[Columns] = []
        self._size = 0
        self._most = AT_ONCE
        self._width = 0
        self._first = self._last = self._longest = 0
        self.total = 0
        self.whole_ns = 0

    def add(self, part: Columns) -> None:
        """Add events by track, lane and start; the columns may change."""
        start, duration = part["start"], part["duration"]
        if len(start):
            first, last = int(start.min()), int(start.max())
            self._first, self._last = (min(self._first, first), max(self._last, last)) if self.total else (first, last)
            self._longest = max(self._longest, int(duration.max()))
            self.total += len(start)
            self.whole_ns += int(duration.sum())
        self._parts.append(self._reduced(part) if self._width else part)
        self._size += len(self._parts[-1]["row"])
        if self._size > self._most:
            self._widen()
            self._most = max(AT_ONCE, int(self._size * _GROWTH))

    def _widen(self) -> None:
        """Merge with larger widths, as long as the result exceeds the cap."""
        for width in (width for width in WIDTHS if width > self._width and str(width).strip("0") == "1"):
            if sum(int(self._begins(part, width, _none(part)).sum()) for part in self._parts) <= self._cap:
                return
            self._width = width
            self._parts = [self._reduced(part) for part in self._parts]
            self._size = sum(len(part["row"]) for part in self._parts)
            if self._size <= AT_ONCE:
                return

    def _reduced(self, part: Columns) -> Columns:
        """Merge events that every larger width merges, whichever stretches are kept."""
        fixed = self._fixed(part)
        first = np.flatnonzero(self._begins(part, self._width, fixed > 0))
        if not len(first):
            return {**part, "count": _count(part), "fixed": fixed}
        reduced = {column: part[column][first] for column in ("row", "track", "lane", "start")}
        sums = {column: np.add.reduceat(values, first) for column, values in (("duration", part["duration"]), ("count", _count(part)))}
        return {**reduced, **sums, "fixed": fixed[first]}

    def _fixed(self, part: Columns) -> npt.NDArray[np.int8]:
        """Return whether each event is in one of the stretches (1), in the first one (2)."""
        if "fixed" in part:
            return part["fixed"]
        start, end = part["start"], part["start"] + part["duration"]
        fixed = np.zeros(len(start), np.int8)
        for number, step in enumerate(self._steps):
            fixed |= ((start < step.last_ns) & (end >= step.first_ns)) * np.int8(1 if number else 3)
        return fixed

    def _same(self, part: Columns) -> Flags:
        """Return whether each event is in the lane and recording of the one before."""
        same = np.zeros(len(part["track"]), np.bool_)
        recording = self._recordings(part["track"], part["start"])
        same[1:] = np.logical_and.reduce([values[1:] == values[:-1] for values in (part["track"], part["lane"], recording)])
        return same

    def _begins(self, part: Columns, width: int, fixed: Flags) -> Flags:
        return begins(self._same(part), part["start"], part["duration"], _count(part), fixed, width)

    def merged(self) -> tuple[Columns, Merged]:
        """Return the events that remain, by track, lane and start, and how they merge."""
        ordered = _by_track(self._parts)
        self._parts = []
        start, duration = ordered["start"], ordered["duration"]
        if self.total <= self._cap:
            return ordered, merge(start, start, duration, (), self._cap)
        fixed = self._fixed(ordered)
        unmerged = [fixed > 0, fixed > 1] if self._steps else []
        lane = np.cumsum(~self._same(ordered), dtype=np.int32)
        span = self._last - self._first + self._longest + 1
        return ordered, merge(lane, start, duration, unmerged, self._cap, count=_count(ordered), span=span)


def _count(part: Columns) -> Numbers:
    return part["count"] if "count" in part else np.ones(len(part["row"]), np.int64)


def _none(part: Columns) -> Flags:
    return np.zeros(len(part["row"]), np.bool_)


def _by_track(parts: list[Columns]) -> Columns:
    """Join the parts; each track is in one of them. Empties the parts."""
    pieces = [(-1, 0, 0, parts[0])]  # at least one, even without events
    for part in parts:
        firsts = np.flatnonzero(np.diff(part["track"], prepend=-1)).tolist()
        pieces += [(int(part["track"][low]), low, high, part) for low, high in pairwise([*firsts, len(part["track"])])]
    pieces.sort(key=lambda piece: piece[0])
    joined = {}
    for column in list(parts[0]):
        joined[column] = np.concatenate([part[column][low:high] for _, low, high, part in pieces])
        for part in parts:
            del part[column]
    return joined
