"""Sums of measures within spans against counting every nanosecond."""

from __future__ import annotations

import random

import polars as pl
import pytest
from postrun.analysis.steps.covered import sums_within


@pytest.mark.parametrize("seed", range(40))
def test_sums_equal_counting_every_nanosecond(seed: int) -> None:
    numbers = random.Random(seed)
    segments = []
    for group in range(numbers.randrange(4)):
        time = numbers.randrange(20)
        for _ in range(numbers.randrange(6)):
            start = time + numbers.randrange(4)
            time = start + numbers.randrange(1, 6)
            segments.append((group, start, time, numbers.random() < 0.5))
    starts = [numbers.randrange(40) for _ in range(8)]
    spans = [(numbers.randrange(4), start, start + numbers.randrange(20)) for start in starts]
    rows = pl.DataFrame(segments, {"group": pl.Int64, "start": pl.Int64, "end": pl.Int64, "flag": pl.Boolean}, orient="row")
    within = pl.DataFrame(spans, {"group": pl.Int64, "start": pl.Int64, "end": pl.Int64}, orient="row")
    sums = sums_within(rows, within, "group", {"flag": pl.col("flag"), "any": pl.lit(True)})
    expected = [
        tuple(
            sum(any(g == group and s <= t < e and (flag or every) for g, s, e, flag in segments) for t in range(start, end))
            for every in (False, True)
        )
        for group, start, end in spans
    ]
    assert sums.rows() == expected
