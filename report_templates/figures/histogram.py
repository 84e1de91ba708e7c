"""How are durations distributed? One row of bars per group, all over the same time axis, so that groups can be compared."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from .axes import nice_ticks, time_unit
from .palette import GRID, INK, MEANINGS, MUTED
from .plots import WIDTH, Plot, ticks_x, ticks_y

_LEFT, _RIGHT, _TOP, _BOTTOM = 100.0, 20.0, 20.0, 34.0


@dataclass(frozen=True, slots=True)
class Bins:
    """Counts between ``edges`` in nanoseconds; ``mark`` is the median, drawn as a line."""

    label: str
    edges: Sequence[float]
    counts: Sequence[int]
    mark: float | None


def histogram(groups: Sequence[Bins], meaning: str, counted: str, *, logarithmic: bool = False) -> str:
    """SVG text. ``counted`` says what the bars count ("steps"). One group is drawn with a count axis, more as rows of equal height."""
    single = len(groups) == 1
    row = 130.0 if single else 34.0
    left = 52.0 if single else min(170.0, 16 + 6.4 * max(len(group.label) for group in groups))
    height = _TOP + row * len(groups) + _BOTTOM
    plot = Plot(height)
    axes = plot.axes(left, _TOP, _RIGHT, _BOTTOM)
    low = min(group.edges[0] for group in groups)
    high = max(group.edges[-1] for group in groups)
    unit = time_unit(high)
    place = np.log10 if logarithmic else np.asarray
    most = max(max(groups[0].counts), 1) * 1.05
    ticks_x(axes, float(place(low)), float(place(high if high > low else low + 1)), _ticks(low, high, logarithmic))
    if single:
        ticks_y(axes, 0, most)
    else:
        axes.set_ylim(-len(groups), 0)
    for number, group in enumerate(groups):
        # Several groups share the axes, each one unit high and standing on its own line.
        base = 0.0 if single else -number - 1.0
        tall = 1.0 if single else 0.86 / max(max(group.counts), 1)
        axes.stairs(
            base + np.asarray(group.counts) * tall, place(group.edges), baseline=base, fill=True, color=MEANINGS[meaning], linewidth=0.4
        )
        if not single:
            axes.axhline(base, color=GRID, linewidth=0.8, clip_on=False)
            plot.text(left - 8, _TOP + row * (number + 1) - 4, group.label, anchor="right")
        if group.mark is not None:
            top = most if single else base + 0.95
            axes.plot([place(group.mark)] * 2, [base, top], color=INK, linewidth=1.1, linestyle=(0, (3, 2)), clip_on=False)
    plot.text(
        left, 11, f"{counted} per bin; dashed: median" if single else f"{counted}, each row on its own scale; dashed: median", colour=MUTED
    )
    plot.text(WIDTH - _RIGHT, height - 4, "duration" if logarithmic else f"duration ({unit.name})", anchor="right", colour=MUTED)
    return plot.svg()


def _ticks(low: float, high: float, logarithmic: bool) -> list[tuple[float, str]]:
    if not logarithmic:
        unit = time_unit(high)
        return [(tick * unit.nanoseconds, f"{tick:g}") for tick in nice_ticks(low / unit.nanoseconds, high / unit.nanoseconds, 8)]
    powers = range(math.floor(math.log10(max(low, 1))), math.floor(math.log10(max(high, 1)) + 1e-9) + 1)
    factors = (1,) if len(powers) > 3 else (1, 2, 5)
    values = [factor * 10**power for power in powers for factor in factors]
    chosen = [value for value in values if low * (1 - 1e-9) <= value <= high * (1 + 1e-9)]
    return [(math.log10(value), _round(value)) for value in chosen or (low,)]


def _round(nanoseconds: float) -> str:
    """A tick of one or few digits: 100 ns, 20 µs, 1 s."""
    unit, factor = next(
        (unit, factor) for unit, factor in (("s", 1e9), ("ms", 1e6), ("µs", 1e3), ("ns", 1)) if nanoseconds >= factor or factor == 1
    )
    return f"{nanoseconds / factor:.3g} {unit}"
