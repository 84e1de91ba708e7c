"""Depth of the launch queue, computed on paper and recounted in a real trace."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from postrun.analysis.assemble import assemble
from postrun.analysis.device.launch_queue import DRAWN, MOST, launch_queue
from postrun.analysis.options import Options
from postrun.ingest import ingest
from postrun.ingest.store import Store
from postrun.report_templates.sections.launches import launch_queue as section_of


def launch(end: int, correlation: int, **columns: Any) -> dict[str, Any]:
    return {"kind": "launch", "name": "cudaLaunchKernel", "start_ns": end - 3, "duration_ns": 3, "correlation": correlation, **columns}


def run(start: int, duration: int, correlation: int | None, **columns: Any) -> dict[str, Any]:
    return {"kind": "kernel", "name": "k", "start_ns": start, "duration_ns": duration, "correlation": correlation, **columns}


def test_depth_on_paper(make_store: Callable[..., Store]) -> None:
    # Waiting: 1 from 0 to 10, 2 from 5 to 30, 3 from 15 to 50; 4 begins before its call ends and never waits. Depth: 0-5 1, 5-10 2,
    # 10-15 1, 15-30 2, 30-50 1: area 5 + 10 + 5 + 30 + 20 = 70 over 0..100. Busy: 10-30, 30-40, 50-70, 80-100 = 70; with depth 0 the
    # last two = 40.
    store = make_store(
        host_event=[launch(0, 1), launch(5, 2), launch(15, 3), launch(90, 4), launch(200, 9)],
        device_event=[run(10, 20, 1), run(30, 10, 2), run(50, 20, 3), run(80, 20, 4), run(120, 5, None, stream=8),
                      {**run(60, 5, 3), "kind": "sync"}],
    )  # fmt: skip
    result = launch_queue(store)
    (stream,) = result.streams
    assert (stream.stream, stream.runs, stream.linked, stream.max_depth) == (7, 4, 4, 2)
    assert (stream.span_ns, stream.busy_ns, stream.empty_ns) == (100, 70, 40)
    assert stream.mean_depth == pytest.approx(0.7)
    assert stream.time_ns == tuple(range(100))
    assert stream.depth == (1,) * 5 + (2,) * 5 + (1,) * 5 + (2,) * 15 + (1,) * 20 + (0,) * 50


def test_stretches_of_equal_time(make_store: Callable[..., Store]) -> None:
    # 1000 ns in 200 stretches of 5: one run waits from 0 to 502.
    result = launch_queue(make_store(host_event=[launch(0, 1)], device_event=[run(502, 498, 1)]))
    (stream,) = result.streams
    assert stream.time_ns == tuple(range(0, 1000, 5))
    assert stream.depth == (1.0,) * 100 + (0.4,) + (0.0,) * 99


def test_runs_without_a_launch_dilute_nothing(make_store: Callable[..., Store]) -> None:
    # The stream runs from 0 to 2, and from 30 to 40 and 60 to 100, what was launched before the profiler began or is not linked. Known:
    # 1 waits from 3 to 8 and runs to 10; 2 waits from 10 to 20 and runs to 22, 3 runs from 21 to 24. Over 3 to 24: area 5 + 10 of 21;
    # busy 8-10, 20-24 = 6, all of it with nothing behind.
    store = make_store(
        host_event=[launch(3, 1), launch(10, 2), launch(21, 3)],
        device_event=[run(0, 2, None), run(8, 2, 1), run(20, 2, 2), run(21, 3, 3), run(30, 10, 99), run(60, 40, None)],
    )
    (stream,) = launch_queue(store).streams
    assert (stream.runs, stream.linked, stream.span_ns, stream.busy_ns, stream.empty_ns) == (6, 3, 21, 6, 6)
    assert stream.mean_depth == pytest.approx(15 / 21)
    assert (stream.time_ns[0], stream.depth) == (3, (1,) * 5 + (0,) * 2 + (1,) * 10 + (0,) * 4)
    lead = str(section_of(assemble(store, Options())).lead).replace("\N{NO-BREAK SPACE}", " ")
    assert "of its busy time. 3 runs of 6 do not count: their launch is not in the trace" in lead


def test_the_time_between_two_profiles_does_not_count(make_store: Callable[..., Store]) -> None:
    # From 0 to 20 and from 1000 to 1040: 60 ns. One run waits for 10 and for 30 of them.
    store = make_store(
        profile_window=[
            {"process": 0, "source": 0, "first_ns": 0, "last_ns": 20}, {"process": 0, "source": 1, "first_ns": 1000, "last_ns": 1040},
        ],
        host_event=[launch(0, 1), launch(1000, 2)],
        device_event=[run(10, 10, 1), run(1030, 10, 2)],
    )  # fmt: skip
    (stream,) = launch_queue(store).streams
    assert (stream.span_ns, stream.mean_depth, stream.time_ns[0]) == (60, pytest.approx(40 / 60), 0)
    assert stream.time_ns[-1] < 1040


def test_streams_by_runs_and_few_of_them_drawn(make_store: Callable[..., Store]) -> None:
    # Stream n has n + 1 runs; two more have as many as the last one: one of rank 0 with a lower number, one without a number.
    number = MOST + 3
    events, calls = [], []
    streams = [*((n, n + 1) for n in range(10, 10 + number)), (5, 10 + number), (None, 10 + number)]
    for stream, runs in streams:
        for _ in range(runs):
            calls.append(launch(10 * len(calls), len(calls) + 1))
            events.append(run(10 * len(calls), 5, len(calls), stream=stream))
    result = launch_queue(make_store(host_event=calls, device_event=events))
    assert (result.total, len(result.streams)) == (number + 2, MOST)
    assert [one.stream for one in result.streams[:4]] == [5, 9 + number, None, 8 + number]
    assert [bool(one.depth) for one in result.streams] == [True] * DRAWN + [False] * (MOST - DRAWN)


def test_nothing_waits(make_store: Callable[..., Store]) -> None:
    (stream,) = launch_queue(make_store(host_event=[launch(12, 1)], device_event=[run(10, 20, 1)])).streams
    assert (stream.max_depth, stream.mean_depth, stream.busy_ns, stream.empty_ns, stream.depth) == (0, 0.0, 20, 20, ())


def test_no_launch(make_store: Callable[..., Store]) -> None:
    result = launch_queue(make_store(device_event=[run(10, 20, 1)]))
    assert (result.streams, result.total) == ((), 0)
    assert result.absent is not None


@pytest.mark.parametrize(
    "name",
    [
        "h100/Falconsai_nsfw_image_detection__1016002.json.gz",
        "h100/Qwen_Qwen1.5-0.5B-Chat__1016005.json.gz",  # of 1707 runs 509 have no launch in the trace
        "mi300/gaunernst_bert-small-uncased__1016001.json.gz",
    ],
)
def test_real_traces_recomputed(shared_data: Path, name: str) -> None:
    path = shared_data / "kineto" / name
    if not path.is_file():
        pytest.skip("the trace is not here")
    events = json.loads(gzip.decompress(path.read_bytes()))["traceEvents"]

    def ns(event: dict[str, Any]) -> tuple[int, int]:
        start, duration = round(event["ts"] * 1000), round(event["dur"] * 1000)
        return start, start + duration

    ended = {
        event["args"]["correlation"]: ns(event)[1]
        for event in events
        if event.get("cat") in ("cuda_runtime", "cuda_driver")
        and "correlation" in event["args"]
        and ("Launch" in event["name"] or "Mem" in event["name"])
    }
    runs = [event for event in events if event.get("cat") in ("kernel", "gpu_memcpy", "gpu_memset")]
    (stream,) = launch_queue(ingest([path])).streams
    waits = [(ended[c], ns(run)[0]) for run in runs if (c := run["args"]["correlation"]) in ended and ended[c] < ns(run)[0]]
    known = [run for run in runs if run["args"]["correlation"] in ended]
    assert (stream.runs, stream.linked) == (len(runs), len(known))
    depth, highest, covered = 0, 0, []  # of the queue; covered: stretches in which it is not empty
    for time, change in sorted([*((begin, 1) for begin, _ in waits), *((end, -1) for _, end in waits)]):
        if not depth:
            covered.append([time, time])
        depth, covered[-1][1] = depth + change, time
        highest = max(highest, depth)
    assert stream.max_depth == highest
    first = min(min(ended[run["args"]["correlation"]], ns(run)[0]) for run in known)
    assert stream.span_ns == pytest.approx(max(ns(run)[1] for run in known) - first, abs=1_000)
    assert stream.mean_depth is not None
    # Microseconds as floats lose some nanoseconds of a time.
    assert stream.mean_depth * stream.span_ns == pytest.approx(sum(end - begin for begin, end in waits), rel=1e-3)
    behind = sum(max(0, min(end, after) - max(begin, before)) for begin, end in map(ns, known) for before, after in covered)
    assert stream.busy_ns == pytest.approx(sum(run["dur"] * 1000 for run in known), rel=1e-3)  # no two runs of the stream overlap
    assert stream.busy_ns - stream.empty_ns == pytest.approx(behind, rel=1e-3, abs=5_000)
