"""Counters of a program: any values, as it recorded them."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from typing import Any

import pytest
from postrun.analysis import Options, analyze
from postrun.analysis.machine.counters import MOST, POINTS, counters
from postrun.ingest.store import Store

MakeStore = Callable[..., Store]


def values(name: str, numbers: list[float], process: int | None = 0, start: int = 0) -> list[dict[str, Any]]:
    return [{"node": 0, "metric": f"counter.{name}", "unit": process, "time_ns": start + 10 * i, "value": v} for i, v in enumerate(numbers)]


def test_of_every_process_by_name(make_store: MakeStore) -> None:
    processes = [{"id": 0, "node": 0, "pid": 100, "rank": 1}, {"id": 1, "node": 0, "pid": 101, "rank": 0}]
    rows = values("loss", [3.0, 1.0, 2.0]) + values("loss", [5.0], process=1) + values("accuracy", [0.5], process=1)
    rows += [{"node": 0, "metric": "memory_used_percent", "time_ns": 0, "value": 1.0}]
    result = counters(make_store(processes=processes, sample=rows))
    assert [(one.name, one.rank, one.pid) for one in result] == [("accuracy", 0, 101), ("loss", 0, 101), ("loss", 1, 100)]
    loss = result[2]
    assert (loss.values, loss.first, loss.last, loss.min, loss.max) == (3, 3.0, 2.0, 1.0, 3.0)
    assert (loss.time_ns, loss.mean, loss.low, loss.high) == ((0, 10, 20), *[(3.0, 1.0, 2.0)] * 3)


def test_what_is_no_finite_number_is_counted(make_store: MakeStore) -> None:
    rows = values("loss", [1.0, math.nan, math.inf, -math.inf, 2.0]) + values("lost", [math.nan] * 2)
    store = make_store(sample=rows)
    loss, lost = counters(store)
    assert (loss.values, loss.not_finite, loss.first_not_finite_ns, loss.mean) == (5, 3, 10, (1.0, 2.0))
    assert (lost.values, lost.not_finite, lost.first, lost.max, lost.time_ns) == (2, 2, None, None, ())
    assert json.loads(analyze(store, Options(generated_at_ns=0)).to_json())["counters"][1]["last"] is None


@pytest.mark.parametrize("number", [POINTS, POINTS + 1, 10 * POINTS, 10 * POINTS + 7])
def test_many_values_are_thinned(make_store: MakeStore, number: int) -> None:
    numbers = [float((i * 7919) % 1000) for i in range(number)]
    [result] = counters(make_store(sample=values("n", numbers)))
    assert len(result.time_ns) <= POINTS
    assert (result.values, result.first, result.last, result.min, result.max) == (
        number,
        numbers[0],
        numbers[-1],
        min(numbers),
        max(numbers),
    )
    width = 10 * (number - 1) // POINTS + 1 if number > POINTS else 1
    stretches: dict[int, list[float]] = {}
    for i, value in enumerate(numbers):
        stretches.setdefault(10 * i // width, []).append(value)
    assert list(result.mean) == pytest.approx([sum(one) / len(one) for one in stretches.values()])
    assert list(result.low) == [min(one) for one in stretches.values()]
    assert list(result.high) == [max(one) for one in stretches.values()]


def test_the_largest_numbers_have_a_mean(make_store: MakeStore) -> None:
    [result] = counters(make_store(sample=values("huge", [1.7e308, -1.7e308, 1.7e308] * POINTS)))
    assert all(low <= mean <= high for low, mean, high in zip(result.low, result.mean, result.high, strict=True))


def test_of_very_many_those_with_most_values(make_store: MakeStore) -> None:
    rows = [row for i in range(MOST + 5) for row in values(f"c{i}", [1.0] * (2 if i >= 5 else 1))]
    assert {one.values for one in counters(make_store(sample=rows))} == {2}


def test_without_counters(make_store: MakeStore) -> None:
    assert counters(make_store()) == ()
