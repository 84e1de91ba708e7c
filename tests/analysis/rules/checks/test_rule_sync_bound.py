"""SyncBound: time in blocking synchronization with the device idle, worked out on paper."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest
from judging import Judged, rules_of
from postrun.analysis.options import Options
from postrun.analysis.report import RuleResult
from postrun.analysis.rules.engine.selection import select
from postrun.ingest.store import Store
from rule_details import plain_details

MakeStore = Callable[..., Store]


UNKNOWN = {"bytes": None, "site": None, "upload": False}


def run(start: int, end: int, **fields: Any) -> dict[str, Any]:
    return {"kind": "kernel", "name": "k", "start_ns": start, "duration_ns": end - start, **fields}


def host(kind: str, start: int, end: int, name: str, **fields: Any) -> dict[str, Any]:
    return {"kind": kind, "name": name, "start_ns": start, "duration_ns": end - start, **fields}


def sync(start: int, end: int, name: str = "cudaStreamSynchronize", **fields: Any) -> dict[str, Any]:
    return host("sync", start, end, name, **fields)


def report(store: Store, threshold: float = 10) -> Judged:
    return rules_of(store, Options(selection=select(["SyncBound"], settings={"SyncBound_threshold": threshold})))


def judge(store: Store, threshold: float = 10) -> RuleResult:
    (actual,) = report(store, threshold).rules
    return actual


def test_blocked_while_the_device_is_idle(make_store: MakeStore) -> None:
    store = make_store(
        device_event=[run(0, 100), run(50, 150, stream=20), run(250, 300), run(400, 500), {**run(150, 250), "kind": "sync"}],
        host_event=[
            sync(90, 200),  # idle from 150: 50
            sync(180, 220, tid=2),  # another thread, 20 of it together with the first: 20 more
            sync(260, 310, "cudaDeviceSynchronize"),  # idle from 300: 10
            sync(480, 900, "cudaDeviceSynchronize"),  # busy, then behind the profile of the device
            host("operator", 80, 210, "aten::item"),
            host("operator", 85, 205, "aten::_local_scalar_dense"),
            host("operator", 86, 88, "aten::empty"),
            host("operator", 170, 230, "aten::copy_", tid=2),
            host("operator", 181, 219, "aten::empty", tid=3),  # another thread
            host("launch", 0, 5, "cudaLaunchKernel"),
        ],
    )
    outcome = judge(store)
    (device,) = plain_details(outcome)["devices"]
    # idle: 150-250 and 300-400; in a call: 90-220, 260-310 and 480-900
    assert (device["span_ns"], device["sync_ns"], device["blocked_idle_ns"]) == (500, 130 + 50 + 420, 70 + 10)
    assert (device["percent"], device["issue"]) == (16.0, True)
    assert device["drained_ns"] == 200  # both gaps begin in a call
    # Without launches only the idle time inside of a call counts. The first two overlap: the longer one is charged.
    assert plain_details(outcome)["calls"] == [
        {
            "name": "cudaStreamSynchronize",
            "operator": "aten::_local_scalar_dense",
            "count": 1,
            "time_ns": 110,
            "blocked_idle_ns": 50,
            "caused_idle_ns": 70,
            **UNKNOWN,
        },
        {
            "name": "cudaDeviceSynchronize",
            "operator": None,
            "count": 2,
            "time_ns": 470,
            "blocked_idle_ns": 10,
            "caused_idle_ns": 10,
            **UNKNOWN,
        },
        {
            "name": "cudaStreamSynchronize",
            "operator": "aten::copy_",
            "count": 1,
            "time_ns": 40,
            "blocked_idle_ns": 40,
            "caused_idle_ns": 0,
            **UNKNOWN,
        },
    ]
    assert outcome.finding == "Blocking calls of the host caused 80 ns of idle time in 500 ns of the GPU (16.0%, threshold 10%)."
    assert outcome.recommendation is not None
    assert outcome.recommendation.startswith("Remove `.item()`")
    (finding,) = report(store).findings
    assert (finding.cost_ns, finding.saving_ns, finding.cost_percent, finding.where) == (80, 80, 16.0, None)


def test_the_threshold_is_strict(make_store: MakeStore) -> None:
    store = make_store(device_event=[run(0, 400), run(500, 1000)], host_event=[sync(300, 500)])
    assert judge(store, 9.99).verdict == "IssuesFound"
    assert judge(store, 10).verdict == "NoIssuesFound"


def test_no_synchronization_is_no_issue(make_store: MakeStore) -> None:
    store = make_store(device_event=[run(0, 10), run(90, 100)], host_event=[host("launch", 0, 5, "cudaLaunchKernel")])
    outcome = judge(store)
    assert (outcome.verdict, outcome.datapoints, plain_details(outcome)["calls"]) == ("NoIssuesFound", 1, [])


def test_not_evaluated(make_store: MakeStore) -> None:
    outcome = judge(make_store(host_event=[sync(0, 5)]))
    assert (outcome.verdict, outcome.reason) == ("NotEvaluated", "no device activity in this run")
    outcome = judge(make_store(device_event=[run(0, 10)], host_event=[host("operator", 0, 5, "aten::mm")]))
    assert (outcome.verdict, outcome.reason) == ("NotEvaluated", "no host calls in this run")
    assert outcome.capture
    store = make_store(
        processes=[{"id": 0, "node": 0, "rank": 0}, {"id": 1, "node": 0, "rank": 1}],
        device_event=[run(0, 10)],
        host_event=[sync(0, 5, process=1)],
    )
    assert (judge(store).verdict, judge(store).reason) == ("NotEvaluated", "no host calls of the processes that used the devices")


def test_a_process_blocks_for_all_its_devices_and_for_no_others(make_store: MakeStore) -> None:
    store = make_store(
        processes=[{"id": 0, "node": 0, "rank": 0, "pid": 1}, {"id": 1, "node": 0, "rank": 1, "pid": 2}],
        device_event=[
            run(0, 10, device=0), run(90, 100, device=0), run(0, 50, device=1), run(90, 100, device=1),
            run(0, 10, device=2, process=1), run(90, 100, device=2, process=1),
        ],
        host_event=[sync(0, 60), host("launch", 0, 5, "cudaLaunchKernel", process=1)],
    )  # fmt: skip
    outcome = judge(store)
    devices = plain_details(outcome)["devices"]
    assert [(device["rank"], device["device"], device["blocked_idle_ns"]) for device in devices] == [(0, 0, 50), (0, 1, 10), (1, 2, 0)]
    assert [device["issue"] for device in devices] == [True, False, False]  # 50%, exactly 10%, none
    assert [(call["count"], call["time_ns"], call["blocked_idle_ns"]) for call in plain_details(outcome)["calls"]] == [(1, 60, 50)]
    assert report(store).findings[0].where == "rank 0, host-0 GPU 0"


MS = 1_000_000


def blocked_by_a_copy(make_store: MakeStore, begin: int, bytes_of_copy: int = 704, more: Sequence[dict[str, Any]] = ()) -> Store:
    """Return a run whose host waits for a copy, then takes 40 ms to launch.

    ``more``: other host events."""
    copy = {"kind": "memcpy", "name": "Memcpy DtoH (Device -> Pageable)", "copy_kind": "DtoH", "pageable": True, "bytes": bytes_of_copy}
    return make_store(
        device_event=[
            run(0, 146 * MS, correlation=1), {**run(146 * MS, 147 * MS, correlation=2), **copy}, run(187 * MS, 247 * MS, correlation=3)
        ],
        host_event=[
            host("launch", 0, 1000, "cudaLaunchKernel", correlation=1),
            host("launch", begin, 147 * MS, "cudaMemcpyAsync", correlation=2),
            host("launch", 186 * MS, 187 * MS, "cudaLaunchKernel", correlation=3),
            host("operator", begin - 10, 147 * MS, "aten::_local_scalar_dense"),
            host("sync", MS, 240 * MS, "cudaEventSynchronize", tid=8),  # launches nothing
            *more,
        ],
    )  # fmt: skip


def test_a_small_copy_is_charged_with_the_launches_it_delays(make_store: MakeStore) -> None:
    """The wait of 145 ms leaves the device idle for the 40 ms that the host needs."""
    outcome = judge(blocked_by_a_copy(make_store, 2 * MS))
    (device,) = plain_details(outcome)["devices"]
    assert (device["blocked_idle_ns"], device["caused_idle_ns"], device["issue"]) == (0, 40 * MS, True)
    assert plain_details(outcome)["calls"] == [
        {"name": "cudaMemcpyAsync", "operator": "aten::_local_scalar_dense", "count": 1, "time_ns": 145 * MS, "blocked_idle_ns": 0,
         "caused_idle_ns": 40 * MS, "bytes": 704, "site": None, "upload": False},
    ]  # fmt: skip
    assert "`.item()`" in str(outcome.recommendation)
    assert "`cudaMemcpyAsync` of 704 B" in str(outcome.recommendation)


@pytest.mark.parametrize(
    ("kind", "name", "left"), [("operator", "_compile.compile_inner", 10), ("loader", "next", 10), ("operator", "aten::mm", 40)]
)
def test_what_the_host_is_known_to_do_is_not_charged(make_store: MakeStore, kind: str, name: str, left: int) -> None:
    """Compilation or loading takes 30 ms of the 40 ms after the copy."""
    store = blocked_by_a_copy(make_store, 2 * MS, more=[host(kind, 150 * MS, 180 * MS, name)])
    (device,) = plain_details(judge(store))["devices"]
    assert device["caused_idle_ns"] == left * MS


def test_the_call_site_is_the_innermost_function_of_the_user(make_store: MakeStore) -> None:
    stack = [("train.py(5): main", 0), ("model.py(9): lengths", 1), ("torch/_tensor.py(7): cpu", 2), ("<built-in method cpu>", 3)]
    frames = [host("python", MS + i * 1000, 148 * MS - i * 1000, name) for name, i in stack]
    later = host("python", 149 * MS, 150 * MS, "model.py(10): other")
    outcome = judge(blocked_by_a_copy(make_store, 2 * MS, more=[*frames, later]))
    assert plain_details(outcome)["calls"][0]["site"] == "model.py(9): lengths"
    assert "comes from `model.py(9): lengths`" in str(outcome.recommendation)


def test_no_more_is_charged_than_the_host_waited(make_store: MakeStore) -> None:
    """Of 40 ms without a launch a wait of 3 ms explains 3 ms; the rest is the host's."""
    (device,) = plain_details(judge(blocked_by_a_copy(make_store, 144 * MS)))["devices"]
    assert (device["caused_idle_ns"], device["issue"]) == (3 * MS, False)


