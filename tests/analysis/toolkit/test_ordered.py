"""Quantiles and counts of sorted series equal plain Python, with the extension in C and without it."""

from __future__ import annotations

import bisect
import math
import struct
from array import array
from typing import Any

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from postrun.analysis.toolkit import ordered as module
from postrun.analysis.toolkit.ordered import Ordered, repeated

numbers = st.one_of(st.integers(-3, 3).map(float), st.floats(-1e6, 1e6).map(lambda value: value + 0.0))  # -0.0 + 0.0 is 0.0
series_of_numbers = st.lists(st.lists(numbers, min_size=1, max_size=130), max_size=5)
native = pytest.mark.skipif(module.NATIVE is None, reason="installed without the extension")


@pytest.fixture(params=[pytest.param(True, marks=native), False], ids=["C", "Polars"])
def variant(request: pytest.FixtureRequest) -> bool:
    return bool(request.param)


def make(series: list[list[float]], in_c: bool) -> Ordered:
    ends = [sum(map(len, series[: number + 1])) for number in range(len(series))]
    values = pl.Series([value for own in series for value in own], dtype=pl.Float64)
    with pytest.MonkeyPatch.context() as patch:
        if not in_c:
            patch.setattr(module, "NATIVE", None)
        return Ordered(values, pl.Series(ends, dtype=pl.Int64))


def plain(values: list[float], fraction: float) -> float:
    inorder, at = sorted(values), fraction * (len(values) - 1)
    low, high = inorder[math.floor(at)], inorder[min(math.floor(at) + 1, len(values) - 1)]
    return (at - math.floor(at)) * (high - low) + low


@pytest.mark.parametrize("in_c", [pytest.param(True, marks=native), False])
@given(series=series_of_numbers, fraction=st.floats(0, 1), data=st.data())
def test_figures_of_series_equal_plain_python(in_c: bool, series: list[list[float]], fraction: float, data: st.DataObject) -> None:
    inorder = make(series, in_c)
    assert inorder.values.to_list() == [value for own in series for value in sorted(own)]
    assert inorder.quantile(fraction).to_list() == [plain(own, fraction) for own in series]
    windows = [
        (number, *sorted(data.draw(st.lists(st.integers(0, len(own)), min_size=2, max_size=2, unique=True), label="window")))
        for number, own in enumerate(series)
        for _ in range(3)
    ]
    windows = data.draw(st.permutations(windows), label="order")
    begins = [sum(map(len, series[:number])) for number in range(len(series))]
    first, last = (pl.Series([begins[row[0]] + row[side] for row in windows], dtype=pl.Int64) for side in (1, 2))
    actual = inorder.windows(first, last, (fraction, 0.95))
    for part, quantiles in zip((fraction, 0.95), actual, strict=True):
        assert quantiles.to_list() == [plain(series[number][begin:end], part) for number, begin, end in windows]
    limits = [[data.draw(st.one_of(numbers, st.just(math.inf)), label="limit") for _ in range(2)] for _ in series]
    below = inorder.below(pl.Series([limit for own in limits for limit in own], dtype=pl.Float64))
    assert below.to_list() == [bisect.bisect_left(sorted(own), limit) for own, each in zip(series, limits, strict=True) for limit in each]


def test_long_series(variant: bool) -> None:
    # More than one block of ranks, and values that share most of their bits.
    series = [[float(number * 7919 % 2003) / 8 for number in range(5000)], [1e300, -1e300, 0.0] * 40, [-float(n) for n in range(600)]]
    inorder = make(series, variant)
    assert inorder.values.to_list() == [value for own in series for value in sorted(own)]
    first = pl.Series([0, 1000, 900, 4990, 5000, 5120], dtype=pl.Int64)
    last = pl.Series([5000, 3000, 1800, 5000, 5001, 5720], dtype=pl.Int64)
    flat = [value for own in series for value in own]
    for part, actual in zip((0.0, 0.3, 1.0), inorder.windows(first, last, (0.0, 0.3, 1.0)), strict=True):
        assert actual.to_list() == [plain(flat[begin:end], part) for begin, end in zip(first, last, strict=True)]


def test_no_series(variant: bool) -> None:
    inorder = make([], variant)
    nothing = pl.Series(dtype=pl.Int64)
    assert inorder.quantile(0.5).is_empty()
    assert [column.len() for column in inorder.windows(nothing, nothing, (0.1, 0.9))] == [0, 0]
    assert inorder.below(pl.Series(dtype=pl.Float64)).is_empty()


def test_repeated() -> None:
    assert repeated(pl.Series([5, 6, 7]), pl.Series([2, 1, 3])).to_list() == [5, 5, 6, 7, 7, 7]
    assert repeated(pl.Series(dtype=pl.UInt32), pl.Series(dtype=pl.Int64)).to_list() == []


@native
@pytest.mark.parametrize("ends", [[1], [3], [2, 1], [-1, 2], [1 << 62]])
def test_ends_that_do_not_fit(ends: list[int]) -> None:
    assert module.NATIVE is not None
    with pytest.raises(ValueError, match="do not fit"):
        module.NATIVE.sort_series(array("d", [1, 2]), array("q", ends))
    with pytest.raises(ValueError, match="do not fit"):
        module.NATIVE.count_below(array("d", [1, 2]), array("q", ends), array("d", [1] * len(ends)))


@native
@pytest.mark.parametrize(
    ("ranks", "first", "last", "fractions"),
    [
        ([0, 1, 2], [0], [4], [0.5]), ([0, 1, 2], [-1], [2], [0.5]), ([0, 1, 2], [1], [1], [0.5]), ([0, 1, 2], [0, 1], [2], [0.5]),
        ([0, 1, 3], [0], [3], [0.5]), ([1, 1, 1], [0], [2], [0.5]), ([0, 1, 2], [0], [2], [1.5]), ([0, 1, 2], [0], [2], [math.nan]),
        ([0, 1, 2], [2], [1], [0.5]), ([0, 1, 2], [1 << 62], [-(1 << 62)], [0.5]),
    ],
)  # fmt: skip
def test_windows_that_do_not_fit(ranks: list[int], first: list[int], last: list[int], fractions: list[float]) -> None:
    assert module.NATIVE is not None
    with pytest.raises(ValueError, match="do not fit"):
        module.NATIVE.window_ranks(array("I", ranks), array("q", [3]), array("q", first), array("q", last), array("d", fractions))


@native
def test_arguments_of_other_types() -> None:
    assert module.NATIVE is not None
    for arguments in ((array("d", [1]),), (array("d", [1]), b"1234567"), (1, 2), (array("d", [1]), array("q", [1]), 3)):
        with pytest.raises((TypeError, ValueError)):
            module.NATIVE.sort_series(*arguments)
    with pytest.raises(ValueError, match="null"):
        Ordered(pl.Series([1.0, None]), pl.Series([2]))


@native
def test_not_a_number_is_at_the_ends() -> None:
    assert module.NATIVE is not None
    values = array("d", [1.0, math.nan, -math.inf, 0.0, -0.0, math.copysign(math.nan, -1)])
    sorted_values, ranks = module.NATIVE.sort_series(values, array("q", [6]))
    assert list(struct.unpack("6I", ranks)) == [4, 5, 1, 3, 2, 0]
    inorder: Any = struct.unpack("6d", sorted_values)
    assert inorder[1:5] == (-math.inf, -0.0, 0.0, 1.0)
