"""Histograms of durations: rows of bars over one axis to compare groups, or small panels with an axis each."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from ..text import formats
from ..text.formats import clip, count, duration
from . import svg
from .axes import nice_ticks, time_unit
from .palette import GRID, INK, MEANINGS, MUTED

_ROW, _TOP = 21.0, 20.0
_PANEL_ROW, _BARS = 118.0, 52.0
_SLIM = 3.0  # least width of the bars of a row: nearly equal values stay visible
_VISIBLE = 1.5  # least height of a bar: a few outliers among thousands of steps stay visible
_WIDE = 20.0  # ratio of last to first edge above which rows share a logarithmic axis


@dataclass(frozen=True, slots=True)
class Bins:
    """Counts between ``edges`` in nanoseconds; ``mark`` is the median, drawn as a line; ``beyond`` values exceed the last edge.

    ``limit``: a threshold, drawn as a second line if it is within the edges.
    """

    label: str
    edges: Sequence[float]
    counts: Sequence[int]
    mark: float | None
    beyond: int = 0
    logarithmic: bool = False
    limit: float | None = None


class Axis:
    """Nanoseconds to pixels."""

    def __init__(self, low: float, high: float, left: float, right: float, logarithmic: bool) -> None:
        self.low, self.logarithmic = max(low, 1.0) if logarithmic else low, logarithmic
        self.high = high if high > self.low else self.low * 1.01 + 1
        self.left, self.right = left, right

    def x(self, value: float) -> float:
        if self.logarithmic:
            share = math.log(max(value, self.low) / self.low) / math.log(self.high / self.low)
        else:
            share = (value - self.low) / (self.high - self.low)
        return self.left + (self.right - self.left) * share

    def ticks(self, most: int) -> list[tuple[float, str]]:
        """Return positions and labels; the unit is at the last tick, or at all if log."""
        if not self.logarithmic:
            unit = time_unit(self.high)
            places = nice_ticks(self.low / unit.nanoseconds, self.high / unit.nanoseconds, most)
            labels = [formats.tick(tick) for tick in places]
            if len({f"{tick:g}" for tick in places}) < len(places):  # all values are nearly the same: one tick for them
                middle = (self.low + self.high) / 2
                return [(self.x(middle), f"{formats.tick(middle / unit.nanoseconds)} {unit.name}")]
            if labels:
                labels[-1] += f" {unit.name}"
            return [(self.x(tick * unit.nanoseconds), label) for tick, label in zip(places, labels, strict=True)]
        powers = range(math.floor(math.log10(self.low)), math.floor(math.log10(self.high) + 1e-9) + 1)
        within = sum(self.low <= 10.0**power <= self.high for power in powers)
        factors = (1,) if within > 2 else (1, 2, 5)
        values = [factor * 10.0**power for power in powers for factor in factors]
        chosen = [value for value in values if self.low * (1 - 1e-9) <= value <= self.high * (1 + 1e-9)] or [self.low]
        every = -(-len(chosen) // most)
        return [(self.x(value), _round(value)) for value in chosen[::every]]


def histogram(groups: Sequence[Bins], meaning: str, counted: str, *, width: float = svg.NARROW) -> str:
    """Return SVG text of a row per group over one time axis. ``counted``: "steps"."""
    labels = [clip(group.label, 26) for group in groups]
    notes = [f"{count(group.beyond)} above {duration(group.edges[-1])}" if group.beyond else "" for group in groups]
    single = len(groups) == 1
    highest = max(groups[0].counts)
    left = max((12 + svg.width_of(label) for label in labels if label), default=6 + svg.width_of(count(highest), 10) if single else 2.0)
    right = width - max((12 + svg.width_of(note, 10) for note in notes if note), default=4.0)
    low, high = min(group.edges[0] for group in groups), max(group.edges[-1] for group in groups)
    wide = any(group.logarithmic for group in groups) or high > _WIDE * max(low, high / 1000)
    axis = Axis(low, high, left, right, (wide and low > 0) or all(group.logarithmic for group in groups))
    row = 84.0 if single else _ROW
    bottom = _TOP + row * len(groups)
    scale = "per bin" if single else "per bin, heights scaled per row"
    body = [svg.text(0, 11, f"{counted} {scale}; dashed: median", fill=MUTED, size=10)]
    if single and not labels[0]:
        for tick in nice_ticks(0, highest, 3):
            y = bottom - tick * (row - 3) / max(highest, 1)
            body.append(svg.line(left, y, right, y, GRID))
            body.append(svg.text(left - 5, y + 3.5, count(round(tick)), anchor="end", fill=MUTED, size=10))
    body += draw_axis(axis, bottom, _TOP, 8 if width > svg.NARROW else 5)
    for number, (group, label, note) in enumerate(zip(groups, labels, notes, strict=True)):
        base = _TOP + row * (number + 1)
        body.append(svg.line(left, base, right, base, GRID))
        body += _bars(group, axis, base, row - 3, meaning)
        if label:
            body.append(svg.text(left - 8, base - 5, label, anchor="end"))
        if note:
            body.append(svg.text(right + 8, base - 5, note, fill=MUTED, size=10))
    return svg.document(width, bottom + 20, body)


def panels(groups: Sequence[Bins], details: Sequence[str], meanings: Sequence[str], *, columns: int = 3) -> str:
    """Return SVG text of small histograms in columns, each with its own axis.

    A label, the count of values above the last edge, and a line of ``details`` are above each.
    """
    wide = svg.THIRD if columns > 1 else svg.SMALL
    body = []
    for number, (group, detail, meaning) in enumerate(zip(groups, details, meanings, strict=True)):
        left = (number % columns) * (svg.WIDE - wide) / max(columns - 1, 1)
        top = (number // columns) * _PANEL_ROW
        axis = Axis(group.edges[0], group.edges[-1], left, left + wide, group.logarithmic)
        base = top + 32 + _BARS
        room = wide
        if group.beyond:
            above = f"{count(group.beyond)} above {duration(group.edges[-1])} not drawn"
            room -= svg.width_of(above, 10) + 10
            body.append(svg.text(left + wide, top + 11, above, anchor="end", fill=MUTED, size=10))
        body.append(svg.text(left, top + 11, svg.fitted(group.label, room, bold=True), bold=True))
        body.append(svg.text(left, top + 24, svg.fitted(detail, wide, 10), fill=MUTED, size=10))
        body += draw_axis(axis, base, None, 5)
        body.append(svg.line(left, base, left + wide, base, GRID))
        body += _bars(group, axis, base, _BARS, meaning)
    return svg.document(svg.WIDE if columns > 1 else wide, -(-len(groups) // columns) * _PANEL_ROW - 12, body)


def _bars(group: Bins, axis: Axis, base: float, tall: float, meaning: str) -> list[str]:
    """Draw the bars as one path, the median, and the threshold."""
    highest = max(max(group.counts), 1)
    filled = [number for number, entries in enumerate(group.counts) if entries]
    drawn = []
    if filled:
        first, last = axis.x(group.edges[filled[0]]), axis.x(group.edges[filled[-1] + 1])
        if last - first < _SLIM:
            middle = (first + last) / 2
            title = f"{count(sum(group.counts))} at {duration(group.edges[filled[0]])}"
            drawn.append(svg.rect(middle - _SLIM / 2, base - tall, _SLIM, tall, MEANINGS[meaning], title=title))
        else:
            title = group.label or f"{count(sum(group.counts))} in all"
            data = bins_read(group.edges, group.counts)
            drawn.append(svg.path(_outline(group, axis, base, tall / highest), MEANINGS[meaning], title=title, data=data))
    limit = group.limit if group.limit is not None and group.edges[0] <= group.limit <= group.edges[-1] else None
    for value, dashes in ((group.mark, "3 2"), (limit, None)):
        if value is not None:
            x = axis.x(value)
            drawn.append(svg.line(x, base, x, base - tall - 3, INK, dashes=dashes))
    return drawn


def bins_read(edges: Sequence[float], counts: Sequence[float]) -> str:
    """Return the attribute from which tooltip.js reads the bars.

    It is empty if the edges are neither equally far apart nor in equal ratios.
    """
    low, high, bins = edges[0], edges[-1], len(counts)
    ratio = (high / low) ** (1 / bins) if low > 0 else 1.0
    spacings = {
        "even": [low + (high - low) * i / bins for i in range(bins + 1)],
        "log": [low * ratio**i for i in range(bins + 1)],
    }
    spacing = next((name for name, ruled in spacings.items() if _near(ruled, edges)), None)
    if spacing is None:
        return ""
    unit = time_unit(high)
    ends = f"{low / unit.nanoseconds:.6g} {high / unit.nanoseconds:.6g} {spacing} {unit.name}"
    return f' data-bins="{ends} {" ".join(f"{entries:.6g}" for entries in counts)}"'


def _near(ruled: Sequence[float], edges: Sequence[float]) -> bool:
    """Return whether all edges are within a hundredth of a bin."""
    return all(abs(edge - given) <= (after - edge) / 100 for edge, after, given in zip(ruled, ruled[1:], edges, strict=False))


def _outline(group: Bins, axis: Axis, base: float, scale: float) -> str:
    parts, before = [], 0
    for number, entries in enumerate(group.counts):
        if entries:
            start = f"V{base - max(entries * scale, _VISIBLE):.1f}"
            if not before:
                start = f"M{axis.x(group.edges[number]):.1f} {base:g}{start}"
            parts.append(f"{start}H{axis.x(group.edges[number + 1]):.1f}")
        elif before:
            parts.append(f"V{base:g}Z")
        before = entries
    return "".join(parts) + (f"V{base:g}Z" if before else "")


def draw_axis(axis: Axis, base: float, top: float | None, most: int) -> list[str]:
    body = []
    for x, label in axis.ticks(most):
        body.append(svg.line(x, base if top is None else top, x, base + 3, GRID))
        half = svg.width_of(label, 10) / 2
        anchor = "start" if x - half < axis.left else "end" if x + half > axis.right else "middle"
        body.append(svg.text(x, base + 14, label, anchor=anchor, fill=MUTED, size=10))
    return body


def _round(nanoseconds: float) -> str:
    """Write a tick with few digits: 100 ns, 20 µs, 1 s."""
    unit, factor = next(
        (unit, factor) for unit, factor in (("s", 1e9), ("ms", 1e6), ("µs", 1e3), ("ns", 1)) if nanoseconds >= factor or factor == 1
    )
    return f"{nanoseconds / factor:.3g} {unit}"
