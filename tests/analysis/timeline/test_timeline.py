"""Timelines of stores made by hand."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from postrun.analysis.run.job_statistics import job_statistics
from postrun.analysis.steps.slow import slow_steps
from postrun.analysis.steps.steps import steps
from postrun.analysis.timeline import lanes
from postrun.analysis.timeline.build import timeline
from postrun.analysis.timeline.lanes import assign_lanes
from postrun.analysis.timeline.merge import merge
from postrun.analysis.timeline.model import Timeline
from postrun.ingest.store import Store

MakeStore = Callable[..., Store]
US = 1_000
MS = 1_000_000
EPOCH = 1_700_000_000 * 10**9


def _report(store: Store) -> Any:
    return SimpleNamespace(steps=steps(store), slow_steps=slow_steps(store), job_statistics=job_statistics(store))


def built(store: Store, **options: Any) -> Timeline | None:
    return timeline(store, _report(store), **options)  # type: ignore[arg-type]


def drawn(store: Store, **options: Any) -> Timeline:
    result = built(store, **options)
    assert result is not None
    check(result)
    return result


def check(result: Timeline) -> None:
    """Check the properties of every timeline."""
    events = result.events
    columns = (
        events.track, events.start_ns, events.duration_ns, events.name, events.lane, events.partner, events.detail, events.correlation,
        events.step,
    )  # fmt: skip
    assert all(result.names[events.name[step]].meaning == "step" for step in set(events.step.tolist()) - {-1})
    assert {len(column) for column in columns} == {len(events.track)}
    order = list(zip(events.track.tolist(), events.start_ns.tolist(), strict=True))
    assert order == sorted(order)
    assert all(track.parent is None or track.parent < number for number, track in enumerate(result.tracks))
    assert (events.start_ns >= 0).all()
    assert (events.duration_ns >= 0).all()
    assert (events.start_ns + events.duration_ns <= result.span_ns).all()
    assert ((events.name >= 0) & (events.name < len(result.names))).all()
    assert (events.detail < len(result.details)).all()
    ends: dict[tuple[int, int], int] = {}
    for track, lane, start, length in zip(
        *(c.tolist() for c in (events.track, events.lane, events.start_ns, events.duration_ns)), strict=True
    ):
        assert 0 <= lane < result.tracks[track].lanes
        assert start >= ends.get((track, lane), 0)
        ends[track, lane] = start + length
    for event, partner in enumerate(events.partner.tolist()):
        if partner >= 0 and result.names[events.name[event]].meaning == "launch":
            assert events.partner[partner] == event
        elif partner >= 0:
            assert result.names[events.name[partner]].meaning == "launch"
    for line in result.lines:
        assert (np.diff(line.time_ns) > 0).all()
        assert (line.low <= line.mean).all()
        assert (line.mean <= line.high).all()
        assert line.time_ns[0] >= 0
        assert line.time_ns[-1] <= result.span_ns
    for gap in result.gaps:
        assert 0 <= gap.start_ns < gap.end_ns <= result.span_ns
        assert result.tracks[gap.track].kind == "process"
    assert result.views[-1].key == "whole"


def tree(result: Timeline) -> list[str]:
    depth: list[int] = []
    for track in result.tracks:
        depth.append(0 if track.parent is None else depth[track.parent] + 1)
    return [f"{'  ' * level}{track.label}" for level, track in zip(depth, result.tracks, strict=True)]


def rows(result: Timeline) -> list[tuple[str, str, int, int, int, int]]:
    e = result.events
    return [
        (result.tracks[t].label, result.names[n].short, s, d, lane, p)
        for t, n, s, d, lane, p in zip(*(c.tolist() for c in (e.track, e.name, e.start_ns, e.duration_ns, e.lane, e.partner)), strict=True)
    ]


LAUNCH = {"grid_x": 4, "grid_y": 2, "grid_z": 1, "block_x": 128, "block_y": 1, "block_z": 1, "registers": 32, "shared_memory": 2048}


def kernel(start: int, length: int, name: str = "gemm", **columns: Any) -> dict[str, Any]:
    return {"kind": "kernel", "name": name, "start_ns": start, "duration_ns": length, **columns}


def host(start: int, length: int, name: str = "op", kind: str = "operator", **columns: Any) -> dict[str, Any]:
    return {"kind": kind, "name": name, "start_ns": start, "duration_ns": length, **columns}


def sample(metric: str, unit: int, time: int, value: float) -> dict[str, Any]:
    return {"node": 0, "metric": metric, "unit": unit, "time_ns": time, "value": value}


def step(index: int, start: int, length: int, **columns: Any) -> dict[str, Any]:
    return {"node": 0, "process": 0, "index": index, "host_start_ns": start, "host_duration_ns": length, "device_events": 0, **columns}


def test_a_run_worked_out_on_paper(make_store: MakeStore) -> None:
    store = make_store(
        names={"gemm": ("gemm", "FP32", "GEMM"), "ncclAllReduce(x)": ("ncclAllReduce", "FP32", "communication")},
        device_event=[
            kernel(EPOCH + 40, 60, correlation=1, **LAUNCH),
            kernel(EPOCH + 110, 20, correlation=2),
            kernel(EPOCH + 140, 20, correlation=2, name="ncclAllReduce(x)", stream=9),
            kernel(EPOCH + 300, 10, "copy", kind="memcpy", bytes=4096, copy_kind="HtoD", pageable=True),
        ],
        host_event=[
            host(EPOCH, 200),
            host(EPOCH + 10, 5, "cudaLaunchKernel", "launch", correlation=1),
            host(EPOCH + 20, 10, "cudaGraphLaunch", "launch", correlation=2),
            host(EPOCH + 190, 30, "wait", "sync", tid=2),
        ],
        annotation=[{"side": "host", "name": "forward", "start_ns": EPOCH + 5, "duration_ns": 50, "complete": False}],
        sample=[
            sample("cpu_utilization", 0, EPOCH + 100, 20.0),
            sample("cpu_utilization", 1, EPOCH + 100, 60.0),
            sample("gpu_utilization", 0, EPOCH + 400, 50.0),
            sample("gpu_memory_used_bytes", 0, EPOCH + 400, 3.0 * 2**20),
            sample("gpu_power", 1, EPOCH + 400, 70.0),
            sample("counter.loss", 0, EPOCH + 50, 1.5),
        ],
    )  # fmt: skip
    result = drawn(store)
    assert tree(result) == [
        "host-0", "  CPU", "    Average utilization", "  GPUs", "    Mean utilization", "    GPU-1 power",
        "    HOST-0 PID-100 rank 0",
        "      GPU-0 utilization", "      GPU-0 memory", "      GPU-0 device", "        stream 7", "        stream 9",
        "      GPU-0 host", "        thread 1, annotations", "        thread 1", "        thread 2", "      loss",
    ]  # fmt: skip
    assert (result.origin_ns, result.span_ns, result.events_total, result.shown) == (EPOCH, 400, 9, None)
    assert rows(result) == [
        ("stream 7", "gemm", 40, 60, 0, 6),
        ("stream 7", "gemm", 110, 20, 0, 7),
        ("stream 7", "copy", 300, 10, 0, -1),
        ("stream 9", "ncclAllReduce", 140, 20, 0, 7),
        ("thread 1, annotations", "forward", 5, 50, 0, -1),
        ("thread 1", "op", 0, 200, 0, -1),
        ("thread 1", "cudaLaunchKernel", 10, 5, 1, 0),
        ("thread 1", "cudaGraphLaunch", 20, 10, 1, 1),
        ("thread 2", "wait", 190, 30, 0, -1),
    ]
    meanings = {name.name: name.meaning for name in result.names}
    assert meanings == {
        "forward": "annotation", "gemm": "computation", "copy": "memory", "ncclAllReduce(x)": "communication", "op": "host",
        "cudaLaunchKernel": "launch", "cudaGraphLaunch": "launch", "wait": "sync",
    }  # fmt: skip
    texts = [dict(result.details[detail]) if detail >= 0 else {} for detail in result.events.detail]
    assert texts[4] == {"ended": "not within the recording"}
    assert texts[0] == {"grid": "4 x 2 x 1", "block": "128 x 1 x 1", "registers": "32", "shared memory": "2.00 KiB"}
    assert texts[2] == {"size": "4.00 KiB", "bytes": "4096", "copy": "HtoD", "host memory": "pageable"}
    assert texts[1] == texts[3] == texts[5] == {}
    assert result.events.correlation.tolist() == [1, 2, -1, 2, -1, -1, 1, 2, -1]
    assert set(result.events.step.tolist()) == {-1}
    lines = {result.tracks[line.track].label: line for line in result.lines if line.track != 4}
    values = {label: (line.unit, *line.time_ns, *line.mean, *line.low, *line.high) for label, line in lines.items()}
    assert values == {
        "Average utilization": ("percent", 100, 40, 20, 60), "GPU-1 power": ("W", 400, 70, 70, 70), "loss": ("", 50, 1.5, 1.5, 1.5),
        "GPU-0 utilization": ("percent", 400, 50, 50, 50), "GPU-0 memory": ("MiB", 400, 3, 3, 3),
    }  # fmt: skip
    assert [(view.key, view.label, view.start_ns, view.end_ns) for view in result.views] == [("whole", "the whole run, 400 ns", 0, 400)]


def test_nothing_to_show(make_store: MakeStore) -> None:
    assert built(make_store()) is None


def test_views(make_store: MakeStore) -> None:
    # Of durations 10, 40, 12 and 11 ms the median is 11.5 ms; 12 and 11 are equally close, and step 2 is earlier.
    starts = [0, 10 * MS, 50 * MS, 62 * MS, 73 * MS]
    result = drawn(make_store(step=[step(i, EPOCH + a, b - a) for i, (a, b) in enumerate(pairwise(starts))]))
    assert [(view.key, view.label, view.start_ns, view.end_ns, view.track) for view in result.views] == [
        ("slowest", "step 1 of rank 0, 40.0 ms: the slowest", 10 * MS, 50 * MS, 2),
        ("typical", "step 2 of rank 0, 12.0 ms: typical", 50 * MS, 62 * MS, 2),
        ("whole", "the whole run, 73.0 ms", 0, 73 * MS, None),
    ]
    alone = drawn(
        make_store(step=[step(7, EPOCH, MS, device_start_ns=EPOCH + 10, device_duration_ns=2 * MS, device_events=1, phase="TRAIN")])
    )
    texts = "TRAIN step 7 of rank 0, 2.00 ms from its first to its last device work: the slowest"
    assert (alone.views[0].key, alone.views[0].label) == ("slowest", texts)
    assert [name.name for name in alone.names] == ["TRAIN step 7"]


def window(first_ms: int, last_ms: int, at: int) -> dict[str, Any]:
    return {"id": at, "source": 0, "node": 0, "process": 0, "profiler": "cprofile", "functions": 1, "total_s": 0.0,
            "start_ns": EPOCH + first_ms * MS, "duration_ns": (last_ms - first_ms) * MS}  # fmt: skip


@pytest.mark.parametrize("on_device", [False, True])
def test_views_are_of_steps_without_a_profiler(make_store: MakeStore, on_device: bool) -> None:
    # Steps of 10, 40, 12, 90, 14 and 11 ms; the fourth was profiled, and the median of the others is 12.
    ends = [0, 10, 50, 62, 152, 166, 177]
    times = [(EPOCH + a * MS, (b - a) * MS) for a, b in pairwise(ends)]
    device_times = [{"device_start_ns": a, "device_duration_ns": b, "device_events": 1} if on_device else {} for a, b in times]
    tables: dict[str, Any] = {
        "step": [step(i, *time, **more) for i, (time, more) in enumerate(zip(times, device_times, strict=True))],
        "device_event": [kernel(*time) for time in times] if on_device else [],
        "recorded_window": [{"process": 0, "first_ns": EPOCH, "last_ns": EPOCH + 177 * MS, "process_started_ns": EPOCH, "stopped": False}],
    }
    views = {view.key: view for view in drawn(make_store(**tables, python_window=[window(62, 152, 0)])).views}
    after = (" from the end of step 0", " from the end of step 1") if on_device else ("", "")
    assert views["slowest"].label == f"step 1 of rank 0, 40.0 ms{after[0]}: the slowest, without profiled steps"
    assert views["typical"].label == f"step 2 of rank 0, 12.0 ms{after[1]}: typical, without profiled steps"
    # Where all were profiled, or none, they are alike.
    every = [window(a, b, at) for at, (a, b) in enumerate(pairwise(ends))]
    for windows in ([], every):
        result = drawn(make_store(**tables, python_window=windows)).views[0]
        assert result.label == f"step 3 of rank 0, 90.0 ms{' from the end of step 2' if on_device else ''}: the slowest"


@pytest.mark.parametrize(
    ("count", "expected"),
    [
        (9, [("slowest", "step 5 of rank 0, 60.0 ms from the end of step 4: the slowest", 100, 160, "rank 0"),
             ("typical", "step 1 of rank 0, 20.0 ms from the end of step 0: typical", 20, 40, "rank 0")]),
        (6, [("slowest", "step 5 of rank 1, 61.0 ms from the end of step 4: the slowest", 100, 161, "rank 1"),
             ("typical", "step 1 of rank 1, 20.0 ms from the end of step 0: typical", 20, 40, "rank 1")]),
    ],
)  # fmt: skip
def test_views_show_the_wait_before_the_first_work_of_a_step(
    make_store: MakeStore, count: int, expected: list[tuple[str, str, int, int, str]]
) -> None:
    # Each step ends 20 ms after the one before, and works for the last 17 of them. Step 2 works longest, for 19 ms; step 5 waits for 52,
    # then works for 8. Rank 1 communicates for 60 of the 61 ms of its step 5: with eight steps or more, the slow steps are of rank 0,
    # whose own time it is; with fewer, of none.
    ends = [20, 40, 60, 80, 100, 160, 180, 200, 220][:count]
    starts = [end - {2: 19, 5: 8}.get(i, 17) for i, end in enumerate(ends)]
    work = [(0, i, "gemm", a, b) for i, (a, b) in enumerate(zip(starts, ends, strict=True))]
    work += [(1, i, "ncclAllReduce(x)" if i == 5 else "gemm", *((101, 161) if i == 5 else (max(a, 162), b) if i == 6 else (a, b)))
             for _, i, _, a, b in work]  # fmt: skip
    store = make_store(
        names={"gemm": ("gemm", "FP32", "GEMM"), "ncclAllReduce(x)": ("ncclAllReduce", "FP32", "communication")},
        processes=[{"id": i, "node": 0, "rank": i} for i in (0, 1)],
        host_event=[host(EPOCH, MS)],
        device_event=[kernel(EPOCH + a * MS, (b - a) * MS, name, process=p, device=p) for p, _, name, a, b in work],
        step=[step(i, EPOCH + a * MS, MS, process=p, device_start_ns=EPOCH + a * MS, device_duration_ns=(b - a) * MS, device_events=1)
              for p, i, _, a, b in work],
    )  # fmt: skip
    result = drawn(store)
    text = slow_steps(store)
    assert (text.slow, text.rank) == (((5,), 0) if count > 6 else ((), None))
    seen = []
    for view in result.views[:2]:
        assert view.track is not None
        process = result.tracks[view.track].parent
        assert process is not None
        seen.append((view.key, view.label, view.start_ns / MS, view.end_ns / MS, result.tracks[process].label[-6:]))
    assert seen == expected


def test_a_step_that_follows_none_begins_with_its_work(make_store: MakeStore) -> None:
    # Steps 1, 2 and 7 work from 0 to 10, 15 to 20 and 100 to 130 ms: 10, 10 and 30 ms.
    worked = {1: (0, 10), 2: (15, 20), 7: (100, 130)}
    store = make_store(
        device_event=[kernel(EPOCH + a * MS, (b - a) * MS) for a, b in worked.values()],
        step=[step(i, EPOCH + a * MS, MS, device_start_ns=EPOCH + a * MS, device_duration_ns=(b - a) * MS, device_events=1)
              for i, (a, b) in worked.items()],
    )  # fmt: skip
    assert [(view.label, view.start_ns / MS, view.end_ns / MS) for view in drawn(store).views[:2]] == [
        ("step 7 of rank 0, 30.0 ms from its first to its last device work: the slowest", 100, 130),
        ("step 1 of rank 0, 10.0 ms from its first to its last device work: typical", 0, 10),
    ]


@pytest.mark.parametrize(("last", "expected"), [(340, [("devices", 100, 340)]), (350, [])])
def test_little_of_the_run_on_devices_is_a_view_of_its_own(make_store: MakeStore, last: int, expected: list[tuple[str, int, int]]) -> None:
    """Of 1,000 ns kernels take from 100 to 340 (24%) or to 350 (a quarter)."""
    result = drawn(make_store(host_event=[host(0, 1000)], device_event=[kernel(100, 5), kernel(last - 5, 5)]))
    views = [(view.key, view.start_ns, view.end_ns) for view in result.views]
    assert views == [*expected, ("whole", 0, 1000)]
    if expected:
        assert result.views[0].label == "the 240 ns of 1.00 µs in which work of devices was recorded"
        assert result.views[0].track is None


def test_processes_and_nodes(make_store: MakeStore) -> None:
    store = make_store(
        nodes=[{"id": 0, "hostname": "b"}, {"id": 1, "hostname": "a"}],
        processes=[{"id": i, "node": n, "pid": p, "rank": r} for i, n, p, r in ((0, 0, 5, 1), (1, 1, 6, 0), (2, 0, 4, 0))],
        device_event=[kernel(10, 5), kernel(10, 5, process=2), kernel(10, 5, node=1, process=1, device=3, stream=None)],
        host_event=[host(10, 5, "cudaLaunchKernel", "launch", correlation=1, process=2, tid=None)],
        sample=[{"node": 0, "metric": "gpu_utilization", "unit": 0, "time_ns": 12, "value": 1.0}],
    )  # fmt: skip
    result = drawn(store)
    assert tree(result) == [
        "a", "  GPUs", "    Mean utilization", "    HOST-0 PID-6 rank 0", "      GPU-3 utilization", "      GPU-3 device",
        "        no stream",
        "b", "  GPUs", "    Mean utilization", "    GPU-0 utilization", "    HOST-1 PID-4 rank 0", "      GPU-0 device", "        stream 7",
        "      GPU-0 host", "        thread unknown", "    HOST-1 PID-5 rank 1", "      GPU-0 device", "        stream 7",
    ]  # fmt: skip
    named = {track.label: (track.detail, track.narrow) for track in result.tracks}
    assert named["HOST-1 PID-5 rank 1"] == ("b rank 1 pid 5", "rank 1")
    assert named["Mean utilization"] == ("Mean utilization of the node's GPUs", "Mean util.") or "derived" in named["Mean utilization"][0]


def test_a_run_without_gpus(make_store: MakeStore) -> None:
    assert tree(drawn(make_store(host_event=[host(0, 5)]))) == ["host-0", "  HOST-0 PID-100 rank 0", "    host", "      thread 1"]


def test_times_of_two_clocks(make_store: MakeStore) -> None:
    store = make_store(
        processes=[{"id": 0, "node": 0, "rank": 0}, {"id": 1, "node": 0, "rank": 1}],
        host_event=[host(EPOCH + 100, 5), host(EPOCH + 300, 5), host(7, 5, process=1), host(17, 5, process=1)],
        sample=[{"node": 0, "metric": "gpu_power", "unit": 0, "time_ns": 5, "value": 1.0}],
    )
    result = drawn(store)
    assert result.shown is not None
    assert "as if" in result.shown
    assert "1 line of samples" in result.shown
    assert [(s, d) for _, _, s, d, _, _ in rows(result)] == [(0, 5), (200, 5), (0, 5), (10, 5)]
    assert result.lines == ()


def test_negative_and_absent_durations_take_no_time(make_store: MakeStore) -> None:
    result = drawn(
        make_store(
            device_event=[kernel(10, -5), kernel(20, 0), kernel(20, 0), kernel(20, 10), kernel(25, 0)],
            annotation=[{"side": "host", "name": "open", "start_ns": 12, "complete": False}],
        )
    )
    assert [row[2:5] for row in rows(result)] == [(0, 0, 0), (10, 10, 0), (10, 0, 1), (10, 0, 1), (15, 0, 1), (12 - 10, 0, 0)]


def test_overlap_without_nesting(make_store: MakeStore) -> None:
    """By depth the third event would get the lane that the second one still occupies."""
    result = drawn(make_store(device_event=[kernel(0, 10), kernel(5, 10), kernel(11, 10), kernel(16, 10), kernel(40, 1)]))
    assert [row[4] for row in rows(result)] == [0, 1, 0, 1, 0]


def test_threads_have_names_that_can_be_read(make_store: MakeStore) -> None:
    # The process is 100, so thread 100 is its main one; 140 303 775 571 389 is an address, not a number to be read.
    store = make_store(
        host_event=[
            host(0, 5, tid=100), host(1, 5, tid=107), host(2, 5, "autograd::engine::evaluate_function", tid=140_303_775_571_389),
            host(2, 5, tid=140_303_775_571_999),
        ],
        annotation=[{"side": "host", "name": "forward", "start_ns": 0, "duration_ns": 5, "tid": 100}],
    )  # fmt: skip
    result = drawn(store)
    assert [(track.label, track.detail) for track in result.tracks if track.kind in ("thread", "annotations")] == [
        ("thread 100 (main), annotations", "annotations of thread 100"),
        ("thread 100 (main)", "thread 100"),
        ("thread 107", ""),
        ("thread #1 (backward)", "thread 140303775571389"),
        ("thread #2", "thread 140303775571999"),
    ]


def test_negative_thread_numbers_are_addresses_and_an_unknown_thread_is_not(make_store: MakeStore) -> None:
    # Of -1 029 147 072, the lower half of an address, -1 and 2 ** 40 each is counted, by number; 0, 7 and 4 194 304 are numbers.
    store = make_store(host_event=[host(0, 5, tid=tid) for tid in (2**40, 7, -1, None, 4_194_304, -1_029_147_072, 0)])
    assert [(track.label, track.detail) for track in drawn(store).tracks if track.kind == "thread"] == [
        ("thread #1", "thread -1029147072"), ("thread #2", "thread -1"), ("thread 0", ""), ("thread 7", ""), ("thread 4194304", ""),
        ("thread #3", f"thread {2**40}"), ("thread unknown", ""),
    ]  # fmt: skip


def test_what_was_not_recorded_is_a_gap(make_store: MakeStore) -> None:
    # Two files of rank 0, 100 ms to 110 ms and 200 ms to 210 ms; rank 1 was recorded all the time, the machine from 0 to 300 ms.
    store = make_store(
        processes=[{"id": 0, "node": 0, "pid": 100, "rank": 0}, {"id": 1, "node": 0, "pid": 101, "rank": 1}],
        device_event=[kernel(EPOCH + t * MS, MS) for t in (100, 109, 200, 209)] + [kernel(EPOCH + 100 * MS, MS, process=1, device=1)],
        profile_window=[{"process": 0, "source": 0, "first_ns": EPOCH + a * MS, "last_ns": EPOCH + (a + 10) * MS - 1} for a in (100, 200)],
        sample=[sample("cpu_utilization", 0, EPOCH + t * MS, 20.0) for t in (0, 300)],
    )
    result = drawn(store)
    (process,) = [number for number, track in enumerate(result.tracks) if track.label == "HOST-0 PID-100 rank 0"]
    assert [(gap.track, gap.start_ns // MS, gap.end_ns // MS) for gap in result.gaps] == [
        (process, 0, 100), (process, 110, 200), (process, 210, 300),
    ]  # fmt: skip
    assert result.views[-1].label == "the whole run, 300 ms"  # rank 1 was recorded in between


def test_a_run_that_was_not_recorded_says_for_how_long(make_store: MakeStore) -> None:
    # A pause of 90 ms, which no merged event bridges although all of them are shorter than the stretch they are merged in.
    store = make_store(
        device_event=[kernel(EPOCH + a * MS + i * 10 * US, 9 * US) for a in (0, 100) for i in range(1000)],
        profile_window=[{"process": 0, "source": 0, "first_ns": EPOCH + a * MS, "last_ns": EPOCH + (a + 10) * MS - 1} for a in (0, 100)],
    )
    for cap in (2000, 40, 2):
        result = drawn(store, cap=cap)
        assert result.views[-1].label == "the whole run, 110 ms, of which nothing was recorded for 90.0 ms"
        (gap,) = result.gaps
        assert (gap.start_ns, gap.end_ns) == (10 * MS, 100 * MS)
        ends = result.events.start_ns + result.events.duration_ns
        assert not ((result.events.start_ns < gap.end_ns) & (ends > gap.start_ns)).any()


def test_events_know_the_step_that_launched_them(make_store: MakeStore) -> None:
    # Steps 1 and 2 from 0 to 10 ms and 10 to 20 ms on the host. A launch of step 1 at 9 ms runs at 11 ms, in the time of step 2.
    store = make_store(
        device_event=[kernel(11 * MS, MS, correlation=5), kernel(13 * MS, MS, correlation=6), kernel(15 * MS, MS), kernel(35 * MS, MS)],
        host_event=[
            host(9 * MS, US, "launch", "launch", correlation=5), host(12 * MS, US, "launch", "launch", correlation=6), host(25 * MS, US),
        ],
        step=[step(1, 0, 10 * MS), step(2, 10 * MS, 10 * MS), step(7, 0, 30 * MS, phase="EPOCH")],
    )  # fmt: skip
    result = drawn(store)
    expected = [(row[1], row[2] // MS, result.names[result.events.name[at]].name if at >= 0 else None)
            for row, at in zip(rows(result), result.events.step.tolist(), strict=True) if row[0] != "Steps"]  # fmt: skip
    assert expected == [
        ("gemm", 11, "step 1"), ("gemm", 13, "step 2"), ("gemm", 15, "step 2"), ("gemm", 35, None),
        ("launch", 9, "step 1"), ("launch", 12, "step 2"), ("op", 25, "EPOCH step 7"),
    ]  # fmt: skip


def busy(make_store: MakeStore, count: int = 1000) -> Store:
    """Make ``count`` kernels of 1 µs every 2 µs and ten steps, the fifth a double one.

    Each kernel is launched 500 ns before it starts.
    """
    each = 2 * count * US // 11
    bounds = [each * i for i in (0, 1, 2, 3, 4, 6, 7, 8, 9, 10, 11)]
    return make_store(
        device_event=[kernel(EPOCH + 2 * US * i + 500, US, correlation=i + 1) for i in range(count)],
        host_event=[host(EPOCH + 2 * US * i, 100, "cudaLaunchKernel", "launch", correlation=i + 1) for i in range(count)],
        step=[step(i, EPOCH + bounds[i], bounds[i + 1] - bounds[i]) for i in range(10)],
    )


def test_above_the_cap(make_store: MakeStore) -> None:
    store = busy(make_store)
    every, result = drawn(store), drawn(store, cap=800)
    assert (every.events_total, len(every.events.track), every.shown) == (2010, 2010, None)
    assert result.events_total == 2010
    assert len(result.events.track) <= 800
    assert result.shown is not None
    assert "In the slowest and the typical step nothing is merged." in result.shown
    for view in result.views[:2]:
        assert inside(result, view.start_ns, view.end_ns) == inside(every, view.start_ns, view.end_ns)
    assert (sum(members(result)), sum(result.events.duration_ns)) == (2010, sum(every.events.duration_ns))
    single = sum(n == 1 for n in members(result))
    merged = [n for n in members(result) if n > 1]
    held = sum(d for n, d in zip(members(result), result.events.duration_ns, strict=True) if n > 1)
    percent = f"{100 * held / sum(every.events.duration_ns):.1f}%"
    for words in ("Of 2,010 events", f"{single:,} are shown", f"into {len(merged):,}.", percent):
        assert words in result.shown


@pytest.mark.slow
@pytest.mark.parametrize("cap", [3, 60, 450])
def test_far_above_the_cap(make_store: MakeStore, cap: int) -> None:
    store = busy(make_store)
    result, again = drawn(store, cap=cap), drawn(store, cap=cap)
    assert len(result.events.track) <= cap
    assert result.shown == again.shown
    assert result.shown is not None
    assert rows(result) == rows(again)
    lost = 2010 - sum(members(result))
    assert ("Left out" in result.shown) == (lost > 0)
    assert lost == 0 or f"{lost:,} event" in result.shown


def members(result: Timeline) -> list[int]:
    named = [result.names[name] for name in result.events.name]
    return [int(name.name.removesuffix(" events").replace(",", "")) if name.meaning == "merged" else 1 for name in named]


def inside(result: Timeline, start: int, end: int) -> list[tuple[str, str, int, int, int]]:
    return [row[:5] for row in rows(result) if start <= row[2] < end]


def test_whatever_the_events(make_store: MakeStore) -> None:
    made_by = np.random.default_rng(3)
    runs, calls = ([[int(made_by.integers(*ends)) for ends in ((0, 300), (-2, 40), (0, 2), (1, 12))] for _ in range(60)] for _ in range(2))
    store = make_store(
        device_event=[kernel(US * s, US * d, stream=n, correlation=c) for s, d, n, c in runs],
        host_event=[host(US * s, US * d, "launch", "launch", tid=n, correlation=c) for s, d, n, c in calls],
    )
    every = drawn(store)
    assert (len(every.events.track), sum(every.events.duration_ns)) == (120, sum(max(US * d, 0) for _, d, _, _ in (*runs, *calls)))
    # Of all runs of a correlation that was launched each knows a launch; of the launches of one correlation the first.
    launched, ran = {c for *_, c in calls}, {c for *_, c in runs}
    assert (every.events.partner >= 0).sum() == sum(c in launched for *_, c in runs) + len(launched & ran)
    for cap in (5, 40, 100):
        assert len(drawn(store, cap=cap).events.track) <= cap


_EVENTS = st.lists(st.tuples(st.integers(0, 1), st.integers(0, 60), st.integers(0, 20)), max_size=40)


def laid(events: list[tuple[int, int, int]]) -> list[tuple[int, int, int, int]]:
    track, start, duration = np.array(events, np.int64).reshape(-1, 3).T
    columns = {"row": np.arange(len(events)), "track": track.astype(np.int16), "start": start, "duration": duration}
    assert assign_lanes(columns) == 0
    return list(zip(*(columns[name].tolist() for name in ("track", "lane", "start", "duration")), strict=True))


@given(_EVENTS)
def test_lanes(events: list[tuple[int, int, int]]) -> None:
    result = laid(events)
    assert sorted((track, start, length) for track, _, start, length in result) == sorted(events)
    for track, lane, start, length in result:
        others = [one for one in result if one != (track, lane, start, length) and one[:2] == (track, lane)]
        assert not any(begin < start + length and start < begin + other for _, _, begin, other in others)
        assert not any(begin < start < begin + other for _, _, begin, other in others)
    assert len({one for one in result if one[3]}) == sum(one[3] > 0 for one in result)
    # There are never more lanes than simultaneous events, including events without duration.
    for track in (0, 1):
        own_times = [one for one in result if one[0] == track]
        deepest = max((sum(begin <= start < begin + other for _, _, begin, other in own_times) for _, _, start, _ in own_times), default=0)
        assert max((lane for _, lane, _, _ in own_times), default=0) <= deepest


@given(events=_EVENTS, block=st.integers(1, 30), latest=st.sampled_from([0, 10, 2**62]))
def test_lanes_do_not_depend_on_the_blocks(events: list[tuple[int, int, int]], block: int, latest: int) -> None:
    several = [(3 * track + start % 3, start, length) for track, start, length in events]
    expected = [one for track in range(9) for one in laid([event for event in several if event[0] == track])]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(lanes, "_BLOCK", block)
        patch.setattr(lanes, "_LATEST", latest)
        assert laid(several) == expected


@given(events=_EVENTS, fixed=st.lists(st.booleans(), min_size=40, max_size=40), cap=st.integers(1, 40))
def test_merging(events: list[tuple[int, int, int]], fixed: list[bool], cap: int) -> None:
    ordered = sorted((10 * track + lane, 300 * start, 300 * length) for track, lane, start, length in laid(events))
    lane, start, length = np.array(ordered, np.int64).reshape(-1, 3).T
    result = merge(lane, start, length, [np.array(fixed[: len(ordered)], np.bool_)], cap)
    assert len(result.first) <= cap
    assert (result.width_ns is None) == (len(ordered) <= cap)
    assert result.count.sum() + result.dropped == len(ordered)
    before: dict[int, int] = {}
    for first, count, duration in zip(result.first.tolist(), result.count.tolist(), result.duration_ns.tolist(), strict=True):
        members = ordered[first : first + count]
        assert len({one[0] for one in members}) == 1
        assert duration == sum(one[2] for one in members)
        if count > 1:
            assert result.width_ns is not None
            assert len({one[1] // result.width_ns for one in members}) == 1
            assert max(one[2] for one in members) < result.width_ns
            assert result.level is None or not any(fixed[first : first + count])
        assert before.get(members[0][0], 0) <= members[0][1]
        before[members[0][0]] = members[0][1] + duration
    if result.dropped:
        assert len(result.first) == cap


def test_samples_without_events_are_lines(make_store: MakeStore) -> None:
    result = drawn(make_store(sample=[sample("cpu_utilization", 0, EPOCH + t * MS, 20.0) for t in (0, 300)]))
    assert (result.events_total, len(result.events.track), len(result.lines)) == (0, 0, 1)


@pytest.mark.parametrize(("ended", "span"), [(250, 300), (450, 450), (600, 600), (601, 300)])
def test_the_last_stretch_of_a_line_can_contain_the_end_of_the_job(make_store: MakeStore, ended: int, span: int) -> None:
    """Samples are 300 ms apart, so that the last one stands for at most 300 ms."""
    samples = [sample("cpu_utilization", 0, EPOCH + t * MS, 20.0) for t in (0, 300)]
    run = [{"name": "r", "status": "completed", "job_started_ns": EPOCH, "job_ended_ns": EPOCH + ended * MS}]
    assert drawn(make_store(sample=samples, run=run)).span_ns == span * MS