def test_gaps_between_launched_kernels_are_not_charged(make_store: MakeStore) -> None:
    store = make_store(
        device_event=[run(100 * i, 100 * i + 50, correlation=i + 1) for i in range(5)],
        host_event=[host("launch", i, i + 1, "cudaLaunchKernel", correlation=i + 1) for i in range(5)]
        + [sync(10, 450, "cudaDeviceSynchronize")],
    )
    (device,) = plain_details(judge(store))["devices"]
    assert (device["blocked_idle_ns"], device["caused_idle_ns"], device["issue"]) == (200, 0, False)


@pytest.mark.parametrize("depth", [1, 3, 20])
def test_the_innermost_operator_is_named(make_store: MakeStore, depth: int) -> None:
    operators = [host("operator", 10 * i, 1000 - 10 * i, f"level {i}") for i in range(depth)]
    beside = [host("operator", 300 + 10 * i, 305 + 10 * i, "aten::empty") for i in range(5)]
    calls = [sync(400, 410), sync(420, 430), sync(1100, 1110)]
    store = make_store(device_event=[run(0, 10), run(2000, 2010)], host_event=[*operators, *beside, *calls])
    assert {(call["operator"], call["count"]) for call in plain_details(judge(store))["calls"]} == {(f"level {depth - 1}", 2), (None, 1)}


