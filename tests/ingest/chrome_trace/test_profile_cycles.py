"""Tests that events of two traces of one process stay apart although their ids repeat."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from postrun.ingest import ingest
from postrun.ingest.chrome_trace import batches as trace_batches
from postrun.ingest.chrome_trace.cycle_ids import CYCLE_IDS
from postrun.ingest.kineto import reader as kineto
from postrun.ingest.store import Store

EPOCH_US = 1_700_000_000_000_000
PAUSE_US = 10_000_000


def trace(start: int, step: int, *names: str) -> dict[str, Any]:
    """Write a step of 1 ms with an operator, its launch and its kernel per name."""
    events: list[dict[str, Any]] = [{"cat": "user_annotation", "name": f"ProfilerStep#{step}", "ts": start, "dur": 1000}]
    for i, name in enumerate(names, 1):
        at = start + 100 * i
        events += [
            {"cat": "cpu_op", "name": f"aten::{name}", "ts": at, "dur": 50, "args": {"External id": i}},
            {"cat": "cuda_runtime", "name": "cudaLaunchKernel", "ts": at + 10, "dur": 5, "args": {"correlation": i}},
            {"cat": "kernel", "name": name, "ts": at + 40, "dur": 20,
             "args": {"correlation": i, "External id": i, "device": 0, "stream": 7}},
        ]  # fmt: skip
    return {"traceEvents": [{"ph": "X", "pid": 5, "tid": 5, **event} for event in events]}


def cycles(folder: Path) -> list[Path]:
    """The files of two cycles, ten seconds apart, of one process."""
    paths = [folder / f"worker0.{i}.pt.trace.json" for i in (1, 2)]
    paths[0].write_text(json.dumps(trace(EPOCH_US, 3, "mm", "relu")))
    paths[1].write_text(json.dumps(trace(EPOCH_US + PAUSE_US, 13, "bmm", "gelu", "add")))
    return paths


@pytest.fixture(params=["in one go", "in small pieces"])
def store(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Store]:
    if request.param == "in small pieces":  # rows go to the store before the whole file is known
        monkeypatch.setattr(kineto, "FLUSH_ROWS", 1)
        monkeypatch.setattr(trace_batches, "BATCH_BYTES", 200)
    with ingest(cycles(tmp_path)) as store:
        yield store


def test_ids_are_not_shared(store: Store) -> None:
    (process,) = store.frame("SELECT DISTINCT process FROM device_event").to_series()
    assert store.frame("SELECT id, pid, rank FROM process").rows() == [(process, 5, 0)]
    actual = store.frame(
        "SELECT n.text, correlation, external_id FROM device_event AS e JOIN name AS n ON n.id = e.name ORDER BY start_ns"
    ).rows()
    later = [(name, CYCLE_IDS + i, CYCLE_IDS + i) for i, name in enumerate(("bmm", "gelu", "add"), 1)]
    assert actual == [("mm", 1, 1), ("relu", 2, 2), *later]
    assert (
        store.frame("SELECT max(runs) FROM (SELECT count(*) AS runs FROM host_event WHERE kind = 'launch' GROUP BY correlation)").item()
        == 1
    )


def test_steps_have_the_work_of_their_own_trace(store: Store) -> None:
    at, us = EPOCH_US * 1000, 1000
    assert store.frame('SELECT "index", device_start_ns, device_duration_ns, device_events FROM step ORDER BY host_start_ns').rows() == [
        (3, at + 140 * us, 120 * us, 2),
        (13, at + (PAUSE_US + 140) * us, 220 * us, 3),
    ]


def test_profile_windows(store: Store) -> None:
    at = EPOCH_US * 1000
    second = at + PAUSE_US * 1000
    assert store.frame("SELECT source, first_ns, last_ns FROM profile_window ORDER BY source").rows() == [
        (0, at, at + 1_000_000),
        (1, second, second + 1_000_000),
    ]
