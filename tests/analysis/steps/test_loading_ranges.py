"""Ranges named as data loading, counted once per moment in each part of a report. Computed on paper."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import polars as pl
import pytest
from postrun.analysis import Options, analyze
from postrun.analysis.compare.build import compare
from postrun.analysis.report import Generator, Report
from postrun.analysis.rules.evidence.host_time import activities
from postrun.analysis.steps.data import StepData
from postrun.analysis.steps.loading_ranges import loading_ranges, loading_recorded
from postrun.analysis.steps.steps import steps
from postrun.analysis.steps.times import host_time
from postrun.ingest.store import Store

MakeStore = Callable[..., Store]
US, MS = 1_000, 1_000_000


def span(name: str, start: int, end: int, tid: int = 1, **columns: Any) -> dict[str, Any]:
    return {"side": "host", "process": 0, "tid": tid, "name": name, "start_ns": start, "duration_ns": end - start, **columns}


def event(kind: str, start: int, end: int) -> dict[str, Any]:
    return {"kind": kind, "tid": 1, "name": kind, "start_ns": start, "duration_ns": end - start}


def step(index: int, start: int, length: int, kernel: tuple[int, int]) -> dict[str, Any]:
    first, last = kernel
    return {
        "node": 0, "process": 0, "index": index, "host_start_ns": start, "host_duration_ns": length, "device_start_ns": first,
        "device_duration_ns": last - first, "device_events": 1,
    }  # fmt: skip


def two_steps() -> dict[str, list[dict[str, Any]]]:
    """Steps [0, 100) and [100, 200) on thread 1, with kernels [60, 90) and [160, 190)."""
    kernels = [(60, 90), (160, 190)]
    return {
        "step": [step(i, 100 * i, 100, kernel) for i, kernel in enumerate(kernels)],
        "annotation": [span(f"step_{i}", 100 * i, 100 * i + 100) for i in range(2)],
        "device_event": [{"kind": "kernel", "start_ns": start, "duration_ns": end - start} for start, end in kernels],
    }


def test_ranges_named_so_on_the_threads_of_the_steps(make_store: MakeStore) -> None:
    rows = two_steps()
    rows["annotation"] += [
        span("get_batch 7", 110, 130),
        span("Data Loading", 0, 20),
        span("forward", 20, 40),
        span("upload", 40, 50),
        span("fetch", 130, 150, tid=2),  # loads ahead
        span("load", 150, 160, complete=False),
        span("loader", 150, 160, phase="DataLoaderIter"),
        span("input", 170, 180, side="device"),
        span("input", 170, 180, process=1),
    ]
    store = make_store(**rows)
    assert loading_ranges(store).filter(process=0).drop("process").rows() == [(0, 20, "Data Loading"), (110, 130, "get_batch")]
    assert loading_recorded(store)


def test_without_annotated_steps_ranges_of_any_thread(make_store: MakeStore) -> None:
    store = make_store(annotation=[span("fetch", 130, 150, tid=2), span("backward", 10, 20)])
    assert loading_ranges(store).filter(process=0).drop("process").rows() == [(130, 150, "fetch")]
    assert loading_ranges(store).filter(process=1).is_empty()


@pytest.mark.parametrize(
    ("rows", "expected"),
    [
        ({"annotation": [span("backward", 10, 20)]}, False),
        ({"host_event": [event("operator", 0, 5)]}, False),
        ({"host_event": [event("loader", 0, 5)]}, True),
        ({"annotation": [span("data_loading", 10, 20)]}, True),
    ],
)
def test_whether_loading_is_told_at_all(make_store: MakeStore, rows: dict[str, list[dict[str, Any]]], expected: bool) -> None:
    assert loading_recorded(make_store(**rows)) is expected


def test_the_average_step_has_them_in_its_data_loader(make_store: MakeStore) -> None:
    # Of [0, 20) all; [100, 115) of the loader and [110, 130) together 30; of [170, 195) the 5 that no kernel covers.
    rows = two_steps()
    rows["annotation"] += [span("data_loading", 0, 20), span("get_batch 7", 110, 130), span("load", 170, 195), span("fetch", 130, 150, 2)]
    [parts] = steps(make_store(**rows, host_event=[event("loader", 100, 115)])).parts
    assert not parts.annotated
    assert parts.mean_ns == {
        "kernel": 30, "memcpy": 0, "memset": 0, "communication": 0, "runtime": 0, "data_loader": 27.5, "cpu_op": 0, "other": 42.5,
    }  # fmt: skip
    assert parts.loading_names == ("data_loading", "get_batch", "load")


def test_the_loading_of_each_step_counts_every_moment_once(make_store: MakeStore) -> None:
    rows = two_steps()
    rows["annotation"] += [span("data_loading", 0, 20), span("get_batch 7", 110, 130)]
    store = make_store(**rows, host_event=[event("loader", 100, 115)])
    loading = host_time(StepData(store).loads, pl.DataFrame(rows["step"]).with_columns(process=0))
    assert loading.to_list() == [20, 30]


def test_of_waits_for_the_host_they_are_data_loading_but_not_where_a_call_blocks(make_store: MakeStore) -> None:
    # A wait [100, 300): a range [105, 260) contains 5 of a synchronization, 10 of a call and 10 of a loader, so 130 of its own; the
    # operator in it loads. Launching takes 4 more; 26 before and 10 after it are unexplained.
    store = make_store(
        annotation=[span("data_loading", 105, 260)],
        host_event=[
            event("sync", 100, 110), event("call", 200, 210), event("operator", 220, 230), event("loader", 240, 250),
            event("launch", 286, 290),
        ],
    )  # fmt: skip
    result, ranges = activities(store, pl.DataFrame({"process": [0], "start": [100], "end": [300]}, schema_overrides={"process": pl.Int32}))
    assert {name: time for name, time in result.items() if time} == {
        "data loader": 140, "synchronization": 10, "runtime calls": 14, "nothing recorded": 36,
    }  # fmt: skip
    assert not any(ranges.values())


def job(make_store: MakeStore, *, loading: str | None = None) -> Report:
    """Make 20 steps of 100 ms: 30 ms of ``loading``, then a kernel of 60 ms."""
    host: list[dict[str, Any]] = []
    spans: list[dict[str, Any]] = []
    kernels, rows = [], []
    for i in range(20):
        start = i * 100 * MS
        begin, end = start + 35 * MS, start + 95 * MS
        spans.append(span(f"step_{i}", start, start + 100 * MS))
        if loading == "loader":
            host.append(event("loader", start, start + 30 * MS))
        elif loading is not None:
            spans.append(span(loading, start, start + 30 * MS))
        launch = {"kind": "launch", "tid": 1, "name": "cudaLaunchKernel", "start_ns": begin - 10 * US, "duration_ns": 5 * US}
        host += [{**launch, "correlation": i + 1}, event("sync", begin, end)]
        kernels.append({"kind": "kernel", "name": "k", "start_ns": begin, "duration_ns": end - begin, "correlation": i + 1})
        rows.append(step(i, start, 100 * MS, (begin, end)))
    store = make_store(step=rows, annotation=spans, host_event=host, device_event=kernels)
    return analyze(store, Options(generated_at_ns=0))


@pytest.mark.parametrize("loading", ["loader", "data_loading"])
def test_the_first_page_and_the_advice_are_alike_by_events_and_by_ranges(make_store: MakeStore, loading: str) -> None:
    report = job(make_store, loading=loading)
    tile = next(tile for tile in report.summary.tiles if tile.key == "data_loading")
    assert tile.number == pytest.approx(30.0)
    [finding] = [finding for finding in report.findings if finding.rule == "HostBound"]
    assert finding.title == "Load data ahead of the GPU"


def test_a_run_that_does_not_tell_its_loading_has_not_lost_it(make_store: MakeStore) -> None:
    by_events, by_ranges, untold = (job(make_store, loading=one) for one in ("loader", "data_loading", None))

    def states(base: Report, new: Report) -> dict[str, str]:
        compared = compare(base, new, generator=Generator("postrun", "0", 0, {}))
        return {part.name: part.state for part in compared.host_parts}

    assert states(by_events, by_ranges)["data_loader"] == "same"
    for sides in ((by_events, untold), (untold, by_ranges)):
        assert "data_loader" not in states(*sides)
        assert states(*sides)["kernel"] == "same"
