"""Stacked bars: one bar per device or process, its parts side by side."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ..text import formats
from ..text.formats import significant
from . import svg
from .axes import nice_ticks
from .palette import GRID, INK, MEANINGS, MUTED, PAPER, ink_on

_ROW, _BAR, _RIGHT = 20.0, 14.0, 14.0
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
    width: float = svg.NARROW,
) -> str:
    """Return SVG text of rows: a label, and a value per part, in ``unit``.

    ``axis_end``: default the longest row. ``limit``: a threshold and its name, drawn as a dashed line.
    """
    used = [i for i in range(len(parts)) if any(values[i] > 0 for _, values in rows)]
    labels, widest = svg.column((label for label, _ in rows), 32, min(_LABEL, 0.36 * width))
    left = 14 + widest
    end = axis_end or max(sum(values) for _, values in rows) or 1.0
    scale = (width - left - _RIGHT) / end
    body, top = legend([parts[i] for i in used], left, limit[1] if limit else None, width)
    bottom = top + _ROW * len(rows)
    line = left + limit[0] * scale if limit and 0 <= limit[0] <= end else None
    numbers: list[str] = []
    for tick in nice_ticks(0, end, 6 if width > svg.NARROW else 4):
        body += tick_line(left + tick * scale, tick, unit, top - 4, bottom, width)
    for number, (label, (_, values)) in enumerate(zip(labels, rows, strict=True)):
        y = top + _ROW * number
        body.append(svg.text(left - 8, y + _BAR / 2 + 4, label, anchor="end", fill=INK))
        x, before = left, 0.0
        for i in used:
            part, value = parts[i], values[i]
            wide = value * scale
            if wide <= 0:
                continue
            short = significant(float(f"{value:.3g}"))
            value_text = formats.united(short if axis_end is None else f"{value:.1f}", unit)
            body.append(svg.rect(x, y, wide, _BAR, MEANINGS[part.meaning], opacity=part.shade, title=f"{label}, {part.name}: {value_text}"))
            if min(before, wide) > _APART:
                body.append(svg.rect(x - 0.5, y, 1, _BAR, PAPER))
            inside = short if axis_end is None else f"{value:.0f}"
            ink = ink_on(part.meaning, part.shade)
            if ink and wide > svg.width_of(inside, 10) + 8:
                middle = _beside(x + wide / 2, svg.width_of(inside, 10), line, x + wide)
                numbers.append(svg.text(middle, y + 11, inside, anchor="middle", fill=ink, size=10))
            x, before = x + wide, wide
        if x < left + 1:  # a row without a bar would look as if its figure were missing
            body.append(svg.rect(left, y, 1, _BAR, MUTED))
            numbers.append(svg.text(left + 5, y + 11, formats.united(significant(float(f"{sum(values):.3g}")), unit), fill=MUTED, size=10))
    if line is not None:
        body.append(svg.line(line, top - 4, line, bottom, INK, dashes="4 3"))
    return svg.document(width, bottom + 20, body + numbers)


def _beside(middle: float, wide: float, line: float | None, end: float) -> float:
    """Move a number right of the line that would cross it, if there is room."""
    if line is None or abs(middle - line) > wide / 2 + 3:
        return middle
    return line + wide / 2 + 4 if line + wide + 6 < end else middle


def tick_line(x: float, tick: float, unit: str, top: float, bottom: float, width: float) -> list[str]:
    """Draw a line of the grid and its number, which stays within ``width``."""
    number = formats.united(formats.tick(tick), unit)
    at, anchor = (width - 2, "end") if x > width - svg.width_of(number, 10) / 2 else (x, "middle")
    return [svg.line(x, top, x, bottom, GRID), svg.text(at, bottom + 14, number, anchor=anchor, fill=MUTED, size=10)]


def legend(parts: Sequence[Part], left: float, limit: str | None, width: float) -> tuple[list[str], float]:
    """Draw a square and a name per part, and a dashed line for the limit.

    It takes as many lines as ``width`` requires. Return the drawing and the y below it.
    """
    names = [part.name for part in parts] + ([limit] if limit else [])
    body = []
    start = left if left + sum(26 + svg.width_of(name) for name in names) < width else 0.0
    x, y = start, 6.0
    for number, name in enumerate(names):
        room = 26 + svg.width_of(name)
        if x > start and x + room > width + 8:
            x, y = start, y + 16
        if number < len(parts):
            body.append(svg.rect(x, y, 11, 11, MEANINGS[parts[number].meaning], opacity=parts[number].shade))
        else:
            body.append(svg.line(x + 5, y - 2, x + 5, y + 13, INK, dashes="4 3"))
        body.append(svg.text(x + 16, y + 9.5, name, fill=INK))
        x += room
    return body, y + 24
