"""Kernels that only change the layout of tensors: times and verdicts worked out on paper."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from judging import rules_of
from postrun.analysis import Options
from postrun.analysis.report import Report
from postrun.analysis.rules.engine.selection import select
from postrun.ingest.store import Store
from rule_details import plain_details

MakeStore = Callable[..., Store]
COPY = "void at::native::elementwise_kernel<128, 2, direct_copy_kernel_cuda>"
NCHW = "void cudnn::ops::nchwToNhwcKernel<__half, __half, float>"
NAMES = {
    COPY: ("direct_copy", "unknown", "memory"),
    NCHW: ("nchwToNhwcKernel", "FP16", "memory"),
    "sgemm_transpose_kernel": ("sgemm_transpose_kernel", "FP32", "GEMM"),
    "conv": ("conv", "FP16", "convolution"),
}


def judged(make_store: MakeStore, calls: list[tuple[str, str, int, str | None, str | None]], threshold: float = 10.0) -> Report:
    """Run the calls, and a kernel that fills the span of 1000 ns.

    Each call: operator, kernel, duration, dims and strides of its inputs."""
    host: list[dict[str, Any]] = []
    device: list[dict[str, Any]] = []
    signatures, at = [], 10_000
    for number, (operator, kernel, duration, dims, strides) in enumerate(calls, 1):
        signatures.append({"id": number, "input_dims": dims, "input_types": '["float","float","Scalar"]', "input_strides": strides})
        host.append({"kind": "operator", "name": operator, "start_ns": 100 * number, "duration_ns": 50, "signature": number})
        host.append({"kind": "launch", "name": "cudaLaunchKernel", "start_ns": 100 * number + 1, "duration_ns": 2, "correlation": number})
        device.append({"kind": "kernel", "name": kernel, "start_ns": at, "duration_ns": duration, "correlation": number})
        at += duration
    device.append({"kind": "kernel", "name": "conv", "start_ns": at, "duration_ns": 11_000 - at})
    store = make_store(names=NAMES, host_event=host, device_event=device, signature=signatures)
    settings = {"LayoutConversions_threshold": threshold}
    return rules_of(store, Options(generated_at_ns=0, selection=select(["LayoutConversions"], settings=settings)))


def time_of(report: Report) -> int:
    return int(plain_details(report.rules[0])["devices"][0]["conversion_ns"])


def test_conversions_of_the_library(make_store: MakeStore) -> None:
    """120 of 1000 ns: above 11.9%, not above 12."""
    calls: list[tuple[str, str, int, str | None, str | None]]
    calls = [("aten::convolution", NCHW, 70, None, None), ("aten::convolution", NCHW, 50, None, None)]
    report = judged(make_store, calls, 11.9)
    (finding,) = report.findings
    assert (time_of(report), finding.cost_ns, finding.saving_ns) == (120, 120, 120)
    assert "channels_last" in (finding.recommendation or "")
    assert judged(make_store, calls, 12).rules[0].verdict == "NoIssuesFound"


@pytest.mark.parametrize(
    ("dims", "strides", "counts"),
    [
        ("[[4,8],[4,8],[]]", "[[8,1],[1,4],[]]", True),  # transposed
        ("[[2,3,4,5],[2,3,4,5],[]]", "[[60,20,5,1],[60,1,15,3],[]]", True),  # NHWC -> NCHW
        ("[[4,8],[4,8],[]]", "[[8,1],[16,1],[]]", False),  # closes gaps
        ("[[4,8],[4,8],[]]", "[[8,1],[1,0],[]]", False),  # repeats a value
        ("[[4,1],[4,1],[]]", "[[1,1],[1,4],[]]", False),  # size 1: the same order
        ("[[4,8],[8],[]]", "[[8,1],[1],[]]", False),  # broadcasts
        ("[[4,8],[4,8],[]]", None, False),
        ("[[4,8],[4,8],[]]", '[["x",1],[1,4],[]]', False),
        ("[[4,-8],[4,-8],[]]", "[[8,1],[1,4],[]]", False),
        ("[[4,8],", "[[8,1],[1,4]", False),
    ],
)
def test_copies_to_another_order(dims: str, strides: str | None, counts: bool, make_store: MakeStore) -> None:
    report = judged(make_store, [("aten::copy_", COPY, 200, dims, strides)])
    assert time_of(report) == (200 if counts else 0)
    if counts:
        assert ".contiguous()" in (report.findings[0].recommendation or "")


def test_products_of_transposed_factors_are_no_conversion(make_store: MakeStore) -> None:
    assert time_of(judged(make_store, [("aten::mm", "sgemm_transpose_kernel", 500, None, None)])) == 0
