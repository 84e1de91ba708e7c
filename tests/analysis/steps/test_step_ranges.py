"""Average step of a program with annotations only, divided by its own outermost ranges."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from postrun.analysis.report import StepParts
from postrun.analysis.steps.steps import steps
from postrun.ingest.derive.steps import derive_steps
from postrun.ingest.store import Store

MakeStore = Callable[..., Store]


def ranged(name: str, start: int, end: int, **more: Any) -> dict[str, Any]:
    return {"name": name, "side": "host", "start_ns": start, "duration_ns": end - start, "complete": True, **more}


def parts(make_store: MakeStore, *rows: dict[str, Any], **tables: Any) -> tuple[StepParts, ...]:
    store = make_store(annotation=list(rows), **tables)
    derive_steps(store)
    return steps(store).parts


def test_nested_ranges_belong_to_the_outer_one_and_an_epoch_is_no_part(make_store: MakeStore) -> None:
    rows = [ranged("epoch", 0, 1000)]
    for i in range(4):
        at = 100 * i
        rows += [ranged("step", at + 10, at + 100, value=i), ranged("forward", at + 20, at + 60), ranged("layer_1", at + 25, at + 55)]
        rows += [ranged("DataLoader", at + 2, at + 8)]  # between the steps: the step reaches from the end of the one before
    [result] = parts(make_store, *rows)
    assert result.annotated
    assert result.steps == 4
    assert result.mean_step_ns == (390 / 4)
    # The first step has no beginning before its own start.
    assert result.mean_ns == {"data_loader": 3 * 6 / 4, "forward": 40, "other": 390 / 4 - 40 - 3 * 6 / 4}


def test_other_threads_and_open_ranges_do_not_count(make_store: MakeStore) -> None:
    rows = [ranged(f"step_{i}", 100 * i, 100 * i + 100) for i in range(2)]
    rows += [ranged("load", 0, 150, tid=2), ranged("forward", 10, 40), ranged("forward", 110, 140, complete=False)]
    [result] = parts(make_store, *rows)
    assert result.mean_ns == {"forward": 15, "other": 85}


def test_names_lose_their_number_and_the_least_are_other(make_store: MakeStore) -> None:
    rows = [ranged("step", 0, 1000, value=0)]
    at = 0
    for name, length in [("a_1", 50), ("a_2", 50), ("b", 90), ("c", 80), ("d", 70), ("e", 60), ("f", 55), ("g", 5), ("h", 4)]:
        rows.append(ranged(name, at, at + length))
        at += length
    [result] = parts(make_store, *rows)
    assert result.mean_ns == {"a": 100, "b": 90, "c": 80, "d": 70, "e": 60, "f": 55, "other": 1000 - 455}


def test_ranges_that_overlap_count_once(make_store: MakeStore) -> None:
    rows = [ranged("step", 0, 100, value=0), ranged("a", 10, 50), ranged("b", 30, 80)]
    [result] = parts(make_store, *rows)
    assert sum(result.mean_ns.values()) == result.mean_step_ns == 100
    assert result.mean_ns["other"] == 30


@pytest.mark.parametrize("extra", [[], [ranged("forward", 500, 600)]])
def test_steps_without_parts_say_nothing_or_all_other(make_store: MakeStore, extra: list[dict[str, Any]]) -> None:
    result = parts(make_store, ranged("step", 0, 100, value=0), *extra)
    assert [one.mean_ns for one in result] == ([{"other": 100}] if extra else [])


def test_events_come_before_annotations(make_store: MakeStore) -> None:
    [result] = parts(
        make_store,
        ranged("step", 0, 100, value=0),
        ranged("forward", 10, 40),
        host_event=[{"kind": "operator", "name": "aten::mm", "start_ns": 10, "duration_ns": 20}],
    )
    assert not result.annotated
    assert result.mean_ns["cpu_op"] == 20
