"""Simulation of jobs: makespans worked out on paper, a plain replay event by event as oracle, and properties."""

from __future__ import annotations

import random
from typing import Any

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from postrun.analysis.causes.simulation import OPERATIONS, Job, job, makespan

MS = 1_000_000


def operation(rank: int, stream: int, start: float, end: float, type: int = 0, match: int | None = None, **more: Any) -> dict[str, Any]:
    """Return an operation with times in ms; one with a match is a communication."""
    return {
        "rank": rank, "stream": stream, "step": 0, "communication": match is not None, "type": type, "work": type,
        "start": round(start * MS),
        "end": round(end * MS), "idle": 0, "match": match, **more,
    }  # fmt: skip


def frame(rows: list[dict[str, Any]]) -> pl.DataFrame:
    return pl.DataFrame(rows, schema=OPERATIONS)


def test_two_ranks_that_reduce_together() -> None:
    # Rank 0 computes 10 ms, rank 1 30 ms; both reduce for 5 ms after the slower one and then compute 10 ms.
    rows = [
        operation(0, 7, 0, 10, type=1), operation(1, 7, 0, 30, type=1),
        operation(0, 20, 10, 35, type=2, match=1), operation(1, 20, 30, 35, type=2, match=1),
        operation(0, 7, 35, 45, type=3), operation(1, 7, 35, 45, type=3),
    ]  # fmt: skip
    simulated = job(frame(rows))
    assert simulated.recorded_ns() == 45 * MS
    assert simulated.makespan() == 45 * MS
    transfers = simulated.operations.filter(pl.col("type") == 2)["transfer"]
    assert transfers.to_list() == [5 * MS, 5 * MS]
    # Ideal: both compute 20 ms, so that all ends after 20 + 5 + 10.
    assert simulated.makespan(pl.lit(True)) == 35 * MS
    # Only rank 1 ideal: 20 + 5 + 10; only rank 0: the first computation still takes 30.
    assert simulated.makespan(pl.col("rank") == 1) == 35 * MS
    assert simulated.makespan(pl.col("rank") == 0) == 45 * MS


def test_a_gap_counts_up_to_the_median_of_its_type() -> None:
    # Gaps of 1, 1 and 6 ms before operations of one type: the long one counts 1 ms.
    rows = [
        operation(0, 7, 0, 10, type=1),
        operation(0, 7, 11, 20, type=2),
        operation(0, 7, 21, 30, type=2),
        operation(0, 7, 36, 40, type=2),
    ]
    simulated = job(frame(rows))
    assert simulated.operations["gap"].to_list() == [0, MS, MS, 6 * MS]
    assert simulated.makespan() == (40 - 5) * MS
    assert simulated.makespan(gap="gap") == 40 * MS


def test_idle_time_within_a_run_is_part_of_its_gap() -> None:
    simulated = job(frame([operation(0, 7, 0, 10, type=1, idle=4 * MS), operation(0, 7, 10, 20, type=1, idle=4 * MS)]))
    assert simulated.operations.select("gap", "transfer").rows() == [(4 * MS, 6 * MS)] * 2
    assert simulated.makespan() == 20 * MS


def test_an_order_that_holds_in_each_step_is_kept_across_streams() -> None:
    # A receive of stream 9 ends before each computation; another stream ends at any time.
    rows = []
    for step in range(4):
        at = 100 * step
        rows += [
            operation(0, 9, at, at + 10, type=1, match=2 * step, step=step),
            operation(0, 7, at + 10, at + 30, type=2, step=step),
            operation(0, 11, at + 2, at + (5 if step % 2 else 25), type=3, match=2 * step + 1, step=step),
        ]
    simulated = job(frame(rows))
    ordered = simulated.operations
    for number, kind in enumerate(ordered["type"]):
        before = {ordered["type"][row] for row in simulated.predecessors[simulated.first[number] : simulated.first[number + 1]]}
        if kind == 2:
            assert 1 in before
            assert 3 not in {ordered["type"][row] for row in _in_step(simulated, number)}


def _in_step(simulated: Job, number: int) -> list[int]:
    rows = simulated.predecessors[simulated.first[number] : simulated.first[number + 1]]
    return [row for row in rows if simulated.operations["step"][row] == simulated.operations["step"][number]]


def test_the_ideal_of_communication_is_the_median_and_of_computation_the_mean() -> None:
    rows = [operation(0, 20, at, at + length, type=1, match=at) for at, length in ((0, 1), (10, 1), (20, 7))]
    rows += [operation(0, 7, at, at + length, type=2) for at, length in ((1, 1), (11, 1), (30, 7))]
    assert job(frame(rows)).operations.sort("type", "start")["ideal"].to_list() == [MS] * 3 + [3 * MS] * 3


def test_a_group_whose_ranks_do_not_meet_is_no_communication() -> None:
    rows = [operation(0, 20, 0, 5, type=1, match=1), operation(1, 20, 20, 25, type=1, match=1)]
    assert job(frame(rows)).operations["transfer"].to_list() == [5 * MS, 5 * MS]


def test_computation_that_waits_for_all_ranks_is_a_communication() -> None:
    # In each step rank 0 begins 30 ms before rank 1, and both end together: 10 ms after rank 1 began.
    rows = []
    for step in range(4):
        at = 100 * step
        rows += [
            operation(0, 7, at, at + 20, type=1, step=step), operation(1, 7, at, at + 50, type=2, work=1, step=step),
            operation(0, 7, at + 20, at + 60, type=3, work=9, step=step), operation(1, 7, at + 50, at + 60.1, type=4, work=9, step=step),
        ]  # fmt: skip
    simulated = job(frame(rows))
    together = simulated.operations.filter(pl.col("work") == 9)
    assert together["communication"].all()
    assert together.filter(pl.col("rank") == 0)["transfer"].to_list() == [10 * MS] * 4
    # Its own time contains the wait: 40 ms and 10.1 ms.
    listed = simulated.together().sort("rank", "step")
    assert listed["rank"].to_list() == [0] * 4 + [1] * 4
    assert listed["busy"].to_list() == pytest.approx([40 * MS] * 4 + [10.1 * MS] * 4)


