"""Bounds for false alarms, against simulation and exact counting."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
import polars as pl
import pytest
from postrun.analysis.rules.engine.catalogue import RULES
from postrun.analysis.rules.evidence.base import PRESETS
from postrun.analysis.rules.evidence.sample_bounds import (
    FALSE_ALARM,
    persistent,
    samples_for_distance,
    samples_for_quantile,
    steps_for_majority,
)
from postrun.analysis.rules.evidence.utilization_bins import BINS

RUNS = 20_000
EVEN = np.full(BINS, 1 / BINS)
UNEVEN = {
    "even": EVEN,
    "half of the bins": np.array([1 / 25] * 25 + [0] * 25),
    "busy or idle": np.array([0.3] + [0] * 48 + [0.7]),
    "falling": 0.9 ** np.arange(BINS) / (0.9 ** np.arange(BINS)).sum(),
}


def alarms(count: int, threshold: float, shares: Any) -> float:
    """Return how many pairs of draws from one distribution are too far apart.

    The distance is computed from entropies."""
    rng = np.random.default_rng(7)
    p, q = (rng.multinomial(count, shares, RUNS) / count for _ in range(2))

    def entropy(parts: Any) -> Any:
        return -(parts * np.log2(np.where(parts > 0, parts, 1))).sum(axis=1)

    return float((entropy((p + q) / 2) - (entropy(p) + entropy(q)) / 2 > threshold**2).mean())


@pytest.mark.parametrize("name", UNEVEN)
@pytest.mark.parametrize("threshold", [0.9, 0.5, 0.24])
def test_equal_loads_rarely_differ(threshold: float, name: str) -> None:
    assert alarms(int(samples_for_distance(threshold, BINS, 1)), threshold, UNEVEN[name]) < FALSE_ALARM


def test_the_bound_is_not_far_too_high() -> None:
    """With a tenth less samples of an even distribution 1% of the runs have an alarm."""
    for threshold in (0.5, 0.24):
        assert alarms(int(0.9 * samples_for_distance(threshold, BINS, 1)), threshold, EVEN) > FALSE_ALARM


def test_many_pairs_share_the_probability() -> None:
    """Of 8 GPUs with equal loads, the furthest of the 28 pairs is rarely too far."""
    count, runs = int(samples_for_distance(0.5, BINS, 28)), 1000
    rng = np.random.default_rng(3)
    shares = rng.multinomial(count, EVEN, (8, runs)) / count
    far = np.zeros(runs, dtype=bool)
    for p, q in itertools.combinations(shares, 2):
        middle = (p + q) / 2
        terms = [part * np.log2(np.where(part > 0, part, 1) / np.where(part > 0, middle, 1)) for part in (p, q)]
        far |= sum(terms).sum(axis=1) / 2 > 0.25
    assert far.mean() < FALSE_ALARM


def test_the_bounds_of_the_documents() -> None:
    assert [samples_for_distance(threshold, BINS, 1) for threshold in (0.5, 0.24)] == [128, 492]
    assert [samples_for_distance(0.5, BINS, pairs) for pairs in (28, 2016)] == [151, 175]
    assert samples_for_distance(0, BINS, 1) == math.inf
    assert samples_for_distance(1e-6, BINS, 1) > 1e12
    assert samples_for_quantile(0.05) == 223
    assert [steps_for_majority(ranks) for ranks in (2, 8, 64, 1024)] == [4, 4, 8, 10]


def test_a_quantile_rarely_misses_a_healthy_device() -> None:
    """The p95 of a device that is above the threshold for 10% of the time."""
    rng = np.random.default_rng(11)

    def missed(count: int) -> float:
        values = np.where(rng.random((RUNS, count)) < 0.1, 95.0, 5.0)
        return float((np.quantile(values, 0.95, axis=1) < 70).mean())

    assert missed(223) < FALSE_ALARM
    assert missed(100) > 0.02


def test_quantiles_of_the_documented_rules_have_enough_samples() -> None:
    for name, (parameter, tail) in {"LowGPUUtilization": ("window", 0.05), "BatchSize": ("window", 0.05)}.items():
        for preset in PRESETS:
            (window,) = [one.default(preset) for one in RULES[name].parameters if one.name == parameter]
            assert isinstance(window, int)
            assert window >= samples_for_quantile(tail)


@pytest.mark.parametrize(("window", "increase", "noise"), [(500, 10, 30.0), (10, 5, 2.5)])
def test_noise_of_gpu_memory_rarely_grows(window: int, increase: float, noise: float) -> None:
    """Differences of the means of successive windows, at every sample of 400 series."""
    rng = np.random.default_rng(2)
    sums = np.cumsum(rng.normal(0, noise, (400, 1200)), axis=1)
    means = (sums[:, window:] - sums[:, :-window]) / window
    growth = means[:, window:] - means[:, :-window]
    assert (growth > increase).any(axis=1).mean() < FALSE_ALARM


def binomial(count: int, share: float, least: int) -> float:
    """The probability of at least this many hits, by adding one trial after the other."""
    chances = [1.0]
    for _ in range(count):
        chances = [(1 - share) * a + share * b for a, b in zip([*chances, 0.0], [0.0, *chances], strict=True)]
    return sum(chances[least:])


def test_counts_of_the_documents() -> None:
    """The defaults of the rules keep false alarms below 1%."""
    assert binomial(101, 0.35, 51) < 0.001
    assert binomial(5, 0.1, 3) < FALSE_ALARM < binomial(4, 0.1, 2)
    for ranks, steps in ((2, 4), (8, 4), (64, 8), (1024, 10)):
        assert ranks * binomial(steps, 0.05, steps // 2 + 1) < FALSE_ALARM < ranks * binomial(steps - 1, 0.05, (steps - 1) // 2 + 1)
    beyond = math.erfc(3 / math.sqrt(2)) / 2
    assert binomial(3500, beyond, 11) < FALSE_ALARM < binomial(3600, beyond, 11)


def deviations(ranks: int, steps: int, seed: int, slow: float = 0.0) -> pl.DataFrame:
    """Return the deviations of equal ranks; rank 0 is longer by ``slow``."""
    work = np.random.default_rng(seed).lognormal(0, 0.3, (steps, ranks))
    work[:, 0] *= 1 + slow
    relative = work / work.mean(axis=1, keepdims=True) - 1
    return pl.DataFrame({"rank": np.tile(np.arange(ranks), steps), "relative": relative.ravel()})


@pytest.mark.parametrize(("ranks", "steps"), [(2, 5), (4, 6), (16, 8), (64, 5)])
def test_work_that_varies_makes_no_rank_persistent(ranks: int, steps: int) -> None:
    alarms = sum(bool(persistent(deviations(ranks, steps, seed))) for seed in range(300))
    assert alarms <= 9  # 1% of 300 are 3; 9 or more have a probability of 0.4%


@pytest.mark.parametrize(("ranks", "steps", "slow"), [(2, 12, 1.0), (4, 8, 1.0), (16, 12, 0.8)])
def test_a_slow_rank_is_persistent_among_ranks_whose_work_varies(ranks: int, steps: int, slow: float) -> None:
    assert sum(0 in persistent(deviations(ranks, steps, seed, slow)) for seed in range(40)) >= 36


def test_ranks_that_never_vary_differ_from_the_first_step_on() -> None:
    rows = pl.DataFrame({"rank": [0, 1] * 5, "relative": [0.1, -0.1] * 5})
    assert persistent(rows) == {0, 1}
    assert persistent(rows.head(2)) == set()  # one step shows no variance
    assert persistent(pl.DataFrame({"rank": [0, 1] * 5, "relative": [0.0] * 10})) == set()
