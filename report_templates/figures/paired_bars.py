"""Several bars per row, all from zero: measures of ranks that overlap and do not add up."""

from __future__ import annotations

from collections.abc import Sequence

from ..text import formats
from ..text.formats import significant
from . import svg
from .axes import nice_ticks
from .palette import INK, MEANINGS, MUTED
from .stacked_bars import Part, legend, tick_line

_BAR, _GAP, _RIGHT = 9.0, 6.0, 40.0  # on the right: room for the number behind the longest bar


def paired_bars(
    parts: Sequence[Part],
    rows: Sequence[tuple[str, Sequence[float | None]]],
    unit: str,
    *,
    limit: tuple[float, str] | None = None,
    width: float = svg.NARROW,
) -> str:
    """Return SVG text of rows: a label, and a value or None per part, in ``unit``.

    ``limit``: a value to compare the first part with, and its name; a dashed line through the bars of that part.
    """
    labels, widest = svg.column((label for label, _ in rows), 32, min(186.0, 0.36 * width))
    left = 14 + widest
    end = max([value or 0.0 for _, values in rows for value in values] + [limit[0] if limit else 0.0]) or 1.0
    scale = (width - left - _RIGHT) / end
    row = _BAR * len(parts) + _GAP
    body, top_y = legend(parts, left, limit[1] if limit else None, width)
    bottom = top_y + row * len(rows)
    line = left + limit[0] * scale if limit else None
    for tick in nice_ticks(0, end, 4):
        body += tick_line(left + tick * scale, tick, unit, top_y - 4, bottom, width)
    for number, (label, (_, values)) in enumerate(zip(labels, rows, strict=True)):
        y = top_y + row * number
        body.append(svg.text(left - 8, y + (row - _GAP) / 2 + 4, label, anchor="end", fill=INK))
        for part, value in zip(parts, values, strict=True):
            if value is not None:
                short = significant(float(f"{value:.3g}"))
                title = f"{label}, {part.name}: {formats.united(short, unit)}"
                body.append(svg.rect(left, y, max(0.0, value) * scale, _BAR - 1, MEANINGS[part.meaning], opacity=part.shade, title=title))
                behind = left + max(0.0, value) * scale
                # The number moves behind the line if the line would cross it.
                if line is not None and part is parts[0] and behind <= line < behind + svg.width_of(short, 9) + 6:
                    behind = line
                body.append(svg.text(behind + 4, y + _BAR - 1, short, fill=MUTED, size=9))
            y += _BAR
        if line is not None:
            top = top_y + row * number
            body.append(svg.line(line, top - 2, line, top + _BAR + 1, INK, dashes="3 2"))
    return svg.document(width, bottom + 20, body)
