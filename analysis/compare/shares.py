"""Percentages of two runs that compare even if their programs differ: parts of the GPU time, precision of matrix work, and samples."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

from ..report.comparison import Amount, PercentPair, Sampling, ShareChange

GPU_TIME: Final = "GPU time"
_MATRIX: Final = "time in matrix kernels"
_SAMPLES: Final = "samples"


def percent_pairs(parts: Iterable[Amount], precision: Iterable[ShareChange], sampling: Sampling) -> tuple[PercentPair, ...]:
    """List the percentages; those that are 0 or unknown in both runs are left out."""
    rows = (*_of_parts(tuple(parts)), *_of_precision(precision), *_of_samples(sampling))
    return tuple(row for row in rows if row.base_percent or row.new_percent)


def _of_parts(parts: tuple[Amount, ...]) -> Iterator[PercentPair]:
    base, new = sum(part.base_ns for part in parts), sum(part.new_ns for part in parts)
    if base and new:
        yield from (PercentPair(part.name, GPU_TIME, 100 * part.base_ns / base, 100 * part.new_ns / new) for part in parts)


def _of_precision(precision: Iterable[ShareChange]) -> Iterator[PercentPair]:
    return (PercentPair(f"{row.name} arithmetic", _MATRIX, row.base_percent, row.new_percent) for row in precision)


def _of_samples(sampling: Sampling) -> Iterator[PercentPair]:
    return (PercentPair(row.name, _SAMPLES, row.base_percent, row.new_percent) for row in sampling.means)
