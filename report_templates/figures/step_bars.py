"""A bar per step, or per few adjacent steps, with its parts on top of each other."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ..text import formats
from ..text.formats import significant
from . import svg
from .axes import nice_ticks
from .palette import GRID, INK, MEANINGS, MUTED, PAPER
from .stacked_bars import Part, legend

_LEFT, _RIGHT, _BOTTOM = 52.0, 8.0, 34.0
_WIDEST, _HEIGHT = 48.0, 96.0
_APART = 4.0  # higher parts have a gap between them, which separates them without color


@dataclass(frozen=True, slots=True)
class Bar:
    """``label``: the step, or the first and last of several. ``below``: a value drawn downwards from zero, besides the parts.

    ``note``: what made it longer, above the bar.
    """

    label: str
    values: Sequence[float]
    below: float
    note: str = ""


def step_bars(parts: Sequence[Part], bars: Sequence[Bar], below: Part, unit: str, *, top: float, width: float = svg.WIDE) -> str:
    """Return SVG text; values are in ``unit``.

    Bars longer than ``top`` end there, with their length above. A part of all bars is one path, from which tooltip.js reads the values; the
    field behind the bars has their labels.
    """
    used = [i for i in range(len(parts)) if any(bar.values[i] > 0 for bar in bars)]
    depth = max(bar.below for bar in bars)
    scale = _HEIGHT / (top or 1.0)
    body, top_y = legend([*(parts[i] for i in used), *([below] if depth > 0 else [])], _LEFT, None, width)
    top_y += 10
    zero = top_y + _HEIGHT
    bottom = zero + min(depth, top) * scale
    for tick in nice_ticks(0, top, 5):
        y = zero - tick * scale
        body.append(svg.line(_LEFT, y, width - _RIGHT, y, GRID))
        number = formats.united(formats.tick(tick), unit)
        body.append(svg.text(_LEFT - 6, y + 4, number, anchor="end", fill=MUTED, size=10))
    slot = (width - _LEFT - _RIGHT) / len(bars)
    wide = min(_WIDEST, slot * 0.82)
    named = -(-len(bars) // max(1, int((width - _LEFT - _RIGHT) / (14 + max(svg.width_of(bar.label, 10) for bar in bars)))))
    free = 0.0  # right end of the last text above the highest bars
    texts: list[str] = []
    gaps: list[str] = []
    paths: dict[Part, list[str]] = {}

    labels = [f"{bar.label}{' (bar cut)' if sum(bar.values) > top * (1 + 1e-9) else ''}" for bar in bars]
    data = f' data-bars="{svg.text_of("|".join([f"{unit} {1 / scale:.7g} {_LEFT:g} {slot:.7g}", *labels]))}"'
    body.append(svg.rect(_LEFT, top_y, width - _LEFT - _RIGHT, bottom - top_y, PAPER, opacity=0.0, edge=False, title="Step", data=data))
    for position, bar in enumerate(bars):
        middle = _LEFT + slot * (position + 0.5)
        y, under = zero, 0.0
        for i in used:
            height = min(bar.values[i] * scale, y - top_y)
            if height > 0:
                y -= height
                paths.setdefault(parts[i], []).append(_box(middle - wide / 2, y, wide, height))
                if min(under, height) > _APART and wide > _APART:
                    gaps.append(_box(middle - wide / 2, y + height - 0.5, wide, 1))
                under = height
        above = " · ".join(filter(None, (significant(sum(bar.values)) if sum(bar.values) > top * (1 + 1e-9) else "", bar.note)))
        half = svg.width_of(above, 9) / 2
        at = min(max(middle, half), width - half)
        if above and (y > top_y or at - half > free):
            free = at + half + 6 if y <= top_y else free
            texts.append(svg.text(at, y - 4, above, anchor="middle", fill=INK, size=9))
        if bar.below > 0:
            paths.setdefault(below, []).append(_box(middle - wide / 2, zero, wide, min(bar.below, top) * scale))
        if position % named == 0:
            texts.append(svg.text(middle, bottom + 14, bar.label, anchor="middle", fill=MUTED, size=10))
    for part, boxes in paths.items():
        edge = MEANINGS[part.meaning] if part.shade < 1 else None
        body.append(svg.path("".join(boxes), MEANINGS[part.meaning], opacity=part.shade, stroke=edge, data=f' data-part="{part.name}"'))
    body += [svg.path("".join(gaps), PAPER), *texts] if gaps else texts
    body.append(svg.line(_LEFT, zero, width - _RIGHT, zero, INK))
    body.append(svg.text(_LEFT + (width - _LEFT - _RIGHT) / 2, bottom + 29, "step", anchor="middle", fill=MUTED, size=10))
    return svg.document(width, bottom + _BOTTOM, body)


def _box(x: float, y: float, wide: float, tall: float) -> str:
    across = svg.number(wide)
    return f"M{svg.number(x)} {svg.number(y)}h{across}v{svg.number(tall)}h-{across}z"
