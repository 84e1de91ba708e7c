"""Device time of stores made by hand, worked out on paper."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict
from typing import Any

import pytest
from example_counts import examples
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from postrun.analysis.device.time_breakdown import gpu_time, time_breakdown, whole_devices
from postrun.analysis.report import GpuTime
from postrun.analysis.toolkit import places
from postrun.ingest.store import Store

MakeStore = Callable[..., Store]

T0 = 1_712_195_495_519_689_047
NAMES = {"gemm": ("gemm", "BF16", "GEMM"), "nccl": ("nccl", "unknown", "communication")}


def event(kind: str, start: int, end: int, **columns: Any) -> dict[str, Any]:
    return {"kind": kind, "name": columns.pop("name", kind), "start_ns": T0 + start, "duration_ns": end - start, **columns}


def test_every_figure(make_store: MakeStore) -> None:
    #            0    10   20   30   40   50   60   70   80   90   100
    # gemm       [=========)                                            0..20, and 10..30 on stream 8
    # gemm            [=========)
    # nccl                      [=============)                         25..55 : 30 ns, exposed 30..55
    # memcpy                                 [=========)                50..70 : exposed 55..70
    # memset                                           [====)           70..80 : exposed
    # gemm                                                       [====) 90..100
    # sync                                                  [=============...  no device work
    store = make_store(
        names=NAMES,
        device=[{"node": 0, "index": 0, "name": "NVIDIA H100"}],
        device_event=[
            event("kernel", 0, 20, name="gemm", correlation=1),
            event("kernel", 10, 30, name="gemm", stream=8, correlation=2),
            event("kernel", 25, 55, name="nccl", stream=9),
            event("memcpy", 50, 70, correlation=3),
            event("memset", 70, 80),
            event("sync", 80, 200),
            event("kernel", 90, 100, name="gemm", correlation=99),
        ],
        host_event=[
            {"kind": "launch", "start_ns": T0 - 5, "duration_ns": 2, "correlation": 1},
            {"kind": "call", "start_ns": T0 - 5, "duration_ns": 2, "correlation": 2},
            {"kind": "launch", "start_ns": T0 - 5, "duration_ns": 2, "correlation": 3},
            {"kind": "operator", "start_ns": T0 - 5, "duration_ns": 2, "correlation": 99},
        ],
    )
    (result,) = time_breakdown(store)
    assert asdict(result) == {
        "node": "host-0",
        "rank": 0,
        "pid": 100,
        "device": 0,
        "device_name": "NVIDIA H100",
        "events": 6,
        "first_ns": T0,
        "span_ns": 100,
        "busy_ns": 90,
        "idle_ns": 10,
        "computation_ns": 40,
        "communication_ns": 30,
        "exposed_communication_ns": 25,
        "overlap_percent": pytest.approx(100 * 5 / 30),
        "memory_ns": 30,
        "exposed_memory_ns": 25,
        "memcpy_ns": 20,
        "memset_ns": 10,
        "kernel_total_ns": 80,
        "linked_busy_ns": 50,
    }
    assert result.span_ns == result.computation_ns + result.exposed_communication_ns + result.exposed_memory_ns + result.idle_ns


def test_a_correlation_links_within_its_process_only(make_store: MakeStore) -> None:
    store = make_store(
        processes=[{"id": 0, "node": 0, "rank": 0}, {"id": 1, "node": 0, "rank": 1}],
        device_event=[event("kernel", 0, 10, correlation=7), event("kernel", 0, 10, process=1, device=1, correlation=7)],
        host_event=[{"kind": "launch", "start_ns": T0, "duration_ns": 1, "correlation": 7, "process": 1}],
    )
    assert [(d.rank, d.device, d.linked_busy_ns) for d in time_breakdown(store)] == [(0, 0, 0), (1, 1, 10)]


def test_rows_are_ordered_by_host_rank_and_device(make_store: MakeStore, monkeypatch: pytest.MonkeyPatch) -> None:
    nodes = [{"id": 0, "hostname": "b"}, {"id": 1, "hostname": "a"}]
    processes = [
        {"id": 0, "node": 0, "rank": 1, "pid": 5},
        {"id": 1, "node": 0, "rank": 0, "pid": 9},
        {"id": 2, "node": 1, "pid": 3},
        {"id": 3, "node": 1, "rank": 10, "pid": 4},
    ]
    places_of = [(0, 0, 0), (0, 1, 1), (0, 1, 0), (1, 2, 0), (1, 3, 0)]
    events = [event("kernel", 0, 5, node=n, process=p, device=d) for n, p, d in places_of]
    result = time_breakdown(make_store(nodes=nodes, processes=processes, device_event=events))
    expected = [("a", 10, 0), ("a", None, 0), ("b", 0, 0), ("b", 0, 1), ("b", 1, 0)]
    assert [(d.node, d.rank, d.device) for d in result] == expected
    # Read one process at a time, the result is the same.
    monkeypatch.setattr(places.process_conditions.__wrapped__, "__kwdefaults__", {"rows": 1})
    store = make_store(nodes=nodes, processes=processes, device_event=events)
    assert len(places.process_conditions(store)) == 4
    assert time_breakdown(store) == result


def test_events_without_length_have_a_row_and_no_time(make_store: MakeStore) -> None:
    (result,) = time_breakdown(make_store(device_event=[event("kernel", 5, 5)]))
    assert (result.events, result.first_ns, result.span_ns, result.busy_ns, result.overlap_percent) == (1, T0 + 5, 0, 0, None)


def test_without_device_work_there_are_no_rows(make_store: MakeStore) -> None:
    assert time_breakdown(make_store()) == ()
    assert time_breakdown(make_store(device_event=[event("sync", 0, 10)])) == ()


runs = st.lists(
    st.tuples(st.sampled_from(["gemm", "nccl", "memcpy", "memset"]), st.integers(0, 40), st.integers(0, 15), st.integers(0, 1)),
    min_size=1,
    max_size=14,
)


@given(runs)
@settings(max_examples=examples(15), suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_events_against_cells(make_store: MakeStore, events: list[tuple[str, int, int, int]]) -> None:
    """Every figure again as the number of nanoseconds in a set of nanoseconds."""
    kinds = {"gemm": "kernel", "nccl": "kernel"}
    rows = [event(kinds.get(what, what), start, start + length, name=what, device=device) for what, start, length, device in events]
    for result in time_breakdown(make_store(names=NAMES, device_event=rows)):
        cells: dict[str, set[int]] = {what: set() for what in ("gemm", "nccl", "memcpy", "memset")}
        for what, start, length, device in events:
            if device == result.device:
                cells[what] |= set(range(start, start + length))
        memory = cells["memcpy"] | cells["memset"]
        busy = cells["gemm"] | cells["nccl"] | memory
        assert result.busy_ns == len(busy)
        assert result.computation_ns == len(cells["gemm"])
        assert result.communication_ns == len(cells["nccl"])
        assert result.exposed_communication_ns == len(cells["nccl"] - cells["gemm"])
        assert result.memory_ns == len(memory)
        assert result.exposed_memory_ns == len(memory - cells["gemm"] - cells["nccl"])
        assert (result.memcpy_ns, result.memset_ns) == (len(cells["memcpy"]), len(cells["memset"]))
        assert result.idle_ns == result.span_ns - len(busy)


def test_processes_that_share_a_device(make_store: MakeStore) -> None:
    # rank 0 on device 0: 0..10 and 20..30; rank 1 there: 10..20 and 25..40; rank 1 alone on device 1: 0..5 of 0..20
    store = make_store(
        names=NAMES,
        processes=[{"id": i, "node": 0, "pid": 100 + i, "rank": i} for i in (0, 1)],
        device=[{"node": 0, "index": 0, "name": "NVIDIA H100"}],
        device_event=[
            event("kernel", 0, 10, name="gemm", correlation=1),
            event("kernel", 20, 30, name="gemm"),
            event("kernel", 10, 20, name="nccl", process=1, correlation=1),
            event("kernel", 25, 40, name="gemm", process=1),
            event("kernel", 0, 5, name="gemm", process=1, device=1),
            event("memset", 19, 20, process=1, device=1),
        ],
        host_event=[{"kind": "launch", "start_ns": T0 - 5, "duration_ns": 2, "correlation": 1}],
    )
    rows = time_breakdown(store)
    assert [(row.rank, row.device, row.span_ns, row.busy_ns) for row in rows] == [(0, 0, 30, 20), (1, 0, 30, 25), (1, 1, 20, 6)]
    shared, own_times = whole_devices(store, rows)
    assert own_times == rows[2]
    assert (shared.rank, shared.pid, shared.device_name, shared.events) == (None, None, "NVIDIA H100", 4)
    assert (shared.span_ns, shared.busy_ns, shared.idle_ns, shared.kernel_total_ns) == (40, 40, 0, 45)
    assert (shared.computation_ns, shared.communication_ns, shared.exposed_communication_ns) == (30, 10, 10)
    assert shared.linked_busy_ns == 10  # the correlation of the other process is another one
    assert gpu_time(store, (shared, own_times)) == GpuTime(2, T0, T0 + 40, 60, 35, 10, 1, 14)
    assert gpu_time(store, ()) is None
    assert whole_devices(store, rows[:1]) == rows[:1]
    assert whole_devices(store, ()) == ()