def test_a_copy_and_the_synchronization_after_it_are_one_wait(make_store: MakeStore) -> None:
    """The next launch returns 300 after the copy.

    The copy blocks for 400, the synchronization 10 later for 5."""
    copy = {"kind": "memcpy", "name": "Memcpy DtoH", "copy_kind": "DtoH", "start_ns": 395, "duration_ns": 5, "bytes": 704, "pageable": True}
    launch = host("launch", 690, 700, "cudaLaunchKernel", correlation=2)
    store = make_store(
        device_event=[run(0, 395, correlation=9), {**copy, "correlation": 1}, run(700, 1000, correlation=2)],
        host_event=[host("launch", 0, 400, "cudaMemcpyAsync", correlation=1), sync(410, 415), launch],
    )
    details = plain_details(judge(store))
    assert [row["caused_idle_ns"] for row in details["devices"]] == [300]
    assert [(row["name"], row["caused_idle_ns"], row["bytes"]) for row in details["calls"]] == [
        ("cudaMemcpyAsync", 300, 704), ("cudaStreamSynchronize", 0, None)
    ]  # fmt: skip


def test_calls_with_work_launched_between_them_are_two_waits(make_store: MakeStore) -> None:
    """As above, but a kernel runs between the calls.

    Only 10 of the wait after the first call, and 5 after the second, are caused."""
    store = make_store(
        device_event=[run(0, 395, correlation=9), run(405, 410, correlation=3), run(700, 1000, correlation=2)],
        host_event=[
            sync(0, 395), host("launch", 396, 405, "cudaLaunchKernel", correlation=3), sync(408, 413),
            host("launch", 690, 700, "cudaLaunchKernel", correlation=2),
        ],
    )  # fmt: skip
    assert [row["caused_idle_ns"] for row in plain_details(judge(store))["devices"]] == [15]


@pytest.mark.parametrize(
    ("ranges", "words", "absent"),
    [
        (("execute_context_0(0)_generation_64(64)",), "--async-scheduling", "every 100 steps"),
        (("step[DECODE bs=4 toks=4]",), "--disable-overlap-schedule", "every 100 steps"),
        (("Optimizer.step#SGD.step",), "every 100 steps", "Schedule the next"),
    ],
)
def test_an_engine_reads_the_results_of_each_iteration(make_store: MakeStore, ranges: Sequence[str], words: str, absent: str) -> None:
    """A training can read its loss less often, an engine cannot."""
    store = make_store(
        device_event=[run(0, 100), run(200, 300, correlation=1)],
        host_event=[
            sync(20, 110), host("operator", 15, 112, "aten::_local_scalar_dense"), host("operator", 0, 5, "aten::mm"),
            host("launch", 190, 195, "cudaLaunchKernel", correlation=1),
        ],
        annotation=[{"side": "host", "name": name, "start_ns": 0, "duration_ns": 250} for name in ranges],
    )  # fmt: skip
    (finding,) = report(store).findings
    assert words in (finding.recommendation or "")
    assert absent not in (finding.recommendation or "")
    assert finding.title == (
        "Remove synchronizations from the loop" if "Optimizer" in ranges[0] else "Overlap the host's work with the devices"
    )
