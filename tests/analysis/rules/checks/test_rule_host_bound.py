"""HostBound: idle time of devices by cause and the advice that follows from it, worked out on paper."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest
from judging import Judged, rules_of
from postrun.analysis.device.device_gaps import DeviceGaps
from postrun.analysis.device.idle import idle
from postrun.analysis.device.time_breakdown import time_breakdown, whole_devices
from postrun.analysis.options import Options
from postrun.analysis.report import RuleResult
from postrun.analysis.rules.engine.selection import select
from postrun.ingest.store import Store
from rule_details import plain_details

MakeStore = Callable[..., Store]
US = 1000


def run(start: int, end: int, correlation: int | None = None, **fields: Any) -> dict[str, Any]:
    return {"kind": "kernel", "name": "k", "start_ns": start, "duration_ns": end - start, "correlation": correlation, **fields}


def launch(end: int, correlation: int, **fields: Any) -> dict[str, Any]:
    return {"kind": "launch", "name": "cudaLaunchKernel", "start_ns": end - 4, "duration_ns": 4, "correlation": correlation, **fields}


def host(kind: str, start: int, end: int, name: str = "f", **fields: Any) -> dict[str, Any]:
    return {"kind": kind, "name": name, "start_ns": start, "duration_ns": end - start, **fields}


def report(store: Store, **settings: float) -> Judged:
    values = {f"HostBound_{name}": value for name, value in settings.items()}
    return rules_of(store, Options(selection=select(["HostBound"], settings=values)))


def judge(store: Store, **settings: float) -> RuleResult:
    (actual,) = report(store, **settings).rules
    return actual


def test_the_event_that_ends_a_gap_of_the_device_decides(make_store: MakeStore) -> None:
    store = make_store(
        device_event=[
            run(0, 100 * US),
            run(40 * US, 150 * US, stream=20),  # overlaps: no gap of the device
            run(200 * US, 210 * US, 1, name="late"),  # launched at 180: host wait of 30, kernel wait of 20
            {**run(215 * US, 220 * US, 2), "kind": "memcpy"},  # launched at 205, before 210: kernel wait of 5
            run(250 * US, 260 * US, 3),  # launched at 220, which is not after 220; gap of exactly 30: other, after a launch
            run(289 * US, 300 * US, 4, stream=20),  # ready, gap of 29: kernel wait
            {**run(300 * US, 900 * US), "kind": "sync"},  # no work
            run(310 * US, 320 * US),  # launch not in the trace: other, 10
            run(330 * US, 340 * US, 5, name="first"),  # starts first and was launched at 321: host wait of 1
            run(331 * US, 400 * US, 2, stream=20),
        ],
        host_event=[launch(180 * US, 1), launch(205 * US, 2), launch(220 * US, 3), launch(255 * US, 4), launch(321 * US, 5)],
    )
    outcome = judge(store, idle_threshold=30, host_share=20)
    (device,) = plain_details(outcome)["devices"]
    assert {key: device[key] for key in ("node", "rank", "pid", "device")} == {"node": "host-0", "rank": 0, "pid": 100, "device": 0}
    # busy: 0-150, 200-210, 215-220, 250-260, 289-300, 310-320, 330-400 = 266 of 400
    assert (device["span_ns"], device["idle_ns"]) == (400 * US, 134 * US)
    assert (device["host_wait_ns"], device["host_waits"]) == (31 * US, 2)
    assert (device["kernel_wait_ns"], device["other_ns"], device["waiting_ns"]) == (63 * US, 40 * US, 30 * US)
    assert device["idle_percent"] == pytest.approx(33.5)
    assert device["host_percent"] == pytest.approx(100 * 31 / 134)
    assert device["issue"] is True
    assert plain_details(outcome)["kernels"] == [
        {"name": "late", "count": 1, "time_ns": 30 * US},
        {"name": "first", "count": 1, "time_ns": 1 * US},
    ]
    assert [(wait["start_ns"], wait["time_ns"], wait["name"]) for wait in plain_details(outcome)["longest"]] == [
        (150 * US, 30 * US, "late"),
        (320 * US, 1 * US, "first"),
    ]
    assert (outcome.triggered, outcome.violations, outcome.datapoints, outcome.windows, outcome.windows_triggered) == (1, 1, 1, 1, 1)
    assert (outcome.first_ns, outcome.last_ns) == (0, 400 * US)
    assert outcome.finding == (
        "The GPU stood idle for 134 µs of 400 µs (33.5%, threshold 30%) and in 31.0 µs of that time waited for the host"
        " (23.1%, threshold 20%)."
    )


def test_thresholds_are_strict(make_store: MakeStore) -> None:
    """1000 ns with 200 idle, 100 of it host wait: exactly 20% and 50%."""
    store = make_store(
        device_event=[run(0, 400), run(500, 800, 1), run(900, 1000, 2)],
        host_event=[launch(500, 1), launch(700, 2)],
    )
    outcome = judge(store, idle_threshold=19.9, host_share=49.9)
    assert outcome.verdict == "IssuesFound"
    assert judge(store, idle_threshold=20, host_share=49.9).verdict == "NoIssuesFound"
    equal = judge(store, idle_threshold=19.9, host_share=50)
    assert (equal.verdict, equal.triggered, equal.first_ns, equal.recommendation) == ("NoIssuesFound", 0, None, None)
    assert equal.finding == (
        "The GPU stood idle for 20.0% of the profile (threshold 19.9%), but only 50.0% of that was host wait (threshold 50%)."
    )
    assert judge(store).finding == "The GPU stood idle for 20.0% of the profile (threshold 20%)."


def test_cost_is_the_host_wait_of_the_devices_with_the_issue(make_store: MakeStore) -> None:
    store = make_store(
        processes=[{"id": 0, "node": 0, "rank": 4, "pid": 10}, {"id": 1, "node": 0, "rank": 5, "pid": 11}],
        device_event=[
            run(0, 10, device=0), run(20, 100, device=0),
            run(0, 10, 1, process=1, device=1), run(60, 100, 2, process=1, device=1),
        ],
        host_event=[launch(60, 2, process=1)],
        step=[
            {"node": 0, "process": 1, "index": i, "host_start_ns": 50 * i, "host_duration_ns": 50, "device_start_ns": 50 * i,
             "device_duration_ns": 50, "device_events": 1}
            for i in range(2)
        ],
    )  # fmt: skip
    config = report(store)
    (finding,) = config.findings
    # The trace records nothing of the host in the wait: the advice is to record it, which saves nothing by itself.
    assert (finding.title, finding.saving_ns) == ("Record the host's work between launches", None)
    assert (finding.cost_ns, finding.cost_percent, finding.cost_per_step_ns) == (50, 25.0, 25.0)
    assert finding.where == "rank 5, host-0 GPU 1"
    (result,) = config.rules
    assert [device["issue"] for device in plain_details(result)["devices"]] == [False, True]
    assert result.finding == (
        "1 of 2 GPUs stood idle for more than 20% of the profile and for more than 50% of that waited for the host, 50 ns in all,"
        " 25.0% of the GPU time in the profile window; most on rank 5, host-0 GPU 1: idle 50.0%, 100% of it host wait."
    )


def test_a_device_without_launches_is_not_judged(make_store: MakeStore) -> None:
    store = make_store(
        processes=[{"id": 0, "node": 0, "rank": 0}, {"id": 1, "node": 0, "rank": 1}],
        device_event=[run(0, 90, 1), run(95, 100, 2), run(0, 10, process=1, device=1), run(60, 100, process=1, device=1)],
        host_event=[launch(92, 2)],
    )
    outcome = judge(store)
    assert [device["issue"] for device in plain_details(outcome)["devices"]] == [False, None]
    assert (outcome.verdict, outcome.datapoints) == ("NoIssuesFound", 1)
    assert outcome.finding == (
        "The GPUs stood idle for 5.0% of the profile at most (threshold 20%); 1 GPU could not be evaluated (rank 1, host-0 GPU 1: no"
        " launch call of its work is in the trace)."
    )


def test_not_evaluated(make_store: MakeStore) -> None:
    outcome = judge(make_store(host_event=[launch(4, 1)]))
    assert (outcome.verdict, outcome.reason) == ("NotEvaluated", "no device activity in this run")
    assert outcome.capture
    outcome = judge(make_store(device_event=[run(0, 10), run(90, 100)]))
    assert (outcome.verdict, outcome.reason) == ("NotEvaluated", "no launch calls in this run")
    outcome = judge(make_store(device_event=[run(0, 10, 7), run(90, 100)], host_event=[launch(80, 1)]))
    assert (outcome.verdict, outcome.reason) == ("NotEvaluated", "no launch call of this run has the correlation of a device run")


def test_what_lies_between_two_profiles_is_no_gap(make_store: MakeStore) -> None:
    store = make_store(
        profile_window=[
            {"process": 0, "source": 0, "first_ns": 0, "last_ns": 100},
            {"process": 0, "source": 1, "first_ns": 1000, "last_ns": 1100},
        ],
        device_event=[run(0, 40), run(60, 100, 1), run(1010, 1040, 2), run(1050, 1100, 3)],
        host_event=[launch(50, 1), launch(1005, 2), launch(1045, 3)],
    )
    (device,) = plain_details(judge(store))["devices"]
    assert (device["span_ns"], device["idle_ns"], device["host_wait_ns"]) == (190, 30, 10 + 5)


def test_processes_that_share_a_device_keep_it_busy_together(make_store: MakeStore) -> None:
    store = make_store(
        processes=[{"id": 0, "node": 0, "rank": 0, "pid": 10}, {"id": 1, "node": 0, "rank": 1, "pid": 11}],
        device_event=[run(0, 40), run(90, 100, 1), run(30, 60, 1, process=1), run(70, 80, 2, process=1)],
        host_event=[launch(85, 1), launch(65, 2, process=1)],
    )
    (device,) = plain_details(judge(store))["devices"]
    assert (device["rank"], device["pid"]) == (None, None)
    assert (device["span_ns"], device["idle_ns"], device["host_wait_ns"]) == (100, 20, 5 + 5)


# A host wait of 1000 ns, from 100 to 1100, and what the host does meanwhile.
ADVICE = {
    "loader": ([host("loader", 200, 700), host("operator", 200, 900), host("sync", 300, 400)], "Load data ahead of the GPU"),
    "synchronized": ([host("sync", 50, 150), host("operator", 150, 1000)], "Remove synchronizations from the loop"),
    "operators": ([host("operator", 200, 800), host("launch", 300, 350)], "Launch the work in fewer, larger pieces"),
    "Python": (
        [host("operator", 100, 300), host("call", 900, 1000), host("python", 100, 1000)],
        "Shorten the Python between the launches",
    ),
    "nothing of the host": ([host("operator", 100, 300), host("call", 900, 1000)], "Record the host's work between launches"),
    "one long call": ([host("call", 100, 300, "cudaMalloc"), host("launch", 500, 1050)], "Leave the first steps out of the profile"),
    "profiler": ([host("overhead", 100, 700), host("loader", 100, 1100)], "Profile again with less overhead"),
}


@pytest.mark.parametrize("case", ADVICE)
def test_advice_follows_what_the_host_did(make_store: MakeStore, case: str) -> None:
    events, title = ADVICE[case]
    store = make_store(device_event=[run(0, 100), run(1100, 1200, 1)], host_event=[*events, launch(1094, 1)])
    result = report(store)
    assert [finding.title for finding in result.findings] == [title]
    assert result.findings[0].recommendation
    first = plain_details(result.rules[0])["first_use"]
    assert first == ({"name": "f", "time_ns": 550} if case == "one long call" else None)


def test_a_wait_without_any_record_of_the_host_has_no_named_cause(make_store: MakeStore) -> None:
    """Two ranks are idle from 100 to 1094, without any event of a host."""
    events = [run(0, 100), run(1100, 1200, 1)]
    processes = [{"id": 0, "node": 0, "rank": 0, "pid": 10}, {"id": 1, "node": 0, "rank": 1, "pid": 11}]
    store = make_store(
        processes=processes,
        device_event=events + [{**event, "process": 1, "device": 1} for event in events],
        host_event=[launch(1094, 1), launch(1094, 1, process=1)],
    )
    advice = judge(store).recommendation
    assert advice is not None
    assert advice.startswith("Trace some steps")
    assert "shorten" not in advice
    assert "A host that waits for another rank looks the same" in advice


@pytest.mark.parametrize(("count", "wait", "topic"), [(100, 20_000, "Launch"), (99, 20_000, "Record"), (100, 110_000, "Record")])
def test_short_waits_before_many_launches_are_of_launches(make_store: MakeStore, count: int, wait: int, topic: str) -> None:
    """A host that launches a kernel each ``wait`` ns, without operators."""
    begins = [number * (wait + 5_000) for number in range(count + 1)]
    store = make_store(
        device_event=[run(begin, begin + 5_000, number) for number, begin in enumerate(begins)],
        host_event=[launch(begin, number) for number, begin in enumerate(begins) if number],
    )
    (finding,) = (finding for finding in report(store).findings if finding.rule == "HostBound")
    assert finding.title.startswith(topic)


def test_every_moment_of_a_wait_counts_for_one_activity(make_store: MakeStore) -> None:
    store = make_store(
        device_event=[run(0, 100), run(1100, 1200, 1), run(1200, 1300), run(1350, 1400, 2)],
        host_event=[
            host("loader", 50, 300, tid=2), host("operator", 200, 900), host("sync", 280, 400), host("call", 390, 450, tid=3),
            launch(1094, 1), launch(1302, 2), host("operator", 1000, 1005), host("operator", 1250, 1325), host("python", 0, 2000),
        ],
    )  # fmt: skip
    outcome = judge(store)
    # waits 100-1094 and 1300-1302; launches 1090-1094 and 1298-1302
    times = {share["activity"]: share["time_ns"] for share in plain_details(outcome)["host"]}
    assert times == {
        "data loader": 200, "synchronization": 100, "runtime calls": 50 + 4 + 2, "operators": 450 + 5,
        "nothing recorded": 996 - 200 - 100 - 56 - 455,
    }  # fmt: skip
    assert sum(share["percent"] for share in plain_details(outcome)["host"]) == pytest.approx(100)
    assert plain_details(outcome)["after_synchronisation_ns"] == 0


def test_overhead_of_the_driver_is_a_call_and_the_rest_the_profilers(make_store: MakeStore) -> None:
    """Return a wait from 100 to 1100 with overhead alone, partly within a launch.

    That launch lasts from 100 to 600."""
    names = {
        "Runtime Triggered Module Loading": (100, 550), "Lazy Function Loading": (600, 610), "Command Buffer Full": (610, 630),
        "Driver Compiler": (630, 640), "Unrecognized": (640, 645), "Driver JIT compiler (CUDA)": (645, 646),
        "Activity Buffer Request": (700, 730), "Buffer Flush": (730, 733), "Instrumentation": (733, 735), "Resource": (735, 736),
    }  # fmt: skip
    store = make_store(
        device_event=[run(0, 100), run(1100, 1200, 1)],
        host_event=[host("overhead", *times, name) for name, times in names.items()]
        + [{"kind": "launch", "name": "cudaLaunchKernel", "start_ns": 90, "duration_ns": 510, "correlation": 2}, launch(1100, 1)],
    )
    result = report(store)
    details = plain_details(result.rules[0])
    assert {share["activity"]: share["time_ns"] for share in details["host"]} == {
        "runtime calls": 500 + 4 + 46, "profiler overhead": 36, "nothing recorded": 1000 - 550 - 36,
    }  # fmt: skip
    assert [(row["name"], row["time_ns"]) for row in details["calls"][:3]] == [
        ("cudaLaunchKernel", 504), ("Runtime Triggered Module Loading", 450), ("Command Buffer Full", 20),
    ]  # fmt: skip
    assert {row["name"] for row in details["calls"]}.isdisjoint({"Activity Buffer Request", "Buffer Flush"})
    assert [finding.title for finding in result.findings] == ["Leave the first steps out of the profile"]


def annotated(name: str, start: int, end: int, **fields: Any) -> dict[str, Any]:
    return {"side": "host", "name": name, "start_ns": start, "duration_ns": end - start, **fields}


def test_what_no_event_tells_the_innermost_range_does(make_store: MakeStore) -> None:
    """Return a wait from 100 to 1100 inside a step, with an operator and a launch.

    The operator has 400-500, the launch 1090-1094."""
    store = make_store(
        device_event=[run(0, 100), run(1100, 1200, 1)],
        host_event=[launch(1094, 1), host("operator", 400, 500)],
        annotation=[
            annotated("ProfilerStep#1", 0, 1300),
            annotated("backward#1", 50, 800),
            annotated("hook#7", 300, 450),  # the operator has 50 of it
            annotated("hook#8", 600, 650, tid=9),  # another thread of the process
            annotated("optimizer", 750, 900),  # begun later: innermost after its start
            annotated("on the device", 900, 1000, side="device"),
            annotated("never ended", 900, 1000, complete=False),
        ],
        step=[{"node": 0, "process": 0, "index": 1, "host_start_ns": 0, "host_duration_ns": 1300, "device_events": 0}],
    )
    result = report(store)
    (actual,) = result.rules
    # backward: 100-300, 500-600, 650-750 (its last 50 are the optimizer's); hook: 300-400 and 600-650; optimizer: 750-900
    assert plain_details(actual)["ranges"] == [
        {"name": "backward", "time_ns": 400}, {"name": "hook", "time_ns": 150}, {"name": "optimizer", "time_ns": 150},
    ]  # fmt: skip
    assert {share["activity"]: share["time_ns"] for share in plain_details(actual)["host"]} == {
        "operators": 100, "runtime calls": 4, "annotated ranges": 700, "nothing recorded": 190,
    }  # fmt: skip
    assert [finding.title for finding in result.findings] == ["Shorten the host's part of backward"]
    assert "annotated ranges outside of operators 700 ns (`backward` 400 ns, `hook` 150 ns, `optimizer` 150 ns)" in str(
        actual.recommendation
    )


@pytest.mark.parametrize("seed", range(4))
def test_ranges_by_the_nanosecond(make_store: MakeStore, seed: int) -> None:
    chance = random.Random(seed)
    ranges = [(start, start + chance.randrange(1, 300), f"r{chance.choice('abc')}") for start in chance.sample(range(900), 25)]
    busy = [(start, start + chance.randrange(1, 40)) for start in chance.sample(range(900), 10)]
    store = make_store(
        device_event=[run(0, 100), run(600, 610, 1), run(1000, 1200, 2)],
        host_event=[*(host("operator", *one) for one in busy), launch(590, 1), launch(990, 2)],
        annotation=[annotated(name, start, end, tid=chance.randrange(3)) for start, end, name in ranges],
    )
    wanted: dict[str, int] = {}
    for moment in (*range(100, 590), *range(610, 990)):
        calls = [*busy, (586, 590), (986, 990)]
        around = [(start, -end, name) for start, end, name in ranges if start <= moment < end]
        if around and not any(start <= moment < end for start, end in calls):
            wanted[max(around)[2]] = wanted.get(max(around)[2], 0) + 1
    assert {row["name"]: row["time_ns"] for row in plain_details(judge(store))["ranges"]} == wanted


def test_gaps_agree_with_the_breakdown_and_with_the_streams(make_store: MakeStore) -> None:
    """Idle time is span minus busy; the causes of one stream are those of the device."""
    events = [run(97 * i % 1009 * 50, 97 * i % 1009 * 50 + 20 + i % 7 * 40, i if i % 5 else None) for i in range(300)]
    calls = [launch(event["start_ns"] - 30 * (number % 4), number) for number, event in enumerate(events) if number % 3]
    store = make_store(device_event=events, host_event=calls)
    (device,) = plain_details(judge(store))["devices"]
    (complete,) = whole_devices(store, time_breakdown(store))
    (stream,) = idle(store)
    assert (device["span_ns"], device["idle_ns"]) == (complete.span_ns, complete.idle_ns)
    assert device["idle_ns"] == device["host_wait_ns"] + device["kernel_wait_ns"] + device["other_ns"]
    assert (stream.host_wait_ns, stream.kernel_wait_ns, stream.other_ns) == tuple(
        device[key] for key in ("host_wait_ns", "kernel_wait_ns", "other_ns")
    )
    assert min(stream.host_wait_ns, stream.kernel_wait_ns, stream.other_ns) > 0


def test_groups_of_devices_change_nothing(make_store: MakeStore, monkeypatch: pytest.MonkeyPatch) -> None:
    events = [run(10 * i, 10 * i + 3, i, device=i % 3, process=i % 2) for i in range(60)]
    store = make_store(
        processes=[{"id": 0, "node": 0, "rank": 0}, {"id": 1, "node": 0, "rank": 1}],
        device_event=events,
        host_event=[launch(10 * i - i % 4, i, process=i % 2) for i in range(60)],
    )
    complete = judge(store)
    monkeypatch.setattr("postrun.analysis.device.device_gaps.ROWS_AT_ONCE", 20)
    assert [len(group.devices) for group in DeviceGaps(store).groups()] == [1, 1, 1]
    assert judge(store) == complete
    assert complete.verdict == "IssuesFound"


def test_an_optimizer_on_the_host_is_no_synchronization(make_store: MakeStore) -> None:
    """The host waits for the gradients for 60 ns and updates parameters for 340."""
    launch = {"kind": "launch", "name": "cudaLaunchKernel", "tid": 1}
    store = make_store(
        device_event=[
            {"kind": "kernel", "name": "k", "start_ns": 0, "duration_ns": 100, "correlation": 1},
            {"kind": "kernel", "name": "k", "start_ns": 460, "duration_ns": 100, "correlation": 2},
        ],
        host_event=[
            {**launch, "start_ns": -10, "duration_ns": 5, "correlation": 1},
            {**launch, "start_ns": 450, "duration_ns": 5, "correlation": 2},
            {"kind": "sync", "name": "cudaDeviceSynchronize", "tid": 1, "start_ns": 40, "duration_ns": 65},
            {"kind": "python", "name": "deepspeed/ops/adam/cpu_adam.py(120): step", "tid": 1, "start_ns": 105, "duration_ns": 340},
            {"kind": "python", "name": "deepspeed/runtime/engine.py(2300): step", "tid": 1, "start_ns": 30, "duration_ns": 425},
        ],
    )  # fmt: skip
    report = rules_of(store, Options(generated_at_ns=0, selection=select(["HostBound", "SyncBound"])))
    (finding,) = report.findings
    assert (finding.rule, finding.title) == ("HostBound", "Update the parameters on the GPU")
    assert "offload_optimizer" in (finding.recommendation or "")
    host = {row["activity"]: row["time_ns"] for row in plain_details(report.rules[0])["host"]}
    assert host["optimizer on the host"] == 340
