"""Change points of trends: figures of comparable runs -> the runs at which their level changed.

Optimal partitioning (Jackson et al., IEEE Signal Processing Letters 12, 2005) with the L2 cost and a penalty per change that grows with the
logarithm of the number of runs, as in the BIC (Yao, Statistics & Probability Letters 6, 1988). Values far from the running median are
clipped before, so that single outliers change no level. All series are divided at once. docs/nightly.md has the formulas in words.
"""

from __future__ import annotations

import statistics
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import polars as pl

from .metrics import Metric

Matrix = npt.NDArray[np.float64]
NEWEST: Final = 60  # runs of a series in which changes are searched
FEWEST: Final = 10  # runs of a series; fewer show no change
LEAST: Final = 4  # runs of a level
_WINDOW: Final = 2 * LEAST - 1  # runs of the running median: the longest that keeps levels of LEAST runs; at the ends, the nearest ones
_CLIP: Final = 2.0  # standard deviations from the running median
_PENALTY: Final = (6.0, 3.0)  # variances per change, and per change and logarithm of the number of runs
_NORMAL: Final = 1.4826  # standard deviation / median absolute deviation of normally distributed values
_SMALL: Final = 2.0  # the deviation is increased by this / number of runs
_SHARE_OF_LIMIT: Final = 0.25  # smaller changes of the level are not mentioned
_CHUNK: Final = 8192  # series that are divided at once


@dataclass(frozen=True, slots=True)
class ChangePoint:
    """A change of the level of a figure. ``id``: of the first run with the new level. ``before``, ``after``: medians of the ``runs_before``
    runs of the level before and the ``runs`` of the new one. ``change_percent``: of ``before``; points for a figure in percent of time.
    ``last``: whether the level is still the same."""

    family: str
    metric: str
    id: str
    at_ns: int | None
    ended_ns: int | None
    before: float
    after: float
    change_percent: float
    worse: bool
    runs_before: int
    runs: int
    last: bool


def change_points(runs: pl.DataFrame, metric: Metric, series: Sequence[str]) -> list[ChangePoint]:
    """Find the changes of a figure in each series, in order of time.

    ``runs``: comparable ones with the figure as ``value``, in order of time; their other columns: id, at_ns, ended_ns, family, and those of
    ``series``."""
    grouped = (
        runs.group_by(*series, maintain_order=True)
        .agg(pl.col("id", "at_ns", "ended_ns", "value").tail(NEWEST))
        .filter(pl.col("value").list.len() >= FEWEST)
    )
    changes: list[ChangePoint] = []
    for chunk in grouped.iter_slices(_CHUNK):
        for number, starts in _levels(_matrix(chunk["value"]), metric):
            changes += _described(chunk.row(number, named=True), starts, metric)
    return changes


def _described(row: dict[str, Any], starts: Sequence[int], metric: Metric) -> Iterator[ChangePoint]:
    """Yield the changes that are large enough.

    Levels with a smaller change are joined. ``starts``: of all levels except the first."""
    borders = [0, *starts, len(row["value"])]
    while len(borders) > 2:
        levels = [statistics.median(row["value"][begin:end]) for begin, end in pairwise(borders)]
        differences = [metric.change(*pair) for pair in pairwise(levels)]
        least = min(range(len(differences)), key=lambda number: abs(differences[number]))
        if abs(differences[least]) > _SHARE_OF_LIMIT * metric.limit:
            break
        del borders[least + 1]
    for number, (begin, start, end) in enumerate(zip(borders, borders[1:], borders[2:], strict=False)):
        change = differences[number]
        yield ChangePoint(
            row["family"], metric.key, row["id"][start], row["at_ns"][start], row["ended_ns"][start], levels[number], levels[number + 1],
            change, (change > 0) == metric.more_is_worse, start - begin, end - start, end == len(row["value"]),
        )  # fmt: skip


def _matrix(values: pl.Series) -> Matrix:
    """Return a row per series, filled with NaN at its end."""
    lengths = values.list.len().to_numpy()
    matrix = np.full((len(lengths), int(lengths.max())), np.nan)
    matrix[np.arange(matrix.shape[1]) < lengths[:, None]] = values.explode().to_numpy()
    return matrix


def _levels(values: Matrix, metric: Metric) -> Iterator[tuple[int, list[int]]]:
    """Yield each series that changed, and where its levels after the first start."""
    lengths = (~np.isnan(values)).sum(axis=1)
    at = np.arange(values.shape[1]) - _WINDOW // 2
    with warnings.catch_warnings(), np.errstate(all="ignore"):  # numbers that no run has
        warnings.simplefilter("ignore", RuntimeWarning)  # nothing after the end of a series
        medians = np.median(np.lib.stride_tricks.sliding_window_view(values, _WINDOW, axis=1), axis=2)
        running = np.take_along_axis(medians, np.clip(at, 0, (lengths - _WINDOW)[:, None]), axis=1)
        spread = _NORMAL / np.sqrt(2) * np.nanmedian(np.abs(np.diff(values, axis=1)), axis=1) * (1 + _SMALL / lengths)
        share, points = metric.floor
        spread = np.maximum(spread, share * np.abs(np.nanmedian(values, axis=1)) + points)
        spread[~(spread > 0)] = 1.0
        room = _CLIP * spread[:, None]
        scaled = np.nan_to_num(np.clip(values, running - room, running + room) / spread[:, None])
        before = _partition(scaled, _PENALTY[0] + _PENALTY[1] * np.log(lengths))
    last = before[np.arange(len(lengths)), lengths]
    for number in np.flatnonzero(last):
        starts = [int(last[number])]
        while start := int(before[number, starts[0]]):
            starts.insert(0, start)
        yield int(number), starts


def _partition(values: Matrix, penalty: Matrix) -> npt.NDArray[np.intp]:
    """Return where the last level of the best division of the first n values starts.

    ``values``: a series per row, in standard deviations. Result: a column per n from 0."""
    rows, length = values.shape
    sums = np.zeros((2, rows, length + 1))
    np.cumsum(values, axis=1, out=sums[0, :, 1:])
    np.cumsum(values**2, axis=1, out=sums[1, :, 1:])
    best = np.full((rows, length + 1), np.inf)
    best[:, 0] = -penalty
    before = np.zeros((rows, length + 1), dtype=np.intp)
    for end in range(LEAST, length + 1):
        starts = np.arange(end - LEAST + 1)
        first, second = sums[:, :, [end]] - sums[:, :, starts]
        costs = best[:, starts] + second - first**2 / (end - starts) + penalty[:, None]
        before[:, end] = costs.argmin(axis=1)
        best[:, end] = costs.min(axis=1)
    return before
