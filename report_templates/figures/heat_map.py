"""Heat map of utilization: a block of rows per node, a row per core or GPU, time to the right, utilization as brightness."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ..text import formats
from . import svg
from .axes import nice_ticks, time_unit
from .palette import MUTED
from .pixels import image

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


def heat_map(blocks: Sequence[Heat], unit_name: str, *, width: float = svg.NARROW) -> str:
    """Return SVG text; the last end is not zero."""
    # The rows of many blocks are lower, so that more blocks fit on a page.
    most = 112.0 if len(blocks) <= 2 else 80.0
    tall = [min(_ROW, max(1.0, most / len(block.units))) * len(block.units) for block in blocks]
    height = _TOP + sum(tall) + _TITLE * len(blocks) + _BOTTOM
    last = max(block.end_ns for block in blocks)
    time = time_unit(last)
    scale = (width - _LEFT - _RIGHT) / last
    body = []
    top = _TOP
    for block, field in zip(blocks, tall, strict=True):
        top += _TITLE
        body.append(svg.text(_LEFT, top - 6, block.title, fill=MUTED, size=10))
        shares = [[None if value is None else value / 100 for value in line] for line in block.values]
        ends = " ".join(f"{ns / time.nanoseconds:.6g}" for ns in (block.start_ns, block.end_ns))
        data = f' data-heat="{ends} {time.name} {unit_name} {" ".join(map(str, block.units))}"'
        body.append(
            image(_LEFT + block.start_ns * scale, top, (block.end_ns - block.start_ns) * scale, field, shares, title=block.title, data=data)
        )
        row = field / len(block.units)
        for index in range(0, len(block.units), _every(row)):
            name = f"{unit_name} {block.units[index]}"
            body.append(svg.text(_LEFT - 5, top + (index + 0.5) * row + 3.5, name, anchor="end", fill=MUTED, size=10))
        top += field
    for tick in nice_ticks(0, last / time.nanoseconds, 8 if width > svg.NARROW else 5):
        body.append(svg.text(_LEFT + tick * time.nanoseconds * scale, top + 14, formats.tick(tick), anchor="middle", fill=MUTED, size=10))
    body.append(svg.text(width - _RIGHT, height - 4, f"time since the first sample ({time.name})", anchor="end", fill=MUTED, size=10))
    body += [
        svg.text(width - 152, 14, "0%", anchor="end", fill=MUTED, size=9),
        image(width - 146, 7, 100, 8, [[step / 63 for step in range(64)]]),
        svg.text(width - 40, 14, "100%", fill=MUTED, size=9),
    ]
    return svg.document(width, height, body)


def _every(row: float) -> int:
    """Return the interval of the rows that have room for their names."""
    every = 1
    while every * row < _NAME:
        every *= 2
    return every
