"""Histograms of the Report -> bins of a figure, and whether a distribution is worth a figure."""

from __future__ import annotations

import math

from ...analysis.report.model import Histogram, Quantiles
from ..figures.histogram import Bins

_NEARLY = 0.01
_MIN_COUNT = 5


def worth_drawing(quantiles: Quantiles) -> bool:
    """Test whether there are enough values that are not nearly equal."""
    return quantiles.count >= _MIN_COUNT and quantiles.p95 - quantiles.p5 > _NEARLY * quantiles.p50


def bins_of(label: str, histogram: Histogram, median: float | None, limit: float = math.inf) -> Bins:
    """Return the bins up to ``limit`` ns, at least one; the others count as beyond."""
    kept = max(1, sum(1 for edge in histogram.edges[1:] if edge <= limit))
    beyond = histogram.beyond + sum(histogram.counts[kept:])
    return Bins(label, histogram.edges[: kept + 1], histogram.counts[:kept], median, beyond, histogram.logarithmic)
