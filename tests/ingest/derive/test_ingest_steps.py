"""Tests that the steps of a run are those of its annotations, with the device work launched in each."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from postrun.ingest.derive import steps as derive
from postrun.ingest.derive.steps import derive_steps
from postrun.ingest.store import Store

COLUMNS = '"index", phase, host_start_ns, host_duration_ns, device_start_ns, device_duration_ns, device_events'


def store_of(
    annotations: list[tuple[Any, ...]],
    launches: list[tuple[Any, ...]] = (),
    device: list[tuple[Any, ...]] = (),  # type: ignore[assignment]
) -> Store:
    """Create a store with annotations, launches and device events.

    annotations: (process, name, value, start, duration, phase); launches: (process, start, correlation, kind); device: (process, kind,
    start, duration, correlation).
    """
    store = Store.create(None)
    ids = store.name_ids([row[1] for row in annotations])
    store.append(
        "annotation",
        pl.DataFrame(
            [(row[0], id_, *row[2:], "host", 0) for row, id_ in zip(annotations, ids, strict=True)],
            schema={"process": pl.Int32, "name": pl.Int32, "value": pl.Int64, "start_ns": pl.Int64, "duration_ns": pl.Int64,
                    "phase": pl.String, "side": pl.String, "node": pl.Int32}, orient="row",
        ),
    )  # fmt: skip
    store.append(
        "host_event",
        pl.DataFrame(
            launches,
            schema={"process": pl.Int32, "start_ns": pl.Int64, "correlation": pl.Int64, "kind": pl.String}, orient="row",
        ).with_columns(duration_ns=pl.lit(1), node=pl.lit(0)),
    )  # fmt: skip
    store.append(
        "device_event",
        pl.DataFrame(
            device,
            schema={"process": pl.Int32, "kind": pl.String, "start_ns": pl.Int64, "duration_ns": pl.Int64, "correlation": pl.Int64},
            orient="row",
        ).with_columns(node=pl.lit(0)),
    )
    derive_steps(store)
    return store


def steps(store: Store) -> list[tuple[Any, ...]]:
    return store.frame(f"SELECT {COLUMNS} FROM step ORDER BY process, host_start_ns, phase").rows()


@pytest.mark.parametrize("name", ["step_4", "step 4", "step-4", "Step4", "STEP_4", "ProfilerStep#4"])
def test_names_of_steps(name: str) -> None:
    assert steps(store_of([(0, name, 4, 100, 50, None)])) == [(4, None, 100, 50, None, None, 0)]


@pytest.mark.parametrize("name", ["step_", "my step_4", "step_4 ", "stepper4", "step_4a", "ProfilerStep", "Optimizer.step#4"])
def test_names_that_are_no_steps(name: str) -> None:
    assert steps(store_of([(0, name, 4, 100, 50, None)])) == []


def test_phase_events_are_steps_of_their_phase() -> None:
    train, evaluate = "Step:ModeKeys.TRAIN", "Step:ModeKeys.EVAL"
    rows = [
        (0, train, 7, 0, 10, train),
        (0, train, None, 20, 10, train),
        (0, evaluate, None, 40, 5, evaluate),
        (0, "x", 1, 41, 1, "Forward"),
    ]
    assert steps(store_of(rows)) == [
        (7, "TRAIN", 0, 10, None, None, 0), (1, "TRAIN", 20, 10, None, None, 0), (0, "EVAL", 40, 5, None, None, 0),
    ]  # fmt: skip


def test_profiler_steps_win_over_steps_that_the_user_named() -> None:
    rows = [(0, "ProfilerStep#1", 1, 0, 10, None), (0, "step_1", 1, 1, 8, None), (1, "step_1", 1, 1, 8, None)]
    assert steps(store_of(rows)) == [(1, None, 0, 10, None, None, 0), (1, None, 1, 8, None, None, 0)]


def numbers(rows: list[tuple[Any, ...]]) -> list[tuple[int, int]]:
    """Number and begin of each step."""
    return [(row[0], row[2]) for row in steps(store_of(rows))]


def test_a_profiler_that_was_on_for_some_of_all_steps_does_not_hide_the_others() -> None:
    marked = [(0, f"step_{i}", i, 10 * i, 9, None) for i in range(6)]
    profiled = [(0, f"ProfilerStep#{i - 2}", i - 2, 10 * i, 10, None) for i in (2, 3)]
    every = [(i, 10 * i) for i in range(6)]
    assert numbers(marked + profiled) == every
    assert numbers(marked[2:] + profiled) == every[2:]
    assert numbers(marked[:4] + profiled) == every[:4]
    assert numbers(marked[2:4] + profiled) == [(0, 20), (1, 30)]  # as many of them
    ten = [(0, f"ProfilerStep#{i}", i, 10 * i, 10, None) for i in range(10)]
    others = [(0, f"step_{i}", i, 10 * i, 9, None) for i in range(1, 11)]  # nine of these, and one after them
    assert numbers(ten + others) == [(i, 10 * i) for i in range(10)]


def test_ranges_that_are_parts_of_a_profiled_step_or_of_something_else_are_no_steps() -> None:
    profiled = [(0, f"ProfilerStep#{i}", i, 100 * i, 100, None) for i in range(3)]
    micro = [(0, f"step_{i}", i, 25 * i, 25, None) for i in range(-4, 16)]  # four in each, and some before and after
    assert numbers(profiled + micro) == [(i, 100 * i) for i in range(3)]
    long = [(0, f"step_{i}", i, 1000 * i - 2000, 30, None) for i in range(8)]  # elsewhere
    assert numbers(profiled + long) == [(i, 100 * i) for i in range(3)]


@pytest.fixture(params=[None, 2])
def block(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Join the usual number of device events at a time, or two."""
    if request.param is not None:
        monkeypatch.setattr(derive, "_BLOCK", request.param)


