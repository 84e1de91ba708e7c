"""Time of a job if some of its operations took their ideal time: a run -> its simulation, and the gain of each cause.

The ideal duration of computation is the mean over the ranks of a role and the steps, times the mean of all roles / that of the role; that
of communication is the median. A gain is the share of the job's time that goes, predicted by simulation (arXiv 2505.05713).
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace
from typing import Final

import polars as pl

from ...ingest.store.store import Store
from ..toolkit.wording import count, percent, plural
from .operations import operations
from .pauses import host_pauses, meanwhile
from .peers import UNKNOWN, Peers
from .simulation import Job, job

STEPS: Final = 3  # steps from which the order of operations is known
REPLAY_PERCENT: Final = 5.0  # largest difference between the simulated time of the job and the recorded one
UNMATCHED_PERCENT: Final = 10.0  # largest share of communication whose other ranks are unknown
RANKS: Final = 1024  # ranks that are simulated at most


@dataclass(frozen=True, slots=True)
class Gain:
    """``percent``: share of the job's time that goes. ``explained``: of the time that goes if all operations take their ideal time.
    ``explained`` exceeds 1 for a long stage: the ideal of a job also lengthens the stages that are shorter than their mean. ``alone``: part
    of that time that the operations cost on their own, if all others take their ideal time."""

    percent: float
    explained: float
    alone: float


@dataclass(frozen=True, slots=True)
class WhatIf:
    """A job that was simulated. Times are in ns; ``recorded_ns``, ``replayed_ns``, ``ideal_ns``: of all its steps.

    ``computing``: columns rank, role, step, computing (busy time of its computation in the step). ``waits``: columns rank, waits (mean time
    per step of computation that ends on all ranks together, in ns; the simulation treats it as communication); ``waiting_kernel``: the
    kernel with most of that time."""

    job: Job
    peers: Peers
    steps: int
    recorded_ns: int
    replayed_ns: float
    ideal_ns: float
    computing: pl.DataFrame
    waits: pl.DataFrame
    waiting_kernel: str | None = None

    def gain(self, which: pl.Expr) -> Gain:
        """Return what is gained if some operations take their ideal time."""
        saved = self.replayed_ns - self.job.makespan(which, "level")
        added = self.job.makespan(~which, "level") - self.ideal_ns
        lost = self.replayed_ns - self.ideal_ns
        return Gain(100 * saved / self.replayed_ns, saved / lost if lost > 0 else 0.0, added / lost if lost > 0 else 0.0)

    def saved_by_even_work(self, apart: Collection[int]) -> float:
        """Return the share that goes if computation takes the mean of its type.

        In percent of the job's time.         ``apart``: ranks that are always longer or shorter than their peers, and stay so."""
        rows = self.job.operations
        computation = ~pl.col("communication")
        alone = pl.when(pl.col("rank").is_in(list(apart))).then("rank")
        kept = pl.col("transfer").sum().over("role", alone) / pl.col("ideal").sum().over("role", alone)
        even = rows.filter(computation).select("rank", "role", factor=kept).unique()
        evenly = replace(
            self.job,
            operations=rows.join(even, on=["rank", "role"], how="left", maintain_order="left").with_columns(
                even=pl.col("ideal") * pl.col("factor")
            ),
        )
        return 100 * (self.replayed_ns - evenly.makespan(computation, "even")) / self.replayed_ns

    def passes(self) -> tuple[float, float] | None:
        """Return how the two computations of a micro-batch vary.

        Their standard deviation in percent of the mean, and their correlation. They are the two kinds of computation that take longest and
        run equally often in each step, the forward and the backward pass. None if they take less than half of the time."""
        rows = self.job.operations.filter(~pl.col("communication")).sort("start")
        rows = rows.with_columns(place=pl.int_range(pl.len()).over("rank", "step", "work"), often=pl.len().over("rank", "step", "work"))
        kinds = rows.group_by("role", "work", "often").agg(time=pl.col("transfer").sum())
        total = kinds["time"].sum()
        kinds = kinds.sort("time", "work", descending=True).group_by("role", maintain_order=True).head(2)
        kinds = kinds.filter(pl.len().over("role", "often") == 2, pl.col("often") > 1)
        if not total or 2 * kinds["time"].sum() < total:
            return None
        apart = pl.col("transfer") / pl.col("ideal") - 1
        pairs = (
            rows.join(kinds, on=["role", "work", "often"])
            .select("rank", "step", "place", "work", apart=apart - apart.mean().over("rank", "work"))
            .sort("work")
            .group_by("rank", "step", "place")
            .agg(first=pl.col("apart").first(), second=pl.col("apart").last())
        )
        squares = (pl.col("first") ** 2 + pl.col("second") ** 2) / 2
        spread, correlation = pairs.select(spread=squares.mean().sqrt(), correlation=pl.corr("first", "second")).row(0)
        return (100 * spread, correlation) if spread and correlation is not None else None

    def gain_of_pauses(self) -> float:
        """Return by how many percent the job is shorter without the pauses of the hosts."""
        return 100 * (self.replayed_ns - self.job.makespan(gap="unpaused")) / self.replayed_ns

    def gain_of_ranks(self, processes: Collection[int]) -> Gain:
        return self.gain(pl.col("rank").is_in(list(processes)))

    @property
    def step_ns(self) -> float:
        return self.recorded_ns / self.steps


