"""Shapes of matrix products far below comparable ones: rates, losses and verdicts worked out on paper."""

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
PEAK = 312e12  # FP16 of an A100
TENSOR, ALIGN1 = (
    "ampere_fp16_s16816gemm_fp16_128x128_ldg8_f2f_stages_64x3_nn",
    "cutlass_80_tensorop_f16_s16816gemm_f16_128x128_32x3_nn_align1",
)
A100 = {
    "node": 0,
    "index": 0,
    "name": "NVIDIA A100-SXM4-80GB",
    "memory_bytes": 80 << 30,
    "sm_count": 108,
    "compute_capability": "8.0",
}


def run(make_store: MakeStore, shapes: list[tuple[int, int, int, float, str]], threshold: float = 5.0, device: Any = A100) -> Report:
    """Run kernels one after another.

    Each shape: M, N, K, share of the peak, kernel."""
    host: list[dict[str, Any]] = []
    work: list[dict[str, Any]] = []
    signatures = []
    at = 1_000_000
    for number, (m, n, k, share, kernel) in enumerate(shapes, 1):
        dims, strides = f"[[{m},{k}],[{k},{n}]]", f"[[{k},1],[{n},1]]"
        signatures.append({"id": number, "input_dims": dims, "input_types": '["c10::Half","c10::Half"]', "input_strides": strides})
        host.append({"kind": "operator", "name": "aten::mm", "start_ns": 100 * number, "duration_ns": 50, "signature": number})
        host.append({"kind": "launch", "name": "cudaLaunchKernel", "start_ns": 100 * number + 1, "duration_ns": 2, "correlation": number})
        length = round(2e9 * m * n * k / (share * PEAK))
        work.append({"kind": "kernel", "name": kernel, "start_ns": at, "duration_ns": length, "correlation": number})
        at += length
    names = {kernel: (kernel, "FP16", "GEMM") for kernel in (TENSOR, ALIGN1)}
    store = make_store(names=names, host_event=host, device_event=work, signature=signatures, device=[device])
    settings = {"InefficientMatmul_threshold": threshold}
    return rules_of(store, Options(generated_at_ns=0, selection=select(["InefficientMatmul"], settings=settings)))


GOOD = [(4096, 4096, 4096, 0.6, TENSOR), (8192, 4096, 4096, 0.64, TENSOR), (4096, 4096, 8192, 0.62, TENSOR)]


def test_an_odd_size(make_store: MakeStore) -> None:
    """Peers reach 60, 64 and 62%: median 62.

    At 15.5%, a quarter of it, three quarters of the time are lost."""
    report = run(make_store, [*GOOD, (4096, 4001, 4096, 0.155, ALIGN1)])
    details = plain_details(report.rules[0])
    (row,) = details["products"]
    assert (row["shape"], row["peers"], row["reasons"]) == (
        "M 4096, N 4001, K 4096", 3, ["alignment: N = 4001 is not a multiple of 8"],
    )  # fmt: skip
    assert (row["percent_of_roof"], row["peer_percent"]) == (pytest.approx(15.5), pytest.approx(62))
    assert row["peer_ns"] == pytest.approx(row["time_ns"] / 4, rel=1e-6)
    assert details["lost_ns"] == row["time_ns"] - row["peer_ns"]
    (finding,) = report.findings
    assert (finding.saving_ns, finding.saving_kind) == (details["lost_ns"], "upper_bound")
    assert "Pad the odd sizes" in (finding.recommendation or "")
    assert (details["compared"], details["alone"]) == (4, 0)


def test_the_threshold_is_exact(make_store: MakeStore) -> None:
    shapes = [*GOOD, (4096, 4001, 4096, 0.155, ALIGN1)]
    share = plain_details(run(make_store, shapes).rules[0])["lost_percent"]
    assert run(make_store, shapes, share - 0.01).rules[0].verdict == "IssuesFound"
    assert run(make_store, shapes, share + 0.01).rules[0].verdict == "NoIssuesFound"


def test_a_slow_shape_without_a_reason_does_not_count(make_store: MakeStore) -> None:
    report = run(make_store, [*GOOD, (4096, 4096, 6144, 0.155, TENSOR)])
    details = plain_details(report.rules[0])
    assert (report.rules[0].verdict, details["lost_ns"], details["products"][0]["reasons"]) == ("NoIssuesFound", 0, [])


def test_ordinary_differences_are_no_issue(make_store: MakeStore) -> None:
    """0.38 is more than 0.6 x 0.62 = 0.372."""
    assert not plain_details(run(make_store, [*GOOD, (4096, 4001, 4096, 0.38, ALIGN1)]).rules[0])["products"]


