"""Change points are where the level of a series changed: not at outliers, rarely in noise, and as a plain recomputation finds them."""

from __future__ import annotations

import itertools
import math
import statistics
from typing import Any

import numpy as np
import polars as pl
import pytest
from example_counts import examples
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from postrun.nightly.change_points import ChangePoint, change_points
from postrun.nightly.metrics import METRICS, STEP, Metric

BUSY = next(metric for metric in METRICS if metric.key == "gpu-busy")
SERIES = ("family", "gpus")


def runs(*series: list[float]) -> pl.DataFrame:
    parts = [
        pl.DataFrame(
            {
                "id": [f"{number}/{at}" for at in range(len(values))],
                "at_ns": list(range(len(values))),
                "ended_ns": [at + 1 for at in range(len(values))],
                "family": f"family-{number}",
                "gpus": 8,
                "value": pl.Series(values, dtype=pl.Float64),
            }
        )
        for number, values in enumerate(series)
    ]
    return pl.concat(parts)


def changes_in(values: list[float], metric: Metric = STEP) -> list[ChangePoint]:
    return change_points(runs(values), metric, SERIES)


def starts(values: list[float], metric: Metric = STEP) -> list[int]:
    return [int(change.id.partition("/")[2]) for change in changes_in(values, metric)]


# -- on paper --------------------------------------------------------------------------------------------------------------


def test_a_level_that_changed_once() -> None:
    (change,) = changes_in([100, 101, 99, 100, 102, 100, 115, 116, 114, 115])
    assert change == ChangePoint("family-0", "step", "0/6", 6, 7, 100.0, 115.0, 15.0, True, 6, 4, True)
    (faster,) = changes_in([115] * 6 + [92] * 5)
    assert (faster.change_percent, faster.worse, faster.runs) == (-20.0, False, 5)


def test_a_level_that_came_back() -> None:
    first, second = changes_in([100] * 10 + [120] * 8 + [100] * 10)
    assert (first.id, first.runs_before, first.runs, first.last, first.worse) == ("0/10", 10, 8, False, True)
    assert (second.id, second.runs_before, second.runs, second.last, second.worse) == ("0/18", 8, 10, True, False)


def test_a_level_has_at_least_four_runs_and_a_series_ten() -> None:
    assert starts([100] * 17 + [120] * 3) == []
    assert starts([100] * 16 + [120] * 4) == [16]
    assert starts([100] * 4 + [120] * 16) == [4]
    assert starts([100] * 5 + [120] * 4) == []
    assert starts([100] * 5 + [120] * 5) == [5]


@pytest.mark.parametrize("at", range(0, 30, 3))
def test_outliers_are_no_change(at: int) -> None:
    values = [100.0, 101, 99] * 10
    values[at] = 400
    assert starts(values) == []
    values[(at + 2) % 30] = 250
    assert starts(values) == []
    values[(at + 1) % 30] = 20
    assert starts(values) == []


def test_a_quarter_of_the_limit_is_the_least_change() -> None:
    assert starts([100] * 10 + [102.4] * 10) == []
    assert starts([100] * 10 + [102.6] * 10) == [10]
    assert starts([100] * 10 + [102.6] * 10, Metric("step", "", "", "ns", 20.0)) == []
    # A level that differs less from the one before belongs to it: 120 and 122.5 are one level.
    (change,) = changes_in([100] * 20 + [120] * 20 + [122.5] * 20)
    assert (change.id, change.after, change.runs, change.last) == ("0/20", 121.25, 40, True)


def test_figures_in_percent_change_by_points_and_less_can_be_worse() -> None:
    (change,) = changes_in([60.0] * 10 + [45.0] * 5, BUSY)
    assert (change.metric, change.change_percent, change.worse) == ("gpu-busy", -15.0, True)
    assert starts([0.5] * 10 + [1.5] * 10, BUSY) == []  # three times as much, but one point
    assert starts([0.0] * 10 + [8.0] * 10, BUSY) == [10]


def test_only_the_newest_sixty_runs_count() -> None:
    assert starts([100] * 20 + [120] * 70) == []
    assert starts([100] * 20 + [120] * 50) == [20]


