"""A test whether the values of one sample tend to be larger than those of another, beyond their spread.

The rank-sum test of Mann and Whitney ("On a test of whether one of two random variables is stochastically larger than the other", Annals
of Mathematical Statistics 18, 1947): it assumes no shape of the distribution, and a few outliers do not move it. The related shift is
that of Hodges and Lehmann ("Estimates of location based on rank tests", same, 34, 1963).
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Final

import polars as pl

_EXACT: Final = 20  # up to this many values on each side the distribution of U is exact, if no two values are equal
_PAIRS: Final = 1500  # more values on a side are replaced by this many quantiles in the pairwise ratios
_Z_995: Final = 2.5758293035489004


@dataclass(frozen=True, slots=True)
class RankTest:
    """``p_value``: two-sided; ``likelier``: probability that a value of the second sample is larger than one of the first, equal ones
    counting half. ``ratio``: median of all ratios second / first, ``low`` and ``high`` its 99% interval."""

    p_value: float
    likelier: float
    ratio: float
    low: float
    high: float


def rank_test(first: Sequence[float], second: Sequence[float]) -> RankTest:
    """Compare two samples of at least one positive value each.

    Exact up to 20 values on each side without ties; otherwise the normal approximation with correction for ties and continuity."""
    n, m = len(first), len(second)
    u = _u(first, second)
    ties = [size for size in Counter([*first, *second]).values() if size > 1]
    p_value = _exact(u, n, m) if not ties and max(n, m) <= _EXACT else _normal(u, n, m, ties)
    below, above = pl.DataFrame({"first": _thinned(first)}), pl.DataFrame({"second": _thinned(second)})
    ratios = below.join(above, how="cross").select(ratio=pl.col("second") / pl.col("first"))["ratio"].sort().rechunk()
    # The interval leaves out as many of the ordered ratios on either side as U has values below its 0.5% quantile.
    out = max(0.0, 0.5 - _Z_995 * math.sqrt((n + m + 1) / (12 * n * m)))
    last = len(ratios) - 1
    low, high = math.floor(out * last), math.ceil((1 - out) * last)
    middle = (ratios[last // 2] + ratios[(last + 1) // 2]) / 2
    return RankTest(p_value, u / (n * m), middle, ratios[low], ratios[high])


def _u(first: Sequence[float], second: Sequence[float]) -> float:
    """Count the pairs in which the value of ``second`` is larger; ties count half."""
    ranks = pl.Series([*first, *second], dtype=pl.Float64).rank("average")
    m = len(second)
    return float(ranks[len(first) :].sum()) - m * (m + 1) / 2


def _exact(u: float, n: int, m: int) -> float:
    """Return the p-value from the arrangements of U (Gaussian binomial coefficients)."""
    counts = [1]
    for i in range(1, m + 1):  # times (1 - q^(n+i)) / (1 - q^i)
        counts += [0] * n
        for k in range(len(counts) - 1, n + i - 1, -1):
            counts[k] -= counts[k - n - i]
        for k in range(i, len(counts)):
            counts[k] += counts[k - i]
    below = list(accumulate(counts))
    tail = below[round(min(u, n * m - u))]
    return min(1.0, 2 * tail / below[-1])


def _normal(u: float, n: int, m: int, ties: Sequence[int]) -> float:
    total = n + m
    variance = n * m / 12 * (total + 1 - sum(t**3 - t for t in ties) / (total * (total - 1)))
    if variance <= 0:  # all values are equal
        return 1.0
    z = max(0.0, abs(u - n * m / 2) - 0.5) / math.sqrt(variance)
    return math.erfc(z / math.sqrt(2))


def _thinned(values: Sequence[float]) -> list[float]:
    ordered = sorted(values)
    if len(ordered) <= _PAIRS:
        return ordered
    return [ordered[round((len(ordered) - 1) * i / (_PAIRS - 1))] for i in range(_PAIRS)]
