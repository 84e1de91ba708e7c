"""Activity distribution and memory operations of stores made by hand."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from postrun.analysis.device.activity import activity
from postrun.analysis.device.memory_operations import memory_operations
from postrun.ingest.store import Store

MakeStore = Callable[..., Store]


def event(kind: str, duration: int, **columns: Any) -> dict[str, Any]:
    return {"kind": kind, "name": kind, "start_ns": 0, "duration_ns": duration, **columns}


def test_sync_comes_from_device_records_where_there_are_any(make_store: MakeStore) -> None:
    store = make_store(
        device_event=[event("kernel", 60), event("kernel", 15), event("memset", 5), event("sync", 20)], host_event=[event("sync", 900)]
    )
    result = activity(store)
    assert result.sync_source == "device"
    assert [(s.name, s.total_ns, s.count, s.percent) for s in result.shares] == [
        ("kernel", 75, 2, 75.0),
        ("memset", 5, 1, 5.0),
        ("sync", 20, 1, 20.0),
    ]


def test_else_from_blocking_host_calls(make_store: MakeStore) -> None:
    result = activity(make_store(device_event=[event("memcpy", 30), event("kernel", 60)], host_event=[event("sync", 10), event("call", 5)]))
    assert result.sync_source == "host"
    assert [(s.name, s.total_ns) for s in result.shares] == [("kernel", 60), ("memcpy", 30), ("sync", 10)]


def test_no_sync_and_no_device_work(make_store: MakeStore) -> None:
    result = activity(make_store(device_event=[event("kernel", 60)]))
    assert (result.sync_source, [s.name for s in result.shares]) == (None, ["kernel"])
    nothing = activity(make_store(host_event=[event("sync", 10)]))
    assert (nothing.sync_source, nothing.shares) == (None, ())


def test_memory_operations_by_kind_and_host_memory(make_store: MakeStore) -> None:
    store = make_store(
        device_event=[
            event("memcpy", 100, copy_kind="HtoD", pageable=True, bytes=500),
            event("memcpy", 100, copy_kind="HtoD", pageable=True, bytes=700),
            event("memcpy", 50, copy_kind="HtoD", pageable=False, bytes=1000),
            event("memcpy", 60, copy_kind="DtoD", bytes=6000),
            event("memcpy", 40, copy_kind="DtoD"),
            event("memcpy", 10, copy_kind="DtoH"),
            event("memcpy", 0, copy_kind="PtoP", bytes=8),
            event("memset", 40, bytes=80),
            event("kernel", 9999),
        ]
    )
    result = memory_operations(store)
    assert [(m.kind, m.memory, m.count, m.total_ns, m.total_bytes, m.bandwidth_gb_per_s) for m in result] == [
        ("HtoD", "pageable", 2, 200, 1200, 6.0),
        ("DtoD", None, 2, 100, 6000, 100.0),  # the copy of unknown size is left out of the bandwidth
        ("HtoD", "pinned", 1, 50, 1000, 20.0),
        ("Memset", None, 1, 40, 80, 2.0),
        ("DtoH", None, 1, 10, None, None),
        ("PtoP", None, 1, 0, 8, None),
    ]
    assert sum(m.percent for m in result) == pytest.approx(100)
    assert result[0].percent == pytest.approx(50)


def test_a_copy_of_unknown_kind_keeps_its_name(make_store: MakeStore) -> None:
    (result,) = memory_operations(make_store(device_event=[event("memcpy", 5, name="MEMORY_COPY_X")]))
    assert result.kind == "MEMORY_COPY_X"
    assert memory_operations(make_store()) == ()
