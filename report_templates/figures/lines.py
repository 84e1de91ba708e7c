"""How did a quantity go, over time or over the steps? One line per node or process, with a band where there is one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from .axes import nice_ticks, time_unit
from .palette import GRID, LINES, MUTED
from .plots import WIDTH, Plot, ticks_x, ticks_y

_DASHES = ("-", (0, (5, 1.5)), (0, (2, 1.2)), (0, (6, 1.5, 1.5, 1.5)), (0, (1, 1)), (0, (8, 2)))
MOST = len(LINES)


@dataclass(frozen=True, slots=True)
class Line:
    """``x`` and ``y`` of equal length; ``low`` and ``high`` a band about ``y`` or empty. Lines without a label are drawn thin and grey."""

    label: str | None
    x: Sequence[float]
    y: Sequence[float]
    low: Sequence[float] = ()
    high: Sequence[float] = ()


def lines(given: Sequence[Line], y_label: str, x_label: str, *, x_time: bool, top: float | None = None, height: float = 190) -> str:
    """SVG text. ``x`` is in nanoseconds from zero where ``x_time``. ``top``: end of a y axis from zero (else both ends are the data's)."""
    plot = Plot(height)
    longest = max((len(line.label) for line in given if line.label), default=0)
    right = min(150.0, 16 + 6.4 * longest)
    axes = plot.axes(48, 22, right, 36)
    low = min(min(line.x) for line in given)
    high = max(max(line.x) for line in given)
    upper = top or max(max([*line.y, *line.high]) for line in given) * 1.06 or 1.0
    least = min(min([*line.y, *line.low]) for line in given)
    # Lines need no zero, and small changes on a high level are to be seen.
    lower = 0.0 if top or least < 0.4 * upper else least - 0.06 * (upper - least)
    if x_time:
        unit = time_unit(high - low)
        labels = [(tick * unit.nanoseconds, f"{tick:g}") for tick in nice_ticks(low / unit.nanoseconds, high / unit.nanoseconds, 8)]
        x_label = f"{x_label} ({unit.name})"
    else:
        labels = [(tick, f"{tick:g}") for tick in nice_ticks(low, high, 8) if tick == int(tick)]
    ticks_x(axes, low, high if high > low else low + 1, labels)
    ticks_y(axes, lower, upper)
    for line in given:
        if line.label is None:
            axes.plot(line.x, line.y, color=GRID, linewidth=0.9, clip_on=False)
    labelled = [line for line in given if line.label is not None]
    for number, line in enumerate(labelled):
        colour = LINES[number % MOST]
        if len(line.low) and len(labelled) <= 4:
            axes.fill_between(line.x, line.low, line.high, color=colour, alpha=0.16, linewidth=0, clip_on=False)
        single = {"marker": "o", "markersize": 3} if len(line.x) < 3 else {}
        axes.plot(line.x, line.y, color=colour, linewidth=1.3, linestyle=_DASHES[number % MOST], clip_on=False, **single)  # type: ignore[arg-type]
    span = height - 22 - 36
    ends = [22 + span * (1 - (line.y[-1] - lower) / (upper - lower)) for line in labelled]
    for (number, line), y in zip(enumerate(labelled), _apart(ends, 13, 22, height - 36), strict=True):
        plot.text(WIDTH - right + 8, y + 3.5, line.label or "", colour=LINES[number % MOST])
    plot.text(48, 11, y_label, colour=MUTED)
    plot.text(WIDTH - right, height - 5, x_label, anchor="right", colour=MUTED)
    return plot.svg()


def _apart(wanted: Sequence[float], gap: float, low: float, high: float) -> list[float]:
    """Positions as near to ``wanted`` as they can be with ``gap`` between neighbours, within [low, high] if there is room."""
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
