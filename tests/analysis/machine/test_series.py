"""Series have every finite sample once, in the order of time, however the rows of the store are ordered."""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Callable
from typing import Any

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from postrun.analysis.machine import series as module
from postrun.analysis.machine.series import MetricSeries
from postrun.ingest.store import Store

Make = Callable[..., Store]
STEP = 500_000_000
T = 1_700_000_040_000_000_000


def sample(node: int, unit: int | None, number: int, value: float, jitter: int = 0) -> dict[str, Any]:
    return {"node": node, "metric": "gpu_utilization", "unit": unit, "time_ns": T + number * STEP + jitter, "value": value}


def plain(rows: list[dict[str, Any]]) -> list[tuple[int, int, int, float]]:
    """Node, unit, time and mean value, sorted."""
    values: dict[tuple[int, int, int], list[float]] = {}
    for row in rows:
        if math.isfinite(row["value"]):
            values.setdefault((row["node"], row["unit"] or 0, row["time_ns"]), []).append(row["value"])
    return [(*key, sum(own) / len(own)) for key, own in sorted(values.items())]


def read(store: Store, metric: str, *arguments: Any) -> MetricSeries:
    return module.read(store, [metric], *arguments)[metric]


def rows_of(series: MetricSeries) -> list[tuple[Any, ...]]:
    return series.frame().select("node", "unit", "time_ns", "value").rows()


@pytest.mark.parametrize("order", ["as sampled", "by series", "backward", "pieces", "shuffled"])
@pytest.mark.parametrize("interval_ns", [STEP, None])
def test_any_order_of_rows(make_store: Make, order: str, interval_ns: int | None) -> None:
    rng = random.Random(order)
    rows = [sample(node, unit, number, rng.random(), rng.randint(0, 9)) for number in range(60) for node in (3, 4, 9) for unit in (0, 2)]
    if order == "by series":
        rows.sort(key=lambda row: (row["node"], row["unit"], row["time_ns"]))
    elif order == "backward":
        rows.reverse()
    elif order == "pieces":
        pieces = [rows[begin : begin + 36] for begin in range(0, len(rows), 36)]
        rng.shuffle(pieces)
        rows = list(itertools.chain(*pieces))
    elif order == "shuffled":
        rng.shuffle(rows)
    series = read(make_store(sample=rows), "gpu_utilization", (3, 9), (0, 2), interval_ns)
    assert rows_of(series) == plain(rows)
    assert series.table.rows() == [(node, unit, 60) for node in (3, 4, 9) for unit in (0, 2)]
    assert series.mean.to_list() == pytest.approx(
        [math.fsum(row["value"] for row in rows if (row["node"], row["unit"]) == key) / 60 for key in itertools.product((3, 4, 9), (0, 2))]
    )


def test_stretches_are_enough_for_pieces(make_store: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    # Two threads return the minutes of a store in any order: no row is sorted.
    monkeypatch.setattr(module, "_sorted", None)
    minutes = [[sample(node, unit, number, 1.0) for number in range(begin, begin + 120) for node in (0, 1) for unit in range(3)]
               for begin in range(0, 1200, 120)]  # fmt: skip
    random.Random(1).shuffle(minutes)
    series = read(make_store(sample=list(itertools.chain(*minutes))), "gpu_utilization", (0, 1), (0, 2), STEP)
    assert series.time_ns.to_list() == [T + number * STEP for number in range(1200)] * 6


def test_only_the_nodes_and_the_metric_that_are_requested(make_store: Make) -> None:
    rows = [sample(node, None, 0, float(node)) for node in range(5)]
    rows += [{**row, "metric": "gpu_power"} for row in rows] + [sample(2, 5, 1, math.nan)]
    series = read(make_store(sample=rows), "gpu_utilization", (1, 3), (0, 5), STEP)
    assert series.table.rows() == [(1, 0, 1), (2, 0, 1), (3, 0, 1)]
    assert series.value.to_list() == [1.0, 2.0, 3.0]
    several = module.read(make_store(sample=rows), ["gpu_power", "gpu_sm_clock", "gpu_utilization"], (1, 4), (0, 5), STEP)
    assert {name: part.value.to_list() for name, part in several.items()} == {
        "gpu_power": [1.0, 2.0, 3.0, 4.0], "gpu_sm_clock": [], "gpu_utilization": [1.0, 2.0, 3.0, 4.0],
    }  # fmt: skip
    assert several["gpu_power"].table.rows() == [(1, 0, 1), (2, 0, 1), (3, 0, 1), (4, 0, 1)]
    with pytest.raises(ValueError, match="unknown metrics: x"):
        module.read(make_store(), ["x"], (0, 0), (0, 0), None)


samples = st.lists(
    st.builds(sample, st.integers(0, 2), st.sampled_from([None, 0, 1, 2**31 - 1]), st.integers(0, 12), st.sampled_from([1.0, 2.5, -4.0])),
    min_size=1,
    max_size=60,
)


@given(rows=samples)
def test_any_samples(rows: list[dict[str, Any]]) -> None:
    with Store.create(None) as store:
        store.append("sample", pl.DataFrame(rows, schema_overrides={"unit": pl.Int32, "node": pl.Int32}))
        series = read(store, "gpu_utilization", (0, 2), (0, 2**31 - 1), STEP)
    assert [row[:3] for row in rows_of(series)] == [row[:3] for row in plain(rows)]
    assert [row[3] for row in rows_of(series)] == pytest.approx([row[3] for row in plain(rows)])


@given(rows=samples, data=st.data())
def test_parts_of_series(rows: list[dict[str, Any]], data: st.DataObject) -> None:
    frame = pl.DataFrame(plain(rows), schema={"node": pl.Int32, "unit": pl.Int32, "time_ns": pl.Int64, "value": pl.Float64}, orient="row")
    series = MetricSeries.of(frame)
    assert rows_of(series) == frame.rows()
    chosen = [data.draw(st.booleans()) for _ in range(len(series.table))]
    parts = [series.only(pl.Series(mask, dtype=pl.Boolean)) for mask in (chosen, [not one for one in chosen])]
    assert rows_of(MetricSeries.joined(parts)) == frame.rows()
    keys = [key[:2] for key, mask in zip(series.table.rows(), chosen, strict=True) if mask]
    assert rows_of(parts[0]) == [row for row in frame.rows() if row[:2] in keys]
    some = [data.draw(st.booleans()) for _ in range(len(series))]
    kept = series.rows(pl.Series(some, dtype=pl.Boolean))
    assert rows_of(kept) == [row for row, mask in zip(frame.rows(), some, strict=True) if mask]
    assert kept.table["samples"].sum() == sum(some)


def test_moments_of_nodes(make_store: Make) -> None:
    rows = [
        sample(node, unit, number, 1.0) for node, units, count in ((0, 3, 4), (1, 1, 2)) for unit in range(units) for number in range(count)
    ]
    moments = read(make_store(sample=rows), "gpu_utilization", (0, 1), (0, 2), STEP).moments
    assert moments is not None
    assert moments.select("node", "row", "samples", "series").rows() == [(0, n, 4, 3) for n in range(4)] + [
        (1, 12 + n, 2, 1) for n in range(2)
    ]
    for change in (rows[:-1][1:], [*rows[:-1], sample(0, 1, 9, 1.0)]):
        assert read(make_store(sample=change), "gpu_utilization", (0, 1), (0, 2), STEP).moments is None
