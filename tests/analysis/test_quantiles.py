"""Quantiles and histograms against NumPy and plain counting."""

from __future__ import annotations

import itertools
import math

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from postrun.analysis import quantiles

durations = st.lists(st.integers(0, 10**12), min_size=1, max_size=60)


@given(durations)
def test_quantiles_equal_numpy(values: list[int]) -> None:
    result = quantiles.quantiles(pl.Series(values))
    assert result is not None
    assert result.count == len(values)
    assert (result.min, result.max) == (min(values), max(values))
    expected = np.percentile(np.array(values, dtype=float), [5, 25, 50, 75, 95, 99])
    assert [result.p5, result.p25, result.p50, result.p75, result.p95, result.p99] == pytest.approx(expected, rel=1e-12, abs=1e-6)
    assert result.mean == pytest.approx(sum(values) / len(values), rel=1e-12)
    assert result.std == pytest.approx(np.std(np.array(values, dtype=float)), rel=1e-9, abs=1e-6)


@given(durations, st.integers(1, 20))
def test_histogram_counts_every_value_once(values: list[int], bins: int) -> None:
    result = quantiles.histogram(pl.Series(values), bins=bins)
    assert result is not None
    assert sum(result.counts) == len(values)
    assert len(result.edges) == len(result.counts) + 1
    for i, counted in enumerate(result.counts):
        last = i == len(result.counts) - 1
        assert counted == sum(result.edges[i] <= v < result.edges[i + 1] or (last and v == result.edges[i + 1]) for v in values)


@given(durations)
def test_log_histogram_counts_every_value_once(values: list[int]) -> None:
    result = quantiles.log_histogram(pl.Series(values))
    assert result is not None
    assert result.logarithmic
    assert sum(result.counts) == len(values)
    for i, counted in enumerate(result.counts):
        last = i == len(result.counts) - 1
        inside = [
            v for v in (max(v, 1) for v in values) if result.edges[i] <= v < result.edges[i + 1] or (last and v == result.edges[i + 1])
        ]
        assert counted == len(inside)
    ratios = [b / a for a, b in itertools.pairwise(result.edges)]
    assert ratios == pytest.approx([10**0.1] * len(ratios))


def test_order_of_the_input_does_not_matter() -> None:
    values = [3, 1, 10**15 + 1, 7, 10**9]
    assert quantiles.quantiles(pl.Series(values)) == quantiles.quantiles(pl.Series(values[::-1]))


def test_nothing_has_no_quantiles() -> None:
    empty = pl.Series([], dtype=pl.Int64)
    assert quantiles.quantiles(empty) is None
    assert quantiles.histogram(empty) is None
    assert quantiles.log_histogram(empty) is None
    with pytest.raises(ValueError, match="nothing"):
        quantiles.quantile(empty, 0.5)


def test_equal_values_make_one_bin() -> None:
    result = quantiles.histogram(pl.Series([5, 5, 5]))
    assert result is not None
    assert (result.edges, result.counts) == ((5.0, 6.0), (3,))
    spread = quantiles.quantiles(pl.Series([5, 5, None, 5]))
    assert spread is not None
    assert (spread.count, spread.std) == (3, 0.0)
    assert math.isclose(spread.p95, 5)
