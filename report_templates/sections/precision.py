"""In which arithmetic did the kernels run, and how much of the matrix work used a lower precision?"""

from __future__ import annotations

from ...analysis.report import Report
from ..blocks import Section, say
from ..formats import percent
from .shares import shares_ring


def precision(report: Report) -> Section:
    every, matrix = report.precision.shares, report.precision.matrix
    if not every:
        return Section(
            "precision", "Precision", say("No kernel in this run, so no arithmetic to tell: record the GPU activity of the profiler.")
        )
    first = max(every, key=lambda share: share.percent)
    if matrix:
        most = max(matrix, key=lambda share: share.percent)
        lead = say(
            "{} of matrix work (GEMM, attention, convolution), which is the measure, ran in {}; of all kernel time {} ran in {}.",
            percent(most.percent), most.name, percent(first.percent), first.name,
        )  # fmt: skip
    else:
        lead = say(
            "{} of kernel time ran in {}; no matrix kernel, which would be the measure, was recorded.", percent(first.percent), first.name
        )
    made = Section("precision", "Precision", lead)
    made.add(
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
    )
    return made


def _meaning(name: str) -> str:
    return "idle" if name == "unknown" else "computation"