def test_a_job_without_operations_takes_no_time() -> None:
    simulated = job(frame([]))
    assert (simulated.recorded_ns(), simulated.makespan(), simulated.groups) == (0, 0.0, 0)


def replay(simulated: Job, gaps: list[float], transfers: list[float]) -> float:
    """Simulate event by event: repeat over all operations until no time changes."""
    count = len(gaps)
    starts, ends = [0.0] * count, [0.0] * count
    members: dict[int, list[int]] = {}
    for number, group in enumerate(simulated.group):
        members.setdefault(group if group >= 0 else -1 - number, []).append(number)
    changed = True
    while changed:
        changed = False
        for number in range(count):
            before = simulated.predecessors[simulated.first[number] : simulated.first[number + 1]]
            start = max((ends[row] for row in before), default=0.0) + gaps[number]
            changed |= start != starts[number]
            starts[number] = start
        for rows in members.values():
            begun = max(starts[row] for row in rows)
            for row in rows:
                changed |= ends[row] != begun + transfers[row]
                ends[row] = begun + transfers[row]
    return max(ends, default=0.0)


@st.composite
def jobs(draw: st.DrawFn) -> pl.DataFrame:
    """Return ranks that compute on one stream and reduce on another, at any time."""
    ranks, steps, seed = draw(st.integers(1, 3)), draw(st.integers(1, 3)), draw(st.integers(0, 9999))
    chance = random.Random(seed)
    ready, rows = [0.0] * ranks, []
    for step in range(steps):
        for part in range(2):
            for rank in range(ranks):
                begin = ready[rank] + chance.choice([0, 0, 1.5])
                ready[rank] = begin + chance.uniform(1, 20)
                rows.append(operation(rank, 7, begin, ready[rank], type=part, step=step))
            end = max(ready) + chance.uniform(0.5, 4)
            for rank in range(ranks):
                rows.append(operation(rank, 20, ready[rank], end, type=10 + part, match=2 * step + part, step=step))
                if chance.random() < 0.7:
                    ready[rank] = end
    return frame(rows)


@given(jobs(), st.integers(0, 9999))
def test_the_time_of_a_job_is_that_of_a_plain_replay(operations: pl.DataFrame, seed: int) -> None:
    simulated = job(operations)
    chance = random.Random(seed)
    gaps = [chance.uniform(0, 5) for _ in range(len(operations))]
    transfers = [chance.uniform(0, 20) for _ in range(len(operations))]
    assert makespan(simulated, gaps, transfers) == pytest.approx(replay(simulated, gaps, transfers))


@given(jobs())
def test_recorded_gaps_and_durations_give_the_recorded_time(operations: pl.DataFrame) -> None:
    simulated = job(operations)
    assert simulated.makespan(gap="gap") == pytest.approx(simulated.recorded_ns(), abs=2)


@given(jobs(), st.integers(0, 9999))
def test_shorter_operations_never_lengthen_a_job(operations: pl.DataFrame, seed: int) -> None:
    simulated = job(operations)
    chance = random.Random(seed)
    gaps = simulated.operations["gap"].clip(0).to_list()
    transfers = simulated.operations["transfer"].clip(0).to_list()
    shorter = [transfer * chance.random() for transfer in transfers]
    assert makespan(simulated, gaps, shorter) <= makespan(simulated, gaps, transfers) + 1


@given(jobs(), st.permutations(range(50)))
def test_numbers_of_streams_do_not_matter(operations: pl.DataFrame, numbers: list[int]) -> None:
    streams = pl.col("stream").replace_strict({7: numbers[0], 20: numbers[1]}, return_dtype=pl.Int64)
    assert job(operations.with_columns(streams)).makespan(pl.lit(True)) == pytest.approx(job(operations).makespan(pl.lit(True)))


def test_what_a_rank_sends_and_receives_together_waits_for_all_of_it() -> None:
    # Rank 1 begins to send and receive at 10 ms; rank 0 comes at 12 ms, rank 2 at 30 ms, and all ends of rank 1 at 31 ms.
    rows = [
        operation(1, 7, 0, 10, type=1), operation(0, 7, 0, 12, type=2), operation(2, 7, 0, 30, type=3),
        operation(1, 21, 10, 31, type=9, match=1), operation(0, 22, 12, 31, type=9, match=1),
        operation(1, 23, 10, 31, type=9, match=2), operation(2, 24, 30, 31, type=9, match=2),
        operation(1, 7, 31, 40, type=4),
    ]  # fmt: skip
    simulated = job(frame(rows))
    transfers = simulated.operations.filter("communication").select("rank", "transfer").rows()
    # The end of rank 0 contains the wait of rank 1 for rank 2, which rank 0 cannot see: 31 - 12.
    assert sorted(transfers) == [(0, 19 * MS), (1, MS), (1, MS), (2, MS)]
    assert simulated.makespan() == 40 * MS
    # With a mean of 10 ms for rank 2, rank 1 goes on after 12 + 1 and 10 + 1 ms; rank 0 ends at 12 + 19.
    shorter = simulated.operations["transfer"].to_list()
    rank_2 = simulated.operations.select((pl.col("type") == 3).arg_max()).item()
    shorter[rank_2] = 10 * MS
    assert makespan(simulated, simulated.operations["gap"].to_list(), shorter) == 31 * MS
