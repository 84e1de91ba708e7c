"""Gantt chart: the events of each track over a range of time, as strips.

Events that are too short to see share a column with their neighbors: the paler the column, the less of it is covered. Communication is at
the lower edge of a shared column. Kinds also differ in height and edge, so that the strips can be read without color.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from ..text.formats import clip
from . import marks as shared
from . import svg
from .axes import TimeUnit, nice_ticks, time_unit
from .palette import GRID, INK, MEANINGS, MUTED, ON, PAPER

_TOP, _LEGEND, _ROW, _BAR, _RIGHT = 28.0, 15.0, 16.5, 13.0, 12.0
_COLUMN: Final = 1.5  # px
_SMALL_COLUMN: Final = 4.5  # px, on a narrow screen, whose strips would else be as long; a multiple, by which tooltip.js knows columns
_HATCH: Final = 9.0  # px between lines
_MARK: Final = 8.0  # px above the strips: marks over them would hide the events of a short profile window
_LETTERS: Final = 7  # a shortened name needs at least, to be distinct
_SEPARATE: Final = 3.0  # px; a wider event is drawn by itself
_LEVELS: Final = 4
KINDS: Final = ("step", "annotation", "computation", "communication", "memory", "sync", "launch", "host", "merged")
_TALK: Final = KINDS.index("communication")
_SHARED: Final = 5.0  # px at the lower edge for communication that overlaps other work
_COLOR: Final = {"step": "idle", "annotation": "other", "launch": "host", "host": "operator", "merged": "other"}
_WORD: Final = {
    "memory": "memory operation",
    "sync": "synchronization",
    "launch": "launch call",
    "host": "host operation",
    "merged": "merged",
}
_HEIGHT: Final = {"memory": 0.62, "sync": 0.35, "launch": 0.62, "annotation": 0.8}


@dataclass(frozen=True, slots=True)
class Row:
    """Events of a track, by start. ``kind``: an index in KINDS. ``gaps``: times without a recording, by start.

    ``level``: samples instead of events; ``start`` contains their times, ``end`` their percentages.
    """

    label: str
    start: npt.NDArray[np.float64]
    end: npt.NDArray[np.float64]
    kind: npt.NDArray[np.int64]
    names: Sequence[str] = ()
    level: bool = False
    gaps: Sequence[tuple[float, float]] = ()


def gantt(
    rows: Sequence[Row],
    low: float,
    high: float,
    *,
    origin: float = 0.0,
    marks: Sequence[shared.Mark] = (),
    width: float = svg.WIDE,
) -> str:
    """Return SVG text of ``low`` to ``high``; the axis begins at ``origin`` (ns).

    ``marks`` are cut at both ends.
    """
    labels, widest = svg.column((row.label for row in rows), 34, min(200.0, 0.36 * width), 10)
    left = math.ceil(12 + widest)  # whole, so that columns have one decimal
    scale = (width - left - _RIGHT) / max(high - low, 1.0)
    kinds = [kind for kind in range(len(KINDS)) if any(not row.level and bool((row.kind == kind).any()) for row in rows)]
    body, top = _legend(kinds, width)
    top += shared.NAMES + _MARK if marks else 0.0
    bottom = top + _ROW * len(rows)
    unit = time_unit(max(high - origin, 1.0))
    column = _COLUMN if width > svg.SMALL else _SMALL_COLUMN
    for tick in nice_ticks((low - origin) / unit.nanoseconds, (high - origin) / unit.nanoseconds, 7 if width > svg.NARROW else 3):
        x = left + (tick * unit.nanoseconds + origin - low) * scale
        body.append(svg.line(x, top - 3, x, bottom, GRID))
        anchor = "end" if x > width - 36 else "middle"
        body.append(svg.text(min(x, width - 2), bottom + 13, f"{tick:.10g} {unit.name}", anchor=anchor, fill=MUTED, size=10))

    def across(time: float) -> float:
        return left + (min(max(time, low), high) - low) * scale

    body += shared.names(marks, across, left, width - _RIGHT, top - _MARK - 5)
    body += shared.behind(marks, across, top - _MARK - 2, bottom)
    for number, (label, row) in enumerate(zip(labels, rows, strict=True)):
        y = top + _ROW * number
        body.append(svg.text(left - 7, y + _BAR / 2 + 3.5, label, anchor="end", size=10))
        body += _line(row, left, y, low, high, scale) if row.level else _strip(row, left, y, low, high, scale, origin, unit, column)
        for begin, end in row.gaps:
            body += _blank(left + (max(begin, low) - low) * scale, left + (min(end, high) - low) * scale, y)
    body += shared.before(marks, across, top - _MARK - 2, top - 2, width - _RIGHT)
    return svg.document(width, bottom + 18, body)


def _strip(
    row: Row, left: float, y: float, low: float, high: float, scale: float, origin: float, unit: TimeUnit, column: float
) -> list[str]:
    start = (np.clip(row.start, low, high) - low) * scale
    end = (np.clip(row.end, low, high) - low) * scale
    wide = end - start
    separate = (wide >= _SEPARATE) & (end > start)
    paths: dict[tuple[int, int], list[str]] = {}
    texts: list[str] = []
    edges: list[str] = []

    def put(kind: int, level: int, at: float, width: float, *, cut: float = 0.0, below: bool = False) -> None:
        tall = _SHARED if below else max(_BAR * _HEIGHT.get(KINDS[kind], 1.0) - cut, 2.0)
        top = y + _BAR - tall - cut
        across = svg.number(width)
        shape = f"M{svg.number(left + at)} {svg.number(top)}h{across}v{svg.number(tall)}h-{across}"  # a fill closes it
        paths.setdefault((kind, level), []).append(shape)
        if kind == _TALK and level == _LEVELS and not below:
            edges.append(f"M{svg.number(left + at)} {svg.number(y)}h{across}v2h-{across}z")

    short = np.flatnonzero(~separate & (end >= start) & (row.end >= low) & (row.start <= high))
    columns = int((high - low) * scale / column) + 1
    if len(short):
        covered = np.zeros((len(KINDS), columns))
        middle = np.minimum(((start[short] + end[short]) / 2 / column).astype(np.int64), columns - 1)
        np.add.at(covered, (row.kind[short], middle), wide[short] / column)
        talk = _level(covered[_TALK])
        covered[_TALK] = 0
        kind = covered.argmax(axis=0)
        level = _level(covered.sum(axis=0))
        bare = np.isin(np.arange(columns), middle) & (level == 0) & (talk == 0)  # events without a duration
        level[bare] = 1
        kind[bare] = row.kind[short][np.searchsorted(middle, np.flatnonzero(bare))] if bool((np.diff(middle) >= 0).all()) else kind[bare]
        coded = (talk * (_LEVELS + 1) + level) * len(KINDS) + kind
        bounds = np.flatnonzero(np.diff(coded, prepend=-1, append=-1))
        for first, after in zip(bounds[:-1].tolist(), bounds[1:].tolist(), strict=True):
            at, width = first * column, (after - first) * column
            overlaid = bool(level[first]) and bool(talk[first])
            if level[first]:
                put(int(kind[first]), int(level[first]), at, width, cut=_SHARED if overlaid else 0.0)
            if talk[first]:
                put(_TALK, int(talk[first]), at, width, below=overlaid)
    free = 0.0  # end of the last name: events of several lanes share a strip
    for i in np.flatnonzero(separate).tolist():
        kind_of = int(row.kind[i])
        gap = 0.8 if wide[i] > 5 else 0.0
        put(kind_of, _LEVELS, float(start[i]), float(wide[i]) - gap)
        name = row.names[i] if row.names else ""
        room = int((wide[i] - 8) / 5.6)
        if name and room >= min(len(name), _LETTERS) and start[i] >= free and len(texts) < 60 and _HEIGHT.get(KINDS[kind_of], 1.0) >= 0.8:
            meaning = _COLOR.get(KINDS[kind_of], KINDS[kind_of])
            free = float(end[i])
            texts.append(svg.text(left + float(start[i]) + 4, y + 12, clip(name, room), fill=ON[meaning], size=9, code=True))
    start_of, per = (low - left / scale - origin) / unit.nanoseconds, 1 / scale / unit.nanoseconds
    data = f' data-strip="{start_of:.9g} {per:.7g} {unit.name}"'
    drawn = [svg.rect(left, y, (high - low) * scale, _BAR, GRID, opacity=0.3, edge=False, title=row.label, data=data)]
    for (kind_of, level_of), shapes in sorted(paths.items()):
        name = KINDS[kind_of]
        color, opacity = MEANINGS[_COLOR.get(name, name)], (0.3, 0.5, 0.75, 1.0)[level_of - 1]
        drawn.append(svg.path("".join(shapes), color, opacity=opacity, data=f' data-kind="{_WORD.get(name, name)}"'))
    if edges:
        drawn.append(svg.path("".join(edges), INK))
    return drawn + texts


def _blank(begin: float, end: float, y: float) -> list[str]:
    """Draw diagonal lines over a time without a recording."""
    if end - begin < 0.75:
        return []
    strokes = []
    at = begin - _BAR
    while at < end:
        # From the lower edge to the upper one, clipped to the stretch.
        first, last = max(at, begin), min(at + _BAR, end)
        if last > first:
            across = svg.number(last - first)
            strokes.append(f"M{svg.number(first)} {svg.number(y + _BAR - (first - at))}l{across} -{across}")
        at += _HATCH
    lines = f'<path d="{"".join(strokes)}" stroke="{MUTED}" stroke-width="0.5" stroke-opacity="0.6"/>'
    drawn = [svg.rect(begin, y, end - begin, _BAR, PAPER, data=' data-kind="not recorded"'), lines]
    words = "not recorded"
    if end - begin > svg.width_of(words, 9) + 12:
        wide, middle = svg.width_of(words, 9) + 6, (begin + end) / 2
        drawn += [
            svg.rect(middle - wide / 2, y + 1, wide, _BAR - 2, PAPER),
            svg.text(middle, y + 11.5, words, anchor="middle", fill=MUTED, size=9),
        ]
    return drawn


def _level(covered: npt.NDArray[np.float64]) -> npt.NDArray[np.int64]:
    return np.ceil(np.minimum(covered, 1.0) * _LEVELS - 1e-9).astype(np.int64)


def _line(row: Row, left: float, y: float, low: float, high: float, scale: float) -> list[str]:
    inside = np.flatnonzero((row.start >= low) & (row.start <= high))
    if len(inside) > 240:
        inside = inside[:: -(-len(inside) // 240)]
    if not len(inside):
        return []
    points = [
        (left + (time - low) * scale, y + _BAR - max(0.0, min(100.0, value)) / 100 * _BAR)
        for time, value in zip(row.start[inside].tolist(), row.end[inside].tolist(), strict=True)
    ]
    base = svg.number(y + _BAR)
    area = f"M{svg.number(points[0][0])} {base}" + "".join(f"L{svg.number(a)} {svg.number(b)}" for a, b in points)
    return [
        svg.rect(left, y, (high - low) * scale, _BAR, GRID, opacity=0.3, edge=False),
        svg.path(area + f"L{svg.number(points[-1][0])} {base}z", MEANINGS["host"], opacity=0.55),
    ]


def _legend(kinds: Sequence[int], width: float) -> tuple[list[str], float]:
    """Draw a square and a word per kind; return also the y below them."""
    body: list[str] = []
    x, y = 0.0, 6.0
    for number in kinds:
        name = KINDS[number]
        word = _WORD.get(name, name)
        room = 27 + svg.width_of(word, 10)
        if x and x + room - 13 > width:
            x, y = 0.0, y + _LEGEND
        tall = 11 * _HEIGHT.get(name, 1.0)
        body.append(svg.rect(x, y + 11 - tall, 11, tall, MEANINGS[_COLOR.get(name, name)]))
        if name == "communication":
            body.append(svg.rect(x, y, 11, 2, INK))
        body.append(svg.text(x + 14, y + 9.5, word, size=10))
        x += room
    return body, y - 6 + _TOP
