"""Percentages of two runs that compare even if their programs differ: parts of the GPU time, precision of matrix work, and samples."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

from ..report.comparison import PercentPair, Sampling, ShareChange
from ..report.device import GpuTime
from ..toolkit.shares import percent_of
from .parts import PARTS

GPU_TIME: Final = "GPU time"
_MATRIX: Final = "time in matrix kernels"
_SAMPLES: Final = "samples"


def percent_pairs(
    base: GpuTime | None, new: GpuTime | None, precision: Iterable[ShareChange], sampling: Sampling
) -> tuple[PercentPair, ...]:
    """List the percentages; those that are 0 or unknown in both runs are left out."""
    rows = (*_of_gpu_time(base, new), *_of_precision(precision), *_of_samples(sampling))
    return tuple(row for row in rows if row.base_percent or row.new_percent)


def _of_gpu_time(base: GpuTime | None, new: GpuTime | None) -> Iterator[PercentPair]:
    """Yield the shares that the reports have, of the whole profile window."""
    for name, field in PARTS:
        shares = [percent_of(getattr(time, field), time.span_ns) if time is not None else None for time in (base, new)]
        yield PercentPair(name, GPU_TIME, *shares)


def _of_precision(precision: Iterable[ShareChange]) -> Iterator[PercentPair]:
    return (PercentPair(f"{row.name} arithmetic", _MATRIX, row.base_percent, row.new_percent) for row in precision)


def _of_samples(sampling: Sampling) -> Iterator[PercentPair]:
    return (PercentPair(row.name, _SAMPLES, row.base_percent, row.new_percent) for row in sampling.means)
