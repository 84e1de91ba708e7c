"""Flame graph: frames below the frames that called them, each as wide as its time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from ..text import formats
from . import svg
from .axes import nice_ticks, time_unit
from .palette import GRID, MEANINGS, MUTED, PAPER, ink_on
from .stacked_bars import Part

_ROW: Final = 16.0
_TOP: Final = 16.0
_SIZE: Final = 9.5
_PAD: Final = 4.0


@dataclass(frozen=True, slots=True)
class Bar:
    """A frame: seconds on the axis, the possible labels from the longest to the shortest, and the tooltip."""

    depth: int
    start_s: float
    total_s: float
    names: Sequence[str]
    title: str
    meaning: str
    shade: float = 1.0


def flame_graph(bars: Sequence[Bar], kinds: Sequence[Part], total_s: float, *, titles: bool = True, figure_width: float = svg.WIDE) -> str:
    """Return SVG text; ``total_s``: seconds of the full width. ``titles``: tooltips."""
    depth = max((bar.depth for bar in bars), default=0) + 1
    body: list[str] = []
    bottom = _TOP + depth * _ROW
    unit = time_unit(total_s * 1e9)
    length = total_s * 1e9 / unit.nanoseconds
    for tick in nice_ticks(0.0, length, 6 if figure_width > svg.NARROW else 4):
        x = figure_width * tick / length if length else 0.0
        body.append(svg.line(min(x + 0.5, figure_width - 0.5), _TOP - 3, min(x + 0.5, figure_width - 0.5), bottom, GRID))
        label = formats.tick(tick) + (f" {unit.name}" if tick == 0 else "")
        room = svg.width_of(label, _SIZE)
        anchor, at = ("start", x) if tick == 0 else ("end", figure_width) if x + room / 2 > figure_width else ("middle", x)
        body.append(svg.text(at, _TOP - 5, label, anchor=anchor, fill=MUTED, size=_SIZE))
    for bar in bars:
        x, width = (figure_width * seconds / total_s if total_s else 0.0 for seconds in (bar.start_s, bar.total_s))
        width = min(width, figure_width - x)
        if width < 0.3:
            continue
        y = _TOP + bar.depth * _ROW
        # Paper below a pale bar, so that the lines of the axis do not shine through.
        if bar.shade < 1:
            body.append(svg.rect(x, y, max(0.3, width - 0.7), _ROW - 1, PAPER))
        body.append(
            svg.rect(x, y, max(0.3, width - 0.7), _ROW - 1, MEANINGS[bar.meaning], opacity=bar.shade, title=bar.title if titles else None)
        )
        ink = ink_on(bar.meaning, bar.shade)
        if ink and (name := fitting(bar.names, width - 2 * _PAD)):
            body.append(svg.text(x + _PAD, y + _ROW - 4.8, name, fill=ink, size=_SIZE, code=True))
    x, y = 0.0, bottom + 16.0
    for kind in kinds:
        wide = 15 + svg.width_of(kind.name, _SIZE)
        if x and x + wide > figure_width:
            x, y = 0.0, y + 14.0
        body.append(svg.rect(x, y - 9, 10, 10, MEANINGS[kind.meaning], opacity=kind.shade))
        body.append(svg.text(x + 15, y, kind.name, size=_SIZE))
        x += wide + 16
    return svg.document(figure_width, y + 5 if kinds else bottom, body)


def fitting(names: Sequence[str], room: float) -> str:
    """Return the first name that fits, else the start of the last; "" if too short."""
    for name in names:
        if svg.width_of(name, _SIZE, code=True) <= room:
            return name
    short = names[-1] if names else ""
    while short and svg.width_of(short + "…", _SIZE, code=True) > room:
        short = short[:-1]
    return short + "…" if len(short) >= 4 else ""