def what_if(store: Store, calls: pl.DataFrame, steps: pl.DataFrame, loads: pl.DataFrame, peers: Peers) -> WhatIf | str:
    """Simulate a job, or return why it cannot be simulated.

    ``loads``: when each process loaded data: process, start, end (ns)."""
    if steps["process"].n_unique() < 2:
        return "one rank in this run" if len(steps) else "no step with device work that all ranks have"
    if steps["process"].n_unique() > RANKS:
        return f"more than {count(RANKS)} ranks"
    if steps["number"].n_unique() < STEPS:
        return f"all ranks have {plural(steps['number'].n_unique(), 'step')} in common, and a simulation requires {STEPS}"
    if calls.is_empty():
        return "no collective kernels"
    if peers.source == UNKNOWN:
        return "the roles of the ranks are unknown"
    rows = operations(store, calls, steps, peers.roles)
    single = rows.filter("communication").select(
        share=100 * (pl.col("end") - pl.col("start")).filter(pl.col("match").is_null()).sum() / (pl.col("end") - pl.col("start")).sum()
    )
    share = single.item() if len(single) else None
    if share is None:
        return "no communication within the steps"
    if share > UNMATCHED_PERCENT:
        return f"the other ranks are unknown for {percent(share)} of the time in communication"
    simulated = _with_known_gaps(_levelled(job(rows)), calls, host_pauses(store), loads)
    recorded, replayed = simulated.recorded_ns(), simulated.makespan()
    difference = 100 * (replayed - recorded) / recorded if recorded else 0.0
    if abs(difference) > REPLAY_PERCENT:
        return f"the simulated job takes {percent(abs(difference))} {'more' if difference > 0 else 'less'} time than the recorded one"
    computing = (
        simulated.operations.filter(~pl.col("communication")).group_by("rank", "role", "step").agg(computing=pl.col("transfer").sum())
    )
    ideal = simulated.makespan(pl.lit(True), "level")
    number = rows["step"].n_unique()
    together = simulated.together()
    waits = together.group_by("rank").agg(waits=pl.col("busy").sum() / number).sort("rank")
    kernel = _kernel(store, together, calls)
    return WhatIf(simulated, peers, number, recorded, replayed, ideal, computing.sort("rank", "step"), waits, kernel)


def _kernel(store: Store, together: pl.DataFrame, calls: pl.DataFrame) -> str | None:
    """Return the kernel that takes longest in the longest of these operations."""
    if together.is_empty():
        return None
    rank, stream, start, end = together.sort("busy", "rank", "start").select("rank", "stream", "start", "end").row(-1)
    shift = calls.filter(pl.col("process") == rank)["shift_ns"].first() or 0
    names = store.frame(
        """
        SELECT coalesce(n.short, n.text) AS name, sum(e.duration_ns) AS time FROM device_run AS e JOIN name AS n ON n.id = e.name
        WHERE e.computation AND e.process = ? AND e.stream IS NOT DISTINCT FROM ? AND e.start_ns >= ? AND e.start_ns < ?
        GROUP BY ALL ORDER BY time DESC, name LIMIT 1
        """,
        [rank, stream, start - shift, end - shift],
    )
    return str(names["name"][0]) if len(names) else None


def _with_known_gaps(simulated: Job, calls: pl.DataFrame, pauses: pl.DataFrame, loads: pl.DataFrame) -> Job:
    """Count gaps in full in which the host paused or loaded data.

    Add ``unpaused``, the gaps without the pauses."""
    shifts = calls.group_by("process").agg(pl.col("shift_ns").first()).cast({"process": pl.Int64})
    rows = simulated.operations
    pause, load = (
        meanwhile(
            rows, times.cast({"process": pl.Int64}).join(shifts, on="process").with_columns(pl.col("start", "end") + pl.col("shift_ns"))
        )
        for times in (pauses, loads)
    )
    full = pl.when((pause > 0) | (load > 0)).then("gap").otherwise("kept")
    return replace(simulated, operations=rows.with_columns(kept=full, unpaused=full - pause))


def _levelled(simulated: Job) -> Job:
    """Add the ideal durations ``level``, those of a stage with the mean of all stages."""
    rows = simulated.operations
    computation = ~pl.col("communication")
    sums = rows.filter(computation).group_by("role", "rank", "step").agg(total=pl.col("transfer").sum())
    sums = sums.with_columns(mean=pl.col("total").mean().over("role"))
    sums = sums.with_columns(factor=pl.col("total").mean() / pl.col("mean"))
    wide = rows.join(sums.select("rank", "step", "factor"), on=["rank", "step"], how="left", maintain_order="left")
    level = pl.when(computation).then(pl.col("ideal") * pl.col("factor")).otherwise("ideal")
    return replace(simulated, operations=wide.with_columns(level=level).drop("factor"))


def common_steps(steps: pl.DataFrame) -> pl.DataFrame:
    """Return the steps that every process has; columns process, number, start, end."""
    every = pl.col("process").n_unique().over("number") == steps["process"].n_unique()
    return steps.filter(every).select(pl.col("process", "number").cast(pl.Int64), "start", "end")
