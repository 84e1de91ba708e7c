"""Tests of operator times, derived utilization and device time of a real trace against plain sums over its JSON."""

from __future__ import annotations

import gzip
import json
from bisect import bisect
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from operator_rows import framework, operators
from postrun.analysis.device.time_breakdown import time_breakdown
from postrun.analysis.framework.framework import OTHER_OPERATORS
from postrun.analysis.machine.utilization import derived_utilization
from postrun.analysis.toolkit.wording import duration
from postrun.ingest import ingest
from postrun.ingest.store import Store

DEVICE = ("Kernel", "Memcpy", "Memset")


@pytest.fixture(scope="module")
def trace(shared_data: Path) -> Path:
    path = shared_data / "kineto" / "v100_old_schema" / "resnet50_num_workers_0.json.gz"
    if not path.is_file():
        pytest.skip(f"no real trace: {path} is no file")
    return path


@pytest.fixture(scope="module")
def events(trace: Path) -> list[dict[str, Any]]:
    with gzip.open(trace) as file:
        events: list[dict[str, Any]] = json.load(file)["traceEvents"]
    return [event for event in events if event.get("ph") == "X"]


@pytest.fixture(scope="module")
def run(trace: Path) -> Iterator[Store]:
    with ingest([trace]) as store:
        yield store


def total_by(pairs: list[tuple[str, int]]) -> dict[str, int]:
    sums: dict[str, int] = {}
    for name, microseconds in pairs:
        sums[name] = sums.get(name, 0) + microseconds * 1000
    return sums


def test_cpu_operators(run: Store, events: list[dict[str, Any]]) -> None:
    operators = [(e["name"], e["dur"]) for e in events if e.get("cat") == "Operator"]
    plain = total_by([one for one in operators if not one[0].startswith(("ProfilerStep#", "enumerate(DataLoader)"))])
    rows = {row.name: row.total_ns for row in framework(run).cpu_operators}
    assert sum(rows.values()) == sum(plain.values())
    del rows[OTHER_OPERATORS]
    assert rows == {name: plain[name] for name in rows}
    assert min(rows.values()) >= 0.02 * sum(plain.values())


def test_gpu_operators(run: Store, events: list[dict[str, Any]]) -> None:
    operator = {e["args"]["External id"]: e["name"] for e in events if e.get("cat") == "Operator" and "External id" in e.get("args", {})}
    plain = total_by([(operator[e["args"]["external id"]], e["dur"]) for e in events if e.get("cat") in DEVICE])
    rows = {row.name: row.total_ns for row in framework(run).gpu_operators}
    assert sum(rows.values()) == sum(plain.values())
    del rows[OTHER_OPERATORS]
    assert rows == {name: plain[name] for name in rows}


def test_operators_of_a_run_of_eight(shared_data: Path) -> None:
    """Device time by operator and run times of operators are those of plain JSON."""
    path = shared_data / "kineto" / "diff_pair" / "a100_rank3_of_8.json.gz"
    if not path.is_file():
        pytest.skip(f"no real trace: {path} is no file")
    events = [event for event in json.loads(gzip.decompress(path.read_bytes()))["traceEvents"] if event.get("ph") == "X"]
    called = {
        event["args"]["correlation"]: event
        for event in events
        if event.get("cat") in ("cuda_runtime", "cuda_driver") and "correlation" in event.get("args", {})
    }
    threads: dict[int, list[tuple[int, int]]] = {}
    for event in events:
        if event.get("cat") == "cpu_op":
            threads.setdefault(event["tid"], []).append((event["ts"], event["ts"] + event["dur"]))
    ran = 0
    merged: dict[int, list[tuple[int, int]]] = {}
    for tid, ranges in threads.items():
        for start, end in sorted(ranges):
            if tid in merged and start <= merged[tid][-1][1]:
                merged[tid][-1] = merged[tid][-1][0], max(end, merged[tid][-1][1])
            else:
                merged.setdefault(tid, []).append((start, end))
        ran += sum(end - start for start, end in merged[tid])
    launched = 0
    for event in events:
        call = called.get(event.get("args", {}).get("correlation")) if event.get("cat") in ("kernel", "gpu_memcpy", "gpu_memset") else None
        if call is None or (around := bisect(merged[call["tid"]], (call["ts"], 2**63)) - 1) < 0:
            continue
        if call["ts"] < merged[call["tid"]][around][1]:
            launched += event["dur"] * 1000
    with ingest([path]) as store:
        section, table = framework(store), operators(store)
    assert sum(row.total_ns for row in section.gpu_operators) == sum(row.total_ns for row in table.rows) == launched
    assert table.linked_percent is not None
    assert table.linked_percent > 98
    assert not any("cannot be given" in note for note in section.notes)
    assert any(f"ran for {duration(ran * 1000)} of" in note for note in section.notes)


def test_derived_utilization_adds_up_to_the_busy_time(run: Store) -> None:
    [device] = time_breakdown(run)
    derived = derived_utilization(run)
    ends = [*derived["time_ns"][1:], device.first_ns + device.span_ns]
    busy = sum(value / 100 * (end - start) for start, end, value in zip(derived["time_ns"], ends, derived["value"], strict=True))
    assert busy == pytest.approx(device.busy_ns)
    assert derived["time_ns"][0] == device.first_ns
