"""Launch pairs of stores made by hand."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from postrun.analysis.assemble import assemble
from postrun.analysis.device.launches import launches
from postrun.analysis.options import Options
from postrun.ingest.store import Store
from postrun.report_templates.sections.launches import launches as launches_section

MakeStore = Callable[..., Store]


def run(start: int, correlation: int | None, **columns: Any) -> dict[str, Any]:
    return {"kind": "kernel", "name": "k", "start_ns": start, "duration_ns": 5, "correlation": correlation, **columns}


def call(end: int, correlation: int | None, kind: str = "launch", **columns: Any) -> dict[str, Any]:
    return {"kind": kind, "name": "cudaLaunchKernel", "start_ns": end - 3, "duration_ns": 3, "correlation": correlation, **columns}


def test_pairs(make_store: MakeStore) -> None:
    result = launches(
        make_store(
            processes=[{"id": 0, "node": 0, "rank": 0}, {"id": 1, "node": 0, "rank": 1}],
            device_event=[
                run(110, 1),
                run(250, 2),
                run(230, 2, stream=8, name="first of the graph"),
                run(290, 2),
                run(299, 3),  # starts before its call ends
                run(400, None),
                run(500, 50),
                run(600, 1, process=1),
                {**run(900, 5), "kind": "sync"},
            ],
            host_event=[
                call(100, 1),
                call(200, 2, name="cudaGraphLaunch"),
                call(300, 3),
                call(350, 4),
                call(360, None),
                call(590, 1, process=1),
                call(490, 50, kind="call"),
            ],
        )
    )
    assert (result.calls, result.pairs, result.negative, result.graph_runs) == (6, 4, 1, 2)
    assert (result.runs_without_launch, result.launches_without_run) == (2, 2)
    assert result.latency is not None
    assert (result.latency.count, result.latency.min, result.latency.p50, result.latency.max) == (3, 10, 10, 30)
    assert result.histogram is not None
    assert sum(result.histogram.counts) == 3
    assert [(p.rank, p.latency_ns, p.launch_end_ns, p.run_start_ns, p.call, p.kernel, p.stream) for p in result.slowest] == [
        (0, 30, 200, 230, "cudaGraphLaunch", "first of the graph", 8),
        (0, 10, 100, 110, "cudaLaunchKernel", "k", 7),
        (1, 10, 590, 600, "cudaLaunchKernel", "k", 7),
    ]
    assert result.absent is None


def test_the_sentence_says_of_which_runs_the_quantiles_are(make_store: MakeStore) -> None:
    # Two wait 1000 and 3000 ns, one begins before its call has ended.
    devices, calls = [run(2000, 1), run(5000, 2), run(5900, 3)], [call(1000, 1), call(2000, 2), call(6000, 3)]
    section = launches_section(assemble(make_store(device_event=devices, host_event=calls), Options()))
    assert str(section.lead).replace("\N{NO-BREAK SPACE}", " ") == (
        "Launch latency: median 2.00 µs, p95 2.90 µs, longest 3.00 µs (3 launches; 1 kernel started before the call returned)."
    )
    section = launches_section(assemble(make_store(device_event=devices[:2], host_event=calls[:2]), Options()))
    assert str(section.lead).replace("\N{NO-BREAK SPACE}", " ") == (
        "Launch latency: median 2.00 µs, p95 2.90 µs, longest 3.00 µs (2 launches)."
    )


def test_at_most_ten_slowest(make_store: MakeStore) -> None:
    result = launches(
        make_store(device_event=[run(1000 * i + i, i) for i in range(1, 40)], host_event=[call(1000 * i, i) for i in range(1, 40)])
    )
    assert [p.latency_ns for p in result.slowest] == list(range(39, 29, -1))


def test_one_call_of_two_with_the_same_correlation_is_the_first(make_store: MakeStore) -> None:
    result = launches(make_store(device_event=[run(110, 1)], host_event=[call(105, 1, name="cuLaunchKernel"), call(100, 1)]))
    assert (result.calls, result.pairs, result.launches_without_run) == (2, 1, 0)
    assert result.slowest[0].latency_ns == 10


def test_host_time_by_call(make_store: MakeStore) -> None:
    calls = [("cudaLaunchKernel", "launch", 10)] * 3 + [("cudaDeviceSynchronize", "sync", 60), ("cudaMalloc", "call", 6), ("a", "call", 4)]
    store = make_store(
        host_event=[
            {"kind": kind, "name": name, "start_ns": 0, "duration_ns": length}
            for name, kind, length in [*calls, ("aten::add", "operator", 999)]
        ]
    )
    assert [(s.name, s.total_ns, s.count, s.percent) for s in launches(store, top=2).call_time] == [
        ("cudaDeviceSynchronize", 60, 1, 60.0),
        ("cudaLaunchKernel", 30, 3, 30.0),
        ("others", 10, 2, 10.0),
    ]
    assert [s.name for s in launches(store, top=4).call_time] == ["cudaDeviceSynchronize", "cudaLaunchKernel", "cudaMalloc", "a"]


@pytest.mark.parametrize(
    ("devices", "calls", "sentence"),
    [
        ([], [], "No launch calls and no device work"),
        ([run(5, 1)], [], "No launch calls"),
        ([], [call(5, 1)], "no device work"),
        ([run(5, 1)], [call(5, 2)], "correlation"),
    ],
)
def test_absent(make_store: MakeStore, devices: list[dict[str, Any]], calls: list[dict[str, Any]], sentence: str) -> None:
    result = launches(make_store(device_event=devices, host_event=calls))
    assert result.absent is not None
    assert sentence in result.absent
    assert (result.pairs, result.latency, result.histogram, result.slowest) == (0, None, None, ())
    assert (result.runs_without_launch, result.launches_without_run) == (len(devices), len(calls))
