"""Stacked bars: one bar per device or process, its parts side by side."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from ..text.formats import NARROW_SPACE, significant
from . import svg
from .axes import nice_ticks
from .palette import GRID, INK, MEANINGS, MUTED, ON, PAPER

WIDTH = 720.0
_ROW, _BAR, _TOP, _RIGHT = 20.0, 14.0, 30.0, 14.0
_LABEL = 186.0  # maximum width
_APART = 4.0  # wider parts have a gap between them, which separates them without color


@dataclass(frozen=True, slots=True)
class Part:
    """A class of time, the same in every row. ``meaning`` is a key of the palette."""

    name: str
    meaning: str
    shade: float = 1.0


def stacked_bars(
    parts: Sequence[Part],
    rows: Sequence[tuple[str, Sequence[float]]],
    unit: str,
    *,
    axis_end: float | None = None,
    limit: tuple[float, str] | None = None,
) -> str:
    """Return SVG text of rows: a label, and a value per part, in ``unit``.

    ``axis_end``: default the longest row. ``limit``: a threshold and its name, drawn as a dashed line.
    """
    used = [i for i in range(len(parts)) if any(values[i] > 0 for _, values in rows)]
    labels, widest = svg.column((label for label, _ in rows), 32, _LABEL)
    left = 14 + widest
    end = axis_end or max(sum(values) for _, values in rows) or 1.0
    scale = (WIDTH - left - _RIGHT) / end
    bottom = _TOP + _ROW * len(rows)
    line = left + limit[0] * scale if limit and 0 <= limit[0] <= end else None
    numbers: list[str] = []
    body = legend([parts[i] for i in used], left, limit[1] if limit else None)
    for tick in nice_ticks(0, end, 6):
        body += tick_line(left + tick * scale, tick, unit, _TOP - 4, bottom, end=WIDTH - 40)
    for number, (label, (_, values)) in enumerate(zip(labels, rows, strict=True)):
        y = _TOP + _ROW * number
        body.append(svg.text(left - 8, y + _BAR / 2 + 4, label, anchor="end", fill=INK))
        x, before = left, 0.0
        for i in used:
            part, value = parts[i], values[i]
            width = value * scale
            if width <= 0:
                continue
            short = significant(float(f"{value:.3g}"))
            value_text = f"{short} {unit}" if axis_end is None else f"{value:.1f} {unit}"
            body.append(
                svg.rect(x, y, width, _BAR, MEANINGS[part.meaning], opacity=part.shade, title=f"{label}, {part.name}: {value_text}")
            )
            if min(before, width) > _APART:
                body.append(svg.rect(x - 0.5, y, 1, _BAR, PAPER))
            inside = short if axis_end is None else f"{value:.0f}"
            if width > svg.width_of(inside, 10) + 8:
                middle = _beside(x + width / 2, svg.width_of(inside, 10), line, x + width)
                numbers.append(svg.text(middle, y + 11, inside, anchor="middle", fill=ON[part.meaning], size=10))
            x, before = x + width, width
        if x < left + 1:  # a row without a bar would look as if its figure were missing
            body.append(svg.rect(left, y, 1, _BAR, MUTED))
            numbers.append(svg.text(left + 5, y + 11, f"{significant(float(f'{sum(values):.3g}'))} {unit}", fill=MUTED, size=10))
    if line is not None:
        body.append(svg.line(line, _TOP - 4, line, bottom, INK, dashes="4 3"))
    return svg.document(WIDTH, bottom + 20, body + numbers)


def _beside(middle: float, wide: float, line: float | None, end: float) -> float:
    """Move a number right of the line that would cross it, if there is room."""
    if line is None or abs(middle - line) > wide / 2 + 3:
        return middle
    return line + wide / 2 + 4 if line + wide + 6 < end else middle


def tick_line(x: float, tick: float, unit: str, top: float, bottom: float, *, end: float = math.inf) -> list[str]:
    """Draw a line of the grid and its number; a number after ``end`` is at the edge."""
    number = f"{tick:,.10g} {unit}".replace(",", NARROW_SPACE)
    at, anchor = (WIDTH - 2, "end") if x > end else (x, "middle")
    return [svg.line(x, top, x, bottom, GRID), svg.text(at, bottom + 14, number, anchor=anchor, fill=MUTED, size=10)]


def legend(parts: Sequence[Part], left: float, limit: str | None) -> list[str]:
    """Draw a square and a name per part, and a dashed line for the limit."""
    body = []
    widths = [26 + svg.width_of(part.name) for part in parts]
    if limit:
        widths.append(30 + svg.width_of(limit))
    x = left if left + sum(widths) < WIDTH else max(0.0, WIDTH - sum(widths))
    for part, width in zip(parts, widths, strict=False):
        body.append(svg.rect(x, 6, 11, 11, MEANINGS[part.meaning], opacity=part.shade))
        body.append(svg.text(x + 16, 15.5, part.name, fill=INK))
        x += width
    if limit:
        body.append(svg.line(x + 5, 4, x + 5, 19, INK, dashes="4 3"))
        body.append(svg.text(x + 12, 15.5, limit, fill=INK))
    return body
