"""Where did the time go over the steps, on average and on the ranks that differ most?"""

from __future__ import annotations

from typing import Final

import polars as pl

from ...ingest.store.store import Store
from ..report.model import RankSteps, StepBar, StepBreakdown
from ..toolkit.places import Places
from .times import TIMES, no_device_steps, step_times

BARS: Final = 60  # Steps beyond this many are pooled with their neighbours
RANKS: Final = 4


def step_breakdown(store: Store, times: pl.DataFrame | None = None) -> StepBreakdown:
    """Bars over the steps: the mean of all ranks, and single ranks (see :func:`_shown`). ``times``: :func:`step_times` of the store."""
    times = step_times(store) if times is None else times
    if times.is_empty():
        return StepBreakdown(absent=no_device_steps(store))
    numbers = times["number"].unique().sort()
    pooled = -(-len(numbers) // BARS)
    bar = pl.DataFrame({"number": numbers, "bar": pl.int_range(len(numbers), eager=True) // pooled})
    placed = times.join(bar, on="number")
    places = Places(store)
    ranks = []
    for process in _shown(times):
        own = placed.filter(pl.col("process").eq_missing(process))
        place = places.process(process, own["node"][0])
        ranks.append((place.order, RankSteps(place.node, place.rank, place.pid, own["device"][0], _bars(own))))
    return StepBreakdown(
        steps=len(numbers),
        pooled=pooled,
        processes=times["process"].n_unique(),
        devices=times.select(pl.col("devices").max()).item(),
        mean=_bars(placed),
        ranks=tuple(row for _, row in sorted(ranks, key=lambda item: item[0])),
    )


def _shown(times: pl.DataFrame) -> list[int | None]:
    """The two processes that compute longest per step, the one in the middle and the one that computes least; of one process none, for the
    mean is of it."""
    mean = times.group_by("process").agg(pl.col("computation").mean()).sort("computation", "process", nulls_last=True)["process"].to_list()
    if len(mean) < 2:
        return []
    return list(mean) if len(mean) <= RANKS else [mean[0], mean[(len(mean) - 1) // 2], *mean[-2:]]


def _bars(rows: pl.DataFrame) -> tuple[StepBar, ...]:
    summed = rows.group_by("bar").agg(
        pl.col("number").min().alias("first"), pl.col("number").max().alias("last"), pl.len().alias("steps"), pl.col(TIMES).sum()
    )
    return tuple(
        StepBar(
            first=row["first"],
            last=row["last"],
            steps=row["steps"],
            step_ns=row["step"],
            computation_ns=row["computation"],
            exposed_communication_ns=row["exposed_communication"],
            exposed_memory_ns=row["exposed_memory"],
            idle_ns=row["idle"],
            hidden_communication_ns=row["hidden_communication"],
        )
        for row in summed.sort("bar").iter_rows(named=True)
    )
