"""Dot plot: the 5th percentile, the median, and the 95th percentile of series of the same quantity over one axis, with thresholds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ..text import formats
from . import svg
from .axes import nice_ticks
from .palette import GRID, INK, MEANINGS, MUTED, PAPER

_ROW = 19.0
_TOP, _LINE, _BOTTOM = 18.0, 13.0, 33.0
_RADIUS = 3.6
WIDTH = svg.NARROW


@dataclass(frozen=True, slots=True)
class Dots:
    """A row. ``note``: at its right end. ``meaning``: a key of the palette."""

    label: str
    p5: float
    p50: float
    p95: float
    note: str = ""
    meaning: str = "computation"


def dot_plot(rows: Sequence[Dots], limits: Sequence[tuple[float, str]], quantity: str, unit: str, *, top: float) -> str:
    """Return SVG text; ``limits``: values and names.

    The axis, named ``quantity``, ends at ``top``.
    """
    labels, widest = svg.column((row.label for row in rows), 26, 0.36 * WIDTH)
    left = 14 + widest
    right = WIDTH - max((14 + svg.width_of(row.note, 10) for row in rows if row.note), default=14.0)
    scale = (right - left) / top
    body, start = limit_names(limits, left, right, top, _TOP)
    bottom = start + _ROW * len(rows)
    body.append(svg.text(0, 11, "○ p5, | median, ● p95 of the samples", fill=MUTED, size=10))
    for tick in nice_ticks(0, top, 5):
        x = left + tick * scale
        body.append(svg.line(x, start, x, bottom, GRID))
        last = tick + top / 1e6 >= top
        short = formats.tick(tick)
        body.append(svg.text(x, bottom + 14, formats.united(short, unit) if last else short, anchor="middle", fill=MUTED, size=10))
    for limit, _ in limits:
        x = left + min(limit, top) * scale
        body.append(svg.line(x, start - 2, x, bottom, INK, dashes="4 3"))
    for number, (row, label) in enumerate(zip(rows, labels, strict=True)):
        body += _dots(row, label, start + _ROW * (number + 0.5), left, right, scale)
    body.append(svg.text(right, bottom + 28, quantity, anchor="end", fill=MUTED, size=10))
    return svg.document(WIDTH, bottom + _BOTTOM, body)


def _dots(row: Dots, label: str, y: float, left: float, right: float, scale: float) -> list[str]:
    p5, p50, p95 = (left + min(max(value, 0.0) * scale, right - left) for value in (row.p5, row.p50, row.p95))
    color = MEANINGS[row.meaning]
    body = [
        svg.text(left - 8, y + 4, label, anchor="end"),
        svg.rect(p5, y - 1, max(p95 - p5, 0.0), 2, color, title=f"{label}: p5 {row.p5:.1f}, median {row.p50:.1f}, p95 {row.p95:.1f}"),
        svg.circle(p5, y, _RADIUS, PAPER, color),
        svg.circle(p95, y, _RADIUS, color, color),
        svg.rect(p50 - 0.75, y - 6, 1.5, 12, INK),
    ]
    if row.note:
        body.append(svg.text(WIDTH - 2, y + 4, row.note, anchor="end", fill=MUTED, size=10))
    return body


def limit_names(limits: Sequence[tuple[float, str]], left: float, right: float, most: float, top: float) -> tuple[list[str], float]:
    """Draw the names of thresholds above their lines; also return the y below them.

    The axis from ``left`` to ``right`` begins with 0 and ends with ``most``.
    """
    ends: list[float] = []
    body = []
    for limit, name in sorted(limits):
        x, wide = left + (right - left) * min(limit / most, 1.0), svg.width_of(name, 10)
        start = min(max(x - wide / 2, left - 40), right + 12 - wide)
        row = next((i for i, end in enumerate(ends) if end + 8 < start), len(ends))
        if row == len(ends):
            ends.append(0.0)
        ends[row] = start + wide
        body.append(svg.text(start, top + 9 + _LINE * row, name, size=10))
    return body, top + _LINE * len(ends) + (2 if ends else 0)
