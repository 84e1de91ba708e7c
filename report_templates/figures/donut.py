"""How does a whole divide into its parts? A ring; the parts are named in the table beside it, by number."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from . import svg
from .palette import INK, MEANINGS, MUTED, PAPER, SHADES

SIZE = 176.0
_OUTER, _INNER = 66.0, 41.0


@dataclass(frozen=True, slots=True)
class Sector:
    """One part: ``meaning`` is a key of the palette; ``shade`` tells neighbours of one meaning apart."""

    name: str
    percent: float
    meaning: str
    shade: float = 1.0


def shaded(parts: Sequence[tuple[str, float, str]]) -> tuple[Sector, ...]:
    """Sectors of (name, percent, meaning) with a shade each."""
    seen: dict[str, int] = {}
    sectors = []
    for name, percent, meaning in parts:
        number = seen[meaning] = seen.get(meaning, -1) + 1
        sectors.append(Sector(name, percent, meaning, SHADES[number % len(SHADES)]))
    return tuple(sectors)


def donut(sectors: Sequence[Sector], value: str, label: str, *, whole: float = 100.0) -> str:
    """SVG text of a ring. ``value`` and ``label`` stand in its middle; what the sectors leave of ``whole`` percent stays open."""
    middle = SIZE / 2
    body = []
    angle = 0.0
    for number, sector in enumerate(sectors, 1):
        sweep = 2 * math.pi * min(max(sector.percent, 0.0) / whole, 1.0)
        if sweep <= 0:
            continue
        title = f"{sector.name}: {sector.percent:.1f} %"
        fill = MEANINGS[sector.meaning]
        gap = PAPER if sweep < 2 * math.pi else None
        body.append(svg.path(_ring(middle, angle, angle + sweep), fill, opacity=sector.shade, stroke=gap, title=title))
        if sweep > 0.16 and len(sectors) > 1:  # a number of 11 px needs about 9 degrees outside the ring
            x, y = _point(middle, angle + sweep / 2, _OUTER + 11)
            body.append(svg.text(x, y + 4, str(number), anchor="middle"))
        angle += sweep
    size = min(15.0, 72 / svg.width_of(value, 1.0))
    body.append(svg.text(middle, middle + 1, value, anchor="middle", fill=INK, size=size, bold=True))
    body.append(svg.text(middle, middle + 15, label, anchor="middle", fill=MUTED, size=10))
    return svg.document(SIZE, SIZE, body)


def _point(middle: float, angle: float, radius: float) -> tuple[float, float]:
    return middle + radius * math.sin(angle), middle - radius * math.cos(angle)


def _ring(middle: float, start: float, end: float) -> str:
    """The path of a sector; a full ring is drawn as two halves, because an arc from a point to itself is nothing."""
    if end - start > 2 * math.pi - 1e-6:
        return _ring(middle, start, start + math.pi) + _ring(middle, start + math.pi, start + 2 * math.pi - 2e-6)
    large = 1 if end - start > math.pi else 0
    (ax, ay), (bx, by) = _point(middle, start, _OUTER), _point(middle, end, _OUTER)
    (cx, cy), (dx, dy) = _point(middle, end, _INNER), _point(middle, start, _INNER)
    return (
        f"M{ax:.2f} {ay:.2f}A{_OUTER:g} {_OUTER:g} 0 {large} 1 {bx:.2f} {by:.2f}"
        f"L{cx:.2f} {cy:.2f}A{_INNER:g} {_INNER:g} 0 {large} 0 {dx:.2f} {dy:.2f}Z"
    )
