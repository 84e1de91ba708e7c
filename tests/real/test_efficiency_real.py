"""Rates of operators on real traces, against plain JSON and another tool's tables."""

from __future__ import annotations

import ast
import csv
import gzip
import json
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from postrun.analysis.report.efficiency import OperatorWork
from postrun.analysis.rules.evidence.run_data import RunData
from postrun.ingest import ingest

TRACES = (
    "h100/Qwen_Qwen1.5-0.5B-Chat__1016005", "h100/Falconsai_nsfw_image_detection__1016002", "mi300/gaunernst_bert-small-uncased__1016001",
    "diff_pair/a100_rank3_of_8", "sampled_2_ranks/sampled_rank-0",
)  # fmt: skip
FACTORS = {"aten::mm": (0, 1), "aten::bmm": (0, 1), "aten::addmm": (1, 2)}
Key = tuple[str, str]


@pytest.fixture(scope="module", params=TRACES)
def trace(request: pytest.FixtureRequest, shared_data: Path) -> Iterator[tuple[Path, RunData]]:
    path = shared_data / "kineto" / f"{request.param}.json.gz"
    if not path.is_file():
        pytest.skip("the trace is not here")
    with ingest([path]) as store:
        yield path, RunData(store)


def products(path: Path) -> dict[Key, tuple[int, float]]:
    """Sum FLOPs and kernel time (ns) of products, by operator and sizes."""
    events = [event for event in json.loads(gzip.decompress(path.read_bytes()))["traceEvents"] if event.get("ph") == "X"]
    calls = [event for event in events if event["name"] in FACTORS and event["args"].get("Input Dims")]
    launched: dict[int, dict[str, Any]] = {}
    for event in events:
        if event.get("cat") in ("cuda_runtime", "cuda_driver") and "correlation" in event["args"]:
            launched.setdefault(event["args"]["correlation"], event)
    owned: dict[int, float] = defaultdict(float)
    for event in events:
        call = launched.get(event["args"].get("correlation", -1)) if event.get("cat") in ("kernel", "gpu_memset", "gpu_memcpy") else None
        for number, product in enumerate(calls) if call else ():
            if product["tid"] == call["tid"] and product["ts"] <= call["ts"] < product["ts"] + product["dur"]:
                owned[number] += round(event["dur"] * 1000)
    sums: dict[Key, tuple[int, float]] = defaultdict(lambda: (0, 0.0))
    for number, time in owned.items():
        dims = calls[number]["args"]["Input Dims"]
        left, right = (dims[position] for position in FACTORS[calls[number]["name"]])
        batch = left[0] if len(left) == 3 else 1
        key = (calls[number]["name"], json.dumps(dims))
        flop, total = sums[key]
        sums[key] = (flop + 2 * batch * left[-2] * left[-1] * right[-1], total + time)
    return sums


def test_the_largest_products(trace: tuple[Path, RunData]) -> None:
    path, run = trace
    rows: dict[Key, list[OperatorWork]] = defaultdict(list)
    for row in run.efficiency.operators:
        rows[row.operator, json.dumps(row.input_dims)].append(row)
    largest = sorted(products(path).items(), key=lambda item: -item[1][1])[:5]
    assert largest
    for key, (flop, time) in largest:
        assert sum(row.device_ns for row in rows[key]) == time
        assert sum((row.flop_per_call or 0) * row.calls for row in rows[key]) == flop
        if len(rows[key]) == 1:
            assert rows[key][0].tflops == pytest.approx(flop / time / 1e3, rel=0.01)


def test_all_device_time_is_there_and_no_matrix_work_is_beyond_a_peak(trace: tuple[Path, RunData]) -> None:
    _, run = trace
    total = run.store.frame("SELECT sum(duration_ns)::BIGINT FROM device_run").item()
    assert run.operator_work.work["total"].sum() == total
    linked = run.operator_work.work.drop_nulls("operator")["total"].sum()
    efficiency = run.efficiency
    assert efficiency.further or sum(row.device_ns for row in efficiency.operators) == linked
    peaks = [rate for peaks in efficiency.peaks for rate in peaks.flop_per_s.values()]
    for row in efficiency.operators:
        assert row.tflops is None or not peaks or row.tflops <= max(peaks) / 1e12
        assert row.percent_of_roof is None or (row.percent_of_roof > 100) == (row.bound == "cache")
        assert (row.lost_ns is None) == (row.bound in ("cache", "unknown"))
        assert row.lost_ns is None or 0 <= row.lost_ns <= row.device_ns


@pytest.mark.parametrize("trace", TRACES[:3], indirect=True)
def test_published_rates(trace: tuple[Path, RunData]) -> None:
    """Compare rates with the tables.

    These have the mean of the rates of the calls, which is above their common rate, and add the bias of addmm to the FLOPs."""
    path, run = trace
    rows = {(row.operator, json.dumps(row.input_dims), json.dumps(row.input_types)): row for row in run.efficiency.operators}
    compared = 0
    with path.with_name(path.name.replace(".json.gz", ".operators.csv")).open(newline="") as file:
        for published in csv.DictReader(file):
            if published["model"] != "GEMM":
                continue
            row = rows[
                published["operator"],
                json.dumps(ast.literal_eval(published["input_dims"])),
                json.dumps(ast.literal_eval(published["input_types"])),
            ]
            assert row.calls == int(published["calls"])
            assert row.device_ns == pytest.approx(float(published["kernel_us_sum"]) * 1000, abs=2 * row.calls)
            flop, time_us = float(published["gflop_per_call"]) * 1e9 * row.calls, float(published["kernel_us_sum"])
            assert row.tflops is not None
            assert row.tflops == pytest.approx(flop / time_us / 1e6, rel=0.01)
            assert 0.99 * row.tflops <= float(published["tflops_mean"]) <= 1.06 * row.tflops
            compared += 1
    assert compared >= 4
