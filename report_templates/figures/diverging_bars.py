"""Bars from a line in the middle: to the right for growth, to the left for shrinkage."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from ..text import formats
from . import svg
from .axes import nice_ticks
from .palette import GRID, INK, MEANINGS, MUTED

WIDTH = 720.0
_ROW, _BAR, _TOP = 20.0, 13.0, 24.0
_LABEL = 238.0
_TEXT = 118.0  # least room for the texts next to the longest bars


@dataclass(frozen=True, slots=True)
class Effect:
    """A row: its name, a key of the palette, the effect, and the text next to the bar."""

    name: str
    meaning: str
    effect: float
    text: str


def diverging_bars(rows: Sequence[Effect], unit: str) -> str:
    """Return SVG text; effects are in ``unit``, and both sides have one scale."""
    labels, widest = svg.column((row.name for row in rows), 40, _LABEL, 10)
    left = 12 + widest
    low, high = min(0.0, *(row.effect for row in rows)), max(0.0, *(row.effect for row in rows))
    span = (high - low) or 1.0
    # The text of each bar is at its free end.
    start = left + (_room(row.text for row in rows if row.effect < 0) if low < 0 else 12)
    scale = (WIDTH - start - (_room(row.text for row in rows if row.effect >= 0) if high > 0 else 24)) / span
    zero = start - low * scale
    bottom = _TOP + _ROW * len(rows)
    body = []
    if low < 0:
        body.append(svg.text(zero - 8, 12, "← shrank", anchor="end", fill=MUTED, size=10))
    if high > 0:
        body.append(svg.text(zero + 8, 12, "grew →", fill=MUTED, size=10))
    for tick in nice_ticks(low, high, 6):
        x = zero + tick * scale
        body.append(svg.line(x, _TOP - 4, x, bottom, GRID))
        label = formats.united(formats.tick(tick), unit)
        body.append(svg.text(x, bottom + 14, label, anchor="middle", fill=MUTED, size=10))
    for number, (label, row) in enumerate(zip(labels, rows, strict=True)):
        y = _TOP + _ROW * number
        wide = abs(row.effect) * scale
        x = zero if row.effect >= 0 else zero - wide
        body.append(svg.text(left - 8, y + _BAR - 2, label, anchor="end", fill=INK, size=10))
        body.append(svg.rect(x, y, max(wide, 1.0), _BAR, MEANINGS[row.meaning], title=f"{row.name}: {row.text}"))
        at, anchor = (x + wide + 5, "start") if row.effect >= 0 else (x - 5, "end")
        body.append(svg.text(at, y + _BAR - 2, row.text, anchor=anchor, fill=MUTED, size=10))
    body.append(svg.line(zero, _TOP - 4, zero, bottom, INK))
    return svg.document(WIDTH, bottom + 20, body)


def _room(texts: Iterable[str]) -> float:
    return max(_TEXT, *(10 + svg.width_of(text, 10) for text in texts))
