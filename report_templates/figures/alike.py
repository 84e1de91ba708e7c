"""Rows of a bar figure -> fewer rows: those with nearly the same values become one."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from typing import Final

from ..text.formats import plural

Row = tuple[str, Sequence[float]]

_NEAR: Final = 0.03  # of the longest row; values that differ by less are alike
_FEWEST: Final = 3  # rows; fewer keep their names


def collapsed(rows: Sequence[Row], noun: str, plural_noun: str | None = None) -> list[Row]:
    """Merge each group of at least three rows that are alike into one.

    The merged row is at the position of the first one. A group has the medians of its rows, and is named after their number: "7 ranks
    alike". Rows that differ from all others keep their names, so that an outlier stands out.
    """
    near = _NEAR * max((sum(values) for _, values in rows), default=0.0)
    groups: list[list[Row]] = []
    for row in rows:
        group = next((group for group in groups if _alike(group[0][1], row[1], near)), None)
        if group is None:
            groups.append([row])
        else:
            group.append(row)
    result: list[tuple[int, Row]] = []
    order = {label: number for number, (label, _) in enumerate(rows)}
    for group in groups:
        if len(group) < _FEWEST:
            result += [(order[row[0]], row) for row in group]
            continue
        every = "all " if len(group) == len(rows) else ""
        medians = [statistics.median(values) for values in zip(*(values for _, values in group), strict=True)]
        result.append((order[group[0][0]], (f"{every}{plural(len(group), noun, plural_noun)} alike", medians)))
    return [row for _, row in sorted(result, key=lambda entry: entry[0])]


def _alike(first: Sequence[float], second: Sequence[float], near: float) -> bool:
    return all(abs(a - b) <= near for a, b in zip(first, second, strict=True))
