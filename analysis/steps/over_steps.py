"""Ranks compared step by step: computation per step -> the ranks over the median, and whether the others wait for them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import polars as pl

from ..report.cause_details import ComparedRank
from ..toolkit.labels import place
from ..toolkit.places import Places
from .data import StepData

THRESHOLD: Final = 10
STEP_KEY: Final = ["phase", "number"]


def ranked_steps(data: StepData, times: pl.DataFrame) -> pl.DataFrame:
    """Return the :func:`.times.step_times` of the processes that have a rank.

    ``computation`` and ``waited`` are those of the device work of the step alone, without the wait before it. ``computed`` is the
    computation in the time of the whole step.
    """
    return times.join(data.ranked, on="process", how="semi").rename({"computation": "computed", "computing": "computation"})


def compared_steps(
    measured: pl.DataFrame, threshold: float, roles: Mapping[int, int] | None = None, *, alone: bool = False
) -> pl.DataFrame:
    """Compare the computation of each step with the median of at least two ranks.

    ``roles``: of each process; ranks are compared with those of their role. None: with all. ``alone``: the only rank of a role also has
    rows, in which it is the median.
    """
    computation, median = pl.col("computation"), pl.col("median")
    role = pl.col("process").cast(pl.Int64).replace_strict(roles, default=None, return_dtype=pl.Int64) if roles else pl.lit(0, pl.Int64)
    key = [*STEP_KEY, "role"]
    return (
        measured.with_columns(role=role)
        .filter(pl.col("role").is_not_null())
        .with_columns(median=computation.median().over(key), among=pl.len().over(STEP_KEY if alone else key))
        .filter(pl.col("among") > 1, median > 0)
        .with_columns(excess=computation - median, over=100 * computation > (100 + threshold) * median)
        .sort("process", "number")
    )


@dataclass(frozen=True, slots=True)
class RankOverSteps:
    """A rank over the compared steps: medians per step, whether it is over in most of them, and whether waiting ranks confirm it.

    ``longer_ns``: its computation - that of the others; ``waits_ns``: the additional time of the others in collectives.
    """

    process: int
    node: str
    rank: int | None
    pid: int | None
    device: int
    steps: int
    steps_over: int
    computation_ns: float
    excess_ns: float
    excess_percent: float
    waited_ns: float
    longer_ns: float | None
    waits_ns: float | None
    confirmed: bool | None

    @property
    def over(self) -> bool:
        return 2 * self.steps_over > self.steps

    @property
    def straggler(self) -> bool:
        return self.over and self.confirmed is True

    @property
    def place(self) -> str:
        return place(self.node, self.rank, self.device)

    def details(self) -> ComparedRank:
        return ComparedRank(
            node=self.node,
            rank=self.rank,
            pid=self.pid,
            device=self.device,
            steps=self.steps,
            computation_per_step_ns=self.computation_ns,
            excess_ns=self.excess_ns,
            excess_percent=self.excess_percent,
            steps_over=self.steps_over,
            steps_over_percent=100 * self.steps_over / self.steps,
            waiting_per_step_ns=self.waited_ns,
            others_wait_ns=self.waits_ns if self.over else None,
            straggler=self.straggler,
            confirmed=self.confirmed,
        )


def ranks_over_steps(places: Places, compared: pl.DataFrame) -> list[RankOverSteps]:
    often = pl.col("over").mean().over("process") > 0.5
    others = {name: pl.col(name).filter(~pl.col("often")).median().over(*STEP_KEY, "role") for name in ("waited", "computation")}
    rows = (
        compared.with_columns(often=often)
        .with_columns(waits=others["waited"] - pl.col("waited"), longer=pl.col("computation") - others["computation"])
        .group_by("process", "device")
        .agg(
            steps=pl.len(),
            steps_over=pl.col("over").sum(),
            computation_ns=pl.col("computation").median(),
            excess_ns=pl.col("excess").median(),
            excess_percent=(100 * pl.col("excess") / pl.col("median")).median(),
            waited_ns=pl.col("waited").median(),
            longer_ns=pl.col("longer").median(),
            waits_ns=pl.col("waits").median(),
        )
    )
    collectives = bool(compared["waited"].sum())
    ranked = []
    for row in rows.iter_rows(named=True):
        at = places.process(row["process"])
        over = 2 * row["steps_over"] > row["steps"]
        decidable = over and collectives and row["waits_ns"] is not None
        confirmed = 2 * row["waits_ns"] >= row["longer_ns"] if decidable else None
        rank = RankOverSteps(node=at.node, rank=at.rank, pid=at.pid, confirmed=confirmed, **row)
        ranked.append((at.rank or 0, at.order, rank))
    return [rank for _, _, rank in sorted(ranked, key=lambda item: item[:2])]
