"""How large was each part before, and how large is it now? Two bars a part, from zero: the lighter one above is before."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ..formats import NARROW_SPACE, clip, significant
from . import svg
from .axes import nice_ticks
from .palette import GRID, INK, MEANINGS, MUTED

WIDTH = 720.0
_BAR, _GAP, _TOP, _RIGHT = 11.0, 10.0, 26.0, 150.0  # on the right: room for the numbers behind the longest bars
_BEFORE = 0.45


@dataclass(frozen=True, slots=True)
class Pair:
    """A part: its name, a key of the palette, both values, and what stands behind the second one."""

    name: str
    meaning: str
    before: float
    after: float
    change: str


def before_after(pairs: Sequence[Pair], unit: str, names: tuple[str, str]) -> str:
    """SVG text; values are in ``unit``. ``names``: what the lighter and the full bars are called."""
    labels = [clip(pair.name, 32) for pair in pairs]
    left = min(210.0, 14 + max(svg.width_of(label) for label in labels))
    end = max([value for pair in pairs for value in (pair.before, pair.after)]) or 1.0
    scale = (WIDTH - left - _RIGHT) / end
    row = 2 * _BAR + _GAP
    bottom = _TOP + row * len(pairs)
    light, full = (clip(name, 40) for name in names)
    second = left + 16 + svg.width_of(light) + 18
    body = [
        svg.rect(left, 3, 10, 10, MEANINGS["computation"], opacity=_BEFORE),
        svg.text(left + 15, 12, light),
        svg.rect(second, 3, 10, 10, MEANINGS["computation"]),
        svg.text(second + 15, 12, full),
    ]
    for tick in nice_ticks(0, end, 5):
        x = left + tick * scale
        body.append(svg.line(x, _TOP - 4, x, bottom - _GAP + 2, GRID))
        body.append(svg.text(x, bottom + 6, f"{tick:,.10g} {unit}".replace(",", NARROW_SPACE), anchor="middle", fill=MUTED, size=10))
    for number, (label, pair) in enumerate(zip(labels, pairs, strict=True)):
        y = _TOP + row * number
        colour = MEANINGS[pair.meaning]
        body.append(svg.text(left - 8, y + _BAR + 4, label, anchor="end", fill=INK))
        for value, opacity, top in ((pair.before, _BEFORE, y), (pair.after, 1.0, y + _BAR)):
            short = significant(float(f"{value:.3g}"))
            name = light if top == y else full
            body.append(
                svg.rect(left, top, max(0.0, value) * scale, _BAR - 1, colour, opacity=opacity, title=f"{label}, {name}: {short} {unit}")
            )
            behind = left + max(0.0, value) * scale + 5
            more = (pair.change, INK) if top != y and pair.change else None
            body.append(svg.text(behind, top + _BAR - 2, short, fill=MUTED, size=10, more=more))
    return svg.document(WIDTH, bottom + 12, body)
