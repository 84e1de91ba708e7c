"""Reduction of the events to the number that a report can contain.

Except for events that must stay single, neighbors in a lane that are shorter than a width and start in the same interval of that width are
merged. The merged event begins with the first of them and lasts as long as their sum, so the busy time of a lane stays the same.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt

Flags = npt.NDArray[np.bool_]
Numbers = npt.NDArray[np.int64]

WIDTHS: Final = tuple(factor * 10**power for power in range(3, 18) for factor in (1, 2, 5))  # 1 µs to 16 years, in ns


@dataclass(frozen=True, slots=True)
class Merged:
    """Events after merging. ``first``: the first member of every remaining event; ``count``: its members; ``duration_ns``: their sum.
    ``width_ns``: shorter events were merged; None if none were. ``level``: index of the flags in ``unmerged`` that were respected; None if
    none were. ``dropped``: number of events, the shortest ones, that exceeded the cap."""

    first: Numbers
    count: Numbers
    duration_ns: Numbers
    width_ns: int | None
    level: int | None
    dropped: int


def merge(
    lane: npt.NDArray[np.integer[Any]],
    start_ns: Numbers,
    duration_ns: Numbers,
    unmerged: Sequence[Flags],
    cap: int,
    *,
    count: Numbers | None = None,
    span: int | None = None,
) -> Merged:
    """Merge to at most ``cap`` events, with the smallest sufficient width.

    ``lane``: a number per lane of the run; events are by lane and start. ``unmerged``: flags of events to keep single, most important
    first. If the first flags leave too many events, the next ones are tried, then none. ``count``: the events that each event is already
    merged of; None: one. ``span``: time of all events, from the first start.
    """
    every = np.ones(len(lane), np.bool_)
    count = np.ones(len(lane), np.int64) if count is None else count
    if len(lane) <= cap:
        return _merged(every, duration_ns, count, None, None, cap)
    same = np.zeros(len(lane), np.bool_)
    same[1:] = lane[1:] == lane[:-1]
    span = int(start_ns.max() - start_ns.min()) + int(duration_ns.max()) + 1 if span is None else span
    widths = [width for width in WIDTHS if width < 10 * span] or [WIDTHS[0]]
    for level, fixed in enumerate((*unmerged, np.zeros(len(lane), np.bool_))):
        if begins(same, start_ns, duration_ns, count, fixed, widths[-1]).sum() > cap and level < len(unmerged):
            continue
        low, high = 0, len(widths) - 1
        while low < high:
            middle = (low + high) // 2
            if begins(same, start_ns, duration_ns, count, fixed, widths[middle]).sum() <= cap:
                high = middle
            else:
                low = middle + 1
        chosen = begins(same, start_ns, duration_ns, count, fixed, widths[high])
        return _merged(chosen, duration_ns, count, widths[high], level if level < len(unmerged) else None, cap)
    raise AssertionError("the last level is always taken")


def begins(same: Flags, start_ns: Numbers, duration_ns: Numbers, count: Numbers, fixed: Flags, width: int) -> Flags:
    """Mark the events that are not merged with the one before.

    ``same``: whether an event is in the lane of the one before. ``count``: more than 1 if an event was merged with a smaller width."""
    short = ((duration_ns < width) | (count > 1)) & ~fixed
    stretch = start_ns // width
    joined = same & short
    joined[1:] &= short[:-1] & (stretch[1:] == stretch[:-1])
    return ~joined


def _merged(flags: Flags, duration_ns: Numbers, members: Numbers, width: int | None, level: int | None, cap: int) -> Merged:
    first = np.flatnonzero(flags).astype(np.int64)
    duration, count = (np.add.reduceat(values, first) if len(first) else values[:0] for values in (duration_ns, members))
    dropped = 0
    if len(first) > cap:
        longest = np.sort(np.argsort(-duration, kind="stable")[:cap])
        dropped = int(count.sum() - count[longest].sum())
        first, count, duration = first[longest], count[longest], duration[longest]
    return Merged(first, count, duration, width, level, dropped)
