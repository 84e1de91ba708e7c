"""Time of events inside of a set of intervals: each event once, weighted by its overlap."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from typing import Any

import polars as pl
import pytest
from example_counts import examples
from postrun.analysis.report import plain
from postrun.analysis.rules.evidence import active_during as module
from postrun.ingest.store import Store

MakeStore = Callable[..., Store]
EMPTY: dict[str, list[Any]] = {"phases": [], "annotations": [], "operators": []}


def active_during(store: Store, intervals: pl.DataFrame, top: int) -> dict[str, list[dict[str, Any]]]:
    """Return the result of the module as in report.json."""
    return plain(module.active_during(store, intervals, top))  # type: ignore[no-any-return]


def frame(*rows: tuple[int, ...], keys: tuple[str, ...] = ()) -> pl.DataFrame:
    return pl.DataFrame(list(rows), schema={"start": pl.Int64, "end": pl.Int64, **dict.fromkeys(keys, pl.Int32)}, orient="row")


def operator(name: str, start: int, duration: int, **more: Any) -> dict[str, Any]:
    return {"kind": "operator", "name": name, "start_ns": start, "duration_ns": duration, **more}


def annotation(name: str, start: int, duration: int | None, **more: Any) -> dict[str, Any]:
    return {"side": "host", "name": name, "start_ns": start, "duration_ns": duration, "complete": True, **more}


def step(phase: str | None, start: int, duration: int, **more: Any) -> dict[str, Any]:
    return {"node": 0, "process": 0, "phase": phase, "index": 0, "host_start_ns": start, "host_duration_ns": duration, **more}


def test_each_event_counts_once_by_what_lies_inside(make_store: MakeStore) -> None:
    store = make_store(
        host_event=[
            operator("aten::mm", 0, 100),  # 10..30 and 50..60 of it: 30
            operator("aten::mm", 55, 10),  # 5
            operator("aten::add", 20, 20),  # 10
            operator("aten::exp2", 30, 20),  # between the intervals
            operator("aten::mul", 60, 5),  # begins where the last interval ends
        ]
    )
    result = active_during(store, frame((10, 25), (20, 30), (50, 60), (12, 13)), 10)
    assert result["operators"] == [
        {"name": "aten::mm", "time_ns": 35, "percent": pytest.approx(100 * 35 / 45)},
        {"name": "aten::add", "time_ns": 10, "percent": pytest.approx(100 * 10 / 45)},
    ]
    assert result["phases"] == result["annotations"] == []
    assert [row["name"] for row in active_during(store, frame((10, 30), (50, 60)), 1)["operators"]] == ["aten::mm"]


def test_annotations_by_base_name_on_the_host_only(make_store: MakeStore) -> None:
    store = make_store(
        annotation=[
            annotation("batch 1", 0, 10),
            annotation("batch 2", 10, 10),
            annotation("batch 2", 10, 10, side="device"),
            annotation("open", 0, None, complete=False),
            annotation("cut", 0, 50, complete=False),
            annotation("MatMul", 0, 4, phase="cpu_functions"),
            annotation("Conv2D", 0, 3, phase="gpu_functions-dev:0"),
        ]
    )
    result = active_during(store, frame((0, 15)), 10)
    assert result["annotations"] == [{"name": "batch", "time_ns": 15, "percent": 100.0}]
    assert [(row["name"], row["time_ns"]) for row in result["operators"]] == [("MatMul", 4), ("Conv2D", 3)]


def test_phases_and_the_time_outside_of_steps(make_store: MakeStore) -> None:
    processes = [{"id": 0, "node": 0, "pid": 1}, {"id": 1, "node": 0, "pid": 2}]
    store = make_store(
        processes=processes, step=[step("TRAIN", 0, 10), step("EVAL", 20, 10), step("TRAIN", 0, 5, process=1), step(None, 0, 30)]
    )
    result = active_during(store, frame((0, 25)), 10)["phases"]
    # process 0: TRAIN 10, EVAL 5, rest 10 (its unnamed step has no phase); process 1: TRAIN 5, rest 20
    assert [(row["name"], row["time_ns"], row["percent"]) for row in result] == [
        ("outside of steps", 30, 60.0), ("TRAIN", 15, 30.0), ("EVAL", 5, 10.0)
    ]  # fmt: skip
    unnamed = make_store(step=[step(None, 0, 30)])
    assert active_during(unnamed, frame((0, 20)), 10)["phases"] == [{"name": "step", "time_ns": 20, "percent": 100.0}]


def test_only_events_of_the_node_and_process_of_an_interval(make_store: MakeStore) -> None:
    places = [(node, process) for node in (0, 1) for process in (2 * node, 2 * node + 1)]
    store = make_store(
        nodes=[{"id": 0, "hostname": "a"}, {"id": 1, "hostname": "b"}],
        processes=[{"id": process, "node": node, "pid": process} for node, process in places],
        host_event=[operator(f"op of {process}", 0, 100, node=node, process=process) for node, process in places],
        step=[step("TRAIN", 0, 40, node=node, process=process) for node, process in places],
    )

    def times(intervals: pl.DataFrame, kind: str = "operators") -> dict[str, int]:
        return {row["name"]: row["time_ns"] for row in active_during(store, intervals, 10)[kind]}

    assert times(frame((0, 10, 1), keys=("node",))) == {"op of 2": 10, "op of 3": 10}
    assert times(frame((0, 10, 1), (5, 25, 0), keys=("node",))) == {"op of 0": 20, "op of 1": 20, "op of 2": 10, "op of 3": 10}
    assert times(frame((0, 10, 3), keys=("process",))) == {"op of 3": 10}
    assert times(frame((0, 10, 1, 3), (0, 7, 0, 3), keys=("node", "process"))) == {"op of 3": 10}
    assert times(frame((30, 50, 1), keys=("node",)), "phases") == {"TRAIN": 20, "outside of steps": 20}
    assert times(frame((30, 50, 3), keys=("process",)), "phases") == {"TRAIN": 10, "outside of steps": 10}


def test_events_without_a_process(make_store: MakeStore) -> None:
    store = make_store(host_event=[operator("known", 0, 10), operator("unknown", 0, 10, process=None)])
    of_unknown = pl.DataFrame({"start": [0], "end": [4], "process": [None]}, schema_overrides={"process": pl.Int32})
    assert [row["name"] for row in active_during(store, of_unknown, 5)["operators"]] == ["unknown"]
    assert len(active_during(store, frame((0, 4)), 5)["operators"]) == 2


def test_nothing(make_store: MakeStore) -> None:
    store = make_store(host_event=[operator("op", 0, 10)])
    assert active_during(store, frame(), 5) == EMPTY
    assert active_during(store, frame((5, 5)), 5) == EMPTY
    assert active_during(store, frame((100, 200)), 5) == EMPTY
    assert active_during(make_store(), frame((0, 10)), 5) == EMPTY


def test_against_counting_nanoseconds(make_store: MakeStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_BATCH", 7)
    origin = 1_700_000_000_000_000_000
    for seed in range(examples(30)):
        rng = random.Random(seed)
        events = [(f"op-{rng.choice('abc')}x", rng.randrange(300), rng.randrange(40), rng.randrange(2)) for _ in range(60)]
        spans = [(start, start + rng.randrange(30), rng.randrange(2)) for start in (rng.randrange(300) for _ in range(8))]
        store = make_store(
            nodes=[{"id": 0, "hostname": "a"}, {"id": 1, "hostname": "b"}],
            host_event=[operator(name, origin + start, length, node=node) for name, start, length, node in events],
        )
        inside = {(node, at) for start, end, node in spans for at in range(start, end)}
        times = Counter[str]()
        for name, start, length, node in events:
            times[name] += sum((node, at) in inside for at in range(start, start + length))
        result = active_during(store, frame(*((origin + a, origin + b, node) for a, b, node in spans), keys=("node",)), 10)["operators"]
        assert {row["name"]: row["time_ns"] for row in result} == {name: time for name, time in times.items() if time}, seed
