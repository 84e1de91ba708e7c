"""Quantiles and histograms against NumPy and plain counting."""

from __future__ import annotations

import itertools
import math

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from postrun.analysis.toolkit import quantiles

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


@pytest.mark.parametrize(
    ("times", "distance"), [([], 0), ([5], 0), ([5, 15], 10), ([0, 10, 29, 30, 40], 10), ([0, 10, 30], 10), ([0, 10, 20, 500], 10)]
)
def test_the_usual_distance_is_the_median(times: list[int], distance: int) -> None:
    assert quantiles.usual_distance(times) == distance


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
        smallest = min((v for v in values if v), default=1)
        under = 10 ** ((math.log10(smallest) * 10 - 1) // 1 / 10) * 1.1 if smallest > 1 else 1  # in the bin before that of the smallest
        inside = [
            v for v in (v or under for v in values) if result.edges[i] <= v < result.edges[i + 1] or (last and v == result.edges[i + 1])
        ]
        assert counted == len(inside)
    ratios = [b / a for a, b in itertools.pairwise(result.edges)]
    assert ratios == pytest.approx([10**0.1] * len(ratios))


def test_the_axis_of_whole_microseconds_begins_at_one() -> None:
    # 0 us is less than one: it is in the bin up to 1 us, not in one that begins at 1 ns.
    result = quantiles.log_histogram(pl.Series([0, 0, 0, 1000, 1000, 2000]))
    assert result is not None
    assert result.edges[:3] == pytest.approx((794.328, 1000, 1258.925))
    assert result.counts == (3, 2, 0, 0, 1)
    only = quantiles.log_histogram(pl.Series([0, 0]))
    assert only is not None
    assert (only.edges[0], only.counts) == (1.0, (2,))


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


def test_bins_of_durations_follow_the_spread() -> None:
    # Quartiles of 1000..1999: 1249.75 and 1749.25; width 2 x 499.5 / 10 = 99.9; the span of 999 holds ten of them.
    drawn = quantiles.duration_histogram(pl.Series(range(1000, 2000)))
    assert drawn is not None
    assert (len(drawn.counts), drawn.counts[0], drawn.edges[0], drawn.edges[-1], drawn.beyond) == (10, 100, 1000.0, 1999.0, 0)


def test_a_long_tail_of_durations_is_counted_not_drawn() -> None:
    # 1,000 steps of 100..199 and one of 100,000: the axis ends at p99 = 100 + 0.99 x 1000 / 10 of the ordered values, value 199.
    drawn = quantiles.duration_histogram(pl.Series([100 + i // 10 for i in range(1000)] + [100_000]))
    assert drawn is not None
    assert drawn.edges[-1] == 199.0
    assert (sum(drawn.counts), drawn.beyond) == (1000, 1)


def test_durations_over_decades_get_logarithmic_bins() -> None:
    drawn = quantiles.duration_histogram(pl.Series([10] * 50 + [10_000] * 50))
    assert drawn is not None
    assert drawn.logarithmic
    assert (sum(drawn.counts), drawn.beyond) == (100, 0)


@pytest.mark.parametrize("values", [[], [7], [7, 7, 7], [0, 0, 5], [1, 2]])
def test_few_durations(values: list[int]) -> None:
    drawn = quantiles.duration_histogram(pl.Series(values, dtype=pl.Int64))
    assert (drawn is None) == (not values)
    if drawn is not None:
        assert sum(drawn.counts) + drawn.beyond == len(values)


def test_a_tail_has_logarithmic_bins_up_to_the_longest_duration() -> None:
    values = pl.Series([100.0 + number % 7 for number in range(500)] + [4000.0])
    result = quantiles.tail_histogram(values)
    assert result is not None
    assert (result.logarithmic, result.beyond, sum(result.counts)) == (True, 0, 501)
    assert result.edges[-1] >= 4000
    assert [after / before for before, after in itertools.pairwise(result.edges)] == pytest.approx([10 ** (1 / 40)] * len(result.counts))
    assert quantiles.tail_histogram(values.head(500)) == quantiles.duration_histogram(values.head(500))
