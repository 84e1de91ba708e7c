"""Rows of bars, or lines -> fewer: those with nearly the same values become one."""

from __future__ import annotations

import dataclasses
import statistics
from collections.abc import Sequence
from itertools import takewhile
from typing import Final

import numpy as np

from ...analysis.toolkit.wording import number_runs
from ..text.formats import plural
from .lines import Line

Row = tuple[str, Sequence[float]]

_NEAR: Final = 0.03  # of the longest row; values that differ by less are alike
NEAR_LINES: Final = 0.02
_WHICH: Final = 24  # letters that name the rows of a group at most
_FEWEST: Final = 3  # rows; fewer keep their names


def collapsed(rows: Sequence[Row], noun: str, plural_noun: str | None = None) -> list[Row]:
    """Merge each group of at least three rows that are alike into one.

    The merged row is at the position of the first one, and has the medians of its rows. Rows that differ from all others keep their names,
    so that an outlier stands out.
    """
    return [
        (alike_label([rows[number][0] for number in group], len(rows), noun, plural_noun), medians([rows[number][1] for number in group]))
        for group in groups_alike([values for _, values in rows])
    ]


def alike_label(names: Sequence[str], of: int, noun: str, plural_noun: str | None = None) -> str:
    """Name a group of rows that are alike, of ``of`` rows in all.

    A group of a part of the rows is named by the words with which all of its names end, or by the numbers that differ: "7 streams alike
    (stream 20)", "3 streams alike (7, 13, 17)". A single row keeps its name."""
    if len(names) == 1:
        return names[0]
    if len(names) == of:
        return f"both {plural_noun or noun + 's'} alike" if of == 2 else f"all {plural(of, noun, plural_noun)} alike"
    words = [name.split() for name in names]
    begin, end = _common_length(words), _common_length([row[::-1] for row in words])
    parts = [" ".join(row[begin:]) for row in words]
    which = " ".join(words[0][-end:]) if end else ""
    if not which and all(part.isdigit() for part in parts):
        which = ", ".join(number_runs(map(int, parts)))
    return f"{plural(len(names), noun, plural_noun)} alike{f' ({which})' if 0 < len(which) <= _WHICH else ''}"


def _common_length(rows: Sequence[Sequence[str]]) -> int:
    """Return the number of words with which all rows begin."""
    return sum(1 for _ in takewhile(lambda words: len(set(words)) == 1, zip(*rows, strict=False)))


def groups_alike(rows: Sequence[Sequence[float]], near: float | None = None) -> list[list[int]]:
    """Group the numbers of rows that are alike, in the order of their first ones.

    A group has one row, or at least three. ``near``: by how much values that are alike differ at most.
    """
    near = _NEAR * max(map(sum, rows), default=0.0) if near is None else near
    groups: list[list[int]] = []
    for number, row in enumerate(rows):
        group = next((group for group in groups if _alike(rows[group[0]], row, near)), None)
        if group is None:
            groups.append([number])
        else:
            group.append(number)
    return sorted(part for group in groups for part in ([group] if len(group) >= _FEWEST else [[number] for number in group]))


def medians(rows: Sequence[Sequence[float]]) -> Sequence[float]:
    return rows[0] if len(rows) == 1 else [statistics.median(values) for values in zip(*rows, strict=True)]


def _alike(first: Sequence[float], second: Sequence[float], near: float) -> bool:
    return all(abs(a - b) <= near for a, b in zip(first, second, strict=True))


def alike_lines(
    lines: Sequence[Line], noun: str, plural_noun: str | None = None, *, top: float | None = None, near: float = NEAR_LINES
) -> list[Line]:
    """Merge the lines that are alike into one with a band, and mark the outlier.

    A line is alike another if their mean distance is at most ``near`` (2%) of ``top``, or else of the highest value. The outlier is the
    line that is furthest from a group of most lines, unless two are about as far. Lines without a label are not merged.
    """
    named = [line for line in lines if line.label is not None]
    if len(named) < 2 or len(named) < len(lines):
        return list(lines)
    distance = near * (top or max(max(line.y) for line in named))
    groups: list[list[Line]] = []
    for line in named:
        group = next((group for group in groups if _distance(group[0], line) <= distance), None)
        if group is None:
            groups.append([line])
        else:
            group.append(line)
    largest = max(groups, key=len)
    merged = {id(group[0]): _merged(group, len(named), noun, plural_noun) for group in groups}
    if len(largest) * 2 > len(named):
        far = sorted((group[0] for group in groups if group is not largest), key=lambda line: -_distance(largest[0], line))
        clear = len(far) == 1 or (len(far) > 1 and _distance(largest[0], far[0]) > 2 * _distance(largest[0], far[1]))
        if clear and len(named) > 2 and merged[id(far[0])].label == far[0].label:
            merged[id(far[0])] = dataclasses.replace(far[0], outlier=True)
    return [merged[id(group[0])] for group in groups]


def _distance(first: Line, second: Line) -> float:
    return float(np.abs(np.interp(first.x, second.x, second.y) - np.asarray(first.y, float)).mean())


def _merged(group: Sequence[Line], of: int, noun: str, plural_noun: str | None) -> Line:
    if len(group) == 1:
        return group[0]
    first = group[0]
    values, low, high = (
        np.array([np.interp(first.x, line.x, getattr(line, of) or line.y) for line in group]) for of in ("y", "low", "high")
    )
    label = alike_label([line.label or "" for line in group], of, noun, plural_noun)
    return Line(label, first.x, values.mean(axis=0).tolist(), low.min(axis=0).tolist(), high.max(axis=0).tolist())
