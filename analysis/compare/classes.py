"""Categories and precisions of two runs by the same source, so that a comparison shows changes of the work alone.

A report classifies kernels by their operators if it knows them. If it knows them in one run only, because the other one was recorded
without operators, replays graphs or comes from an earlier version, both runs are classified by the names of their kernels.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Final

from ...ingest.kernels.category import category
from ...ingest.kernels.precision import precision
from ..device.precision import MATRIX_CATEGORIES
from ..report.device import Kernel, Precision
from ..report.model import Report
from ..report.rows import Share
from ..toolkit.shares import shares

_POINTS: Final = 10.0  # percentage points of the kernel time
_OPERATOR: Final = "operator"


def comparable(base: Report, new: Report) -> tuple[Report, Report]:
    """Return both reports; classified by names if operators classify other shares."""
    pairs = [
        [_by_operator(sources) for sources in (base.category_sources, new.category_sources)],
        [_by_operator(sources) for sources in (base.precision.sources, new.precision.sources)],
    ]
    if all(abs(before - after) < _POINTS for before, after in pairs):
        return base, new
    return _by_name(base), _by_name(new)


def _by_operator(sources: Iterable[Share]) -> float:
    return sum(share.percent for share in sources if share.name == _OPERATOR)


def _by_name(report: Report) -> Report:
    kernels = tuple(replace(kernel, category=category(kernel.name), precision=precision(kernel.name)) for kernel in report.kernels)
    matrix = [kernel for kernel in kernels if kernel.category in MATRIX_CATEGORIES]
    return replace(
        report,
        kernels=kernels,
        categories=shares((kernel.category, kernel.total_ns, kernel.count) for kernel in kernels),
        precision=Precision(_precisions(kernels), _precisions(matrix)),
    )


def _precisions(kernels: Iterable[Kernel]) -> tuple[Share, ...]:
    return shares((kernel.precision, kernel.total_ns, kernel.count) for kernel in kernels)
