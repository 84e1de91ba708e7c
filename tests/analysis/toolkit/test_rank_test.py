"""The rank-sum test equals a count of all arrangements, and its interval has the stated width."""

from __future__ import annotations

import itertools
import random
import statistics

import pytest
from postrun.analysis.toolkit.rank_test import rank_test


def by_counting(first: list[float], second: list[float]) -> float:
    """Return the two-sided p from all choices of the second sample.

    It is the share of choices with a U at least as far from its mean."""

    def u(chosen: set[int], values: list[float]) -> float:
        return sum(
            1.0 if values[j] > values[i] else 0.5 if values[j] == values[i] else 0.0
            for j in chosen
            for i in range(len(values))
            if i not in chosen
        )

    values = [*first, *second]
    middle = len(first) * len(second) / 2
    seen = abs(u(set(range(len(first), len(values))), values) - middle)
    every = [abs(u(set(chosen), values) - middle) for chosen in itertools.combinations(range(len(values)), len(second))]
    return sum(one >= seen - 1e-9 for one in every) / len(every)


@pytest.mark.parametrize("seed", range(12))
def test_small_samples_are_counted_out(seed: int) -> None:
    chance = random.Random(seed)
    first = [chance.gauss(100, 5) for _ in range(chance.randint(1, 6))]
    second = [chance.gauss(100 + 3 * (seed % 4), 5) for _ in range(chance.randint(1, 6))]
    assert rank_test(first, second).p_value == pytest.approx(by_counting(first, second), abs=1e-12)


@pytest.mark.parametrize("seed", range(4))
def test_ties_are_near_the_counted_value(seed: int) -> None:
    chance = random.Random(seed)
    first = [float(chance.randint(1, 6)) for _ in range(8)]
    second = [float(chance.randint(2, 7)) for _ in range(8)]
    assert rank_test(first, second).p_value == pytest.approx(by_counting(first, second), abs=0.03)


def test_equal_values_differ_in_nothing() -> None:
    result = rank_test([5.0] * 9, [5.0] * 9)
    assert (result.p_value, result.likelier, result.ratio, result.low, result.high) == (1.0, 0.5, 1.0, 1.0, 1.0)


def test_the_ratio_is_the_median_of_all_ratios() -> None:
    chance = random.Random(3)
    first, second = ([chance.uniform(1, 3) for _ in range(n)] for n in (7, 12))
    ratios = [b / a for a in first for b in second]
    result = rank_test(first, second)
    assert result.ratio == pytest.approx(statistics.median(ratios))
    assert result.likelier == pytest.approx(sum(ratio > 1 for ratio in ratios) / len(ratios))
    assert min(ratios) <= result.low < result.ratio < result.high <= max(ratios)


def test_one_outlier_moves_nothing() -> None:
    first = [100.0 + 0.1 * i for i in range(30)]
    calm, wild = [100.05 + 0.1 * i for i in range(30)], [*(100.05 + 0.1 * i for i in range(29)), 9000.0]
    assert rank_test(first, wild).p_value == pytest.approx(rank_test(first, calm).p_value, abs=0.02)
    assert rank_test(first, wild).ratio == pytest.approx(1, abs=0.005)


def test_noise_is_told_as_a_change_in_one_of_a_hundred_cases_and_the_interval_holds_the_truth() -> None:
    chance = random.Random(11)
    false, missed, cases = 0, 0, 400
    for _ in range(cases):
        first = [chance.lognormvariate(0, 0.1) for _ in range(25)]
        second = [1.05 * chance.lognormvariate(0, 0.1) for _ in range(30)]
        result = rank_test(first, [value / 1.05 for value in second])
        false += result.p_value < 0.01
        shifted = rank_test(first, second)
        missed += not shifted.low <= 1.05 <= shifted.high
    assert false / cases < 0.025
    assert missed / cases < 0.025


def test_thousands_of_steps() -> None:
    chance = random.Random(5)
    first, second = ([chance.gauss(mean, 5) for _ in range(5000)] for mean in (100, 100.8))
    result = rank_test(first, second)
    assert result.p_value < 1e-9
    assert result.low < 1.008 < result.high
    assert result.high - result.low < 0.01
