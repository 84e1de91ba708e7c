"""Marks over an axis of time or steps, the same in all figures: dips of the utilization, the profile window, and slow steps."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, Literal

from . import svg
from .palette import INK, MEANINGS

NAMES: Final = 13.0  # height of the row of names
_LEAST: Final = 2.0  # width of a window
_BAR: Final = 6.0  # a wider window is a bracket, so that the data in it stay visible
_PALE: Final = 0.45
_SIZE: Final = 10.0
_GAP: Final = 8.0
_TIP: Final = 3.5


@dataclass(frozen=True, slots=True)
class Mark:
    """A stretch of an axis, in its units, and what is there. ``more``: the end of the label, if there is room for it.

    ``kind``: a dip is a pale field behind the data, the profile window a black bar or bracket, a slow step a triangle at its start.
    """

    label: str
    more: str
    start: float
    end: float
    kind: Literal["dip", "window", "slow"] = "dip"

    @property
    def middle(self) -> float:
        """Return the value above which its label is centered."""
        return self.start if self.kind == "slow" else (self.start + self.end) / 2


def behind(marks: Sequence[Mark], x: Callable[[float], float], top: float, bottom: float) -> list[str]:
    """Draw the dips, which are behind the data."""
    return [
        svg.rect(
            x(mark.start), top, x(mark.end) - x(mark.start), bottom - top, MEANINGS["idle"], opacity=_PALE, title=mark.label + mark.more
        )
        for mark in marks
        if mark.kind == "dip"
    ]


def before(marks: Sequence[Mark], x: Callable[[float], float], top: float, bottom: float, most: float = math.inf) -> list[str]:
    """Draw the profile window and the slow steps, which are in front of the data.

    ``most``: the right end of the axis.
    """
    body = []
    for mark in marks:
        title = mark.label + mark.more
        left, right = x(mark.start), x(mark.end)
        if mark.kind == "slow":
            body.append(svg.path(f"M{svg.number(left - _TIP)} {svg.number(top)}h{2 * _TIP}l-{_TIP} {2 * _TIP}z", INK, title=title))
        elif mark.kind == "window" and right - left <= _BAR:
            wide = max(right - left, _LEAST)
            body.append(svg.rect(min((left + right - wide) / 2, most - wide), top, wide, bottom - top, INK, title=title))
        elif mark.kind == "window":
            body.append(svg.rect(left, top, right - left, 2.5, INK, title=title))
            body += [svg.line(at, top, at, bottom, INK) for at in (left, right)]
    return body


def names(marks: Sequence[Mark], x: Callable[[float], float], left: float, right: float, y: float) -> list[str]:
    """Write the labels above their marks in one row, without overlap."""
    taken: list[tuple[float, float]] = []
    body = []
    for mark in sorted(marks, key=lambda mark: mark.kind == "slow"):
        wide = svg.width_of(mark.label, _SIZE)
        start = min(max(x(mark.middle) - wide / 2, left), right - wide)
        if all(start >= end + _GAP or start + wide <= begin - _GAP for begin, end in taken):
            taken.append((start, start + wide))
            body.append(svg.text(start, y, mark.label, size=_SIZE))
    return body
