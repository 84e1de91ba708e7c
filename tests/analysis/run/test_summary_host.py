"""First page of a run without any record of a GPU."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from postrun.analysis import Options, analyze
from postrun.analysis.report import Summary
from postrun.analysis.report.steps import Step, Steps
from postrun.analysis.run.summary_steps import longest_step
from postrun.analysis.toolkit.wording import percent, whole_percent
from postrun.ingest.derive.steps import derive_steps
from postrun.ingest.store import Store

MakeStore = Callable[..., Store]
MS = 10**6


def steps(lengths: list[int], process: int = 0) -> list[dict[str, Any]]:
    result, at = [], 0
    for i, length in enumerate(lengths):
        result.append(
            {"name": "step", "side": "host", "value": i, "start_ns": at, "duration_ns": length * MS, "complete": True, "process": process}
        )
        at += length * MS
    return result


def samples(metric: str, values: list[float], node: int = 0) -> list[dict[str, Any]]:
    return [
        {"node": node, "metric": metric, "unit": 0 if "cpu" in metric else None, "time_ns": i * 10**9, "value": v}
        for i, v in enumerate(values)
    ]


def summed(make_store: MakeStore, **tables: Any) -> Summary:
    store = make_store(**tables)
    derive_steps(store)
    return analyze(store, Options(generated_at_ns=0)).summary


def keys(result: Summary) -> list[str]:
    return [tile.key for tile in result.tiles]


def test_processors_memory_and_the_longest_step(make_store: MakeStore) -> None:
    rows = [*steps([10] * 19 + [35]), {"name": "forward", "side": "host", "start_ns": 0, "duration_ns": 5 * MS, "complete": True}]
    result = summed(
        make_store, annotation=rows, sample=samples("cpu_utilization", [20.0, 40.0, 90.0]) + samples("memory_used_percent", [7.0, 9.5])
    )
    assert keys(result) == ["cpu_utilization", "step_time", "longest_step", "main_memory"]
    cpu, _, longest, memory = result.tiles
    [loading] = [figure for figure in result.figures if figure.key == "data_loading"]
    assert (cpu.value, cpu.number) == (whole_percent(50), 50.0)  # mean of 20, 40 and 90
    assert (longest.value, longest.detail, longest.number, longest.unit) == ("35.0 ms", "step 19, 3.50 times the median", 35 * MS, "ns")
    assert (loading.value, loading.detail) == ("—", "no part of a step named as data loading")
    assert (memory.value, memory.detail) == (percent(9.5), "of host memory")
    assert result.headline.endswith("The longest, step 19, took 35.0 ms, 3.50 times as long.")


def test_a_step_that_is_not_much_longer_is_not_in_the_headline(make_store: MakeStore) -> None:
    result = summed(make_store, annotation=steps([10] * 19 + [29]))
    assert "longest" not in result.headline
    assert keys(result) == ["step_time", "longest_step"]


def test_few_steps_have_no_longest(make_store: MakeStore) -> None:
    assert keys(summed(make_store, annotation=steps([10, 90]))) == ["step_time"]


def test_of_several_processes_the_rank_is_named(make_store: MakeStore) -> None:
    processes = [{"id": i, "node": 0, "pid": 100 + i, "rank": i} for i in range(2)]
    result = summed(make_store, processes=processes, annotation=steps([10] * 12) + steps([10] * 11 + [80], process=1))
    assert "The longest, step 11 of rank 1, took 80.0 ms" in result.headline


def test_with_a_gpu_its_figures_are_shown(make_store: MakeStore) -> None:
    for key, more in (
        ("gpu_utilization", {"sample": samples("gpu_utilization", [50.0, 60.0])}),
        ("gpu_busy", {"device_event": [{"kind": "kernel", "name": "k", "start_ns": 0, "duration_ns": 5}]}),
    ):
        result = summed(make_store, annotation=steps([10] * 19 + [99]), **more)
        assert keys(result) == [key, "step_time"]


def test_without_steps_the_headline_tells_of_the_processors(make_store: MakeStore) -> None:
    counted = [{"node": 0, "metric": "counter.loss", "unit": 0, "time_ns": 0, "value": 1.0}]
    result = summed(make_store, sample=samples("cpu_utilization", [20.0, 40.0, 90.0]) + counted)
    assert result.headline.endswith(f"1 process was traced. CPU utilization averaged {whole_percent(50)}, and no steps were recorded.")


def test_steps_of_a_device_are_timed_from_step_to_step() -> None:
    # The GPU work of step 3 begins early, so its GPU time is the longest; from step to step, step 8 is.
    ends = [100, 200, 300, 400, 500, 600, 700, 800, 950, 1050, 1150, 1250]
    durations = [90, 90, 90, 190, 90, 90, 90, 90, 140, 90, 90, 90]
    timed = tuple(
        Step("n", 0, 1, None, i, (end - took) * MS, took * MS, True, took * MS)
        for i, (end, took) in enumerate(zip(ends, durations, strict=True))
    )
    longest = longest_step(Steps(timed, (), (), None))
    assert longest is not None
    assert (longest.name, longest.ns, longest.ratio) == ("step 8", 150 * MS, 1.5)
