"""Trend of step times: growing steps have one, noise has none."""

from __future__ import annotations

import random
import statistics
from collections.abc import Callable
from typing import Any

import pytest
from postrun.analysis import Options, analyze
from postrun.analysis.report import Report
from postrun.analysis.steps.trend import part_that_changed_most, trend_of
from postrun.ingest.derive.steps import derive_steps
from postrun.ingest.store import Store

MakeStore = Callable[..., Store]
MS = 10**6

NOISE: dict[str, Callable[[random.Random], float]] = {
    "even": lambda r: 1e8 * r.uniform(0.9, 1.1),
    "wide": lambda r: 1e8 * r.lognormvariate(0, 0.7),
    "peaks": lambda r: 1e8 * (20 if r.random() < 0.1 else r.gauss(1, 0.05)),
    "two humps": lambda r: 1e8 * (r.choice((1.0, 2.0)) + r.gauss(0, 0.05)),
    "exponential": lambda r: 1e6 + r.expovariate(1e-8),
}


@pytest.mark.parametrize("noise", NOISE)
@pytest.mark.parametrize("n", [30, 31, 60, 500])
def test_noise_of_constant_mean_has_no_trend(noise: str, n: int) -> None:
    for seed in range(200):
        r = random.Random(f"{noise} {n} {seed}")
        assert trend_of([round(NOISE[noise](r)) for _ in range(n)]) is None, seed


