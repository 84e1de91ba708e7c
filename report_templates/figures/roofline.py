"""Roofline: rates over arithmetic intensity, both logarithmic, below the roofs of the memory and of the arithmetic."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Final

from ..text import formats
from . import svg
from .palette import GRID, INK, MEANINGS, MUTED
from .stacked_bars import Part

_HEIGHT: Final = 250.0  # of the plot
_LEFT, _RIGHT, _TOP, _BOTTOM = 52.0, 14.0, 20.0, 36.0
_LARGEST: Final = 15.0  # radius of the point with the longest time
_SMALLEST: Final = 2.2
_SIZE: Final = 9.5
_LINE: Final = 14.0  # of the legend
_NEXT: Final = 8.0  # px between a point and its label at most, without a line
_DECADES: Final = 7.0  # of each axis at most, counted from its upper end
_ROOM: Final = 0.2  # decades between the outermost values and the edges
_PIECES: Final = 40  # boxes that cover a line
_DISTANCES: Final = (16, 30, 46, 64, 84, 110, 140)  # px from a point to a label that does not fit next to it
_DIRECTIONS: Final = ((1.0, 0.0), (0.7, 0.7), (0.7, -0.7), (0.0, 1.0), (0.0, -1.0), (-0.7, 0.7), (-0.7, -0.7), (-1.0, 0.0))
_PALE: Final = 0.6  # opacity of the points, which overlap; their edges are not pale

_Box = tuple[float, float, float, float]  # left, top, right, bottom
_Spot = tuple[float, float]  # left end and baseline of a label
_Circle = tuple[float, float, float]  # middle and radius
_Leader = tuple[tuple[float, float], tuple[float, float]]


@dataclass(frozen=True, slots=True)
class Point:
    """An operator: FLOP per byte, TFLOP/s, and a time, which is the area. ``meaning``: the color of its bound."""

    intensity: float
    tflops: float
    weight: float
    meaning: str
    title: str
    label: str | None = None
    shade: float = 1.0


@dataclass(frozen=True, slots=True)
class Roof:
    """The peak of a type of arithmetic, in TFLOP/s, with its label."""

    label: str
    tflops: float


@dataclass(frozen=True, slots=True)
class _Axes:
    """Decades at the ends of the axes, and the width of the figure."""

    x: tuple[float, float]
    y: tuple[float, float]
    width: float

    @property
    def right(self) -> float:
        return self.width - _RIGHT

    def across(self, decade: float) -> float:
        return _LEFT + (self.right - _LEFT) * (decade - self.x[0]) / (self.x[1] - self.x[0])

    def up(self, decade: float) -> float:
        return _TOP + _HEIGHT * (self.y[1] - decade) / (self.y[1] - self.y[0])

    def contain(self, point: Point) -> bool:
        return self.x[0] <= math.log10(point.intensity) <= self.x[1] and self.y[0] <= math.log10(point.tflops) <= self.y[1]


@dataclass(frozen=True, slots=True)
class _Lines:
    drawn: list[str]
    boxes: list[_Box]


@dataclass(frozen=True, slots=True)
class _Labels:
    """Labels that do not cover each other, nor what else is in ``taken``."""

    figure_width: float
    taken: list[_Box] = field(default_factory=list)

    def positioned(
        self, label: str, spots: Iterable[_Spot], avoid: Sequence[_Box] = (), *, code: bool = False, of: _Circle | None = None
    ) -> list[str]:
        """Return the label at the first spot that is free; nothing if none is.

        ``of``: the point that the label names. A line joins them unless the label is next to it.
        """
        width = svg.width_of(label, _SIZE, code=code)
        for left, baseline in spots:
            box = (left, baseline - 8.0, left + width, baseline + 2.0)
            inside = box[0] >= _LEFT + 1 and box[1] >= _TOP - 6 and box[2] <= self.figure_width - 4 and box[3] <= _TOP + _HEIGHT
            if not inside or any(_overlap(box, other) for other in (*self.taken, *avoid)):
                continue
            text = svg.text(left, baseline, label, size=_SIZE, code=code)
            leader = _leader(of, box) if of is not None else None
            if leader is None:
                self.taken.append(box)
                return [text]
            pieces = _boxes(leader)
            if not any(_overlap(piece, other) for piece in pieces for other in self.taken if other[2] - other[0] > 1):
                self.taken.extend([box, *pieces])
                (x1, y1), (x2, y2) = leader
                return [svg.line(x1, y1, x2, y2, MUTED), text]
        return []


def roofline(
    points: Sequence[Point], roofs: Sequence[Roof], tb_per_s: float | None, memory: str, kinds: Sequence[Part], *, width: float = svg.WIDE
) -> str:
    """Return SVG text.

    ``tb_per_s``: bandwidth of the memory, with its label; None: the roofs are level lines. Intensity, rates and roofs are
    positive. Points more than seven decades below the largest values are left out."""
    ridges = [roof.tflops / tb_per_s for roof in roofs] if tb_per_s else []
    x_ends, y_ends = (
        _ends([*(p.intensity for p in points), *ridges]),
        _ends([*(p.tflops for p in points), *(roof.tflops for roof in roofs)]),
    )
    axes = _Axes(x_ends, y_ends, width)
    drawn = sorted((point for point in points if axes.contain(point)), key=lambda point: -point.weight)
    most = max((point.weight for point in drawn), default=0.0)
    circles = [
        (point, axes.across(math.log10(point.intensity)), axes.up(math.log10(point.tflops)), _radius(point.weight, most)) for point in drawn
    ]
    rings = [(x - r, y - r, x + r, y + r) for _, x, y, r in circles]
    labels = _Labels(width)
    lines, ends = _roofs(axes, roofs, tb_per_s)
    labels.taken.extend(lines.boxes)
    body = _grid(axes) + lines.drawn
    body += [
        svg.circle(x, y, r, MEANINGS[p.meaning], MEANINGS[p.meaning], opacity=_PALE * p.shade, title=p.title) for p, x, y, r in circles
    ]
    for label, spots in ends:
        body += labels.positioned(label, spots, rings) or labels.positioned(label, spots)
    for number, (point, x, y, radius) in enumerate(circles):
        if point.label:
            near = _around(x, y, radius, svg.width_of(point.label, _SIZE, code=True))
            body += labels.positioned(point.label, near, rings[:number] + rings[number + 1 :], code=True, of=(x, y, radius))
    if tb_per_s:
        body += labels.positioned(memory, _along(axes, tb_per_s, svg.width_of(memory, _SIZE)), rings)
    x, y = _LEFT, _TOP + _HEIGHT + 29
    if width < svg.NARROW:  # the name of the axis takes the first line
        y += _LINE
    for kind in kinds:
        wide = 14 + svg.width_of(kind.name, _SIZE)
        if x > _LEFT and x + wide > width:
            x, y = _LEFT, y + _LINE
        body.append(svg.circle(x + 5, y - 3.5, 4.5, MEANINGS[kind.meaning], MEANINGS[kind.meaning], opacity=_PALE * kind.shade))
        body.append(svg.text(x + 14, y, kind.name, size=_SIZE))
        x += wide + 14
    return svg.document(width, y + _BOTTOM - 29, body)


def _grid(axes: _Axes) -> list[str]:
    bottom, right = _TOP + _HEIGHT, axes.right
    body = [svg.text(_LEFT, _TOP - 8, "rate (TFLOP/s)", fill=MUTED, size=_SIZE)]
    for decade in range(math.ceil(axes.y[0]), math.floor(axes.y[1]) + 1):
        y = axes.up(decade)
        body.append(svg.line(_LEFT, y, right, y, GRID))
        body.append(svg.text(_LEFT - 5, y + 3.5, _tick(decade), anchor="end", fill=MUTED, size=_SIZE))
    for decade in range(math.ceil(axes.x[0]), math.floor(axes.x[1]) + 1):
        x = axes.across(decade)
        body.append(svg.line(x, _TOP, x, bottom, GRID))
        body.append(svg.text(x, bottom + 14, _tick(decade), anchor="middle", fill=MUTED, size=_SIZE))
    return [*body, svg.text(right, bottom + 29, "arithmetic intensity (FLOP per byte)", anchor="end", fill=MUTED, size=_SIZE)]


def _roofs(axes: _Axes, roofs: Sequence[Roof], tb_per_s: float | None) -> tuple[_Lines, list[tuple[str, list[_Spot]]]]:
    """Draw the roofs.

    Also return the labels of the level ones, with their spots."""
    right = axes.right
    drawn: list[str] = []
    boxes: list[_Box] = []
    labels: list[tuple[str, list[_Spot]]] = []
    for roof in sorted(roofs, key=lambda roof: -roof.tflops):
        y = axes.up(math.log10(roof.tflops))
        start = axes.across(max(math.log10(roof.tflops / tb_per_s), axes.x[0])) if tb_per_s else _LEFT
        drawn.append(svg.line(start, y, right, y, INK))
        boxes.append((start, y - 0.5, right, y + 0.5))
        width = svg.width_of(roof.label, _SIZE)
        lefts = [left for left in (right - 2 - width, (start + right - width) / 2, start + 8) if left >= _LEFT]
        labels.append((roof.label, [(left, y + down) for left in lefts for down in (-4, 10.5)]))
    if tb_per_s:
        slope = math.log10(tb_per_s)
        begin = max(axes.x[0], axes.y[0] - slope)
        end = min(max((math.log10(roof.tflops) for roof in roofs), default=axes.y[1]) - slope, axes.x[1], axes.y[1] - slope)
        if begin < end:
            points = [(axes.across(x), axes.up(x + slope)) for x in (begin + (end - begin) * part / _PIECES for part in range(_PIECES + 1))]
            drawn.append(svg.curve([points[0], points[-1]], INK, 1.0))
            boxes += [(left, top, right, bottom) for (left, bottom), (right, top) in pairwise(points)]
    return _Lines(drawn, boxes), labels


def _along(axes: _Axes, tb_per_s: float, width: float) -> Iterator[_Spot]:
    """Yield spots below and above the line of the memory, from its lower end."""
    slope = math.log10(tb_per_s)
    begin, end = max(axes.x[0], axes.y[0] - slope), min(axes.x[1], axes.y[1] - slope)
    for part in range(1, 19):
        x = begin + (end - begin) * part / 20
        yield axes.across(x) + 9, axes.up(x + slope) + 9
        yield axes.across(x) - 9 - width, axes.up(x + slope) - 3


def _around(x: float, y: float, radius: float, width: float) -> Iterator[_Spot]:
    """Yield spots for a label next to a circle."""
    gap, near = radius + 3, 0.7 * radius + 3
    yield x + gap, y + 3.5
    yield x - gap - width, y + 3.5
    yield x - width / 2, y - gap - 2
    yield x - width / 2, y + gap + 8
    for down in (-near, near + 8):
        yield x + near, y + down
        yield x - near - width, y + down
    for distance in _DISTANCES:
        for across, down in _DIRECTIONS:
            at = x + across * (radius + distance)
            yield at if across > 0 else at - width if across < 0 else at - width / 2, y + down * (radius + distance) + 3.5


def _leader(circle: _Circle, box: _Box) -> _Leader | None:
    """Return the line from the edge of a circle to a label; None if they touch."""
    x, y, radius = circle
    ahead = min(max(x, box[0]), box[2]), min(max(y, box[1]), box[3])
    length = math.hypot(ahead[0] - x, ahead[1] - y)
    if length <= radius + _NEXT:
        return None
    share = radius / length
    return (x + (ahead[0] - x) * share, y + (ahead[1] - y) * share), ahead


def _boxes(line: _Leader) -> list[_Box]:
    (x1, y1), (x2, y2) = line
    points = [(x1 + (x2 - x1) * part / _PIECES, y1 + (y2 - y1) * part / _PIECES) for part in range(1, _PIECES)]
    return [(x - 0.4, y - 0.4, x + 0.4, y + 0.4) for x, y in points]


def _ends(values: Sequence[float]) -> tuple[float, float]:
    """Return the decades at the ends of an axis."""
    decades = [math.log10(value) for value in values]
    high = max(decades, default=0.0) + _ROOM
    low = max(min(decades, default=0.0) - _ROOM, high - _DECADES)
    return min(low, high - 2.0), high  # at least two decades


def _radius(weight: float, most: float) -> float:
    return max(_SMALLEST, _LARGEST * math.sqrt(weight / most)) if most > 0 else _SMALLEST


def _overlap(a: _Box, b: _Box) -> bool:
    return a[0] < b[2] and b[0] < a[2] and a[1] < b[3] and b[1] < a[3]


def _tick(decade: int) -> str:
    return formats.tick(10.0**decade)
