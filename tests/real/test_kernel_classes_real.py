"""Categories of real traces by operator: recounted in plain Python, from the trace alone."""

from __future__ import annotations

import gzip
import json
from bisect import bisect_right
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest
from postrun.analysis.efficiency.kernel_classes import categories, category_sources
from postrun.analysis.rules.evidence.run_data import RunData
from postrun.ingest import ingest

# Of each trace, time by category in ns is recounted for these operators, which begin with a word that no other category has.
TRACES = (
    "v100_ddp/rank-0.Apr_03_18_51_38.1102.pt.trace.json.gz",
    "h100/Falconsai_nsfw_image_detection__1016002.json.gz",
    "mi300/gaunernst_bert-small-uncased__1016001.json.gz",
    "quirks/nccl_data.json.gz",
)
BEGINNINGS = {
    "convolution": ("aten::conv", "aten::cudnn_conv", "aten::miopen_conv"),
    "attention": ("aten::_scaled_dot_product", "aten::_flash", "aten::_efficient"),
    "GEMM": ("aten::mm", "aten::addmm", "aten::bmm", "aten::linear", "aten::matmul"),
}
MOVES = ("nchwToNhwc", "nhwcToNchw", "tensorTransform")  # layout changes within a convolution


def stacks(events: list[dict[str, Any]]) -> dict[int, list[str]]:
    """Return the operators around each launch, outermost first, by correlation."""
    operators: dict[Any, list[tuple[float, float, str]]] = defaultdict(list)
    launches: dict[Any, list[tuple[float, int]]] = defaultdict(list)
    for event in events:
        if event.get("ph") != "X":
            continue
        thread, start = (event["pid"], event["tid"]), float(event["ts"])
        if event.get("cat") == "cpu_op":
            operators[thread].append((start, start + float(event["dur"]), event["name"]))
        elif event.get("cat") in ("cuda_runtime", "cuda_driver") and event.get("args", {}).get("correlation"):
            launches[thread].append((start, event["args"]["correlation"]))
    around = {}
    for thread, calls in launches.items():
        ranges = sorted(operators[thread], key=lambda item: (item[0], -item[1]))
        starts = [start for start, _, _ in ranges]
        for time, correlation in calls:
            index = bisect_right(starts, time)
            around.setdefault(correlation, [name for start, end, name in ranges[max(0, index - 3000) : index] if start <= time < end])
    return around


@pytest.mark.parametrize("trace", TRACES)
def test_matrix_work_is_that_of_the_operators(shared_data: Path, trace: str) -> None:
    path = shared_data / "kineto" / trace
    if not path.is_file():
        pytest.skip("the trace is not here")
    events = json.loads(gzip.decompress(path.read_bytes()))["traceEvents"]
    around, expected, total = stacks(events), dict.fromkeys(BEGINNINGS, 0), 0
    for event in events:
        if event.get("cat") != "kernel":
            continue
        total += round(float(event["dur"]) * 1000)
        names = around.get(event["args"]["correlation"], [])
        for category, beginnings in BEGINNINGS.items():
            owners = [name for name in names if name.startswith(beginnings)]
            foreign = names and not names[-1].startswith(beginnings) and names[-1] not in ("aten::_convolution", "aten::convolution")
            if owners and not any(move in event["name"] for move in MOVES) and (category == "attention" or not foreign):
                expected[category] += round(float(event["dur"]) * 1000)
                break
    with ingest([path]) as store:
        groups = RunData(store).kernel_groups
        times = {share.name: share.total_ns for share in categories(groups)}
        assert sum(times.values()) == sum(share.total_ns for share in category_sources(groups)) == total
        assert {category: times.get(category, 0) for category in BEGINNINGS} == expected
