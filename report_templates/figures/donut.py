"""Ring of the parts of a total; the table next to it names the parts by number."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from ..text.formats import percent
from . import svg
from .palette import INK, MEANINGS, MUTED, PAPER, SHADES

SIZE = 176.0
_OUTER, _INNER = 68.0, 44.0


@dataclass(frozen=True, slots=True)
class Sector:
    """A part. ``meaning``: a key of the palette; ``shade`` distinguishes adjacent parts of one meaning."""

    name: str
    percent: float
    meaning: str
    shade: float = 1.0


def shaded(parts: Sequence[tuple[str, float, str]]) -> tuple[Sector, ...]:
    """Give each (name, percent, meaning) a shade."""
    seen: dict[str, int] = {}
    sectors = []
    for name, share, meaning in parts:
        number = seen[meaning] = seen.get(meaning, -1) + 1
        sectors.append(Sector(name, share, meaning, SHADES[number % len(SHADES)]))
    return tuple(sectors)


def donut(sectors: Sequence[Sector], value: str, label: str, *, total_percent: float = 100.0) -> str:
    """Return SVG text of a ring with ``value`` and ``label`` in its middle.

    A gap remains if the sectors do not add up to ``total_percent``.
    """
    middle = SIZE / 2
    body = []
    angle = 0.0
    for number, sector in enumerate(sectors, 1):
        sweep = 2 * math.pi * min(max(sector.percent, 0.0) / total_percent, 1.0)
        if sweep <= 0:
            continue
        title = f"{sector.name}: {percent(sector.percent)}"
        fill = MEANINGS[sector.meaning]
        gap = PAPER if len(sectors) > 1 else None
        body.append(svg.path(_ring(middle, angle, angle + sweep), fill, opacity=sector.shade, stroke=gap, title=title))
        if sweep > 0.2 and len(sectors) > 1:  # a number of 13 px needs about 11 degrees outside the ring
            x, y = _point(middle, angle + sweep / 2, _OUTER + 11)
            body.append(svg.text(x, y + 4.5, str(number), anchor="middle", size=13))
        angle += sweep
    # Pale sectors end at a line that is not pale.
    body += [svg.circle(middle, middle, radius, "none", MUTED) for radius in (_OUTER, _INNER)]
    size = min(17.0, 78 / svg.width_of(value, 1.0))
    body.append(svg.text(middle, middle + 1, value, anchor="middle", fill=INK, size=size, bold=True))
    body.append(svg.text(middle, middle + 16, label, anchor="middle", fill=MUTED, size=11))
    return svg.document(SIZE, SIZE, body)


def _point(middle: float, angle: float, radius: float) -> tuple[float, float]:
    return middle + radius * math.sin(angle), middle - radius * math.cos(angle)


def _ring(middle: float, start: float, end: float) -> str:
    """Return the path of a sector.

    More than half a ring is two sectors, because an arc that ends near its own start is empty.
    """
    if end - start > math.pi:
        half = (start + end) / 2
        return _ring(middle, start, half) + _ring(middle, half, end)
    (ax, ay), (bx, by) = _point(middle, start, _OUTER), _point(middle, end, _OUTER)
    (cx, cy), (dx, dy) = _point(middle, end, _INNER), _point(middle, start, _INNER)
    return (
        f"M{ax:.2f} {ay:.2f}A{_OUTER:g} {_OUTER:g} 0 0 1 {bx:.2f} {by:.2f}L{cx:.2f} {cy:.2f}A{_INNER:g} {_INNER:g} 0 0 0 {dx:.2f} {dy:.2f}Z"
    )
