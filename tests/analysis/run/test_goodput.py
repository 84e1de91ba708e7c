"""Goodput of jobs made by hand, with each part worked out on paper."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import polars as pl
import pytest
from example_counts import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from postrun.analysis import Options, analyze
from postrun.analysis.report.goodput import Goodput
from postrun.analysis.run.goodput import PARTS, divided, extents
from postrun.ingest.store import Store

EPOCH = 1_700_000_000_000_000_000
S = 10**9

Rows = list[dict[str, Any]]


def at(second: float) -> int:
    return EPOCH + int(second * S)


def step(number: int, start: float, end: float, process: int = 0, **fields: Any) -> dict[str, Any]:
    duration = at(end) - at(start)
    return {"node": 0, "process": process, "index": number, "host_start_ns": at(start), "host_duration_ns": duration, **fields}


def marked(row: dict[str, Any]) -> dict[str, Any]:
    """Return the range of a step on its thread."""
    return {
        "process": row["process"], "side": "host", "name": "step", "value": row["index"], "start_ns": row["host_start_ns"],
        "duration_ns": row["host_duration_ns"], "depth": 0,
    }  # fmt: skip


def ranged(name: str, start: float, end: float, process: int = 0, **fields: Any) -> dict[str, Any]:
    return {
        "process": process, "side": "host", "name": name, "start_ns": at(start), "duration_ns": at(end) - at(start), "depth": 1, **fields,
    }  # fmt: skip


def job(start: float, end: float) -> Rows:
    return [{"name": "job", "job_started_ns": at(start), "job_ended_ns": at(end)}]


def of(store: Store, options: Options | None = None) -> Goodput:
    result = analyze(store, options or Options()).goodput
    assert result is not None
    return result


def seconds(result: Goodput) -> dict[str, float | None]:
    """Return the times of the parts that are not 0, after a check of their sum."""
    assert [part.name for part in result.parts] == list(PARTS)
    assert sum(part.time_ns or 0 for part in result.parts) == (result.wall_ns or 0) * result.ranks
    return {part.name: None if part.time_ns is None else part.time_ns / S for part in result.parts if part.time_ns != 0}


def restarted_job() -> tuple[Rows, Rows, Rows]:
    """Return steps, ranges and sessions of a job from 0 to 100 s with a restart.

    The first process starts at 1 s and runs the steps 0 to 7 from 10 s, 2 s each. Step 2 takes 3 s longer. Each waits for data for its
    first 0.5 s. The evaluation from 20 s to 22 s and the checkpoint from 22 s to 23 s lie between steps 2 and 3. It fails at 34 s, and
    the second process, from 40 s, continues at step 6 from 50 s to 62 s, and evaluates at the end.
    """
    lengths = [(0, 10, 12), (1, 12, 14), (2, 14, 19), (3, 23, 25), (4, 25, 27), (5, 27, 29), (6, 29, 31), (7, 31, 33)]
    steps = [step(*times) for times in lengths]
    steps += [step(number, 38 + 2 * number, 40 + 2 * number, 1) for number in range(6, 12)]
    ranges = [
        ranged("data loading", (row["host_start_ns"] - EPOCH) / S, (row["host_start_ns"] - EPOCH) / S + 0.5, row["process"])
        for row in steps
    ]
    ranges += [ranged("evaluation", 20, 22), ranged("save_checkpoint", 22, 23)]
    ranges += [ranged("validate", 62, 66, 1), ranged("checkpoint", 66, 67, 1)]
    sessions = [
        {"process": 0, "first_ns": at(1.5), "last_ns": at(34), "process_started_ns": at(1), "stopped": False},
        {"process": 1, "first_ns": at(41), "last_ns": at(70), "process_started_ns": at(40), "stopped": False},
    ]
    return steps, [*map(marked, steps), *ranges], sessions


PROCESSES = [{"id": 0, "node": 0, "pid": 100, "rank": 0}, {"id": 1, "node": 0, "pid": 200, "rank": 0}]


def test_every_part_of_a_restarted_job(make_store: Callable[..., Store]) -> None:
    steps, ranges, sessions = restarted_job()
    result = of(make_store(processes=PROCESSES, run=job(0, 100), step=steps, annotation=ranges, recorded_window=sessions))
    assert seconds(result) == {
        "initialization": 10,
        # Steps 0, 1, 3, 4, 5 and six of the second process: 1.5 s without the wait. Steps 2 and 3 are from 14 s to 19 s, and from 19 s to
        # 25 s without evaluation and checkpoint: 4.5 s and 2.5 s. Before 20 s, step 3 waits for its predecessor.
        "productive": 12 * 1.5,
        "slow_excess": 3 + 1,
        "data_wait": 12 * 0.5,
        "checkpoint": 1 + 1,
        "evaluation": 2 + 4,
        "lost_steps": 4,
        "restart_gap": 50 - 33,
        "tail": 100 - 62 - 5,
    }
    assert (result.percent, result.ranks, result.restarts, result.lost_steps) == (18.0, 1, 1, 2)
    assert (result.absent, result.gpus, result.gpu_hours, result.cost) == (None, 0, None, None)


def test_repeated_numbers_do_not_identify_lost_steps(make_store: Callable[..., Store]) -> None:
    steps = [step(number, start, start + 1, process) for process, start, number in ((0, 1, 0), (0, 2, 0), (1, 5, 0), (1, 6, 1))]
    result = of(make_store(processes=PROCESSES, run=job(0, 8), step=steps))
    assert seconds(result) == {
        "initialization": 1, "productive": 4, "slow_excess": None, "data_wait": None, "checkpoint": None, "evaluation": None,
        "lost_steps": None, "restart_gap": 2, "tail": 1,
    }  # fmt: skip
    assert (result.percent, result.restarts, result.lost_steps) == (50.0, 1, None)


def test_numbers_that_repeat_in_each_epoch_are_not_lost(make_store: Callable[..., Store]) -> None:
    result = of(make_store(run=job(0, 10), step=[step(number, 2 * start, 2 * start + 2) for start, number in enumerate((0, 1, 0, 1))]))
    assert (seconds(result)["productive"], result.lost_steps, result.percent) == (8, 0, 80.0)


def test_ranks_at_the_same_time_are_a_mean(make_store: Callable[..., Store]) -> None:
    # Two ranks. The second begins 2 s later; both devices are used. The job takes 10 s.
    processes = [{"id": 0, "node": 0, "pid": 1, "rank": 0}, {"id": 1, "node": 0, "pid": 2, "rank": 1}]
    steps = [step(0, 1, 4), step(1, 4, 7), step(0, 3, 5, 1), step(1, 5, 7, 1)]
    kernels = [
        {"process": process, "device": process, "kind": "kernel", "start_ns": at(5), "duration_ns": S, "correlation": 0}
        for process in (0, 1)
    ]
    power = [
        {"node": 0, "metric": "gpu_power", "unit": unit, "time_ns": at(second), "value": 100.0 * (unit + 1)}
        for unit in (0, 1)
        for second in range(11)
    ]
    store = make_store(processes=processes, run=job(0, 10), step=steps, device_event=kernels, sample=power)
    result = of(store, Options(price_per_gpu_hour=(3.6, "EUR")))
    known = {name: time for name, time in seconds(result).items() if time is not None}
    assert known == {"initialization": 1 + 3, "productive": 6 + 4, "tail": 3 + 3}
    assert (result.percent, result.ranks, result.wall_ns) == (50.0, 2, 10 * S)
    assert result.gpu_hours == pytest.approx(20 / 3600)
    assert [part.gpu_hours for part in result.parts if part.name == "productive"] == [pytest.approx(10 / 3600)]
    assert result.cost == pytest.approx(0.02)  # 20 GPU-s at 0.001 EUR
    assert (result.price_per_gpu_hour, result.currency) == (3.6, "EUR")
    assert result.energy_joules == pytest.approx(100 * 10 + 200 * 10)


def test_power_of_a_part_of_the_job_is_no_energy(make_store: Callable[..., Store]) -> None:
    power = [{"node": 0, "metric": "gpu_power", "unit": 0, "time_ns": at(second), "value": 100.0} for second in range(8)]
    result = of(make_store(run=job(0, 10), step=[step(0, 1, 4), step(1, 4, 7)], sample=power))
    assert (result.gpus, result.percent, result.energy_joules) == (1, 60.0, None)


def test_loading_during_device_work_is_no_wait(make_store: Callable[..., Store]) -> None:
    # Each step loads for its first second. The GPU works in the second half of that of step 1.
    steps = [step(0, 0, 2), step(1, 2, 4)]
    loads = [{"kind": "loader", "start_ns": at(start), "duration_ns": S} for start in (0, 2)]
    kernel = {"kind": "kernel", "start_ns": at(2.5), "duration_ns": S, "correlation": 0}
    known = seconds(of(make_store(run=job(0, 4), step=steps, host_event=loads, device_event=[kernel])))
    assert (known["data_wait"], known["productive"]) == (1.5, 2.5)


def test_phases_divide_training_and_evaluation(make_store: Callable[..., Store]) -> None:
    # The profiler's step within TRAIN is the same step again. Step 1 of EVAL follows step 0 after a pause, and begins with it.
    steps = [step(0, 1, 3, phase="TRAIN"), step(1, 3, 5, phase="TRAIN"), step(0, 1, 3, device_start_ns=at(1), device_duration_ns=S)]
    steps += [step(0, 5, 6, phase="EVAL"), step(1, 6.5, 7, phase="EVAL"), step(7, 8, 9, phase="TRAIN")]
    result = of(make_store(run=job(0, 10), step=steps))
    known = {name: time for name, time in seconds(result).items() if time is not None}
    assert known == {"initialization": 1, "productive": 5, "evaluation": 2, "between_steps": 1, "tail": 1}


def test_time_outside_of_profile_windows_is_not_recorded(make_store: Callable[..., Store]) -> None:
    # A sampled job of 100 s with one profile of two steps: no step is known outside of it.
    samples = [{"node": 0, "metric": "gpu_utilization", "unit": 0, "time_ns": at(second), "value": 90.0} for second in range(101)]
    profile = {"process": 0, "source": 0, "first_ns": at(50), "last_ns": at(54) - 1}
    result = of(make_store(sample=samples, step=[step(7, 50, 52), step(8, 52, 54)], profile_window=[profile]))
    known = {name: time for name, time in seconds(result).items() if time is not None}
    assert known == {"productive": 4, "not_recorded": 96}
    assert result.percent is None
    assert result.absent is not None
    assert "96.0% of the job" in result.absent
    assert result.gpu_hours == pytest.approx(100 / 3600)


SAMPLED = {
    "source": [{"id": 0, "format": "hosted system metrics", "first_ns": at(0), "last_ns": at(10)}],
    "sample": [{"node": 0, "metric": "cpu_utilization", "unit": 0, "time_ns": at(second), "value": 9.0} for second in (0, 10)],
}


@pytest.mark.parametrize(("limits", "number", "stopped", "expected"), [
    ({"run": job(0, 10)}, 9, False, {"initialization": 3, "not_recorded": 1, "tail": 3}),
    ({"run": job(0, 10)}, 9, True, {"initialization": 3, "not_recorded": 3, "tail": 1}),
    (SAMPLED, 0, False, {"initialization": 3, "not_recorded": 1, "tail": 3}),
    (SAMPLED, 9, False, {"initialization": 2, "not_recorded": 2, "tail": 3}),
])  # fmt: skip
def test_gaps_of_the_recorder(
    make_store: Callable[..., Store], limits: dict[str, Rows], number: int, *, stopped: bool, expected: dict[str, float]
) -> None:
    # The process starts at 1 s, its recorder at 2 s, and its steps at 3 s. The recorder pauses from 5 s to 6 s and ends at 8 s, 1 s after
    # the steps. Unless it stopped before the process, the job ends at 10 s without a step. `postrun record` starts the recorder with the
    # process. Otherwise, the process may have run steps before step 9.
    steps = [step(number, 3, 5), step(number + 4, 6, 7)]
    sessions = [
        {"process": 0, "first_ns": at(first), "last_ns": at(last) - 1, "process_started_ns": at(1), "stopped": stopped and last == 8}
        for first, last in ((2, 5), (6, 8))
    ]
    result = of(make_store(step=steps, recorded_window=sessions, **limits))
    known = {name: time for name, time in seconds(result).items() if time is not None and name != "productive"}
    assert known == expected
    assert result.percent is None


@pytest.mark.parametrize(("rows", "reason"), [
    ({"source": [{"id": 0, "format": "PyTorch profiler trace", "first_ns": at(0), "last_ns": at(9)}]}, "only a part of the job"),
    ({"run": job(0, 9)}, "no training steps"),
    ({"run": job(0, 9), "step": [step(0, 1, 2, phase="EVAL"), step(1, 2, 3, phase="EVAL")]}, "no training steps"),
    ({}, "only a part of the job"),
])  # fmt: skip
def test_runs_without_a_goodput_state_the_reason(make_store: Callable[..., Store], rows: dict[str, Rows], reason: str) -> None:
    result = of(make_store(**rows))
    assert result == dataclasses.replace(Goodput(), absent=result.absent)
    assert reason in (result.absent or "")


INTERVALS = st.lists(st.tuples(st.integers(0, 2), st.integers(-20, 120), st.integers(0, 60)), max_size=12)


@settings(max_examples=examples(100))
@given(
    covered=st.dictionaries(
        st.sampled_from([name for name in PARTS if name not in ("productive", "slow_excess", "between_steps")]), INTERVALS
    ),
    lengths=st.lists(st.tuples(st.integers(0, 9), st.integers(1, 9)), max_size=12),
)
def test_the_parts_are_a_partition_of_the_wall_time(covered: dict[str, list[tuple[int, int, int]]], lengths: list[tuple[int, int]]) -> None:
    start, end, lanes = 0, 100, 3
    rows, time = [], 0
    for gap, length in lengths:  # the same disjoint steps in each lane
        time += gap
        rows += [(lane, time, min(time + length, end)) for lane in range(lanes) if time < end]
        time += length
    schema = {"lane": pl.Int32, "start": pl.Int64, "end": pl.Int64}
    frames = {
        name: pl.DataFrame([(lane, at, at + length) for lane, at, length in spans], schema=schema, orient="row")
        for name, spans in covered.items()
    }
    times = divided(start, end, lanes, frames, pl.DataFrame(rows, schema=schema, orient="row"))
    assert set(times) == set(PARTS)
    assert sum(time or 0 for time in times.values()) == lanes * (end - start)
    assert all(time is None or time >= 0 for time in times.values())
    # Each nanosecond, one after the other.
    order = ("not_recorded", "lost_steps", "checkpoint", "evaluation", "data_wait", "productive", "initialization", "restart_gap", "tail")
    spans = {**{name: [(lane, at, at + length) for lane, at, length in rows] for name, rows in covered.items()}, "productive": rows}
    counted = dict.fromkeys((*order, "between_steps"), 0)
    for lane in range(lanes):
        for moment in range(start, end):
            inside = (name for name in order if any(row[0] == lane and row[1] <= moment < row[2] for row in spans.get(name, ())))
            counted[next(inside, "between_steps")] += 1
    counted["productive"] -= times["slow_excess"] or 0
    assert {name: time or 0 for name, time in times.items() if name != "slow_excess"} == counted


def test_steps_on_the_device_end_with_their_work() -> None:
    rows = pl.DataFrame({
        "node": [0, 0, 0], "process": [0, 0, 0], "phase": pl.Series([None] * 3, dtype=pl.String), "number": [4, 5, 7],
        "host_start_ns": [0, 10, 30], "host_duration_ns": [10, 10, 5], "device_start_ns": [5, 16, None],
        "device_duration_ns": [10, 9, None],
    })  # fmt: skip
    assert extents(rows).select("number", "start", "end").rows() == [(4, 0, 15), (5, 15, 25), (7, 30, 35)]