@pytest.mark.parametrize("n", [30, 47, 200])
@pytest.mark.parametrize("shrinks", [False, True])
def test_growth_by_half_is_a_trend(n: int, shrinks: bool) -> None:
    for seed in range(200):
        r = random.Random(f"growth {n} {seed}")
        lengths = [round(1e8 * (1 + 0.5 * i / (n - 1)) * r.gauss(1, 0.04)) for i in range(n)]
        if shrinks:
            lengths.reverse()
        result = trend_of(lengths)
        assert result == (statistics.median(lengths[: n // 4]), statistics.median(lengths[-(n // 4) :])), seed


def test_on_paper() -> None:
    assert trend_of(range(100, 129)) is None  # 29 steps
    # 40 steps of 100, 101, ...: medians of the first and the last ten are 104.5 and 134.5
    assert trend_of(range(100, 140)) == (104.5, 134.5)
    assert trend_of(range(130, 170)) is None  # 134.5 and 164.5: a factor of 1.22
    assert trend_of([100] * 60) is None
    assert trend_of([0] * 40) is None
    assert trend_of([5000, 900, *[100] * 58]) is None  # a slow start
    assert trend_of([*[100] * 20, *[200] * 20]) == (100.0, 200.0)  # from some step on twice as long
    assert trend_of([100, 200] * 30) is None
    assert trend_of([*[100] * 40, *[300] * 40, *[100] * 40]) is None  # an excursion


def test_the_part_that_changed_most() -> None:
    first = {"load": 10.0, "work": 50.0, "other": 5.0}
    assert part_that_changed_most(first, {**first, "load": 60.0, "work": 60.0}, "other") == "load"
    assert part_that_changed_most({**first, "work": 90.0}, first, "other") == "work"
    assert part_that_changed_most(first, {**first, "other": 50.0, "load": 20.0}, "other") is None
    assert part_that_changed_most(first, first, "other") is None
    assert part_that_changed_most(first, {"new": 40.0, **first}, "other") == "new"


def ranged(name: str, start: int, length: int, **more: Any) -> dict[str, Any]:
    return {"name": name, "side": "host", "start_ns": start, "duration_ns": length, "complete": True, **more}


def training(loads: list[int], works: list[int], process: int = 0) -> list[dict[str, Any]]:
    rows, at = [], 0
    for i, (load, work) in enumerate(zip(loads, works, strict=True)):
        rows += [ranged("step", at, load + work, value=i, process=process), ranged("load", at, load, process=process)]
        rows.append(ranged("work", at + load, work, process=process))
        at += load + work
    return rows


def reported(make_store: MakeStore, *rows: dict[str, Any], **tables: Any) -> Report:
    store = make_store(annotation=list(rows), **tables)
    derive_steps(store)
    return analyze(store, Options(generated_at_ns=0))


def test_loading_that_grows_is_in_the_headline(make_store: MakeStore) -> None:
    # 40 steps of 30 ms and 10 ms + 2 ms per step: medians of the first and the last ten are 49 ms and 109 ms.
    report = reported(make_store, *training([(10 + 2 * i) * MS for i in range(40)], [30 * MS] * 40))
    expected = "Steps grew from 49.0 ms to 109 ms over the run (medians of the first and the last quarter of 40); data loading grew most."
    assert report.steps.trend == expected
    assert expected in report.summary.headline
    [trend] = report.steps.trends
    assert (trend.first_ns, trend.last_ns, trend.part, trend.steps) == (49 * MS, 109 * MS, "data_loader", 40)


def test_work_that_shrinks(make_store: MakeStore) -> None:
    report = reported(make_store, *training([10 * MS] * 40, [(110 - 2 * i) * MS for i in range(40)]))
    assert report.steps.trend is not None
    assert report.steps.trend.startswith("Steps shrank from 111 ms to 51.0 ms over the run")
    assert report.steps.trend.endswith("; work shrank most.")


def test_of_several_ranks_the_one_that_grows_is_named_and_the_slowest(make_store: MakeStore) -> None:
    processes = [{"id": i, "node": 0, "pid": 100 + i, "rank": i} for i in range(2)]
    rows = training([10 * MS] * 40, [20 * MS] * 40) + training([(10 + i) * MS for i in range(40)], [20 * MS] * 40, process=1)
    headline = reported(make_store, *rows, processes=processes).summary.headline
    assert "A step took 30.0 ms on rank 0 to 49.5 ms on rank 1 (medians)." in headline
    assert "Steps of rank 1 grew from 34.5 ms to 64.5 ms over the run" in headline


@pytest.mark.parametrize(("median_ms", "uneven"), [(33, False), (34, True)])
def test_ranks_that_differ_by_a_tenth_have_one_median(make_store: MakeStore, median_ms: int, uneven: bool) -> None:
    processes = [{"id": i, "node": 0, "pid": 100 + i, "rank": i} for i in range(2)]
    rows = training([10 * MS] * 12, [20 * MS] * 12) + training([10 * MS] * 12, [(median_ms - 10) * MS] * 12, process=1)
    result = reported(make_store, *rows, processes=processes).summary
    headline, tile = result.headline, next(tile for tile in result.tiles if tile.key == "step_time")
    assert (tile.value, tile.detail.startswith("median of rank 1, the slowest; 30.0 ms on rank 0")) == (
        (f"{median_ms}.0 ms", True) if uneven else ("31.5 ms", False)
    )
    assert (f"A step took 30.0 ms on rank 0 to {median_ms}.0 ms on rank 1 (medians)." in headline) is uneven
    assert ("(median of 12)" in headline) is not uneven


def test_kernels_that_grow(make_store: MakeStore) -> None:
    rows, kernels, launches, at = [], [], [], 0
    for i in range(40):
        length = (40 + 2 * i) * MS
        rows.append(ranged(f"ProfilerStep#{i}", at, length + 10 * MS))
        launches.append({"kind": "launch", "name": "cudaLaunchKernel", "start_ns": at + MS, "duration_ns": MS, "correlation": i + 1})
        kernels.append({"kind": "kernel", "name": "k", "start_ns": at + 5 * MS, "duration_ns": length, "correlation": i + 1, "device": 0})
        at += length + 10 * MS
    report = reported(make_store, *rows, device_event=kernels, host_event=launches)
    assert report.steps.trend == (
        "Steps grew from 49.0 ms to 109 ms over the run (medians of the first and the last quarter of 40); time in kernels grew most."
    )
    assert report.steps.trend in report.summary.headline


def test_what_the_rules_say_of_annotated_loading_and_of_the_machine(make_store: MakeStore) -> None:
    cpu = [{"node": 0, "metric": "cpu_utilization", "unit": 0, "time_ns": i * 10**9, "value": 100.0} for i in range(20)]
    report = reported(make_store, *training([30 * MS] * 30, [10 * MS] * 30), sample=cpu)
    rules = {rule.rule: rule for rule in report.rules}
    assert "takes 75% of the mean step (see Steps), but not how many processes load" in (rules["Dataloader"].reason or "")
    assert "this is the whole machine, not the job alone" in (rules["OverallSystemUsage"].finding or "")
