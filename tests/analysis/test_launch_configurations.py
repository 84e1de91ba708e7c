"""Are launch configurations, their shares and small grids what they are on paper, and what a real trace says?"""

from __future__ import annotations

import gzip
import json
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from postrun.analysis.launch_configurations import launch_configurations
from postrun.ingest import ingest
from postrun.ingest.store import Store

NAMES = {"a": ("short a", "fp32", "GEMM"), "b": ("b", "fp32", "elementwise"), "n": ("n", "unknown", "communication")}


def run(name: str, duration: int, grid: tuple[int, int, int] | None, block: int = 128, **other: Any) -> dict[str, Any]:
    x, y, z = grid or (None, None, None)
    sizes = {"grid_x": x, "grid_y": y, "grid_z": z, "block_x": block, "block_y": 1, "block_z": 1} if grid else {}
    return {"kind": "kernel", "name": name, "start_ns": 0, "duration_ns": duration, **sizes, "registers": 32, "shared_memory": 0, **other}


def test_by_category_then_time(make_store: Callable[..., Store]) -> None:
    # Of 200 ns: GEMM 100 (60 + 20 + 20), elementwise 70, communication 30. SMs: 10. Small: b in 5 blocks, 70; n counts not.
    store = make_store(
        names=NAMES,
        device=[{"node": 0, "index": 0, "sm_count": 10}],
        device_event=[
            run("a", 20, (10, 2, 1)), run("a", 40, (10, 2, 1)), run("a", 20, (10, 2, 1), 64), run("a", 20, None),
            run("b", 70, (5, 1, 1)), run("n", 30, (1, 1, 1)), {"kind": "memcpy", "name": "c", "start_ns": 0, "duration_ns": 500},
        ],
    )  # fmt: skip
    found = launch_configurations(store)
    assert [(r.short_name, r.grid, r.block, r.blocks_per_sm, r.count, r.total_ns, r.share_of_kernel_time) for r in found.rows] == [
        ("short a", (10, 2, 1), (128, 1, 1), 2.0, 2, 60, 30.0),
        ("short a", (10, 2, 1), (64, 1, 1), 2.0, 1, 20, 10.0),
        ("short a", None, None, None, 1, 20, 10.0),
        ("b", (5, 1, 1), (128, 1, 1), 0.5, 1, 70, 35.0),
        ("n", (1, 1, 1), (128, 1, 1), 0.1, 1, 30, 15.0),
    ]
    assert (found.total, found.known_percent, found.small_percent) == (5, 90.0, 35.0)


def test_unknown(make_store: Callable[..., Store]) -> None:
    assert "record the job" in (launch_configurations(make_store()).absent or "")
    assert "do not say" in (launch_configurations(make_store(device_event=[run("a", 5, None)])).absent or "")


def test_real_trace_recomputed(shared_data: Path) -> None:
    path = shared_data / "kineto/quirks/nccl_data.json.gz"
    if not path.is_file():
        pytest.skip("the trace is not here")
    trace = json.loads(gzip.decompress(path.read_bytes()))
    sms = {device["id"]: device["numSms"] for device in trace["deviceProperties"]}
    expected: dict[Any, list[int]] = defaultdict(list)
    for event in trace["traceEvents"]:
        if event.get("cat") == "kernel":
            given = event["args"]
            blocks = given["grid"][0] * given["grid"][1] * given["grid"][2] / sms[given["device"]]
            key = (tuple(given["grid"]), tuple(given["block"]), given["registers per thread"], given["shared memory"], blocks)
            expected[event["name"], *key].append(round(event["dur"] * 1000))
    found = launch_configurations(ingest([path]))
    made = {(r.name, r.grid, r.block, r.registers, r.shared_memory, r.blocks_per_sm): (r.count, r.total_ns) for r in found.rows}
    assert made == {key: (len(durations), sum(durations)) for key, durations in expected.items()}
