"""Interval algebra by its definitions, over every integer point or every pair of rows, without a sort or a sweep."""

from __future__ import annotations

from collections.abc import Sequence

Row = tuple[object, int | None, int | None]
"""Group, start and end of an interval."""


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
    found = []
    for number, group, start, end in known:
        before = [max(s, e) for n, g, s, e in known if g == group and (s, e, n) < (start, end, number)]
        if before and start > max(before):
            found.append((number, max(before), start))
    order = {group: at for at, group in enumerate(groups(rows))}
    return sorted(found, key=lambda gap: (order[rows[gap[0]][0]], gap[2]))


def innermost(points: Sequence[tuple[object, int | None]], ranges: Sequence[tuple[object, int, int, int | None]]) -> list[int | None]:
    """For each point the range that contains it and that started last."""
    found: list[int | None] = []
    for group, time in points:
        around = [
            (start, -end, order is not None, order or 0, number)
            for number, (g, start, end, order) in enumerate(ranges)
            if group is not None and time is not None and g == group and start <= time < end
        ]
        found.append(max(around)[-1] if around else None)
    return found


def first_of(points: Sequence[tuple[object, int | None]], rows: Sequence[tuple[object, int | None, int | None]]) -> list[int | None]:
    """For each point the row of its group and number that is first by order."""
    found: list[int | None] = []
    for group, wanted in points:
        equal = [
            (order, number)
            for number, (g, value, order) in enumerate(rows)
            if group is not None and wanted is not None and (g, value) == (group, wanted) and order is not None
        ]
        found.append(min(equal)[1] if equal else None)
    return found
