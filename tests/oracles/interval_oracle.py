"""Interval algebra by its definitions, over every integer point or every pair of rows, without a sort or a sweep."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

Row = tuple[object, int | None, int | None]
"""Group, start and end of an interval."""
Numbered = tuple[object, int | None, int | None, int | None]
"""Group, number, and what orders rows of equal numbers: an integer, then another one, which can be null."""


def cells(rows: Sequence[Row], group: object) -> set[int]:
    """The unit cells [t, t + 1) that the intervals of a group cover."""
    return {t for g, start, end in rows if g == group and start is not None and end is not None for t in range(start, end)}


def groups(rows: Sequence[Row]) -> list[object]:
    """The groups in the order of results: null first."""
    return sorted({row[0] for row in rows}, key=lambda group: (group is not None, group))


def segments(classes: Sequence[tuple[object, dict[int, object]]]) -> list[tuple[object, int, int, object]]:
    """The longest stretches of equal value, from the value of each cell by group."""
    rows: list[tuple[object, int, int, object]] = []
    for group, values in classes:
        for t in sorted(values):
            if rows and rows[-1][0] == group and rows[-1][2] == t and rows[-1][3] == values[t]:
                rows[-1] = (group, rows[-1][1], t + 1, values[t])
            else:
                rows.append((group, t, t + 1, values[t]))
    return rows


def gaps(rows: Sequence[Row]) -> list[tuple[int, int, int]]:
    """Row, start and end of each gap, by comparing every row with those before it."""
    known = [(number, group, start, end) for number, (group, start, end) in enumerate(rows) if start is not None and end is not None]
    rows_after = []
    for number, group, start, end in known:
        before = [max(s, e) for n, g, s, e in known if g == group and (s, e, n) < (start, end, number)]
        if before and start > max(before):
            rows_after.append((number, max(before), start))
    order = {group: at for at, group in enumerate(groups(rows))}
    return sorted(rows_after, key=lambda gap: (order[rows[gap[0]][0]], gap[2]))


def innermost(points: Sequence[tuple[object, int | None]], ranges: Sequence[tuple[object, int, int, int | None]]) -> list[int | None]:
    """For each point the range that contains it and that started last."""
    numbers: list[int | None] = []
    for group, time in points:
        around = [
            (start, -end, order is not None, order or 0, number)
            for number, (g, start, end, order) in enumerate(ranges)
            if group is not None and time is not None and g == group and start <= time < end
        ]
        numbers.append(max(around)[-1] if around else None)
    return numbers


def nested(ranges: Sequence[tuple[object, int | None, int | None]]) -> list[tuple[int | None, int | None]]:
    """Return the range around each range, and its end.

    Every range is compared with all that began before it in its group, the last one first."""
    ends = [None if start is None else end for _, start, end in ranges]
    parents: list[int | None] = [None] * len(ranges)
    begun: list[int] = []
    order = [number for number, (_, start, end) in enumerate(ranges) if start is not None and end is not None]
    for number in sorted(order, key=lambda n: (ranges[n][1], -(ranges[n][2] or 0), n)):
        group, start, end = ranges[number]
        assert start is not None
        assert end is not None
        for before in reversed([n for n in begun if ranges[n][0] == group]):
            until = ends[before]
            assert until is not None
            if until > start and (end <= until or 2 * (until - start) >= end - start):
                parents[number], ends[number] = before, min(end, until)
                break
            ends[before] = min(until, start)
        if end > start:
            begun.append(number)
    return [(parent, None if number not in order else ends[number]) for number, parent in enumerate(parents)]


def first_of(points: Sequence[tuple[object, int | None]], rows: Sequence[Numbered]) -> list[int | None]:
    """For each point the row of its group and number that is first by order."""
    return [min(_equal(group, wanted, rows), default=(None,))[-1] for group, wanted in points]


def _equal(group: object, wanted: int | None, rows: Sequence[Numbered]) -> list[tuple[Any, ...]]:
    """The order and index of the rows of a group that have a number."""
    if group is None or wanted is None:
        return []
    return [
        (order, after is not None, after or 0, index)
        for index, (g, value, order, after) in enumerate(rows)
        if (g, value) == (group, wanted) and order is not None
    ]
