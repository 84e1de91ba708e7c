"""Section "Precision": kernel time and matrix work by arithmetic."""

from __future__ import annotations

from collections.abc import Sequence

from ...analysis.report.model import Report, Share
from ..blocks import Halves, Section, say
from ..text.formats import capitalized, percent
from .shares import shares_ring

_ENOUGH = 1.0  # percent of the kernel time


def precision(report: Report) -> Section:
    every, matrix = report.precision.shares, report.precision.matrix
    if not every:
        return Section(
            "precision", "Precision", say("No kernel in this run, so no arithmetic to tell: record the GPU activity of the profiler.")
        )
    rings = [
        shares_ring(
            "precision-all",
            say("Told by the names of all kernels, communication included; what a name does not tell is unknown."),
            "Precision of all kernels",
            every,
            "Precision",
            "Of kernel time",
            label="kernel time",
            meaning=_meaning,
            half=True,
        ),
        shares_ring(
            "precision-matrix",
            say("GEMM, attention and convolution alone: here a lower precision pays most."),
            "Precision of matrix kernels",
            matrix,
            "Precision",
            "Of matrix time",
            label="matrix time",
            meaning=_meaning,
            half=True,
        ),
    ]
    return Section("precision", "Precision", say("{}", _lead(every, matrix)), [Halves(rings[::-1])])


def _lead(every: Sequence[Share], matrix: Sequence[Share]) -> str:
    """Write the conclusion, by the matrix work if there is enough of it."""
    part = 100.0 * sum(share.total_ns for share in matrix) / max(1, sum(share.total_ns for share in every))
    if part >= _ENOUGH:
        lead = _largest(matrix, "time of matrix work (GEMM, attention, convolution)")
        return f"{capitalized(lead)}, which is the measure; {_largest(every, 'kernel time')}."
    lead = _largest(every, "kernel time")
    little = f"takes only {percent(part)} of it" if part else "was not recorded"
    return f"{capitalized(lead)}; matrix work (GEMM, attention, convolution), which would be the measure, {little}."


def _largest(shares: Sequence[Share], what: str) -> str:
    first = max(shares, key=lambda share: share.percent)
    if first.name == "unknown":
        return f"the names of {percent(first.percent)} of the {what} do not tell the precision"
    return f"{percent(first.percent)} of the {what} ran in {first.name}"


def _meaning(name: str) -> str:
    return "idle" if name == "unknown" else "computation"
