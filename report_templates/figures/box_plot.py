"""Box plot: one box per series of the same quantity over one axis, with thresholds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ..text import formats
from ..text.formats import clip
from . import svg
from .axes import nice_ticks
from .palette import GRID, INK, MEANINGS, MUTED, PAPER

_ROW, _BOX, _GROUP = 21.0, 12.0, 20.0
_TOP, _LINE = 18.0, 13.0
_LEAST = 6.0  # a median within less would hide its box
WIDTH = svg.NARROW


@dataclass(frozen=True, slots=True)
class Box:
    """Quartiles, whiskers (the most extreme values within 1.5 IQR), and the percentiles that a rule evaluates, if known.

    ``group`` heads the boxes that follow each other with it. ``note``: at the right end of the row. ``meaning``: a key of the palette.
    """

    label: str
    p25: float
    p50: float
    p75: float
    whisker_lower: float
    whisker_upper: float
    p5: float | None = None
    p95: float | None = None
    group: str = ""
    note: str = ""
    meaning: str = "computation"


def box_plot(boxes: Sequence[Box], limits: Sequence[tuple[float, str]], unit: str, *, top: float) -> str:
    """Return SVG text. The axis ends at ``top``; ``limits``: values and names."""
    labels, widest = svg.column((box.label for box in boxes), 26, 0.36 * WIDTH)
    left = 14 + widest
    right = WIDTH - max((14 + svg.width_of(box.note, 10) for box in boxes if box.note), default=14.0)
    scale = (right - left) / top
    body, head = _names(limits, left, right, scale)
    groups = list(dict.fromkeys(box.group for box in boxes))
    headed = len(groups) > 1 or bool(groups[0])
    start = _TOP + head
    bottom = start + _ROW * len(boxes) + (_GROUP * len(groups) if headed else 0.0)
    body.append(svg.text(0, 11, "quartiles, median, whiskers 1.5 IQR, ● p95, ○ p5", fill=MUTED, size=10))
    for tick in nice_ticks(0, top, 5):
        x = left + tick * scale
        body.append(svg.line(x, start, x, bottom, GRID))
        last = tick + top / 1e6 >= top
        number = formats.tick(tick)
        body.append(svg.text(x, bottom + 14, formats.united(number, unit) if last else number, anchor="middle", fill=MUTED, size=10))
    for limit, _ in limits:
        x = left + min(limit, top) * scale
        body.append(svg.line(x, start - 2, x, bottom, INK, dashes="4 3"))
    y = start
    before: str | None = None
    for box, label in zip(boxes, labels, strict=True):
        if headed and box.group != before:
            body.append(svg.text(0, y + 14, clip(box.group, 60), bold=True))
            y, before = y + _GROUP, box.group
        body += _box(box, label, y, left, right, scale)
        y += _ROW
    return svg.document(WIDTH, bottom + 20, body)


def _box(box: Box, label: str, y: float, left: float, right: float, scale: float) -> list[str]:
    def x(value: float) -> float:
        return left + min(max(value, 0.0) * scale, right - left)

    middle, color = y + _ROW / 2, MEANINGS[box.meaning]
    high, low = middle - _BOX / 2, middle + _BOX / 2
    body = [svg.text(left - 8, middle + 4, label, anchor="end")]
    if box.p5 is not None and box.p95 is not None:
        body.append(svg.line(x(box.p5), middle, x(box.p95), middle, MUTED, dashes="1 3"))
    body += [
        svg.line(x(box.whisker_lower), middle, x(box.whisker_upper), middle, MUTED),
        svg.line(x(box.whisker_lower), middle - 4, x(box.whisker_lower), middle + 4, MUTED),
        svg.line(x(box.whisker_upper), middle - 4, x(box.whisker_upper), middle + 4, MUTED),
        # At least two units wide: equal quartiles stay visible.
        svg.rect(x(box.p25) - 1, high, x(box.p75) - x(box.p25) + 2, _BOX, color, title=f"{label}: median {box.p50:.1f}"),
        svg.line(x(box.p50), high - 3, x(box.p50), high, INK),
        svg.line(x(box.p50), low, x(box.p50), low + 3, INK),
    ]
    if x(box.p75) - x(box.p25) > _LEAST:
        body.append(svg.line(x(box.p50), high - 1, x(box.p50), low + 1, PAPER))
    if box.p5 is not None:
        body.append(svg.circle(x(box.p5), middle, 3.2, PAPER, INK))
    if box.p95 is not None:
        body.append(svg.circle(x(box.p95), middle, 3.2, INK, PAPER))
    if box.note:
        body.append(svg.text(WIDTH - 2, middle + 4, box.note, anchor="end", fill=MUTED, size=10))
    return body


def _names(limits: Sequence[tuple[float, str]], left: float, right: float, scale: float) -> tuple[list[str], float]:
    """Draw the names of the thresholds above their lines; also return their height."""
    ends: list[float] = []
    body = []
    for limit, name in sorted(limits):
        x, wide = left + min(limit * scale, right - left), svg.width_of(name, 10)
        start = min(max(x - wide / 2, left - 40), WIDTH - wide)
        row = next((i for i, end in enumerate(ends) if end + 8 < start), len(ends))
        if row == len(ends):
            ends.append(0.0)
        ends[row] = start + wide
        body.append(svg.text(start, _TOP + 9 + _LINE * row, name, size=10))
    return body, _LINE * len(ends) + (2 if ends else 0)