def test_much_smaller_products_have_no_neighbors(make_store: MakeStore) -> None:
    """512 x 504 x 512 is less than an eighth of the work of the others."""
    report = run(make_store, [*GOOD, (1024, 1001, 1024, 0.02, ALIGN1)])
    assert (report.rules[0].verdict, plain_details(report.rules[0])["alone"]) == ("NoIssuesFound", 1)


def test_unknown_gpus_are_not_evaluated(make_store: MakeStore) -> None:
    report = run(make_store, GOOD, device={**A100, "name": "Unknown GPU"})
    assert (report.rules[0].verdict, report.rules[0].reason) == ("NotEvaluated", "the peaks of the GPUs are unknown")


CONVOLUTION = "sm80_xmma_fprop_implicit_gemm_f16f16_f16f32_f32_nhwckrsc_nhwc_tilesize128x128x64_stage3_kernel_cudnn"


def convolutions(make_store: MakeStore, channels: list[tuple[int, int, float]], kind: str = "c10::Half", groups: int = 1) -> Report:
    """Run 3 x 3 convolutions of 32 images of 64 x 64 pixels.

    Each: C_in, C_out, share of the peak."""
    host: list[dict[str, Any]] = []
    work: list[dict[str, Any]] = []
    signatures = []
    at = 1_000_000
    for number, (inputs, outputs, share) in enumerate(channels, 1):
        dims = f"[[32,{inputs},64,64],[{outputs},{inputs // groups},3,3],[],[],[],[],[],[],[]]"
        types = f'["{kind}","{kind}","","ScalarList","ScalarList","ScalarList","Scalar","ScalarList","Scalar"]'
        values = f'["","","","[1, 1]","[1, 1]","[1, 1]","False","[0, 0]","{groups}"]'
        signatures.append({"id": number, "input_dims": dims, "input_types": types, "concrete_inputs": values})
        host.append({"kind": "operator", "name": "aten::convolution", "start_ns": 100 * number, "duration_ns": 50, "signature": number})
        host.append({"kind": "launch", "name": "cudaLaunchKernel", "start_ns": 100 * number + 1, "duration_ns": 2, "correlation": number})
        length = round(2e9 * 32 * 64 * 64 * 9 * inputs // groups * outputs / (share * PEAK))
        work.append({"kind": "kernel", "name": CONVOLUTION, "start_ns": at, "duration_ns": length, "correlation": number})
        at += length
    names = {CONVOLUTION: ("conv", "FP16", "convolution")}
    store = make_store(names=names, host_event=host, device_event=work, signature=signatures, device=[A100])
    return rules_of(store, Options(generated_at_ns=0, selection=select(["InefficientMatmul"])))


EVEN = [(512, 512, 0.6), (768, 512, 0.6), (512, 768, 0.6)]


def test_odd_channels_of_a_convolution(make_store: MakeStore) -> None:
    """Peers reach 60% of the peak: three quarters of the time at 15% are lost."""
    report = convolutions(make_store, [*EVEN, (509, 512, 0.15)])
    (row,) = plain_details(report.rules[0])["products"]
    assert (row["operator"], row["shape"]) == ("aten::convolution", "input 32x509x64x64, weight 512x509x3x3")
    assert row["reasons"] == ["channels: C_in = 509 is not a multiple of 8"]
    assert row["peer_ns"] == pytest.approx(row["time_ns"] / 4, rel=1e-3)
    assert report.findings[0].title == "Give convolutions aligned channels"
    assert "multiples of 8" in (report.findings[0].recommendation or "")


@pytest.mark.parametrize(
    ("channels", "more"),
    [
        ((512, 512, 0.15), {}),  # slow for another reason
        ((509, 512, 0.5), {}),  # not far below the others
        ((3, 512, 0.15), {}),  # images have three channels
        ((509, 512, 0.15), {"kind": "float"}),  # FP32 kernels do not load 16 bytes of channels
    ],
)
def test_convolutions_that_no_channel_slows(make_store: MakeStore, channels: tuple[int, int, float], more: Any) -> None:
    report = convolutions(make_store, [*EVEN, channels], **more)
    assert report.rules[0].verdict in {"NoIssuesFound", "NotEvaluated"}
    assert all(not row["reasons"] for row in plain_details(report.rules[0]).get("products", []))


def test_grouped_convolutions_are_left_out(make_store: MakeStore) -> None:
    report = convolutions(make_store, [*EVEN, (509 * 2, 512, 0.15)], groups=2)
    assert report.rules[0].verdict == "NotEvaluated"