@pytest.mark.usefixtures("block")
def test_device_work_belongs_to_the_step_in_which_its_launch_starts() -> None:
    rows = [(0, "ProfilerStep#0", 0, 100, 100, None), (0, "ProfilerStep#1", 1, 200, 100, None), (1, "ProfilerStep#0", 0, 100, 100, None)]
    launches = [
        (0, 99, 1, "launch"),  # before the first step
        (0, 100, 2, "launch"),
        (0, 199, 3, "launch"),
        (0, 200, 4, "launch"),  # at the border: the second step's
        (0, 300, 5, "launch"),  # at the end: no step's
        (1, 150, 2, "launch"),  # the other process counts for itself
        (0, 150, 6, "sync"),
    ]
    device = [
        (0, "kernel", 120, 5, 1), (0, "kernel", 150, 10, 2), (0, "memcpy", 500, 50, 3), (0, "kernel", 300, 7, 4),
        (0, "kernel", 300, 7, 5), (1, "kernel", 180, 1, 2), (0, "sync", 100, 900, 6), (0, "kernel", 1, 1, None),
    ]  # fmt: skip
    assert steps(store_of(rows, launches, device)) == [
        (0, None, 100, 100, 150, 400, 2), (1, None, 200, 100, 300, 7, 1), (0, None, 100, 100, 180, 1, 1),
    ]  # fmt: skip


@pytest.mark.usefixtures("block")
def test_graph_runs_count_once_each_and_a_correlation_seen_twice_on_the_host_counts_once() -> None:
    rows = [(0, "ProfilerStep#0", 0, 0, 100, None), (0, "ProfilerStep#1", 1, 100, 100, None)]
    launches = [(0, 10, 1, "launch"), (0, 12, 1, "call"), (0, 110, 2, "launch")]
    device = [(0, "kernel", 20 + i, 1, 1) for i in range(50)] + [(0, "kernel", 120, 1, 2)]
    assert [row[-1] for row in steps(store_of(rows, launches, device))] == [50, 1]


def test_incomplete_and_device_side_annotations_are_no_steps() -> None:
    store = store_of([])
    name = store.name_ids(["ProfilerStep#3"])[0]
    for side, complete in (("device", True), ("host", False)):
        row = {"process": 0, "name": name, "value": 3, "start_ns": 0, "duration_ns": 1, "side": side, "complete": complete, "node": 0}
        store.insert("annotation", row)
    assert derive_steps(store) == 0


@pytest.mark.slow
def test_equals_a_loop_over_steps_and_is_not_quadratic(tmp_path: Path) -> None:
    """Compare with a plain loop; a quadratic join would compare 4 * 10^9 pairs."""
    chance = random.Random(1)
    starts = sorted(chance.sample(range(10**9), 20_000))
    lengths = [chance.randrange(1, after - start + 1) for start, after in zip(starts, [*starts[1:], 10**9], strict=True)]
    launches = [(0, chance.randrange(10**9), i, "launch") for i in range(200_000)]
    chance.shuffle(launches)
    device = [(0, "kernel", start + 5, 1, correlation) for _, start, correlation, _ in launches]
    store = store_of([(0, f"step_{i}", i, s, n, None) for i, (s, n) in enumerate(zip(starts, lengths, strict=True))], launches, device)
    counts = [0] * len(starts)
    from bisect import bisect_right

    for _, at, _, _ in launches:
        i = bisect_right(starts, at) - 1
        if i >= 0 and at < starts[i] + lengths[i]:
            counts[i] += 1
    assert [row[-1] for row in steps(store)] == counts


def test_a_step_on_two_threads_is_one() -> None:
    store = store_of(
        [
            (0, "ProfilerStep#1", 1, 0, 100, None),
            (0, "ProfilerStep#1", 1, 2, 97, None),  # a second thread
            (0, "ProfilerStep#2", 2, 100, 100, None),
            (0, "ProfilerStep#2", 2, 101, 110, None),  # outlasts the first thread's by the time of a lock
            (0, "ProfilerStep#1", 1, 500, 10, None),  # the number once more, in a later cycle
            (1, "ProfilerStep#1", 1, 0, 100, None),  # another process
        ],
        launches=[(0, 10, 7, "launch"), (0, 110, 8, "launch")],
        device=[(0, "kernel", 50, 20, 7), (0, "kernel", 150, 30, 8)],
    )
    assert steps(store) == [
        (1, None, 0, 100, 50, 20, 1),
        (2, None, 100, 100, 150, 30, 1),
        (1, None, 500, 10, None, None, 0),
        (1, None, 0, 100, None, None, 0),
    ]
