"""Lines over time or over steps: panels above each other over one axis, with a line per node or process."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

from ..text import formats
from ..text.formats import clip
from . import marks as shared
from . import svg
from .axes import nice_ticks, time_unit
from .palette import ACCENT, GRID, MEANINGS, MUTED, SERIES, UNNAMED

_DASHES = (None, "6.5 2", "2.6 1.6", "7.8 2 2 2", "1.3 1.3", "10.4 2.6")
MOST: Final = len(_DASHES)
_LABEL = 28
_LEFT, _TOP, _TITLE, _BOTTOM = 48.0, 2.0, 18.0, 34.0


@dataclass(frozen=True, slots=True)
class Line:
    """``x`` and ``y`` of equal length; ``low`` and ``high`` a band about ``y`` or empty.

    Lines are gray, and thin without a label. ``outlier``: the one line that has the accent. ``meaning``: a key of the palette, for a line
    of a kind of time instead of a process or node.
    """

    label: str | None
    x: Sequence[float]
    y: Sequence[float]
    low: Sequence[float] = ()
    high: Sequence[float] = ()
    outlier: bool = False
    meaning: str | None = None

    @property
    def color(self) -> str:
        return MEANINGS[self.meaning] if self.meaning else ACCENT if self.outlier else SERIES

    @property
    def ink(self) -> str:
        """Color of the name: fields of a meaning have less contrast than text needs."""
        return ACCENT if self.outlier else MUTED


@dataclass(frozen=True, slots=True)
class Panel:
    """Lines over one y axis, named ``title``, in ``unit``. ``top``: its end, from zero (else both ends are the data's)."""

    title: str
    lines: Sequence[Line]
    top: float | None = None
    unit: str = ""


def lines(
    panels: Sequence[Panel],
    x_label: str,
    *,
    x_time: bool,
    height: float = 92,
    width: float = svg.NARROW,
    marks: Sequence[shared.Mark] = (),
) -> str:
    """Return SVG text of panels above each other.

    ``x``: ns from zero if ``x_time``; ``height``: of one panel; ``width``: of the figure. A label keeps its color in every panel. Lines
    are named at their end; if several panels have the same lines, only in the first. ``marks`` outside of the lines are left out.
    """
    names = list(dict.fromkeys(line.label for panel in panels for line in panel.lines if line.label is not None))
    same = all([line.label for line in panel.lines] == [line.label for line in panels[0].lines] for panel in panels)
    right = width - (18.0 if len(names) <= 1 else min(0.3 * width, 12 + max(svg.width_of(clip(name, _LABEL), 10) for name in names)))
    low = min(min(line.x) for panel in panels for line in panel.lines)
    high = max(max(line.x) for panel in panels for line in panel.lines)
    high = high if high > low else low + 1
    scale = (right - _LEFT) / (high - low)
    unit = time_unit(high - low) if x_time else None
    per_x, form = (unit.nanoseconds, f"{{}} {unit.name}") if unit else (1.0, f"{x_label} {{}}")
    marks = [mark for mark in marks if low <= mark.start and mark.end <= high]
    named = shared.NAMES if marks else 0.0
    total_height = _TOP + named + len(panels) * (_TITLE + height) + (len(panels) - 1) * 8 + _BOTTOM

    def across_at(value: float) -> float:
        return _LEFT + (value - low) * scale

    body = shared.names(marks, across_at, _LEFT, width, _TOP + _TITLE + named - 3)
    for number, panel in enumerate(panels):
        top = _TOP + _TITLE + number * (_TITLE + height + 8) + named
        heading = f"{panel.title}, {panel.unit}" if panel.unit else panel.title
        if svg.width_of(heading, 10) > right - _LEFT and panel.unit:
            heading = panel.unit  # the caption has the quantity as well
        body.append(svg.text(_LEFT, top - 8 - (named if number == 0 else 0), svg.fitted(heading, right - _LEFT, 10), fill=MUTED, size=10))
        body += shared.behind(marks, across_at, top, top + height)
        labeled = [line.label for line in panel.lines if line.label is not None]
        lower, upper = _ends(panel)
        tall = height / (upper - lower)
        for tick in nice_ticks(lower, upper, 4):
            y = top + (upper - tick) * tall
            body.append(svg.line(_LEFT, y, right, y, GRID))
            body.append(svg.text(_LEFT - 5, y + 3.5, _tick(tick), anchor="end", fill=MUTED, size=10))
        for line in sorted(panel.lines, key=lambda line: (line.label is not None, line.outlier)):
            across = [across_at(x) for x in line.x]
            ups, lows, highs = ([top + (upper - y) * tall for y in values] for values in (line.y, line.low, line.high))
            if line.label is None:
                body.append(svg.curve(zip(across, ups, strict=True), UNNAMED, 0.6))
                continue
            dashes = None if line.outlier else _DASHES[names.index(line.label) % MOST]
            if lows and len(labeled) <= 4:
                band = [*zip(across, highs, strict=True), *zip(reversed(across), reversed(lows), strict=True)]
                body.append(svg.path(svg.shape(band) + "Z", line.color, opacity=0.16))
            axes = svg.Axes((low - _LEFT / scale) / per_x, 1 / scale / per_x, upper + top / tall, -1 / tall, form, panel.unit)
            stroke, title = 1.8 if line.outlier else 1.2, line.label or panel.title
            body.append(svg.curve(zip(across, ups, strict=True), line.color, stroke, dashes=dashes, title=title, axes=axes))
            if len(across) < 3:
                body += [svg.circle(x, y, 1.5, line.color, line.color) for x, y in zip(across, ups, strict=True)]
        body += shared.before(marks, across_at, top, top + height, right)
        if len(names) > 1 and (number == 0 or not same):
            ending = [line for line in panel.lines if line.label is not None]
            ends = [top + (upper - line.y[-1]) * tall for line in ending]
            for line, y in zip(ending, _apart(ends, 12, top, top + height), strict=True):
                name = svg.fitted(clip(line.label or "", _LABEL), width - right - 7, 10)
                body.append(svg.text(right + 7, y + 3.5, name, fill=line.ink, size=10, bold=line.outlier))
    if unit:
        x_label = f"{x_label} ({unit.name})"
    for tick in nice_ticks(low / per_x, high / per_x, 8 if width > svg.NARROW else 5):
        if x_time or tick == int(tick):
            x = _LEFT + (tick * per_x - low) * scale
            body.append(svg.text(x, total_height - _BOTTOM + 14, formats.tick(tick), anchor="middle", fill=MUTED, size=10))
    body.append(svg.text(right, total_height - 4, x_label, anchor="end", fill=MUTED, size=10))
    return svg.document(width, total_height, body)


def _ends(panel: Panel) -> tuple[float, float]:
    """Return the ends of the y axis."""
    most = max(max([*line.y, *line.high]) for line in panel.lines)
    least = min(min([*line.y, *line.low]) for line in panel.lines)
    upper = panel.top or most * 1.06 or 1.0
    if least < 0:
        edge = 0.06 * (upper / 1.06 - least) if upper > 0 else 0.06 * abs(least)
        return least - edge, most + edge
    # Lines need no zero, and small changes at a high level stay visible.
    flat = upper < 1.08 * least
    return 0.0 if panel.top or flat or least < 0.4 * upper else least - 0.06 * (upper - least), upper


def _tick(value: float) -> str:
    return formats.tick(value)


def _apart(wanted: Sequence[float], gap: float, low: float, high: float) -> list[float]:
    """Move positions apart to at least ``gap``, within [low, high] if there is room."""
    order = sorted(range(len(wanted)), key=lambda i: wanted[i])
    placed = list(wanted)
    for before, here in pairwise(order):
        placed[here] = max(placed[here], placed[before] + gap)
    limit = high
    for here in reversed(order):
        placed[here] = min(placed[here], limit)
        limit = placed[here] - gap
    floor = low
    for here in order:
        placed[here] = max(placed[here], floor)
        floor = placed[here] + gap
    return placed
