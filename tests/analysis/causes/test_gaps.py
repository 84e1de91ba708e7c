"""The longest gaps of devices and their causes, worked out on paper."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from postrun.analysis.causes.gaps import MOST, gaps
from postrun.analysis.device.device_gaps import DeviceGaps
from postrun.analysis.report.causes import Gap
from postrun.ingest.store import Store

MakeStore = Callable[..., Store]
US, MS = 1000, 1_000_000


def run(start: int, end: int, correlation: int | None = None, name: str = "k", **columns: Any) -> dict[str, Any]:
    return {"kind": "kernel", "name": name, "start_ns": start, "duration_ns": end - start, "correlation": correlation, **columns}


def host(kind: str, start: int, end: int, name: str, **columns: Any) -> dict[str, Any]:
    return {"kind": kind, "name": name, "start_ns": start, "duration_ns": end - start, **columns}


def launch(start: int, end: int, correlation: int, **columns: Any) -> dict[str, Any]:
    return host("launch", start, end, "cudaLaunchKernel", correlation=correlation, **columns)


def listed(store: Store) -> list[Gap]:
    return list(gaps(store, DeviceGaps(store)))


def of_host(make_store: MakeStore, *events: dict[str, Any], **tables: Any) -> Gap:
    """Return a gap from 1 to 11 ms whose work was launched at its end."""
    store = make_store(
        device_event=[run(0, MS, name="a"), run(11 * MS, 12 * MS, 1, name="b")],
        host_event=[launch(11 * MS - 10, 11 * MS, 1), *events],
        **tables,
    )
    (gap,) = listed(store)
    assert (gap.start_ns, gap.duration_ns, gap.host_ns, gap.before, gap.after) == (MS, 10 * MS, 10 * MS, "a", "b")
    return gap


def test_a_gap_is_divided_where_the_launch_call_ended(make_store: MakeStore) -> None:
    """The launch returns after 1 ms, and the kernel begins 146 ms later."""
    store = make_store(
        device_event=[run(0, MS, name="a", stream=7), run(148 * MS, 150 * MS, 1, name="b", stream=20)],
        host_event=[launch(MS, 2 * MS, 1), host("operator", 0, 2 * MS, "aten::add")],
    )
    (gap,) = listed(store)
    assert (gap.kind, gap.duration_ns, gap.host_ns) == ("launched and waiting", 147 * MS, MS)
    assert (gap.before, gap.stream_before, gap.after, gap.stream_after) == ("a", 7, "b", 20)
    assert gap.cause == (
        "`b` was launched 146 ms before it began. Stream 7 ran last, so that stream 20 may have waited for it. The trace does not record"
        " the cause of the wait."
    )


def test_what_the_host_did_instead(make_store: MakeStore) -> None:
    cases = {
        "allocation": host("call", 2 * MS, 10 * MS, "cudaMalloc"),
        "synchronization": host("sync", 2 * MS, 10 * MS, "cudaEventSynchronize"),
        "data loader": host("loader", 2 * MS, 10 * MS, "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__"),
        "compilation": host("operator", 2 * MS, 10 * MS, "_compile.compile_inner (dynamo_timed)"),
        "garbage collection": host("python", 2 * MS, 10 * MS, "<built-in function gc.collect>"),
        "profiler overhead": host("overhead", 2 * MS, 10 * MS, "Activity Buffer Request"),
        "runtime call": host("call", 2 * MS, 10 * MS, "cudaStreamCreateWithFlags"),
        "operator": host("operator", 2 * MS, 10 * MS, "aten::unflatten_dense_tensors"),
        "Python": host("python", 2 * MS, 10 * MS, "train.py(12): log"),
        "nothing recorded": host("operator", 2 * MS, 3 * MS, "aten::add"),
    }
    for kind, event in cases.items():
        gap = of_host(make_store, event)
        assert gap.kind == kind
        assert gap.cause.startswith("The host had not launched `b`: ")
        assert (event["name"] in gap.cause) is (kind != "nothing recorded")
    assert of_host(make_store, cases["allocation"]).cause == (
        "The host had not launched `b`: it spent 8.00 ms of 10.0 ms in the allocation or release of memory, mostly `cudaMalloc`."
    )


def test_the_innermost_code_around_half_of_the_wait_is_the_frame(make_store: MakeStore) -> None:
    gap = of_host(
        make_store,
        host("python", 0, 12 * MS, "train.py(1): main"),
        host("python", 2 * MS, 9 * MS, "train.py(12): log"),
        host("python", 3 * MS, 4 * MS, "train.py(20): format"),
        annotation=[{"side": "host", "name": "epoch", "start_ns": 0, "duration_ns": 12 * MS}],
    )
    assert (gap.kind, gap.frame) == ("Python", "train.py(12): log")


def test_another_thread_counts_if_the_launching_thread_has_nothing(make_store: MakeStore) -> None:
    gap = of_host(make_store, host("operator", 2 * MS, 10 * MS, "aten::stack", tid=9))
    assert (gap.kind, gap.frame) == ("operator", "aten::stack")


def test_the_launching_thread_counts_before_others(make_store: MakeStore) -> None:
    longer = host("call", MS, 11 * MS, "cudaMalloc", tid=9)
    gap = of_host(make_store, longer, host("operator", 2 * MS, 10 * MS, "aten::stack"))
    assert (gap.kind, gap.frame) == ("operator", "aten::stack")


def test_a_range_that_loads_data_is_the_data_loader(make_store: MakeStore) -> None:
    loading = {"side": "host", "name": "data_loading", "start_ns": 2 * MS, "duration_ns": 8 * MS, "tid": 1}
    gap = of_host(make_store, annotation=[loading])
    assert (gap.kind, "mostly `data_loading`" in gap.cause) == ("data loader", True)


def test_the_range_of_a_step_is_no_cause(make_store: MakeStore) -> None:
    step = {"node": 0, "process": 0, "index": 3, "host_start_ns": 0, "host_duration_ns": 12 * MS, "device_events": 2}
    around = {"side": "host", "name": "ProfilerStep#3", "start_ns": 0, "duration_ns": 12 * MS, "tid": 1}
    assert of_host(make_store, annotation=[around], step=[step]).kind == "nothing recorded"
    assert of_host(make_store, annotation=[around]).kind == "annotated range"


def test_the_call_that_emptied_the_device_is_named(make_store: MakeStore) -> None:
    gap = of_host(make_store, host("sync", 0, MS + 5, "cudaStreamSynchronize"), host("operator", 2 * MS, 10 * MS, "aten::stack"))
    assert gap.kind == "operator"
    assert gap.cause.endswith(" `cudaStreamSynchronize` had blocked the host until the device was idle.")


def test_a_copy_blocks_only_if_its_call_outlives_it(make_store: MakeStore) -> None:
    for copied, kind in ((10 * MS, "runtime call"), (9 * MS, "synchronization")):
        store = make_store(
            device_event=[
                run(0, MS), run(11 * MS, 12 * MS, 1),
                {**run(MS // 2, MS, 2, name="Memcpy DtoH"), "kind": "memcpy", "copy_kind": "DtoH" if kind[0] == "s" else "DtoD"},
            ],
            host_event=[launch(11 * MS - 10, 11 * MS, 1), host("launch", 0, copied, "cudaMemcpyAsync", correlation=2)],
        )  # fmt: skip
        assert listed(store)[0].kind == kind


def test_work_without_a_launch(make_store: MakeStore) -> None:
    store = make_store(
        device_event=[run(0, 10, 3), run(50 * US, 60 * US, 4), run(99 * US, 100 * US, 7), run(150 * US, 160 * US, 9)],
        host_event=[launch(70 * US, 71 * US, 7)],
    )
    early, ready, unknown = sorted(listed(store), key=lambda gap: gap.start_ns)
    assert (early.kind, early.host_ns) == ("launched before the profile", None)
    assert ready.kind == "launch delay"
    assert (ready.host_ns, ready.duration_ns) == (11 * US, 39 * US)
    assert (unknown.kind, unknown.cause) == ("unknown", "The launch call of `k` is not in the trace.")


def test_nodes_of_a_graph(make_store: MakeStore) -> None:
    store = make_store(device_event=[run(10, 20, 1), run(90 * US, 95 * US, 1)], host_event=[launch(1, 9, 1)])
    (gap,) = listed(store)
    assert gap.kind == "graph"


def test_ten_gaps_and_those_above_one_percent(make_store: MakeStore) -> None:
    """40 gaps of 2% each are all listed; of 400 small ones the ten longest are."""
    large = make_store(device_event=[run(100 * i, 100 * i + 20) for i in range(41)])
    assert len(listed(large)) == 40
    small = make_store(device_event=[run(100 * i, 100 * i + 90 - (i if i < 20 else 0)) for i in range(400)])
    assert [gap.duration_ns for gap in listed(small)] == [29 - i for i in range(10)]


def test_the_longest_gaps_of_the_run_are_listed(make_store: MakeStore) -> None:
    # 25 devices with ten gaps each, all of other lengths: the 200 longest are those of 251 to 450 ns.
    events = []
    for device in range(25):
        at = 0
        for number in range(10):
            events.append(run(at, at + 10, device=device))
            at += 10 + 201 + 10 * device + number
        events.append(run(at, at + 10, device=device))
    assert [gap.duration_ns for gap in listed(make_store(device_event=events))] == list(range(450, 450 - MOST, -1))


def test_work_with_a_smaller_number_than_the_first_launch_was_launched_before(make_store: MakeStore) -> None:
    # It begins after the first launch of the profile, 70 µs, but its correlation 4 is smaller than that of all launches.
    store = make_store(
        device_event=[run(0, 10, 3), run(150 * US, 160 * US, 4), run(170 * US, 180 * US, 7)], host_event=[launch(70 * US, 71 * US, 7)]
    )
    assert max(listed(store), key=lambda gap: gap.duration_ns).kind == "launched before the profile"


def test_work_before_the_first_launch_needs_no_number(make_store: MakeStore) -> None:
    store = make_store(device_event=[run(0, 10), run(50 * US, 60 * US), run(71 * US, 80 * US, 7)], host_event=[launch(70 * US, 71 * US, 7)])
    assert max(listed(store), key=lambda gap: gap.duration_ns).kind == "launched before the profile"


def test_no_gaps(make_store: MakeStore) -> None:
    assert listed(make_store()) == []
    assert listed(make_store(device_event=[run(0, 10), run(10, 20)])) == []
