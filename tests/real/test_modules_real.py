"""Modules and lines of real traces, recomputed in plain Python from the JSON: each kernel's launch is looked up in all frames around it."""

from __future__ import annotations

import gzip
import json
import re
from collections import Counter
from decimal import Decimal
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from postrun.analysis.efficiency.call_sites import CallSites
from postrun.analysis.efficiency.modules import CodeTimes, code_times
from postrun.analysis.efficiency.operator_work import operator_work
from postrun.ingest import ingest

pytestmark = pytest.mark.slow

WORK = {"kernel", "gpu_memcpy", "gpu_memset"}
TRACES = ("h100/Falconsai_nsfw_image_detection__1016002", "h100/Qwen_Qwen1.5-0.5B-Chat__1016005")


@cache
def computed(path: Path) -> tuple[CodeTimes, int]:
    store = ingest([path])
    sites = CallSites(store)
    with store.unchanged():
        times = code_times(operator_work(store, sites=sites.of if sites.known else None).work, sites)
        total: int = store.frame("SELECT sum(duration_ns)::BIGINT FROM device_run").item()
    return times, total


@pytest.mark.parametrize("trace", TRACES)
def test_modules_and_lines_of_an_inference(shared_data: Path, trace: str) -> None:
    path = shared_data / "kineto" / f"{trace}.json.gz"
    times, total = computed(path)
    modules, lines = recomputed(path)
    assert sum(row.self_device_ns for row in times.modules) == sum(row.device_ns for row in times.lines) == total
    assert {row.path: row.self_device_ns for row in times.modules if row.self_device_ns} == modules
    assert {row.line: row.device_ns for row in times.lines if row.device_ns} == lines
    for row in times.modules:
        inside = (value for name, value in modules.items() if row.path and (name == row.path or name.startswith(row.path + "/")))
        assert not row.path or row.device_ns == sum(inside)


def nanoseconds(value: Any) -> int:
    return int(Decimal(str(value)) * 1000)


def recomputed(path: Path) -> tuple[Counter[str], Counter[str]]:
    """Sum device time by path and by line.

    The program of these traces is that of the package moca; other frames are of libraries."""
    events = [
        event for event in json.loads(gzip.decompress(path.read_bytes()), parse_float=Decimal)["traceEvents"] if event.get("ph") == "X"
    ]
    launches = {
        event["args"]["correlation"]: event
        for event in events
        if event.get("cat") in ("cuda_runtime", "cuda_driver") and "correlation" in event.get("args", {})
    }
    frames = [
        (event["tid"], nanoseconds(event["ts"]), nanoseconds(event["ts"]) + nanoseconds(event["dur"]), event["name"])
        for event in events
        if event.get("cat") == "python_function" and event["name"].startswith(("nn.Module: ", "moca/"))
    ]
    modules, lines = Counter[str](), Counter[str]()
    for event in events:
        if event.get("cat") not in WORK:
            continue
        launch = launches.get(event["args"].get("correlation"))
        around = []
        if launch is not None:
            at = nanoseconds(launch["ts"])
            around = sorted((start, -end, name) for tid, start, end, name in frames if tid == launch["tid"] and start <= at < end)
        names = [name for _, _, name in around]
        duration = nanoseconds(event["dur"])
        modules["/".join(name.removeprefix("nn.Module: ") for name in names if name.startswith("nn."))] += duration
        line = next((match for name in reversed(names) if (match := re.match(r"(moca/.*)\((\d+)\)", name))), None)
        lines[f"{line[1]}:{line[2]}" if line else ""] += duration
    return modules, lines


@pytest.mark.parametrize(
    "trace", ["v100_old_schema/resnet50_num_workers_0", "diff_pair/a100_rank3_of_8", "mi300/gaunernst_bert-small-uncased__1016001"]
)
def test_leaves_add_up(shared_data: Path, trace: str) -> None:
    times, total = computed(shared_data / "kineto" / f"{trace}.json.gz")
    assert times.modules or times.lines
    for rows in (times.modules, times.lines):
        leaves = sum(getattr(row, "self_device_ns", row.device_ns) for row in rows)  # type: ignore[attr-defined]
        assert leaves == (total if rows else 0)


def test_backward_pass_has_the_lines_of_its_forward_pass(shared_data: Path) -> None:
    """The script calls the model in line 46.

    PyTorch has written the stacks with the forward operators alone."""
    times, _ = computed(shared_data / "kineto" / "v100_old_schema" / "resnet50_num_workers_0.json.gz")
    model = times.lines[0]
    assert model.line == "resnet50_profiler_api.py:46"
    assert 0.6 < model.backward_ns / model.device_ns < 0.7
