"""Quantiles and histograms of a column of durations, and the usual distance of samples."""

from __future__ import annotations

import itertools
import math
import statistics
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, Final, Protocol

import polars as pl

from ..report.rows import Histogram, Quantiles

LINEAR_BINS: Final = 50
BINS_PER_DECADE: Final = 10
TAIL_BINS: Final = 40  # per power of ten
FEWEST_BINS: Final = 5
MOST_BINS: Final = 40
_WIDE: Final = 10.0  # p95 / p5 at which equal bins start to hide one end of the distribution


class Ordered(Protocol):
    """Values in ascending order."""

    def __len__(self) -> int: ...

    def __getitem__(self, position: int, /) -> Any: ...


def quantile(ordered: Ordered, fraction: float) -> float:
    """Return a quantile of ascending values by linear interpolation (type 7).

    This is NumPy's default, between order statistics. ``fraction`` is 0..1. Raises ValueError for an empty series."""
    if not len(ordered):
        raise ValueError("no quantile of nothing")
    position = fraction * (len(ordered) - 1)
    low = math.floor(position)
    below = ordered[low]
    above = ordered[min(low + 1, len(ordered) - 1)]
    return float(below + (above - below) * (position - low))


def usual_distance(times: Sequence[int]) -> int:
    """Return the median distance of ascending times, 0 of fewer than two.

    A sampler on a busy node takes some samples late and the next ones soon after, so the smallest distance is unusual."""
    return statistics.median_low([after - before for before, after in itertools.pairwise(times)] or [0])


def quantiles(values: pl.Series) -> Quantiles | None:
    """Return quantiles, mean and population standard deviation, or None if empty."""
    ordered = values.drop_nulls().sort().rechunk()
    if not len(ordered):
        return None
    mean = ordered.sum() / len(ordered)
    # Deviations from the mean, summed in ascending order: the same figure for any order of the input.
    deviation = ordered.cast(pl.Float64) - mean
    return of_ordered(ordered, float(mean), float((deviation * deviation).sum()))


def of_ordered(ordered: Ordered, mean: float, squares: float) -> Quantiles:
    """Return the quantiles of ascending values. ``squares``: of deviations, summed."""
    return Quantiles(
        count=len(ordered),
        min=float(ordered[0]),
        p5=quantile(ordered, 0.05),
        p25=quantile(ordered, 0.25),
        p50=quantile(ordered, 0.50),
        p75=quantile(ordered, 0.75),
        p95=quantile(ordered, 0.95),
        p99=quantile(ordered, 0.99),
        max=float(ordered[-1]),
        mean=mean,
        std=math.sqrt(squares / len(ordered)),
    )


def histogram(values: pl.Series, *, bins: int = LINEAR_BINS, unit: str = "ns") -> Histogram | None:
    """Count ``values`` in ``bins`` equal bins from the lowest to the highest, or None.

    The highest value belongs to the last bin. Equal values make one bin, of width 1. None without values."""
    ordered = values.drop_nulls().cast(pl.Float64).sort()
    if not len(ordered):
        return None
    low, high = float(ordered[0]), float(ordered[-1])
    if low == high:
        return Histogram(edges=(low, low + 1.0), counts=(len(ordered),), unit=unit, logarithmic=False)
    edges = [low + (high - low) * i / bins for i in range(bins)] + [high]
    return Histogram(edges=tuple(edges), counts=bin_counts(ordered, edges), unit=unit, logarithmic=False)


