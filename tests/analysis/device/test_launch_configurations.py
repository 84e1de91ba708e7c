"""Launch configurations, their shares and small grids, computed on paper and recounted in a real trace."""

from __future__ import annotations

import gzip
import json
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from postrun.analysis.assemble import assemble
from postrun.analysis.device.launch_configurations import MOST, launch_configurations
from postrun.analysis.options import Options
from postrun.ingest import ingest
from postrun.ingest.store import Store
from postrun.report_templates.sections.launches import launch_configurations as section_of

MakeStore = Callable[..., Store]

NAMES = {"a": ("short a", "fp32", "GEMM"), "b": ("b", "fp32", "elementwise"), "n": ("n", "unknown", "communication")}


def run(
    name: str, duration: int, grid: tuple[int, int | None, int | None] | None, block: int | None = 128, **columns: Any
) -> dict[str, Any]:
    x, y, z = grid or (None, None, None)
    sizes = {"grid_x": x, "grid_y": y, "grid_z": z, "block_x": block, "block_y": 1, "block_z": 1} if grid else {}
    return {"kind": "kernel", "name": name, "start_ns": 0, "duration_ns": duration, **sizes, "registers": 32, "shared_memory": 0, **columns}


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
    result = launch_configurations(store)
    assert [(r.short_name, r.grid, r.block, r.blocks_per_sm, r.count, r.total_ns, r.share_of_kernel_time) for r in result.rows] == [
        ("short a", (10, 2, 1), (128, 1, 1), 2.0, 2, 60, 30.0),
        ("short a", (10, 2, 1), (64, 1, 1), 2.0, 1, 20, 10.0),
        ("short a", None, None, None, 1, 20, 10.0),
        ("b", (5, 1, 1), (128, 1, 1), 0.5, 1, 70, 35.0),
        ("n", (1, 1, 1), (128, 1, 1), 0.1, 1, 30, 15.0),
    ]
    assert (result.total, result.known_percent, result.small_percent) == (5, 90.0, 35.0)


def test_what_is_half_known_and_what_runs_as_long(make_store: Callable[..., Store]) -> None:
    # A grid alone is unknown; a missing axis is 1. Rows of equal time are ordered by name, then by their sizes.
    store = make_store(
        names=NAMES,
        device=[{"node": 0, "index": 0, "sm_count": 10}],
        device_event=[
            run("b", 10, (4, 1, 1), block=None), run("b", 10, (30, None, None)), run("a", 10, (7, 1, 1)), run("a", 10, (5, 1, 1)),
        ],
    )  # fmt: skip
    result = launch_configurations(store)
    assert [(r.name, r.grid, r.block, r.blocks_per_sm) for r in result.rows] == [
        ("a", (5, 1, 1), (128, 1, 1), 0.5), ("a", (7, 1, 1), (128, 1, 1), 0.7), ("b", (4, 1, 1), None, 0.4),
        ("b", (30, 1, 1), (128, 1, 1), 3.0),
    ]  # fmt: skip
    assert (result.known_percent, result.small_percent) == (75.0, 50.0)


def test_small_grids_are_those_below_one_block_per_multiprocessor(make_store: Callable[..., Store]) -> None:
    events = [run("a", 10, (10, 1, 1)), run("b", 10, (9, 1, 1)), run("b", 20, (9, 1, 1), device=1)]
    device = [{"node": 0, "index": 0, "sm_count": 10}, {"node": 0, "index": 1, "sm_count": 9}]
    result = launch_configurations(make_store(names=NAMES, device=device, device_event=events))
    assert result.small_percent == 25.0  # of the second GPU it is not small
    assert sorted((r.blocks_per_sm or 0, r.total_ns) for r in result.rows) == [(0.9, 10), (1.0, 10), (1.0, 20)]
    unknown = launch_configurations(make_store(names=NAMES, device_event=events))
    assert (unknown.small_percent, {r.blocks_per_sm for r in unknown.rows}) == (None, {None})


def test_those_with_most_time_are_listed(make_store: Callable[..., Store]) -> None:
    rows = [run("a" if size % 2 else "b", size, (size, 1, 1)) for size in range(1, MOST + 11)]
    result = launch_configurations(make_store(names=NAMES, device_event=rows))
    assert (result.total, len(result.rows), min(r.total_ns for r in result.rows)) == (MOST + 10, MOST, 11)
    assert {r.category for r in result.rows[: MOST // 2]} == {"elementwise"}  # 2 + 4 + ... is more than 1 + 3 + ...
    assert sum(r.share_of_kernel_time for r in result.rows) == pytest.approx(100 * (1 - 55 / (510 * 511 / 2)))


@pytest.mark.slow
def test_kernels_are_counted_over_all_configurations_and_those_with_most_time_listed(make_store: MakeStore) -> None:
    # 505 configurations of 505 kernels, 500 listed: k5 to k504 take 6 to 505 ns. Elementwise ones take the longest time together.
    number = MOST + 5
    names = {f"k{i}": (f"k{i}", "fp32", "GEMM" if i == number - 1 else "elementwise") for i in range(number)}
    store = make_store(names=names, device_event=[run(f"k{i}", i + 1, (1, 1, 1)) for i in range(number)])
    result = launch_configurations(store)
    assert (result.kernels, result.total, len(result.rows), result.rows[-1].name) == (number, number, MOST, f"k{number - 1}")
    section = section_of(assemble(store, Options()))
    assert str(section.lead).replace("\N{NO-BREAK SPACE}", " ") == "505 kernels in 505 launch configurations."
    table = section.table("table")
    assert table is not None
    assert (table.rows[0][1].text, table.rows[-1][1].text) == ("k503", "k504")
    assert "Listed are the 500 with the most time." in (table.note or "")


def test_unknown(make_store: Callable[..., Store]) -> None:
    assert "record the job" in (launch_configurations(make_store()).absent or "")
    assert "do not say" in (launch_configurations(make_store(device_event=[run("a", 5, None)])).absent or "")


@pytest.mark.parametrize("name", ["quirks/nccl_data.json.gz", "h100/Qwen_Qwen1.5-0.5B-Chat__1016005.json.gz"])
def test_real_traces_recomputed(shared_data: Path, name: str) -> None:
    path = shared_data / "kineto" / name
    if not path.is_file():
        pytest.skip("the trace is not here")
    trace = json.loads(gzip.decompress(path.read_bytes()))
    sms = {device["id"]: device["numSms"] for device in trace["deviceProperties"]}
    expected: dict[Any, list[int]] = defaultdict(list)
    for event in trace["traceEvents"]:
        if event.get("cat") == "kernel":
            values = event["args"]
            blocks = values["grid"][0] * values["grid"][1] * values["grid"][2] / sms[values["device"]]
            key = (tuple(values["grid"]), tuple(values["block"]), values["registers per thread"], values["shared memory"], blocks)
            expected[event["name"], *key].append(round(event["dur"] * 1000))
    result = launch_configurations(ingest([path]))
    total = sum(map(sum, expected.values()))
    assert result.kernels == len({key[0] for key in expected})
    assert all(r.share_of_kernel_time == pytest.approx(100 * r.total_ns / total) for r in result.rows)
    small = sum(sum(durations) for key, durations in expected.items() if key[-1] < 1 and "nccl" not in key[0].lower())
    assert result.small_percent == pytest.approx(100 * small / total)
    rows = {(r.name, r.grid, r.block, r.registers, r.shared_memory, r.blocks_per_sm): (r.count, r.total_ns) for r in result.rows}
    assert rows == {key: (len(durations), sum(durations)) for key, durations in expected.items()}
