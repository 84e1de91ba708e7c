"""Lines over time or over steps: panels above each other over one axis, with a line per node or process."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from matplotlib.axes import Axes

from ..text.formats import clip
from .axes import nice_ticks, time_unit
from .palette import GRID, LINES, MUTED
from .plots import WIDTH, Plot, ticks_x, ticks_y
from .svg import width_of

_DASHES = ("-", (0, (5, 1.5)), (0, (2, 1.2)), (0, (6, 1.5, 1.5, 1.5)), (0, (1, 1)), (0, (8, 2)))
MOST = len(LINES)
_LABEL = 28
_LEFT, _TOP, _TITLE, _BOTTOM = 48.0, 2.0, 18.0, 34.0


@dataclass(frozen=True, slots=True)
class Line:
    """``x`` and ``y`` of equal length; ``low`` and ``high`` a band about ``y`` or empty. Lines without a label are thin and gray."""

    label: str | None
    x: Sequence[float]
    y: Sequence[float]
    low: Sequence[float] = ()
    high: Sequence[float] = ()


@dataclass(frozen=True, slots=True)
class Panel:
    """Lines over one y axis, named ``title``. ``top``: its end, from zero (else both ends are the data's)."""

    title: str
    lines: Sequence[Line]
    top: float | None = None


def lines(panels: Sequence[Panel], x_label: str, *, x_time: bool, height: float = 92) -> str:
    """Return SVG text. ``x``: ns from zero if ``x_time``; ``height``: of one panel.

    A label keeps its color in every panel. Lines are named at their end; if several panels have the same lines, only in the first.
    """
    names = list(dict.fromkeys(line.label for panel in panels for line in panel.lines if line.label is not None))
    same = all([line.label for line in panel.lines] == [line.label for line in panels[0].lines] for panel in panels)
    right = 18.0 if len(names) <= 1 else 12 + max(width_of(clip(name, _LABEL), 10) for name in names)
    total_height = _TOP + len(panels) * (_TITLE + height) + (len(panels) - 1) * 8 + _BOTTOM
    plot = Plot(total_height)
    low = min(min(line.x) for panel in panels for line in panel.lines)
    high = max(max(line.x) for panel in panels for line in panel.lines)
    if x_time:
        unit = time_unit(high - low)
        places = nice_ticks(low / unit.nanoseconds, high / unit.nanoseconds, 8)
        labels = [(tick * unit.nanoseconds, f"{tick:g}") for tick in places]
        x_label = f"{x_label} ({unit.name})"
    else:
        labels = [(tick, f"{tick:g}") for tick in nice_ticks(low, high, 8) if tick == int(tick)]
    for number, panel in enumerate(panels):
        top = _TOP + _TITLE + number * (_TITLE + height + 8)
        last = number == len(panels) - 1
        axes = plot.axes(_LEFT, top, right, total_height - top - height)
        ticks_x(axes, low, high if high > low else low + 1, labels if last else [])
        ends = _draw(axes, panel, names)
        plot.text(_LEFT, top - 8, panel.title, color=MUTED)
        if len(names) > 1 and (number == 0 or not same):
            labeled = [line.label for line in panel.lines if line.label is not None]
            for name, y in zip(labeled, _apart([top + height * end for end in ends], 12, top, top + height), strict=True):
                plot.text(WIDTH - right + 7, y + 3.5, clip(name, _LABEL), color=LINES[names.index(name) % MOST])
    plot.text(WIDTH - right, total_height - 4, x_label, anchor="right", color=MUTED)
    return plot.svg()


def _draw(axes: Axes, panel: Panel, names: Sequence[str]) -> list[float]:
    """Draw the lines; return the ends of the labeled lines, from 0 at the top to 1."""
    upper = panel.top or max(max([*line.y, *line.high]) for line in panel.lines) * 1.06 or 1.0
    least = min(min([*line.y, *line.low]) for line in panel.lines)
    # Lines need no zero, and small changes at a high level stay visible.
    flat = upper < 1.08 * least
    lower = 0.0 if panel.top or flat or least < 0.4 * upper else least - 0.06 * (upper - least)
    if least < 0:
        edge = 0.06 * (upper / 1.06 - least) if upper > 0 else 0.06 * abs(least)
        lower, upper = least - edge, max(max([*line.y, *line.high]) for line in panel.lines) + edge
    ticks_y(axes, lower, upper)
    for line in panel.lines:
        if line.label is None:
            axes.plot(line.x, line.y, color=GRID, linewidth=0.9, clip_on=False)
    labeled = [line for line in panel.lines if line.label is not None]
    for line in labeled:
        number = names.index(line.label or "")
        color = LINES[number % MOST]
        if len(line.low) and len(labeled) <= 4:
            axes.fill_between(line.x, line.low, line.high, color=color, alpha=0.16, linewidth=0, clip_on=False)
        single = {"marker": "o", "markersize": 3} if len(line.x) < 3 else {}
        axes.plot(line.x, line.y, color=color, linewidth=1.3, linestyle=_DASHES[number % MOST], clip_on=False, **single)  # type: ignore[arg-type]
    return [1 - (line.y[-1] - lower) / (upper - lower) for line in labeled]


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
