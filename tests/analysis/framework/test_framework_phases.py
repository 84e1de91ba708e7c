"""Operators and parts of each phase, computed on paper."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from postrun.analysis.framework.framework import framework
from postrun.analysis.framework.phases import TOP
from postrun.ingest.store import Store

Maker = Callable[..., Store]


def operator(name: str, start: int, duration: int, tid: int = 1, process: int = 0) -> dict[str, Any]:
    return {"kind": "operator", "name": name, "start_ns": start, "duration_ns": duration, "tid": tid, "process": process}


def step(phase: str | None, index: int, start: int, duration: int, process: int = 0) -> dict[str, Any]:
    times = {"host_start_ns": start, "host_duration_ns": duration}
    return {"node": 0, "process": process, "phase": phase, "index": index, **times}


def span(name: str, start: int, duration: int, tid: int = 1, process: int = 0) -> dict[str, Any]:
    where = {"tid": tid, "process": process, "side": "host", "complete": True}
    return {"name": name, "start_ns": start, "duration_ns": duration, **where}


def test_operators_and_parts_of_training_and_evaluation(make_store: Maker) -> None:
    # TRAIN lasts from 0 to 100 and from 200 to 300 in process 0 (0 to 50 in process 1), EVAL from 100 to 150.
    store = make_store(
        processes=[{"id": 0, "node": 0, "pid": 1}, {"id": 1, "node": 0, "pid": 2}],
        step=[step("TRAIN", 0, 0, 100), step("TRAIN", 1, 200, 100), step("EVAL", 0, 100, 50), step("TRAIN", 0, 0, 50, 1)],
        annotation=[span("forward", 10, 40), span("forward", 90, 30), span("backward", 210, 60), span("forward", 40, 20, process=1)],
        host_event=[
            operator("conv", 15, 10), operator("conv", 299, 5), operator("relu", 120, 7), operator("conv", 149, 1),
            operator("mm", 150, 90), operator("mm", 30, 20, process=1), operator("mm", 60, 20, process=1),
            operator("add", 220, 9, tid=2),
        ],
    )  # fmt: skip
    result = {(one.by, one.name): one for one in framework(store).by_phase}
    train, evaluation = result["phase", "TRAIN"], result["phase", "EVAL"]
    assert (train.total_ns, evaluation.total_ns) == (250, 50)
    assert [(row.name, row.count, row.total_ns) for row in train.cpu_operators] == [("mm", 1, 20), ("conv", 2, 15), ("add", 1, 9)]
    assert [(row.name, row.count, row.total_ns) for row in evaluation.cpu_operators] == [("relu", 1, 7), ("conv", 1, 1)]
    assert round(sum(row.percent for row in train.cpu_operators), 6) == 100
    # Forward: 40 + 10 of TRAIN in process 0, 10 in process 1; the part in EVAL began in a step of TRAIN, with which it ends.
    assert {share.name: share.total_ns for share in train.step_parts} == {"forward": 60, "backward": 60}
    assert {share.name: share.total_ns for share in evaluation.step_parts} == {}
    forward = result["part", "forward"]
    assert (forward.total_ns, forward.step_parts) == (60, ())
    # On the thread of the range alone: add runs on another one while backward lasts.
    assert [(row.name, row.total_ns) for row in forward.cpu_operators] == [("conv", 10)]
    assert ("part", "backward") not in result


def test_a_range_is_no_operator_of_itself_and_the_longest_are_kept(make_store: Maker) -> None:
    backward = "autograd::engine::evaluate_function: AddmmBackward0"
    inner = [operator(f"op{i}", 10 + i, 100 + i) for i in range(TOP + 5)]
    store = make_store(host_event=[operator(backward, 0, 1000), operator("AddmmBackward0", 5, 900), *inner, operator("late", 1000, 5)])
    (part,) = framework(store).by_phase
    assert (part.by, part.name, part.total_ns) == ("part", "backward", 1000)
    assert [row.name for row in part.cpu_operators] == [f"op{i}" for i in range(TOP + 4, 4, -1)]


def test_steps_without_a_phase_are_none(make_store: Maker) -> None:
    assert framework(make_store(step=[step(None, 0, 0, 10)], host_event=[operator("mm", 1, 2)])).by_phase == ()
