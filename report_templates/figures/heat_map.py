"""Heat map of utilization: a block of rows per node, a row per core or GPU, time to the right, utilization as brightness."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from matplotlib import colormaps
from matplotlib.ticker import FixedLocator

from .axes import nice_ticks, time_unit
from .palette import MUTED
from .plots import WIDTH, Plot, ticks_x

_ROW, _TOP, _TITLE, _BOTTOM = 13.0, 2.0, 18.0, 34.0
_LEFT, _RIGHT = 60.0, 18.0
_NAME = 11.0


@dataclass(frozen=True, slots=True)
class Heat:
    """``values[unit][bucket]`` in percent from ``start_ns`` to ``end_ns``, from the figure's own zero; None is left open."""

    title: str
    units: Sequence[int]
    values: Sequence[Sequence[float | None]]
    start_ns: float
    end_ns: float


def heat_map(blocks: Sequence[Heat], unit_name: str) -> str:
    """Return SVG text; the last end is not zero."""
    # The rows of many blocks are lower, so that more blocks fit on a page.
    most = 112.0 if len(blocks) <= 2 else 80.0
    tall = [min(_ROW, max(1.0, most / len(block.units))) * len(block.units) for block in blocks]
    height = _TOP + sum(tall) + _TITLE * len(blocks) + _BOTTOM
    plot = Plot(height)
    colors = colormaps["cividis"].with_extremes(bad=(0, 0, 0, 0))
    last = max(block.end_ns for block in blocks)
    time = time_unit(last)
    end = last / time.nanoseconds
    top = _TOP
    for number, (block, field) in enumerate(zip(blocks, tall, strict=True)):
        rows = len(block.units)
        top += _TITLE
        axes = plot.axes(_LEFT, top, _RIGHT, height - top - field)
        grid = np.array([[np.nan if value is None else value for value in line] for line in block.values], dtype=float)
        extent = (block.start_ns / time.nanoseconds, block.end_ns / time.nanoseconds, rows, 0)
        axes.imshow(grid, cmap=colors, vmin=0, vmax=100, aspect="auto", interpolation="nearest", extent=extent)
        ticks_x(axes, 0, end, [(tick, f"{tick:g}") for tick in nice_ticks(0, end, 8)] if number == len(blocks) - 1 else [])
        axes.set_ylim(rows, 0)
        labeled = range(0, rows, _every(field / rows))
        axes.yaxis.set_major_locator(FixedLocator([index + 0.5 for index in labeled]))
        axes.set_yticklabels([f"{unit_name} {block.units[index]}" for index in labeled])
        plot.text(_LEFT, top - 6, block.title, color=MUTED)
        top += field
    plot.text(WIDTH - _RIGHT, height - 4, f"time since the first sample ({time.name})", anchor="right", color=MUTED)
    scale = plot.figure.add_axes(((WIDTH - 146) / WIDTH, 1 - 15 / height, 100 / WIDTH, 8 / height))
    scale.imshow(np.linspace(0, 1, 64)[None, :], cmap="cividis", aspect="auto", interpolation="nearest")
    scale.set_axis_off()
    plot.text(WIDTH - 152, 14, "0 %", anchor="right", color=MUTED, size=9)
    plot.text(WIDTH - 40, 14, "100 %", color=MUTED, size=9)
    return plot.svg()


def _every(row: float) -> int:
    """Return the interval of the rows that have room for their names."""
    every = 1
    while every * row < _NAME:
        every *= 2
    return every
