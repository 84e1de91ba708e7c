"""Device time by the innermost operator around the launch, computed on paper and recounted in real traces."""

from __future__ import annotations

import gzip
import json
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from operator_rows import operators
from postrun.analysis.device.operators import MOST, MOST_KERNELS
from postrun.analysis.report import DeviceOperator, OperatorKernel
from postrun.ingest import ingest
from postrun.ingest.store import Store


def operator(name: str, start: int, end: int, **columns: Any) -> dict[str, Any]:
    return {"kind": "operator", "name": name, "start_ns": start, "duration_ns": end - start, **columns}


def launch(start: int, correlation: int, **columns: Any) -> dict[str, Any]:
    return {"kind": "launch", "name": "cudaLaunchKernel", "start_ns": start, "duration_ns": 1, "correlation": correlation, **columns}


def work(name: str, duration: int, correlation: int | None, **columns: Any) -> dict[str, Any]:
    return {"kind": "kernel", "name": name, "start_ns": 1000, "duration_ns": duration, "correlation": correlation, **columns}


@pytest.mark.parametrize("inner_first", [False, True])
def test_of_operators_with_the_same_times_the_one_that_began_last_is_inside(make_store: Callable[..., Store], inner_first: bool) -> None:
    pair = [operator("matmul", 0, 100, external_id=7), operator("mm", 0, 100, external_id=8)]
    store = make_store(host_event=[*(pair[::-1] if inner_first else pair), launch(5, 1)], device_event=[work("gemm", 20, 1)])
    assert [(row.name, row.total_ns) for row in operators(store).rows] == [("mm", 20)]


def test_innermost_on_the_thread(make_store: Callable[..., Store]) -> None:
    # Thread 1: linear 0..100 holds addmm 10..40 and, touching it, copy 40..60; between 60 and 100 linear itself launches. Thread 2: relu.
    store = make_store(
        host_event=[
            operator("linear", 0, 100), operator("addmm", 10, 40), operator("copy", 40, 60), operator("empty", 70, 70),
            operator("linear", 200, 300), operator("addmm", 200, 260), operator("relu", 0, 500, tid=2),
            launch(5, 1), launch(15, 2), launch(40, 3), launch(60, 4), launch(75, 5), launch(20, 6, tid=2), launch(150, 7), launch(210, 8),
            launch(30, 9, tid=3),
        ],
        device_event=[
            work("bias", 1, 1), work("gemm", 20, 2), work("gemm", 30, 2), {**work("HtoD", 4, 3), "kind": "memcpy"}, work("bias", 5, 4),
            work("x", 6, 5), work("relu", 7, 6), work("lost", 8, 7), work("gemm", 9, 8), work("lost", 10, 9), work("lost", 11, None),
            {**work("wait", 1000, 2), "kind": "sync"},
        ],
    )  # fmt: skip
    result = operators(store)
    total = 1 + 20 + 30 + 4 + 5 + 6 + 7 + 8 + 9 + 10 + 11
    assert result.rows == (
        DeviceOperator("addmm", 2, 3, 59, pytest.approx(100 * 59 / total), 1),
        DeviceOperator("linear", 1, 3, 12, pytest.approx(100 * 12 / total), 2),
        DeviceOperator("relu", 1, 1, 7, pytest.approx(100 * 7 / total), 1),
        DeviceOperator("copy", 1, 1, 4, pytest.approx(100 * 4 / total), 1),
    )
    assert result.kernels == (
        OperatorKernel("addmm", "gemm", "kernel", 3, 59),
        OperatorKernel("relu", "relu", "kernel", 1, 7),
        OperatorKernel("linear", "bias", "kernel", 2, 6),
        OperatorKernel("linear", "x", "kernel", 1, 6),
        OperatorKernel("copy", "HtoD", "memcpy", 1, 4),
    )
    assert result.linked_percent == pytest.approx(100 * 82 / total)


def test_of_calls_with_one_correlation_the_first_launched(make_store: Callable[..., Store]) -> None:
    # A runtime call contains a driver call of the same correlation, in the second case during another operator; an operator of 1 ns counts.
    store = make_store(
        host_event=[
            operator("a", 0, 10), operator("b", 20, 30), operator("c", 40, 41),
            launch(5, 1), {**launch(25, 1, tid=2), "kind": "call"}, {**launch(22, 2), "kind": "call"}, launch(26, 2), launch(40, 3),
        ],
        device_event=[work("k", 3, 1), work("k", 4, 2), work("k", 5, 3)],
    )  # fmt: skip
    assert [(row.name, row.total_ns) for row in operators(store).rows] == [("c", 5), ("b", 4), ("a", 3)]


