"""Which core or GPU was busy when? One row per unit, time to the right, utilisation as brightness."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from matplotlib import colormaps
from matplotlib.ticker import FixedLocator

from .axes import nice_ticks, time_unit
from .palette import MUTED
from .plots import WIDTH, Plot, ticks_x

_ROW, _TOP, _BOTTOM = 13.0, 26.0, 34.0


def heat_map(values: Sequence[Sequence[float | None]], units: Sequence[int], span_ns: float, unit_name: str) -> str:
    """SVG text of ``values[unit][bucket]`` in percent over ``span_ns``; no sample is left open."""
    rows = len(units)
    row = _ROW if rows <= 16 else max(2.0, 208.0 / rows)
    height = _TOP + rows * row + _BOTTOM
    plot = Plot(height)
    axes = plot.axes(60, _TOP, 16, _BOTTOM)
    grid = np.array([[np.nan if value is None else value for value in line] for line in values], dtype=float)
    colours = colormaps["cividis"].with_extremes(bad=(0, 0, 0, 0))
    time = time_unit(span_ns)
    end = span_ns / time.nanoseconds
    axes.imshow(grid, cmap=colours, vmin=0, vmax=100, aspect="auto", interpolation="nearest", extent=(0, end, rows, 0))
    ticks_x(axes, 0, end or 1, [(tick, f"{tick:g}") for tick in nice_ticks(0, end, 8)])
    axes.set_ylim(rows, 0)
    every = 1 if rows <= 16 else -(-rows // 8)
    shown = range(0, rows, every)
    axes.yaxis.set_major_locator(FixedLocator([number + 0.5 for number in shown]))
    axes.set_yticklabels([f"{unit_name} {units[number]}" for number in shown])
    plot.text(WIDTH - 16, height - 4, f"time since the first sample ({time.name})", anchor="right", colour=MUTED)
    scale = plot.figure.add_axes(((WIDTH - 146) / WIDTH, 1 - 15 / height, 100 / WIDTH, 8 / height))
    scale.imshow(np.linspace(0, 1, 64)[None, :], cmap="cividis", aspect="auto", interpolation="nearest")
    scale.set_axis_off()
    plot.text(WIDTH - 152, 14, "0 %", anchor="right", colour=MUTED, size=9)
    plot.text(WIDTH - 40, 14, "100 %", colour=MUTED, size=9)
    return plot.svg()
