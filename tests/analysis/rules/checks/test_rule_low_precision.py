"""LowPrecision: matrix work in FP32 although the device could do less; figures on paper, and precisions from data sheets."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from judging import rules_of
from postrun.analysis import Options
from postrun.analysis.report import Device, Finding, RuleResult
from postrun.analysis.rules.engine.selection import select
from postrun.analysis.rules.evidence.matrix_units import matrix_units, speed_up
from postrun.ingest.store import Store
from rule_details import plain_details

NAMES = {
    "sgemm": ("sgemm", "FP32", "GEMM"),
    "conv": ("conv", "FP32", "convolution"),
    "tf32": ("tf32_gemm", "TF32", "GEMM"),
    "bf16": ("flash", "BF16", "attention"),
    "odd": ("odd_gemm", "unknown", "GEMM"),
    "add": ("add", "FP32", "elementwise"),
    "AllReduce": ("ncclAllReduce", "FP32", "communication"),
}
A100 = {"node": 0, "index": 0, "name": "NVIDIA A100-SXM4-80GB", "vendor": "NVIDIA", "compute_capability": "8.0"}
V100 = {**A100, "name": "Tesla V100-SXM2-32GB", "compute_capability": "7.0"}


def runs(*parts: tuple[str, int], **more: Any) -> list[dict[str, Any]]:
    """Kernels one after the other."""
    events, now = [], 0
    for name, length in parts:
        events.append({"kind": "kernel", "name": name, "start_ns": now, "duration_ns": length, **more})
        now += length
    return events


def judged(store: Store, **settings: float) -> tuple[RuleResult, Finding | None]:
    chosen = {f"LowPrecision_{name}": value for name, value in settings.items()}
    report = rules_of(store, Options(generated_at_ns=0, selection=select(["LowPrecision"], settings=chosen)))
    return report.rules[0], report.findings[0] if report.findings else None


def test_share_of_the_matrix_time(make_store: Callable[..., Store]) -> None:
    # matrix 60 + 20 + 10 + 10 = 100, FP32 60; the FP32 elementwise kernel and the collective do not count
    store = make_store(
        names=NAMES,
        device=[A100],
        device_event=runs(("sgemm", 40), ("conv", 20), ("tf32", 20), ("bf16", 10), ("odd", 10), ("add", 60), ("AllReduce", 40)),
    )
    result, finding = judged(store)
    assert (result.verdict, result.triggered, result.datapoints) == ("IssuesFound", 1, 1)
    details = plain_details(result)
    assert (details["fp32_ns"], details["matrix_ns"], details["fp32_percent"]) == (60, 100, 60.0)
    assert [(s["precision"], s["time_ns"], s["percent"]) for s in details["shares"]] == [
        ("FP32", 60, 60.0), ("TF32", 20, 20.0), ("BF16", 10, 10.0), ("unknown", 10, 10.0),
    ]  # fmt: skip
    assert [kernel["name"] for kernel in details["kernels"]] == ["sgemm", "conv", "tf32_gemm", "flash", "odd_gemm"]
    assert details["alternatives"] == ["TF32", "BF16", "FP16"]
    assert details["devices"][0]["eligible"]
    assert result.finding == (
        "FP32 takes 60 ns of the 100 ns of GEMM, attention and convolution kernels on rank 0, host-0 GPU 0, 60.0% (threshold 30%); the"
        " precision of another 10.0% is unknown."
    )
    assert finding is not None
    # 312 / 19.5 = 16 times: 60 x 15/16 = 56.25; of a span of 200
    assert (finding.cost_ns, finding.cost_percent, finding.saving_ns) == (60, 30.0, 56)
    assert result.recommendation == (
        "Find the modules whose matrix work stays in FP32 for 60 ns, and run them in TF32 as well, in which 20.0% of the matrix work runs"
        " already: the table of this rule lists the kernels."
    )


@pytest.mark.parametrize(("tf32", "in_use"), [(9, False), (10, True)])
def test_a_precision_in_use_is_not_advised_on_again(make_store: Callable[..., Store], tf32: int, in_use: bool) -> None:
    store = make_store(names=NAMES, device=[A100], device_event=runs(("sgemm", 100 - tf32), ("tf32", tf32)))
    advice = str(judged(store)[0].recommendation)
    assert ("run them in TF32 as well" in advice) is in_use
    assert ("set_float32_matmul_precision" in advice and "BF16 is 16.0 times that in FP32" in advice) is not in_use


@pytest.mark.parametrize(("fp32", "verdict"), [(30, "NoIssuesFound"), (31, "IssuesFound")])
def test_the_threshold_itself_is_no_issue(make_store: Callable[..., Store], fp32: int, verdict: str) -> None:
    store = make_store(names=NAMES, device=[A100], device_event=runs(("sgemm", fp32), ("bf16", 60 - fp32), ("odd", 40)))
    assert judged(store)[0].verdict == verdict
    assert judged(store, threshold=fp32)[0].verdict == "NoIssuesFound"


def test_kernels_at_the_same_time_cost_once(make_store: Callable[..., Store]) -> None:
    # FP32 0..40 and 20..60 on two streams: summed 80, union 60
    events = [*runs(("sgemm", 40)), {"kind": "kernel", "name": "conv", "start_ns": 20, "duration_ns": 40, "stream": 8}]
    result, finding = judged(make_store(names=NAMES, device=[A100], device_event=events))
    assert plain_details(result)["fp32_ns"] == 80
    assert finding is not None
    assert (finding.cost_ns, finding.cost_percent) == (60, 100.0)


def test_v100_has_neither_tf32_nor_bf16(make_store: Callable[..., Store]) -> None:
    result, finding = judged(make_store(names=NAMES, device=[V100], device_event=runs(("sgemm", 1250))))
    assert plain_details(result)["alternatives"] == ["FP16"]
    assert result.recommendation is not None
    assert "dtype=torch.float16" in result.recommendation
    assert "GradScaler" in result.recommendation
    assert finding is not None
    assert finding.saving_ns == 1250 - 157  # 15.7 of 125 TFLOPS


def test_devices_without_matrix_units_are_left_out(make_store: Callable[..., Store]) -> None:
    p100 = {**A100, "index": 1, "name": "Tesla P100-PCIE-16GB", "compute_capability": "6.0"}
    events = [*runs(("sgemm", 10), ("bf16", 90)), *runs(("sgemm", 500), device=1)]
    result, _ = judged(make_store(names=NAMES, device=[A100, p100], device_event=events))
    assert (result.verdict, result.datapoints) == ("NoIssuesFound", 1)
    assert [(d["eligible"], d["issue"]) for d in plain_details(result)["devices"]] == [(True, False), (False, None)]
    assert (plain_details(result)["fp32_ns"], plain_details(result)["matrix_ns"]) == (10, 100)
    assert result.finding is not None
    assert result.finding.endswith("; 1 GPU is left out.")
    result, _ = judged(make_store(names=NAMES, device=[p100], device_event=runs(("sgemm", 500), device=1)))
    assert (result.verdict, result.reason) == ("NotEvaluated", "no matrix units for a precision below FP32 on P100")


def test_devices_are_judged_one_by_one(make_store: Callable[..., Store]) -> None:
    second = {**A100, "index": 1}
    events = [*runs(("sgemm", 20), ("bf16", 80)), *runs(("sgemm", 50), ("bf16", 50), device=1)]
    result, finding = judged(make_store(names=NAMES, device=[A100, second], device_event=events))
    assert (result.triggered, result.datapoints) == (1, 2)
    assert finding is not None
    assert (finding.where, finding.cost_ns, finding.cost_percent) == ("rank 0, host-0 GPU 1", 50, 25.0)
    assert (plain_details(result)["fp32_ns"], plain_details(result)["matrix_ns"]) == (70, 200)


@pytest.mark.parametrize(
    ("device", "reason"),
    [
        ([], "whether GPUs that the trace does not name have matrix units for a precision below FP32 is not known"),
        (
            [{"node": 0, "index": 0, "name": "AMD Radeon Graphics", "vendor": "AMD", "compute_capability": "9.0"}],
            "whether GPUs called AMD Radeon Graphics have matrix units for a precision below FP32 is not known",
        ),
    ],
)
def test_unknown_devices_are_not_judged(make_store: Callable[..., Store], device: list[dict[str, Any]], reason: str) -> None:
    result, _ = judged(make_store(names=NAMES, device=device, device_event=runs(("sgemm", 5))))
    assert (result.verdict, result.reason) == ("NotEvaluated", reason)
    assert plain_details(result)["devices"][0]["eligible"] is False


def test_nothing_to_look_at(make_store: Callable[..., Store]) -> None:
    result, _ = judged(make_store(names=NAMES, device=[A100], device_event=runs(("add", 5))))
    assert result.reason == "no GEMM, attention or convolution kernels in this run"
    result, _ = judged(make_store(names=NAMES, device=[A100], device_event=runs(("odd", 5))))
    assert result.reason == "the precision of the matrix kernels is unknown"
    assert judged(make_store())[0].reason == "no device activity in this run"


def gpu(name: str | None, capability: str | None = None, vendor: str | None = "NVIDIA") -> Device:
    return Device("host", 0, name, None, None, None, capability, vendor, used=True)


@pytest.mark.parametrize(
    ("device", "units"),
    [
        (gpu("Tesla V100-SXM2-16GB", "7.0"), ("FP16",)),
        (gpu("Tesla T4", "7.5"), ("FP16",)),
        (gpu("NVIDIA GeForce GTX 1660 Ti", "7.5"), ()),
        (gpu("NVIDIA GeForce RTX 2080 Ti", "7.5"), ("FP16",)),
        (gpu("NVIDIA GeForce GTX 1080 Ti", "6.1"), ()),
        (gpu("NVIDIA T1000", "7.5"), ()),
        (gpu("Tesla P40", "6.1"), ()),
        (gpu("Tesla K80", "3.7"), ()),
        (gpu("Tesla M60", "5.2"), ()),
        (gpu("NVIDIA A100-PG509-200", "8.0"), ("TF32", "BF16", "FP16")),
        (gpu("NVIDIA A10G", "8.6"), ("TF32", "BF16", "FP16")),
        (gpu("NVIDIA RTX A6000", "8.6"), ("TF32", "BF16", "FP16")),
        (gpu("NVIDIA L4", "8.9"), ("TF32", "BF16", "FP16", "FP8")),
        (gpu("NVIDIA RTX 6000 Ada Generation", "8.9"), ("TF32", "BF16", "FP16", "FP8")),
        (gpu("NVIDIA H100 80GB HBM3", "9.0"), ("TF32", "BF16", "FP16", "FP8")),
        (gpu("NVIDIA GH200 480GB", "9.0"), ("TF32", "BF16", "FP16", "FP8")),
        (gpu("NVIDIA B200", "10.0"), ("TF32", "BF16", "FP16", "FP8", "FP4")),
        (gpu("A board of the future", "9.0"), ("TF32", "BF16", "FP16", "FP8")),
        (gpu("A board of the future", "99.0"), None),
        (gpu("NVIDIA H100 PCIe", None), ("TF32", "BF16", "FP16", "FP8")),
        (gpu("AMD Instinct MI300X VF", "9.4", "AMD"), ("TF32", "BF16", "FP16", "FP8")),
        (gpu("AMD Instinct MI250X", "9.0", "AMD"), ("BF16", "FP16")),
        (gpu("AMD Radeon Graphics", "9.0", "AMD"), None),
        (gpu("AMD Radeon Graphics", "9.4", "AMD"), ("TF32", "BF16", "FP16", "FP8")),
        (gpu(None, "9.0", None), None),
        (gpu(None), None),
    ],
)
def test_which_devices_have_which_units(device: Device, units: tuple[str, ...] | None) -> None:
    assert matrix_units(device) == units


@pytest.mark.parametrize(
    ("name", "precisions", "best"),
    [
        ("Tesla V100-SXM2-16GB", ("FP16",), ("FP16", 125 / 15.7)),
        ("NVIDIA A100-SXM4-40GB", ("TF32", "BF16", "FP16"), ("BF16", 312 / 19.5)),
        ("NVIDIA A100-SXM4-40GB", ("TF32",), ("TF32", 8.0)),
        ("NVIDIA H100 80GB HBM3", ("TF32", "BF16", "FP16"), ("BF16", 989.4 / 67)),
        ("NVIDIA H100 PCIe", ("TF32", "BF16", "FP16"), ("BF16", 756 / 51)),
        ("NVIDIA B200", ("TF32", "BF16", "FP16"), ("BF16", 30.0)),
        ("AMD Instinct MI300X", ("BF16", "FP16"), ("BF16", 1307.4 / 163.4)),
        ("NVIDIA A10G", ("TF32", "BF16", "FP16"), None),
        ("A board of the future", ("BF16",), None),
    ],
)
def test_how_much_faster(name: str, precisions: tuple[str, ...], best: tuple[str, float] | None) -> None:
    ratio = speed_up(gpu(name), precisions)
    assert (ratio and ratio[0]) == (best and best[0])
    assert (ratio and ratio[1]) == (best and pytest.approx(best[1]))


def test_no_saving_is_said_where_the_peak_is_not_known(make_store: Callable[..., Store]) -> None:
    device = {**A100, "name": "NVIDIA A10G", "compute_capability": "8.6"}
    _, finding = judged(make_store(names=NAMES, device=[device], device_event=runs(("sgemm", 100))))
    assert finding is not None
    assert (finding.cost_ns, finding.saving_ns) == (100, None)


def test_the_largest_fp32_work_is_named_with_operator_shape_module_and_line(make_store: Callable[..., Store]) -> None:
    # conv's kernel is called "sgemm"; 60 ns in BF16 by the types of its operator, whatever its name shows; 40 + 20 ns of mm in FP32
    half = json.dumps(["c10::BFloat16", "c10::BFloat16"])
    signatures = [
        {
            "id": 1,
            "input_dims": "[[64, 32], [32, 16]]",
            "input_types": '["float", "float"]',
            "call_stack": "train.py(7): f",
            "module_hierarchy": "Net.A",
        },
        {
            "id": 2,
            "input_dims": "[[64, 32], [32, 16]]",
            "input_types": '["float", "float"]',
            "call_stack": "train.py(9): g",
            "module_hierarchy": "Net.B",
        },
        {"id": 3, "input_dims": "[[1, 3, 8, 8], [4, 3, 3, 3]]", "input_types": half},
    ]
    host, device = [], []
    for number, (operator, signature, length) in enumerate((("aten::mm", 1, 40), ("aten::mm", 2, 20), ("aten::convolution", 3, 60)), 1):
        start = 10 * number
        host.append({"kind": "operator", "name": operator, "start_ns": start, "duration_ns": 5, "signature": signature})
        host.append({"kind": "launch", "name": "launch", "start_ns": start + 1, "duration_ns": 1, "correlation": number})
        device.append({"kind": "kernel", "name": "sgemm", "start_ns": 1000 * number, "duration_ns": length, "correlation": number})
    result, finding = judged(make_store(names=NAMES, device=[A100], signature=signatures, host_event=host, device_event=device))
    details = plain_details(result)
    assert (details["fp32_ns"], details["matrix_ns"]) == (60, 120)
    assert [(one["operator"], one["shape"], one["count"], one["time_ns"], one["module"], one["line"]) for one in details["operators"]] == [
        ("aten::mm", "64x32, 32x16", 2, 60, "Net/A", "train.py:7")  # 40 ns of 60
    ]
    assert result.finding is not None
    assert "The largest part is 60 ns of `aten::mm` with inputs of 64x32, 32x16." in result.finding
    assert finding is not None
    assert finding.cost_ns == 60  # the kernel's union is 120 ns, but only 60 ns are FP32
