"""How do more events than a report can hold become fewer?

Outside of what must stay whole, neighbours of a lane that are shorter than a width and start in the same stretch of that width become one
event. It begins with the first of them and lasts as long as all of them together: a lane is shown busy for as long as it was.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

Flags = npt.NDArray[np.bool_]
Numbers = npt.NDArray[np.int64]

_WIDTHS: Final = tuple(factor * 10**power for power in range(3, 18) for factor in (1, 2, 5))  # 1 µs to 16 years, in ns


@dataclass(frozen=True, slots=True)
class Merged:
    """``first``: of every event that remains the (first) one it is made of; ``count``: of how many; ``duration_ns``: together.
    ``width_ns``: shorter ones than this were merged, None where none were; ``level``: of ``whole``, what stayed whole; None: nothing did.
    ``dropped``: events for which there was no place, the shortest."""

    first: Numbers
    count: Numbers
    duration_ns: Numbers
    width_ns: int | None
    level: int | None
    dropped: int


def merge(lane: Numbers, start_ns: Numbers, duration_ns: Numbers, whole: Sequence[Flags], cap: int) -> Merged:
    """At most ``cap`` events, with the smallest width that does. ``lane``: a number per lane of the run; events by lane and start.

    ``whole``: which events are not to be merged, the most wanted first; the next one is tried where that does not fit, then none.
    """
    every = np.ones(len(lane), np.bool_)
    if len(lane) <= cap:
        return _made(every, duration_ns, None, None, cap)
    same = np.zeros(len(lane), np.bool_)
    same[1:] = lane[1:] == lane[:-1]
    span = int(start_ns.max() - start_ns.min()) + int(duration_ns.max()) + 1
    widths = [width for width in _WIDTHS if width < 10 * span] or [_WIDTHS[0]]
    for level, fixed in enumerate((*whole, np.zeros(len(lane), np.bool_))):
        if _begins(same, start_ns, duration_ns, fixed, widths[-1]).sum() > cap and level < len(whole):
            continue
        low, high = 0, len(widths) - 1
        while low < high:
            middle = (low + high) // 2
            if _begins(same, start_ns, duration_ns, fixed, widths[middle]).sum() <= cap:
                high = middle
            else:
                low = middle + 1
        begins = _begins(same, start_ns, duration_ns, fixed, widths[high])
        return _made(begins, duration_ns, widths[high], level if level < len(whole) else None, cap)
    raise AssertionError("the last level is always taken")


def _begins(same: Flags, start_ns: Numbers, duration_ns: Numbers, fixed: Flags, width: int) -> Flags:
    """Where an event of the result begins: at every one that is not merged with the one before it."""
    short = (duration_ns < width) & ~fixed
    stretch = start_ns // width
    joined = same & short
    joined[1:] &= short[:-1] & (stretch[1:] == stretch[:-1])
    return ~joined


def _made(begins: Flags, duration_ns: Numbers, width: int | None, level: int | None, cap: int) -> Merged:
    first = np.flatnonzero(begins).astype(np.int64)
    count = np.diff(first, append=len(begins))
    duration = np.add.reduceat(duration_ns, first) if len(first) else duration_ns[:0]
    dropped = 0
    if len(first) > cap:
        longest = np.sort(np.argsort(-duration, kind="stable")[:cap])
        dropped = int(count.sum() - count[longest].sum())
        first, count, duration = first[longest], count[longest], duration[longest]
    return Merged(first, count, duration, width, level, dropped)