@pytest.mark.slow
def test_those_with_most_time_are_listed(make_store: Callable[..., Store]) -> None:
    # Operator n launches a kernel of n + 1 ns, the first 300 a second one of 1000 + n ns.
    number = MOST + 100
    store = make_store(
        host_event=[
            *(operator(f"op {n:03}", 10 * n, 10 * n + 10) for n in range(number)),
            *(launch(10 * n + 5, n + 1) for n in range(number)),
        ],
        device_event=[
            *(work(f"k {n:03}", n + 1, n + 1) for n in range(number)), *(work(f"long {n:03}", 1000 + n, n + 1) for n in range(number)),
        ],
    )  # fmt: skip
    result = operators(store)
    assert (len(result.rows), result.further, len(result.kernels)) == (MOST, 100, MOST_KERNELS)
    assert [result.rows[0].name, result.rows[-1].name] == [f"op {number - 1}", f"op {number - MOST}"]
    assert (result.kernels[0].kernel, result.kernels[0].total_ns) == (f"long {number - 1}", 1000 + number - 1)
    assert result.kernels[-1].kernel == f"k {number - MOST}"
    assert result.linked_percent == 100


def test_work_without_a_duration(make_store: Callable[..., Store]) -> None:
    result = operators(make_store(host_event=[operator("a", 0, 10), launch(5, 1)], device_event=[work("k", 0, 1)]))
    assert [(row.name, row.count, row.total_ns) for row in result.rows] == [("a", 1, 0)]


def test_processes_are_apart(make_store: Callable[..., Store]) -> None:
    store = make_store(
        processes=[{"id": 0, "node": 0, "rank": 0}, {"id": 1, "node": 0, "rank": 1}],
        host_event=[operator("a", 0, 10), operator("b", 0, 10, process=1), launch(5, 1), launch(5, 1, process=1)],
        device_event=[work("k", 3, 1), work("k", 4, 1, process=1)],
    )
    assert [(row.name, row.total_ns) for row in operators(store).rows] == [("b", 4), ("a", 3)]


def test_nothing(make_store: Callable[..., Store]) -> None:
    assert "No operator" in (operators(make_store(device_event=[work("k", 3, 1)])).absent or "")
    assert "no device work" in (operators(make_store(host_event=[operator("a", 0, 10)])).absent or "")
    apart = operators(make_store(host_event=[operator("a", 0, 10)], device_event=[work("k", 3, 1)]))
    assert (apart.rows, apart.linked_percent) == ((), 0.0)
    assert apart.absent is not None


@pytest.mark.parametrize(
    "file", ["h100/Falconsai_nsfw_image_detection__1016002.json.gz", "mi300/gaunernst_bert-small-uncased__1016001.json.gz"]
)
def test_real_traces_recomputed(shared_data: Path, file: str) -> None:
    path = shared_data / "kineto" / file
    if not path.is_file():
        pytest.skip("the trace is not here")
    events = json.loads(gzip.decompress(path.read_bytes()))["traceEvents"]
    launched = {
        event["args"]["correlation"]: event
        for event in events
        if event.get("cat") in ("cuda_runtime", "cuda_driver") and "correlation" in event["args"]
    }
    ranges = [event for event in events if event.get("cat") == "cpu_op" and event["dur"] > 0]
    expected: dict[str, int] = defaultdict(int)
    for event in events:
        if event.get("cat") not in ("kernel", "gpu_memcpy", "gpu_memset"):
            continue
        call = launched.get(event["args"]["correlation"])
        around = [r for r in ranges if call and r["tid"] == call["tid"] and r["ts"] <= call["ts"] < r["ts"] + r["dur"]]
        if around:
            expected[min(around, key=lambda r: r["dur"])["name"]] += round(event["dur"] * 1000)
    result = operators(ingest([path]))
    assert {row.name: row.total_ns for row in result.rows} == expected
    assert len(expected) > 3
