"""Two bars per part, from zero: the lighter bar above is the value before, the bar below is the value now."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ..text import formats
from ..text.formats import clip, significant
from . import svg
from .axes import nice_ticks
from .palette import INK, MEANINGS, MUTED
from .stacked_bars import tick_line

_BAR, _GAP, _TOP, _RIGHT = 11.0, 10.0, 26.0, 92.0  # on the right: room for the numbers behind the longest bars
_PALE = 0.35


@dataclass(frozen=True, slots=True)
class Pair:
    """A part: its name, a key of the palette, both values, and the text after the second value."""

    name: str
    meaning: str
    before: float
    after: float
    change: str


def before_after(pairs: Sequence[Pair], unit: str, names: tuple[str, str], *, width: float = svg.NARROW) -> str:
    """Return SVG text; values are in ``unit``. ``names``: of the two runs."""
    labels, widest = svg.column((pair.name for pair in pairs), 32, 160)
    left = 14 + widest
    end = max([value for pair in pairs for value in (pair.before, pair.after)]) or 1.0
    scale = (width - left - _RIGHT) / end
    row = 2 * _BAR + _GAP
    bottom = _TOP + row * len(pairs)
    light, full = (clip(name, 40) for name in names)
    second = left + 16 + svg.width_of(light) + 18
    body = [
        _before(left, 3, 10, 10, MEANINGS["other"]),
        svg.text(left + 15, 12, light),
        svg.rect(second, 3, 10, 10, MEANINGS["other"]),
        svg.text(second + 15, 12, full),
    ]
    for tick in nice_ticks(0, end, 3):
        body += tick_line(left + tick * scale, tick, unit, _TOP - 4, bottom - _GAP + 2, width)
    for number, (label, pair) in enumerate(zip(labels, pairs, strict=True)):
        y = _TOP + row * number
        color = MEANINGS[pair.meaning]
        body.append(svg.text(left - 8, y + _BAR + 4, label, anchor="end", fill=INK))
        wide = [max(0.0, value) * scale for value in (pair.before, pair.after)]
        short = [significant(float(f"{value:.3g}")) for value in (pair.before, pair.after)]
        body.append(_before(left, y, wide[0], _BAR - 1, color, f"{label}, {light}: {formats.united(short[0], unit)}"))
        body.append(svg.text(left + wide[0] + 5, y + _BAR - 2, short[0], fill=MUTED, size=10))
        body.append(svg.rect(left, y + _BAR, wide[1], _BAR - 1, color, title=f"{label}, {full}: {formats.united(short[1], unit)}"))
        more = (pair.change, INK) if pair.change else None
        body.append(svg.text(left + wide[1] + 5, y + 2 * _BAR - 2, short[1], fill=MUTED, size=10, more=more))
    return svg.document(width, bottom + 12, body)


def _before(x: float, y: float, wide: float, high: float, color: str, title: str | None = None) -> str:
    """Draw a pale bar with an edge, which stays visible in grayscale."""
    right, bottom = svg.number(x + max(wide, 0.0)), svg.number(y + high)
    return svg.path(f"M{svg.number(x)} {svg.number(y)}H{right}V{bottom}H{svg.number(x)}Z", color, opacity=_PALE, stroke=color, title=title)
