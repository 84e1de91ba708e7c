"""How many samples a rule needs so that equal or healthy devices rarely look different: bounds for a false alarm of less than 1%.

The bounds assume independent samples. Utilization that changes slowly needs more; a rule can only require more than these.
"""

from __future__ import annotations

import math
from functools import lru_cache
from statistics import NormalDist
from typing import Final

import polars as pl

FALSE_ALARM: Final = 0.01  # probability of an issue by chance alone, over all comparisons of a rule
HEALTHY: Final = 2.0  # times the tail of a quantile that a healthy device spends beyond the threshold
OVER: Final = 0.05  # of the steps in which a healthy rank computes longer than its peers by more than the threshold
_LARGE: Final = 50.0  # samples of a bin above which its term is a chi-square of one degree of freedom


@lru_cache(maxsize=64)
def samples_for_distance(threshold: float, bins: int, comparisons: int) -> float:
    """Return the samples of each of two histograms whose distance is compared.

    The distance is that of Jensen and Shannon, base 2. 4 n ln(2) times its square, of n samples each, is the likelihood ratio statistic of
    the two histograms: the sum of a term per bin, whose counts are about Poisson distributed. It is largest for samples that spread evenly
    over all bins. FALSE_ALARM is divided among the ``comparisons``. Infinite for a threshold of 0."""
    if threshold <= 0:
        return math.inf

    def exceeds(count: int) -> bool:
        mean, variance = _likelihood_ratio(count / bins)
        return _gamma(1 - FALSE_ALARM / max(comparisons, 1), bins * mean, bins * variance) > 4 * count * math.log(2) * threshold**2

    low, high = 0, bins
    while exceeds(high):
        low, high = high, 2 * high
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if exceeds(middle) else (low, middle)
    return high


def _likelihood_ratio(expected: float) -> tuple[float, float]:
    """Return mean and variance of the term of a bin with two equal expected counts."""
    if expected > _LARGE:
        return 1.0, 2.0
    most = math.ceil(expected + 10 * math.sqrt(expected) + 10)
    weights = [math.exp(hits * math.log(expected) - expected - math.lgamma(hits + 1)) for hits in range(most)]
    logs = [hits * math.log(hits) if hits else 0.0 for hits in range(2 * most)]
    mean = square = 0.0
    for a, of_a in enumerate(weights):
        for b, of_b in enumerate(weights):
            term = 2 * (logs[a] + logs[b] - logs[a + b] + (a + b) * math.log(2))
            mean += of_a * of_b * term
            square += of_a * of_b * term * term
    return mean, square - mean * mean


@lru_cache(maxsize=8)
def samples_for_quantile(tail: float) -> int:
    """Return the samples from which a quantile rarely misses a healthy device.

    The quantile leaves the share ``tail`` beyond it; a healthy device spends twice that share beyond the threshold. The bound is exact: the
    number of samples beyond the threshold is binomial."""
    enough = 1
    for count in range(1, 1000):
        most = count - 1 - math.floor((1 - tail) * (count - 1))  # beyond the threshold if the quantile is not
        if _binomial(count, HEALTHY * tail, most) >= FALSE_ALARM:
            enough = count + 1
    return enough


@lru_cache(maxsize=64)
def steps_for_majority(ranks: int) -> int:
    """Return the steps from which a healthy rank is rarely over in more than half.

    It is over in ``OVER`` of the steps. FALSE_ALARM is divided among the ``ranks``."""
    enough = 1
    for count in range(1, 100):
        if ranks * (1 - _binomial(count, OVER, count // 2)) >= FALSE_ALARM:
            enough = count + 1
    return enough


def persistent(rows: pl.DataFrame) -> set[int]:
    """Return the ranks that deviate from their peers beyond chance.

    ``rows``: rank, relative (deviation from the peers in a step). The variance within all ranks tells what chance does to the mean of a
    rank: Student's t, with FALSE_ALARM divided among the ranks. Logarithms make few long steps count no more than few short ones."""
    ratio = pl.col("relative").log1p()
    of_ranks = (
        rows.filter(pl.col("relative") > -1).group_by("rank").agg(mean=ratio.mean(), squares=ratio.var() * (pl.len() - 1), steps=pl.len())
    )
    freedom = int(of_ranks["steps"].sum()) - len(of_ranks)
    if freedom < 1:
        return set()
    variance = float(of_ranks["squares"].sum()) / freedom
    bound = _student(1 - FALSE_ALARM / (2 * len(of_ranks)), freedom) * (variance / pl.col("steps")).sqrt()
    return set(of_ranks.filter(pl.col("mean").abs() > bound)["rank"].to_list())


def _student(probability: float, freedom: int) -> float:
    """Return the quantile of Student's t (series of Fisher and Cornish, 1960)."""
    z = NormalDist().inv_cdf(probability)
    terms = (z, (z**3 + z) / 4, (5 * z**5 + 16 * z**3 + 3 * z) / 96, (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / 384)
    return math.fsum(term / freedom**power for power, term in enumerate(terms))


def _binomial(count: int, share: float, most: int) -> float:
    """Return the probability of at most ``most`` hits."""
    return math.fsum(math.comb(count, hits) * share**hits * (1 - share) ** (count - hits) for hits in range(most + 1))


def _gamma(probability: float, mean: float, variance: float) -> float:
    """Return the quantile of a gamma distribution (Wilson and Hilferty 1931)."""
    part = variance / (9 * mean * mean)
    return float(mean * (1 - part + NormalDist().inv_cdf(probability) * math.sqrt(part)) ** 3)
