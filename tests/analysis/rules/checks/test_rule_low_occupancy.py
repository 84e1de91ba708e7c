"""LowOccupancy: kernels with few blocks; figures on paper."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from judging import rules_of
from postrun.analysis import Options
from postrun.analysis.report import Finding, RuleResult
from postrun.analysis.rules.engine.selection import select
from postrun.ingest.store import Store
from rule_details import plain_details

NAMES = {
    "decode": ("decode", "BF16", "attention"),
    "gemm": ("gemm", "BF16", "GEMM"),
    "AllReduce": ("ncclAllReduce", "BF16", "communication"),
}
DEVICE = {"node": 0, "index": 0, "name": "Unknown GPU", "sm_count": 100}
H100 = {**DEVICE, "name": "NVIDIA H100 80GB HBM3", "sm_count": 132, "memory_bytes": 80 * 10**9, "compute_capability": "9.0"}
US = 1000


def runs(*parts: tuple[str, int, int | None], **more: Any) -> list[dict[str, Any]]:
    """Kernels one after the other: name, µs, blocks."""
    events, now = [], 0
    for name, length, blocks in parts:
        grid = {} if blocks is None else {"grid_x": blocks, "grid_y": 1, "grid_z": 1, "block_x": 128, "block_y": 1, "block_z": 1}
        events.append({"kind": "kernel", "name": name, "start_ns": now, "duration_ns": length * US, **grid, **more})
        now += length * US
    return events


def judged(store: Store, **settings: float) -> tuple[RuleResult, Finding | None]:
    chosen = {f"LowOccupancy_{name}": value for name, value in settings.items()}
    report = rules_of(store, Options(generated_at_ns=0, selection=select(["LowOccupancy"], settings=chosen)))
    return report.rules[0], report.findings[0] if report.findings else None


def test_a_long_kernel_of_few_blocks(make_store: Callable[..., Store]) -> None:
    # decode: 20 + 10 of 100 µs in 8 and 20 of 100 multiprocessors: it could save 20 x 0.92 + 10 x 0.8 = 26.4 µs at most
    store = make_store(
        names=NAMES,
        device=[DEVICE],
        device_event=runs(("decode", 20, 8), ("decode", 10, 20), ("gemm", 60, 400), ("AllReduce", 10, 2), occupancy=6.0),
    )
    result, finding = judged(store)
    assert (result.verdict, result.triggered, result.datapoints) == ("IssuesFound", 1, 2)
    (row,) = plain_details(result)["kernels"]
    assert (row["name"], row["blocks"], row["multiprocessors"], row["count"], row["time_ns"], row["saving_ns"], row["percent"]) == (
        "decode", 8, 100, 2, 30 * US, 26_400, 30.0,
    )  # fmt: skip
    assert result.finding == (
        "The kernel `decode` runs in 8 blocks on 100 multiprocessors for 30.0 µs, 30.0% of the kernel time (threshold 5%), at an"
        " occupancy of 6.0%."
    )
    assert result.recommendation == (
        "Give each launch of `decode` more work: a larger batch, or an implementation that splits the keys and values over blocks, as flash"
        " decoding does. Now 92.0% of the multiprocessors have no block while it runs."
    )
    assert finding is not None
    assert (finding.cost_ns, finding.saving_ns, finding.cost_percent) == (30 * US, 26_400, 30.0)


@pytest.mark.parametrize(
    ("parts", "verdict"),
    [
        ([("decode", 10, 25), ("gemm", 90, 400)], "IssuesFound"),
        ([("decode", 10, 26), ("gemm", 90, 400)], "NoIssuesFound"),  # more than a quarter of the multiprocessors
        ([("decode", 9, 8), ("gemm", 91, 400)], "NoIssuesFound"),  # short
        ([("decode", 10, 8), ("gemm", 190, 400)], "NoIssuesFound"),  # 5% of the time
        ([("decode", 10, 8), ("gemm", 189, 400)], "IssuesFound"),
        ([("AllReduce", 50, 2), ("gemm", 50, 400)], "NoIssuesFound"),  # few blocks on purpose
        ([("decode", 50, None)], "NotEvaluated"),
        ([("AllReduce", 50, 2)], "NotEvaluated"),
    ],
)
def test_verdicts(make_store: Callable[..., Store], parts: list[tuple[str, int, int | None]], verdict: str) -> None:
    assert judged(make_store(names=NAMES, device=[DEVICE], device_event=runs(*parts)))[0].verdict == verdict


def test_without_the_number_of_multiprocessors_it_is_not_evaluated(make_store: Callable[..., Store]) -> None:
    result, _ = judged(make_store(names=NAMES, device=[{**DEVICE, "sm_count": None}], device_event=runs(("decode", 50, 8))))
    assert result.reason == "the run does not have grid and block of the kernels, and the number of multiprocessors"


def test_kernels_that_share_the_gpu_are_not_accused(make_store: Callable[..., Store]) -> None:
    # Two streams of small kernels at the same time: 100 µs of kernels in 50 µs.
    events = [*runs(("decode", 50, 8)), *runs(("gemm", 50, 400), stream=8)]
    result, _ = judged(make_store(names=NAMES, device=[DEVICE], device_event=events))
    assert result.reason == "kernels share the GPU: a small grid leaves its multiprocessors to others"


def test_the_roof_bounds_the_saving_and_the_operator_is_named(make_store: Callable[..., Store]) -> None:
    # H100 in FP32: 67 TFLOP/s. [512, 512] x [512, 512] are 268,435,456 FLOP: 4.0 µs at least.
    rows = {
        "signature": [{"id": 0, "input_dims": "[[512, 512], [512, 512]]", "input_types": json.dumps(["float", "float"])}],
        "host_event": [
            {"kind": "operator", "name": "aten::mm", "start_ns": 0, "duration_ns": 9, "signature": 0},
            {"kind": "launch", "name": "launch", "start_ns": 1, "duration_ns": 1, "correlation": 1},
        ],
        "device_event": runs(("gemm", 20, 8), correlation=1),
    }
    names = {"gemm": ("gemm", "FP32", "GEMM")}
    result, finding = judged(make_store(names=names, device=[H100], **rows))
    (row,) = plain_details(result)["kernels"]
    assert (row["operator"], row["shape"]) == ("aten::mm", "512x512, 512x512")
    assert row["percent_of_roof"] == pytest.approx(100 * 268_435_456 / 67e12 / 20e-6, rel=0.01)
    assert row["saving_ns"] == round(20 * US * (1 - row["percent_of_roof"] / 100))  # not x (1 - 8 / 132)
    assert finding is not None
    assert finding.saving_ns == row["saving_ns"]
    assert "of `aten::mm` with inputs of 512x512, 512x512 runs in 8 blocks" in str(result.finding)
