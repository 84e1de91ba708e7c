"""Distinct integers with their numbers: the same order statistics as of the integers themselves."""

from __future__ import annotations

import statistics

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from postrun.analysis.toolkit.counted import Counted
from postrun.analysis.toolkit.quantiles import log_histogram, quantiles

_PARTS = st.lists(st.lists(st.integers(0, 30) | st.integers(0, 10**15), max_size=30), max_size=4)


def counted(parts: list[list[int]]) -> Counted:
    distribution = Counted()
    for part in parts:
        distribution.add(pl.Series(part, dtype=pl.Int64))
    return distribution


@given(parts=_PARTS, limit=st.floats(0, 40))
def test_values_in_order(parts: list[list[int]], limit: float) -> None:
    every = sorted(value for part in parts for value in part)
    distribution = counted(parts)
    assert len(distribution) == len(every)
    assert [distribution[i] for i in range(len(every))] == every
    assert distribution.column().to_list() == every
    assert distribution.below(pl.Series([limit])).to_list() == [sum(value < limit for value in every)]


@given(parts=_PARTS)
def test_quantiles_and_histogram_are_those_of_the_values(parts: list[list[int]]) -> None:
    every = [value for part in parts for value in part]
    expected, result = quantiles(pl.Series(every, dtype=pl.Int64)), counted(parts).quantiles()
    assert counted(parts).log_histogram() == log_histogram(pl.Series(every, dtype=pl.Int64))
    if expected is None or result is None:
        assert expected is result
        assert not every
        return
    for name in ("count", "min", "p5", "p25", "p50", "p75", "p95", "p99", "max", "mean"):
        assert getattr(result, name) == getattr(expected, name)
    assert result.std == pytest.approx(statistics.pstdev(every), rel=1e-9, abs=1e-9)
    assert result.std == pytest.approx(expected.std, rel=1e-9, abs=1e-9)
