"""The strip of a job: utilization over time, its dips, the profile window, and the phases below."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from ...analysis.toolkit.quantiles import usual_distance
from . import svg
from .axes import nice_ticks, time_unit
from .marks import Mark, before, behind
from .palette import GRID, INK, MEANINGS, MUTED, ON

WIDTH = 720.0
NARROW = 340.0
_CURVE = 46.0  # height
_PHASE = 16.0
_ROW = 14.0  # of a label
_GAP = 10.0  # between labels of one row
_SIZE = 10.0
_AXIS = 36.0  # width
_MOST_ROWS = 4
_BROKEN = 2.5  # usual distances between samples above which the curve has a gap
_SHORT = {"initialization": "init", "finalization": "end"}


@dataclass(frozen=True, slots=True)
class Phase:
    """A phase from ``start`` to ``end``, in ns since the start of the job. ``idle``: drawn as idle time."""

    name: str
    value: str
    start: float
    end: float
    idle: bool = False


def job_strip(
    length: float,
    phases: Sequence[Phase],
    times: Sequence[int],
    percents: Sequence[float],
    marks: Sequence[Mark],
    *,
    width: float = WIDTH,
) -> str:
    """Return SVG text.

    ``length``: of the job, in ns; ``percents``: means of the stretches that begin at ``times``.
    The axis of the percentages is left of 0."""
    left = _AXIS if times else 0.0
    full, width = width, width - left
    scale = width / length
    named = [mark for mark in marks if mark.label]
    rows = _rows(named, scale, width)
    top = _ROW * (1 + max(rows, default=-1)) + (4 if rows else 0)
    bottom = top + (_CURVE if times else 8.0)
    body = behind(marks, scale.__mul__, top, bottom)
    for phase in phases:
        if phase.idle:
            body.append(svg.rect(phase.start * scale, top, (phase.end - phase.start) * scale, bottom - top, MEANINGS["idle"]))
    if times:
        body.append(svg.line(0, top, width, top, GRID))
        ends = (("100%", top + 8), ("0%", bottom))
        body += [svg.text(-5, y, text, anchor="end", fill=MUTED, size=_SIZE) for text, y in ends]
        color = MEANINGS["computation"]
        unit = time_unit(length)
        axes = svg.Axes(0, 1 / scale / unit.nanoseconds, 100 * bottom / _CURVE, -100 / _CURVE, f"{{}} {unit.name}", "%")
        drawn = [_area(part, scale, bottom) for part in _parts(times, percents)]
        body += [svg.path(area, color, opacity=0.55, stroke=color, title="utilization", data=axes) for area in drawn]
    body.append(svg.line(0, bottom, width, bottom, MUTED))
    for mark, row in zip(named, rows, strict=True):
        body += _label(mark, row, scale, width, top)
    body += before(marks, scale.__mul__, top, bottom, width)
    body += _phases(phases, scale, width, bottom + 3)
    end = bottom + (3 + _PHASE if phases else 0)
    return svg.document(full, end + 16, body + _axis(length, scale, width, end + 12), left=left)


def _parts(times: Sequence[int], percents: Sequence[float]) -> list[list[tuple[int, int, float]]]:
    """Divide the curve at gaps: lists of start, end and percent."""
    usual = usual_distance(times)
    parts: list[list[tuple[int, int, float]]] = []
    for number, (at, value) in enumerate(zip(times, percents, strict=True)):
        following = times[number + 1] if number + 1 < len(times) else at + usual
        if not parts or at - parts[-1][-1][0] > _BROKEN * usual:
            parts.append([])
        parts[-1].append((at, following if following - at <= _BROKEN * usual else at + usual, value))
    return parts


def _area(part: Sequence[tuple[float, float, float]], scale: float, bottom: float) -> str:
    points = [(part[0][0] * scale, bottom)]
    for start, end, value in part:
        y = bottom - _CURVE * min(max(value, 0.0), 100.0) / 100
        points += [(start * scale, y), (end * scale, y)]
    return svg.shape([*points, (part[-1][1] * scale, bottom)]) + "Z"


def _rows(marks: Sequence[Mark], scale: float, width: float) -> list[int]:
    """Return the row of each label, 0 next to the curve; labels do not overlap."""
    taken: dict[int, float] = {}
    rows = [0] * len(marks)
    for number in sorted(range(len(marks)), key=lambda number: _left(marks[number], scale, width)):
        left = _left(marks[number], scale, width)
        row = next((row for row in range(_MOST_ROWS) if taken.get(row, -math.inf) + _GAP <= left), _MOST_ROWS)
        rows[number] = row
        taken[row] = left + _wide(marks[number], width)
    return rows


def _text(mark: Mark, width: float) -> str:
    """Return the label, without its end if there is no room for it."""
    label = mark.label + mark.more
    return label if svg.width_of(label, _SIZE) <= width else svg.fitted(mark.label, width, _SIZE)


def _wide(mark: Mark, width: float) -> float:
    return svg.width_of(_text(mark, width), _SIZE)


def _left(mark: Mark, scale: float, width: float) -> float:
    """Return the left end of the label: centered on the mark, but inside the figure."""
    middle, wide = mark.middle * scale, _wide(mark, width)
    return min(max(middle - wide / 2, 0.0), max(width - wide, 0.0))


def _label(mark: Mark, row: int, scale: float, width: float, top: float) -> list[str]:
    left, x = _left(mark, scale, width), mark.middle * scale
    y = top - 6 - _ROW * row
    return [svg.line(x, y + 2, x, top, MUTED if row == 0 else GRID), svg.text(left, y, _text(mark, width), fill=INK, size=_SIZE)]


def _phases(phases: Sequence[Phase], scale: float, width: float, y: float) -> list[str]:
    body = []
    for phase in phases:
        x, wide = phase.start * scale, (phase.end - phase.start) * scale
        meaning = "idle" if phase.idle else "other" if phase.name != "training" else "computation"
        text = f"{phase.name} {phase.value}"
        body.append(svg.rect(x, y, max(wide - 1, 0.5), _PHASE, MEANINGS[meaning], title=text))
        label = next((label for label in (text, phase.name, _SHORT.get(phase.name, "")) if svg.width_of(label, _SIZE) + 6 < wide), None)
        if label:
            body.append(svg.text(x + wide / 2, y + 11.5, label, anchor="middle", fill=ON[meaning], size=_SIZE))
    return body


def _axis(length: float, scale: float, width: float, y: float) -> list[str]:
    unit = time_unit(length)
    body = []
    for tick in nice_ticks(0, length / unit.nanoseconds, 8 if width > NARROW else 4):
        x = tick * unit.nanoseconds * scale
        text = f"{tick:g} {unit.name}"
        half = svg.width_of(text, _SIZE) / 2
        anchor = "start" if x < half else "end" if x > width - half else "middle"
        body.append(svg.text(x, y, text, anchor=anchor, fill=MUTED, size=_SIZE))
    return body
