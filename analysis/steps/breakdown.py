"""Mean time of the steps by activity, over all ranks and on the ranks that differ most."""

from __future__ import annotations

from typing import Final

import polars as pl

from ...ingest.store.store import Store
from ..report.steps import RankSteps, StepBar, StepBreakdown
from .data import StepData
from .times import PARTS, TIMES, no_device_steps, step_times, steps_with_start

BARS: Final = 60  # bars per chart; more steps are pooled with their neighbors
RANKS: Final = 4


def step_breakdown(store: Store, times: pl.DataFrame | None = None, data: StepData | None = None) -> StepBreakdown:
    """Return the bars over the steps: the mean of all ranks, and some single ranks."""
    data = data or StepData(store)
    times = step_times(store, data) if times is None else times
    if times.is_empty():
        return StepBreakdown(absent=no_device_steps(store))
    numbers = times["number"].unique().sort()
    pooled = -(-len(numbers) // BARS)
    bar = pl.DataFrame({"number": numbers, "bar": pl.int_range(len(numbers), eager=True) // pooled})
    placed = times.join(bar, on="number")
    ranks = []
    for process in _selected(times):
        rows = placed.filter(pl.col("process").eq_missing(process))
        location = data.places.process(process, rows["node"][0])
        ranks.append((location.order, RankSteps(*location, rows["device"][0], _bars(rows))))
    return StepBreakdown(
        steps=len(numbers),
        pooled=pooled,
        processes=times["process"].n_unique(),
        devices=times.select(pl.col("devices").max()).item(),
        mean=_bars(placed),
        ranks=tuple(row for _, row in sorted(ranks, key=lambda item: item[0])),
        average=_bars(steps_with_start(times).with_columns(bar=0))[0],
    )


def _selected(times: pl.DataFrame) -> list[int | None]:
    """Return the two processes that compute longest, the median and the least."""
    mean = times.group_by("process").agg(pl.col("computation").mean()).sort("computation", "process", nulls_last=True)["process"].to_list()
    if len(mean) < 2:
        return []
    return list(mean) if len(mean) <= RANKS else [mean[0], mean[(len(mean) - 1) // 2], *mean[-2:]]


def _bars(rows: pl.DataFrame) -> tuple[StepBar, ...]:
    summed = rows.group_by("bar").agg(
        pl.col("number").min().alias("first"), pl.col("number").max().alias("last"), pl.len().alias("steps"), pl.col(TIMES).sum()
    )
    fields = ("step", *PARTS, "hidden_communication")
    return tuple(
        StepBar(row["first"], row["last"], row["steps"], **{f"{name}_ns": row[name] for name in fields})
        for row in summed.sort("bar").iter_rows(named=True)
    )
