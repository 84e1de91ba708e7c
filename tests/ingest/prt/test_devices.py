"""Tests that facts of a GPU are kept, whichever source has them and whichever is read first."""

from __future__ import annotations

import itertools
import json
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from postrun.ingest import ingest
from postrun.ingest.store import Store
from postrun.ingest.store.devices import add_devices

EPOCH = 1_700_000_000_000_000_000
UUID = "11111111-2222-3333-4444-555555555555"
TRACE = {
    "id": 0, "name": "NVIDIA A100-SXM4-40GB", "totalGlobalMem": 42505273344, "computeMajor": 8, "computeMinor": 0, "numSms": 108,
}  # fmt: skip
EXPORT = {"id": 0, "name": "A100-SXM4-40GB", "uuid": f"GPU-{UUID}"}
COLUMNS = "name, uuid, memory_bytes, sm_count, compute_capability, vendor"


def device(store: Store) -> tuple[Any, ...]:
    [row] = store.frame(f"SELECT {COLUMNS} FROM device").rows()
    return tuple(row)


def add(store: Store, *entries: dict[str, Any]) -> None:
    for entry in entries:
        add_devices(store, 1, {"deviceProperties": [entry]} if entry else {}, [0])


@pytest.mark.parametrize("order", list(itertools.permutations([TRACE, EXPORT, {}])))
def test_what_one_source_does_not_say_another_does(order: tuple[dict[str, Any], ...]) -> None:
    store = Store.create(None)
    add(store, *order)
    name = next(entry["name"] for entry in order if entry)
    assert device(store) == (name, f"GPU-{UUID}", 42505273344, 108, "8.0", "NVIDIA")


@pytest.mark.parametrize(
    "facts", [{"name": "NVIDIA H100 80GB HBM3", "numSms": 132}, {"uuid": "GPU-99999999-2222-3333-4444-555555555555", "numSms": 132}]
)
def test_facts_of_another_gpu_of_the_same_number_are_not_taken(facts: dict[str, Any]) -> None:
    """A process that sees only one GPU numbers it 0; the machine has another GPU 0."""
    store = Store.create(None)
    add(store, EXPORT, {"id": 0, **facts})
    assert device(store) == ("A100-SXM4-40GB", f"GPU-{UUID}", None, None, None, "NVIDIA")


def test_a_uuid_written_otherwise_is_of_the_same_gpu() -> None:
    store = Store.create(None)
    add(store, EXPORT, {"id": 0, "uuid": UUID.upper(), "numSms": 108})
    assert device(store)[:4] == ("A100-SXM4-40GB", f"GPU-{UUID}", None, 108)


def test_an_export_that_names_no_gpu_leaves_what_the_trace_says(tmp_path: Path) -> None:
    """A process recorded by PyTorch's profiler and Nsight Systems, without GPU table."""
    start = EPOCH // 1000
    kernel = {"ph": "X", "cat": "kernel", "name": "k", "pid": 0, "tid": 7, "ts": start, "dur": 5, "args": {"device": 0, "stream": 7}}
    host = {"ph": "X", "cat": "cpu_op", "name": "aten::mm", "pid": 77, "tid": 77, "ts": start - 10, "dur": 5}
    trace = {"schemaVersion": 1, "deviceProperties": [TRACE], "host_name": "node", "traceEvents": [host, kernel]}
    (tmp_path / "node_77.1.pt.trace.json").write_text(json.dumps(trace))
    with closing(sqlite3.connect(tmp_path / "report1.sqlite")) as connection:
        connection.execute("CREATE TABLE TARGET_INFO_SESSION_START_TIME (utcEpochNs)")
        connection.execute("INSERT INTO TARGET_INFO_SESSION_START_TIME VALUES (?)", (EPOCH,))
        connection.execute("CREATE TABLE TARGET_INFO_SYSTEM_ENV (name, value)")
        connection.execute("INSERT INTO TARGET_INFO_SYSTEM_ENV VALUES ('Hostname', 'node')")
        connection.execute("CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL (start, end, deviceId, contextId, streamId, correlationId, globalPid)")
        row = (10**9, 10**9 + 5000, 0, 1, 7, 1, (1 << 48) | (77 << 24))
        connection.execute("INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES (?, ?, ?, ?, ?, ?, ?)", row)
        connection.commit()
    store = ingest([tmp_path])
    assert store.frame("SELECT count(*) FROM source").item() == 2
    assert device(store) == (TRACE["name"], None, 42505273344, 108, "8.0", "NVIDIA")
