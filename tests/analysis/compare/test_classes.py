"""Two reports are compared by kernel names if operators classify the kernels of one of them only."""

from __future__ import annotations

import dataclasses

import pytest
from postrun.analysis.compare.classes import comparable
from postrun.analysis.report.device import Kernel, Precision
from postrun.analysis.report.model import Report
from postrun.analysis.report.rows import Share
from report_stub import empty_report


def report(operator_percent: float | None) -> Report:
    """Report that a convolution in BF16 runs as `ampere_sgemm_128x64_nn`, 100 ns."""
    sources = (
        () if operator_percent is None else (Share("operator", 0, 1, operator_percent), Share("kernel name", 0, 1, 100 - operator_percent))
    )
    return dataclasses.replace(
        empty_report(),
        kernels=(Kernel("ampere_sgemm_128x64_nn", "sgemm", "convolution", "BF16", 1, 100, 100, 100.0, 100, 100.0, 100.0),),
        categories=(Share("convolution", 100, 1, 100.0),),
        category_sources=sources,
        precision=Precision((Share("BF16", 100, 1, 100.0),), (Share("BF16", 100, 1, 100.0),), sources),
    )


@pytest.mark.parametrize(("base", "new"), [(80.0, 89.9), (None, None), (None, 9.0)])
def test_alike_sources_are_kept(base: float | None, new: float | None) -> None:
    reports = (report(base), report(new))
    assert comparable(*reports) == reports


@pytest.mark.parametrize(("base", "new"), [(80.0, 90.0), (None, 10.0), (50.0, 0.0)])
def test_other_sources_are_replaced_by_names(base: float | None, new: float | None) -> None:
    for compared in comparable(report(base), report(new)):
        assert [(kernel.category, kernel.precision) for kernel in compared.kernels] == [("GEMM", "FP32")]
        assert compared.categories == (Share("GEMM", 100, 1, 100.0),)
        assert compared.precision.shares == compared.precision.matrix == (Share("FP32", 100, 1, 100.0),)
