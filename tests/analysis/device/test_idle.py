"""Gaps of streams by cause, worked out on paper."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from postrun.analysis.device.idle import idle
from postrun.ingest.store import Store

MakeStore = Callable[..., Store]
US = 1000


def run(start: int, end: int, correlation: int | None = None, **columns: Any) -> dict[str, Any]:
    return {"kind": "kernel", "name": "k", "start_ns": start, "duration_ns": end - start, "correlation": correlation, **columns}


def launch(end: int, correlation: int, **columns: Any) -> dict[str, Any]:
    return {"kind": "launch", "name": "l", "start_ns": end - 4, "duration_ns": 4, "correlation": correlation, **columns}


def test_causes(make_store: MakeStore) -> None:
    store = make_store(
        device_event=[
            run(0, 100 * US),
            run(110 * US, 120 * US, 1),  # ready since 50, gap 10: kernel wait
            run(170 * US, 180 * US, 2),  # launched at 165: host wait of 45, kernel wait of 5
            run(210 * US, 220 * US, 3),  # ready, gap exactly 30: other, after a launch
            run(249 * US, 260 * US, 4),  # ready at the very end of the one before, gap 29: kernel wait
            run(265 * US, 270 * US),  # no launch in the trace: other, 5
            {**run(270 * US, 500 * US), "kind": "sync"},  # no work
            run(272 * US, 300 * US, 5),  # host wait of 1, kernel wait of 1
            run(275 * US, 280 * US, 1),  # inside of the one before: no gap
            {**run(301 * US, 302 * US, 1), "kind": "memcpy"},  # 1 after the longest end so far: kernel wait
        ],
        host_event=[launch(50 * US, 1), launch(165 * US, 2), launch(150 * US, 3), launch(220 * US, 4), launch(271 * US, 5)],
    )
    (result,) = idle(store)
    assert (result.node, result.rank, result.device, result.stream) == ("host-0", 0, 0, 7)
    assert (result.gaps, result.host_wait_ns, result.kernel_wait_ns, result.other_ns) == (7, 46 * US, 46 * US, 35 * US)
    assert result.waiting_ns == 30 * US


def test_streams_devices_and_processes_apart(make_store: MakeStore) -> None:
    store = make_store(
        processes=[{"id": 0, "node": 0, "rank": 1}, {"id": 1, "node": 0, "rank": 0}],
        device_event=[
            run(0, 10), run(15, 20, 1), run(12, 14, stream=8), run(13, 14, device=1),
            run(0, 10, process=1), run(17, 20, 1, process=1),
        ],
        host_event=[launch(12, 1, process=1)],
    )  # fmt: skip
    assert [(i.rank, i.stream, i.gaps, i.host_wait_ns, i.other_ns) for i in idle(store)] == [(0, 7, 1, 2, 0), (1, 7, 1, 0, 5)]


def test_a_graph_launch_explains_all_its_runs(make_store: MakeStore) -> None:
    store = make_store(device_event=[run(10, 20, 1), run(25, 30, 1), run(33, 40, 1)], host_event=[launch(9, 1)])
    (result,) = idle(store)
    assert (result.gaps, result.kernel_wait_ns, result.host_wait_ns, result.other_ns) == (2, 8, 0, 0)


def test_no_gaps_no_rows(make_store: MakeStore) -> None:
    assert idle(make_store()) == ()
    assert idle(make_store(device_event=[run(0, 10), run(10, 20)])) == ()