def duration_histogram(values: pl.Series) -> Histogram | None:
    """Choose bins that show the shape of positive durations; None without values.

    Logarithmic bins if p95 is more than ten times p5. Otherwise equal bins of width 2 x interquartile range / cube root of the count
    (Freedman and Diaconis), 5 to 40 of them; a tail that would double the axis beyond p99 is cut off there and counted in ``beyond``."""
    ordered = values.drop_nulls().cast(pl.Float64).sort().rechunk()
    if not len(ordered):
        return None
    low, high = float(ordered[0]), float(ordered[-1])
    if quantile(ordered, 0.95) > _WIDE * max(quantile(ordered, 0.05), 1.0):
        return log_histogram(values)
    p99 = quantile(ordered, 0.99)
    upper = p99 if low < p99 and high - low > 2 * (p99 - low) else high
    kept = ordered.filter(ordered <= upper)
    width = 2 * (quantile(ordered, 0.75) - quantile(ordered, 0.25)) / len(ordered) ** (1 / 3)
    bins = MOST_BINS if width * MOST_BINS <= upper - low else max(FEWEST_BINS, round((upper - low) / width))
    drawn = histogram(kept, bins=bins)
    return None if drawn is None else replace(drawn, beyond=len(ordered) - len(kept))


def tail_histogram(values: pl.Series) -> Histogram | None:
    """Choose bins that also show the longest durations; None without values.

    Equal bins without a tail, as in :func:`duration_histogram`, else 40 logarithmic ones per power of ten."""
    drawn = duration_histogram(values)
    return log_histogram(values, per_decade=TAIL_BINS) if drawn is not None and drawn.beyond else drawn


def log_histogram(values: pl.Series, *, unit: str = "ns", per_decade: int = BINS_PER_DECADE) -> Histogram | None:
    """Count ``values`` in logarithmic bins; None without values.

    There are ``per_decade`` bins per power of ten. Histograms of different runs have the same bins. Values below 1 (also 0) are below the
    resolution of the source's clock: they are counted in the bin before that of the smallest other value, or in that of 1 if it is the
    first."""
    every = values.drop_nulls().cast(pl.Float64).sort()
    if not len(every):
        return None
    below = int((every < 1.0).sum())
    first, last = (every[below], every[-1]) if below < len(every) else (1.0, 1.0)
    return log_bins(below, len(every), first, last, lambda limits: every.search_sorted(limits, side="left"), unit, per_decade)


def log_bins(
    below: int,
    number: int,
    first: float,
    last: float,
    count_below: Callable[[pl.Series], pl.Series],
    unit: str = "ns",
    per_decade: int = BINS_PER_DECADE,
) -> Histogram:
    """Count values in the bins of :func:`log_histogram`.

    ``below``: values below 1, of ``number``. ``first``, ``last``: lowest and highest of the others. ``count_below``: values below
    each limit.
    """
    lowest = math.floor(math.log10(first) * per_decade)
    highest = math.floor(math.log10(last) * per_decade) + 1
    edges = [_edge(i, per_decade) for i in range(lowest, highest + 1)]
    # log10 and the edges round differently: the outermost values must not fall out.
    if first < edges[0]:
        edges.insert(0, _edge(lowest - 1, per_decade))
    if last > edges[-1]:
        edges.append(_edge(highest + 1, per_decade))
    limits = [below, *count_below(pl.Series(edges[1:-1], dtype=pl.Float64)).to_list(), number]
    counts = tuple(after - before for before, after in itertools.pairwise(limits))
    if below == number:
        counts = (below,)
    elif below and edges[0] > 1:
        edges, counts = [edges[0] / _edge(1, per_decade), *edges], (below, *counts)
    elif below:
        counts = (counts[0] + below, *counts[1:])
    return Histogram(edges=tuple(edges), counts=counts, unit=unit, logarithmic=True)


def _edge(index: int, per_decade: int) -> float:
    return float(10.0 ** (index / per_decade))


def bin_counts(ordered: pl.Series, edges: Sequence[float]) -> tuple[int, ...]:
    """Count values in [edge, next edge), the last bin closed; no value is outside."""
    inner = pl.Series(edges[1:-1], dtype=pl.Float64)
    below = [0, *ordered.search_sorted(inner, side="left").to_list(), len(ordered)]
    return tuple(after - before for before, after in itertools.pairwise(below))
