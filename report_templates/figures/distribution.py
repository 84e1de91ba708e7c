"""Distributions of durations on a logarithmic scale of counts, so that a single slow step is visible next to thousands."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from ..text.formats import clip, count
from . import svg
from .dot_plot import limit_names
from .histogram import Axis, bins_read, draw_axis
from .palette import GRID, INK, MEANINGS, MUTED

_ROW: Final = 30.0
_SINGLE: Final = 84.0
_TOP, _BOTTOM, _LABELS = 18.0, 34.0, 12.0
_WIDE: Final = 2.5  # ratio of the ends from which the axis is logarithmic
_APART: Final = 13.0  # px between the numbers of an axis
_LEAST: Final = 1.5  # height of the bar of one value, and width of the narrowest bar


@dataclass(frozen=True, slots=True)
class Row:
    """Counts between ``edges`` in ns; ``median`` is drawn as a dashed line. ``named``: values with labels, the most important one first."""

    label: str
    edges: Sequence[float]
    counts: Sequence[float]
    median: float | None
    named: Sequence[tuple[float, str]] = ()


def distribution(
    rows: Sequence[Row], quantity: str, meaning: str, limit: tuple[float, str] | None = None, *, width: float = svg.NARROW
) -> str:
    """Return SVG text of a row per distribution.

    ``quantity``: the name of the axis; ``limit``: a threshold in ns, and its name.
    """
    labels, widest = svg.column((row.label for row in rows), 34, 0.4 * width)
    most = max(max(row.counts) for row in rows) or 1.0
    left, right = (12 + widest if widest else 2.0) + 30.0, width - 6.0
    low, high = min(row.edges[0] for row in rows), max(row.edges[-1] for row in rows)
    axis = Axis(low, high, left, right, low > 0 and high > _WIDE * low)
    limits = [limit] if limit is not None and low <= limit[0] <= high else []
    body, top = limit_names([(axis.x(value) - left, name) for value, name in limits], left, right, right - left, _TOP)
    named = _LABELS if any(row.named for row in rows) else 0.0
    tall = _SINGLE if len(rows) == 1 else _ROW
    bottom = top + (tall + named) * len(rows)
    body.append(svg.text(0, 11, "number per bin, logarithmic; dashed: median", fill=MUTED, size=10))
    body += draw_axis(axis, bottom, top, 8 if width > svg.NARROW else 4)
    for number, (row, label) in enumerate(zip(rows, labels, strict=True), 1):
        base = top + (tall + named) * number
        scale = (tall - 6) / math.log1p(most)
        body.append(svg.line(left, base, right, base, GRID))
        highest = base - math.log1p(max(row.counts)) * scale
        for tick, y in ((max(row.counts), highest), (0, base))[: 1 if base - highest < _APART else 2]:
            body.append(svg.text(left - 4, y + 3.5, count(round(tick)), anchor="end", fill=MUTED, size=9))
        data = bins_read(row.edges, row.counts)
        body.append(svg.path(_bars(row, axis, base, scale), MEANINGS[meaning], title=row.label or quantity, data=data))
        if row.median is not None:
            x = axis.x(row.median)
            body.append(svg.line(x, base, x, base - tall + 3, INK, dashes="3 2"))
        if label:
            body.append(svg.text(left - 32, base - tall / 2 + 8, clip(label, 34), anchor="end"))
        body += _names(row, axis, base, scale)
    for value, _ in limits:
        body.append(svg.line(axis.x(value), top - 2, axis.x(value), bottom, INK, dashes="6 2"))
    body.append(svg.text(right, bottom + 29, quantity, anchor="end", fill=MUTED, size=10))
    return svg.document(width, bottom + _BOTTOM, body)


def _bars(row: Row, axis: Axis, base: float, scale: float) -> str:
    parts = []
    for number, entries in enumerate(row.counts):
        if entries > 0:
            start, end = axis.x(row.edges[number]), axis.x(row.edges[number + 1])
            start, end = ((start + end - _LEAST) / 2, (start + end + _LEAST) / 2) if end - start < _LEAST else (start, end)
            parts.append(f"M{start:.1f} {base:g}V{base - max(math.log1p(entries) * scale, _LEAST):.1f}H{end:.1f}V{base:g}Z")
    return "".join(parts)


def _names(row: Row, axis: Axis, base: float, scale: float) -> list[str]:
    """Write the labels of values above their bars, without those that would overlap."""
    taken: list[tuple[float, float]] = []
    body = []
    for value, name in row.named:
        x, wide = axis.x(value), svg.width_of(name, 9)
        start = min(max(x - wide / 2, axis.left), axis.right - wide)
        below = [
            entries
            for entries, low, high in zip(row.counts, row.edges, row.edges[1:], strict=False)
            if axis.x(high) > start and axis.x(low) < start + wide
        ]
        height = max(math.log1p(max(below, default=1)) * scale, _LEAST)
        if all(start >= end + 5 or start + wide <= begin - 5 for begin, end in taken):
            taken.append((start, start + wide))
            body.append(svg.text(start, base - height - 3, name, size=9))
    return body
