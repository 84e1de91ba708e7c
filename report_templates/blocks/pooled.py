"""Histograms of several processes -> one over all of them."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Sequence
from typing import Final

from ...analysis.report.rows import Histogram

_PER_DECADE: Final = 40  # bins of a wide range, as in analysis/toolkit/quantiles.py
_CELLS: Final = 30  # of a narrow range
_WIDE: Final = 2.5
_LITTLE: Final = 0.05  # of a value, which rounding leaves in a bin


def pooled(histograms: Sequence[Histogram]) -> tuple[list[float], list[float]]:
    """Return edges, and the counts of all histograms between them.

    The count of a bin over several new ones is divided by their width. Values that a histogram counts as beyond its edges are left out.
    """
    first = histograms[0]
    if all(histogram.edges == first.edges for histogram in histograms):
        return list(first.edges), [float(sum(bins)) for bins in zip(*(histogram.counts for histogram in histograms), strict=True)]
    low, high = min(histogram.edges[0] for histogram in histograms), max(histogram.edges[-1] for histogram in histograms)
    edges = _edges(low, high)
    counts = [0.0] * (len(edges) - 1)
    for histogram in histograms:
        for number, entries in enumerate(histogram.counts):
            if entries:
                _add(counts, edges, histogram.edges[number], histogram.edges[number + 1], entries)
    return edges, [entries if entries > _LITTLE else 0.0 for entries in counts]


def _edges(low: float, high: float) -> list[float]:
    if low > 0 and high > _WIDE * low:
        begin = math.floor(math.log10(low) * _PER_DECADE + 1e-9)
        end = math.ceil(math.log10(high) * _PER_DECADE - 1e-9)
        return [10 ** (at / _PER_DECADE) for at in range(begin, end + 1)]
    wide = (high - low) / _CELLS or 1.0
    return [low + at * wide for at in range(_CELLS + 1)]


def _add(counts: list[float], edges: Sequence[float], start: float, end: float, entries: int) -> None:
    last = len(counts) - 1
    first = min(max(bisect_right(edges, start * (1 + 1e-12)) - 1, 0), last)
    if not end > start or end <= edges[first + 1] * (1 + 1e-12):
        counts[first] += entries
        return
    for number in range(first, last + 1):
        part = min(end, edges[number + 1]) - max(start, edges[number])
        if part <= 0:
            break
        counts[number] += entries * part / (end - start)


def binned(values: Sequence[float]) -> tuple[list[float], list[float]]:
    """Return edges and counts of values."""
    edges = _edges(min(values), max(values))
    counts = [0.0] * (len(edges) - 1)
    for value in values:
        counts[min(max(bisect_right(edges, value) - 1, 0), len(counts) - 1)] += 1
    return edges, counts