def test_series_are_divided_on_their_own() -> None:
    several = [[100.0] * 8 + [130.0] * 6, [5.0] * 3, [7.0] * 40, [200.0] * 30 + [150.0] * 20]
    assert [change.id for change in change_points(runs(*several), STEP, SERIES)] == ["0/8", "3/30"]
    frame = pl.concat([runs([100.0] * 9), runs([130.0] * 9).with_columns(gpus=16)], how="vertical_relaxed")
    assert change_points(frame, STEP, SERIES) == []
    assert change_points(frame.clear(), STEP, SERIES) == []


@pytest.mark.parametrize("metric", [STEP, BUSY])
def test_numbers_that_no_run_has_do_no_harm(metric: Metric) -> None:
    for values in ([1e308, 1.0] * 10, [1e-308] * 10 + [1e308] * 10, [2.0**63] * 20, [1e308] * 19 + [1.0]):
        assert all(0 < start < 20 for start in starts(values, metric))


# -- recomputed ------------------------------------------------------------------------------------------------------------


def recomputed(values: list[float]) -> tuple[list[int], float]:
    """Return the best of all divisions, and its margin to the second best."""
    n = len(values)
    middles = [statistics.median(values[max(0, min(at - 3, n - 7)) :][:7]) for at in range(n)]
    steps = statistics.median(abs(after - before) for before, after in itertools.pairwise(values))
    spread = max(1.4826 / math.sqrt(2) * steps * (1 + 2 / n), 0.01 * statistics.median(values))
    clipped = [min(max(x, m - 2 * spread), m + 2 * spread) / spread for x, m in zip(values, middles, strict=True)]

    def cost(some: list[float]) -> float:
        mean = statistics.fmean(some)
        return math.fsum((x - mean) ** 2 for x in some)

    def divisions(begin: int) -> list[list[int]]:
        inner = [[at, *rest] for at in range(begin + 4, n - 3) for rest in divisions(at)]
        return [[], *inner]

    penalty = 6 + 3 * math.log(n)
    costs = sorted(
        (sum(cost(clipped[a:b]) for a, b in zip([0, *ways], [*ways, n], strict=True)) + penalty * len(ways), ways)
        for ways in divisions(0)
    )  # fmt: skip
    return costs[0][1], costs[1][0] - costs[0][0]


@settings(max_examples=examples(100))
@given(st.lists(st.integers(90, 130), min_size=10, max_size=18))
def test_the_division_is_the_best_of_all(values: list[int]) -> None:
    series = [float(value) for value in values]
    expected, margin = recomputed(series)
    assume(margin > 1e-6)
    tiny = Metric("step", "", "", "ns", 1e-9)  # without the least change
    levels = [0, *expected, len(series)]
    medians = [statistics.median(series[a:b]) for a, b in itertools.pairwise(levels)]
    assume(all(before != after for before, after in itertools.pairwise(medians)))
    assert starts(series, tiny) == expected


# -- noise -----------------------------------------------------------------------------------------------------------------


def simulated(chance: np.random.Generator, noise: float, outliers: float, length: int, number: int) -> Any:
    values = 1 + noise * chance.standard_normal((number, length))
    return np.where(chance.random(values.shape) < outliers, values * chance.uniform(1.2, 2, values.shape), values)


@pytest.mark.parametrize("outliers", [0.0, 0.03])
@pytest.mark.parametrize("noise", [0.01, 0.03, 0.05, 0.10])
@pytest.mark.parametrize("length", [10, 60])
def test_noise_rarely_changes_a_level(noise: float, outliers: float, length: int) -> None:
    series = simulated(np.random.default_rng(25), noise, outliers, length, 250)
    changed = {change.family for change in change_points(runs(*series.tolist()), STEP, SERIES)}
    assert len(changed) <= 7, f"{len(changed)} of 250"  # documented: about 1%


@pytest.mark.parametrize(
    ("noise", "step", "after", "least"), [(0.01, 0.10, 4, 99), (0.01, 0.15, 4, 99), (0.03, 0.15, 6, 90), (0.03, 0.10, 10, 70)]
)
def test_a_real_step_is_found_at_its_run(noise: float, step: float, after: int, least: int) -> None:
    series = simulated(np.random.default_rng(26), noise, 0.0, 40, 200)
    series[:, -after:] *= 1 + step
    changes = change_points(runs(*series.tolist()), STEP, SERIES)
    exact = {change.family for change in changes if change.id.endswith(f"/{40 - after}") and change.last}
    assert 100 * len(exact) / 200 >= least, len(exact)
