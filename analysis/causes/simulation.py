"""Simulation of a job: its operations, the order that they keep, and the time that they take with other durations.

An operation is a run of computation kernels of a rank or a communication kernel. It starts after its predecessors of the same rank and a
gap, and ends after its duration; a communication that other ranks share ends after the latest start among them and its transfer. With
the recorded gaps and durations the simulation gives the recorded times. The method is that of arXiv 2505.05713.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import polars as pl

# An operation may begin this much before the recorded end of its predecessor, because times are noisy
OVERLAP_NS: Final = 200_000
OVERLAP_SHARE: Final = 0.2  # of the duration of the predecessor
OFTEN: Final = 0.1  # share of the steps in which the order may be another
APART: Final = 10  # times the spread of its ends: spread of the starts of computation that waits for the other ranks
APART_NS: Final = 1_000_000  # spread of the starts from which the wait matters
LEAST_STEPS: Final = 3  # fewer can be a coincidence

OPERATIONS: Final = pl.Schema({
    "rank": pl.Int64, "stream": pl.Int64, "step": pl.Int64, "communication": pl.Boolean, "type": pl.UInt64, "work": pl.UInt64,
    "start": pl.Int64, "end": pl.Int64, "idle": pl.Int64, "match": pl.Int64,
})  # fmt: skip
"""Columns of operations. ``step``: number of the step. ``type``: operations that should take
the same time. ``work``: the kernels of computation, in all ranks; 0 for communication. ``idle``: time within a run of
computation kernels without one, in ns. ``match``: equal in all ranks of a
communication; null if its other ranks are unknown. Times are in ns of one clock."""


@dataclass(frozen=True, slots=True)
class Job:
    """Operations in an order in which they can be simulated, and their predecessors.

    ``operations``: the columns of OPERATIONS, and ``gap`` (from the end of the latest predecessor, or from the start of the job, and the
    idle time within it, in ns), ``kept`` (the gap, but not more than the median of the type: longer ones wait for something that is not
    recorded), ``transfer`` (of a communication: its end - the latest start of its ranks; else its duration without the idle time), and
    ``ideal`` (of a communication: the median of the type; else the mean). ``group``: number of the communication of each operation, -1
    for computation."""

    operations: pl.DataFrame
    first: list[int]
    predecessors: list[int]
    group: list[int]
    groups: int

    def recorded_ns(self) -> int:
        """Return the recorded time from the first start to the last end."""
        return int(self.operations.select(pl.col("end").max() - pl.col("start").min()).item() or 0)

    def together(self) -> pl.DataFrame:
        """Return the computation that is treated as communication.

        Adds ``busy``, the time of its kernels, in ns."""
        rows = self.operations.filter(pl.col("communication"), pl.col("work") != 0)
        return rows.with_columns(busy=pl.col("end") - pl.col("start") - pl.col("idle"))

    def makespan(self, which: pl.Expr | None = None, ideal: str = "ideal", gap: str = "kept") -> float:
        """Return the time of the job with the ideal durations of some operations, in ns.

        ``which``: a condition on operations. ``ideal``, ``gap``: columns of operations."""
        durations = pl.col("transfer").cast(pl.Float64) if which is None else pl.when(which).then(ideal).otherwise("transfer")
        frame = self.operations.select(gap=gap, transfer=durations)
        return makespan(self, frame["gap"].to_list(), frame["transfer"].to_list())


def job(operations: pl.DataFrame) -> Job:
    """Find the order that operations keep, and the ideal duration of each.

    In a stream, an operation follows the one before it. It also follows an operation of another stream of its rank if that ended before
    its start in nearly every step."""
    ordered = _together(operations.sort("start", "end", "rank", "stream").with_row_index("row").with_columns(pl.col("row").cast(pl.Int64)))
    alone = -1 - pl.col("row")
    group = pl.when("communication").then(pl.coalesce("match", alone))
    numbered = (
        ordered.with_columns(group=group)
        # Operations that do not overlap belong to different communications, whatever their process group.
        .with_columns(group=pl.when(pl.col("start").max().over("group") > pl.col("end").min().over("group")).then(alone).otherwise("group"))
        .with_columns(latest=pl.when("communication").then(pl.col("start").max().over("group")).otherwise("start"))
        # Operations of a rank that begin and end together are launched together: each of them waits for the ranks of all.
        .with_columns(latest=pl.when("communication").then(pl.col("latest").max().over("rank", "start", "end")).otherwise("start"))
    )
    edges = pl.concat([_in_stream(numbered), _between_streams(numbered)]).unique()
    kept = (
        edges.join(numbered.select("row", "start"), on="row")
        .join(numbered.select("latest", before="row", ended="end"), on="before")
        # A predecessor is known when all its ranks have begun.
        .filter(pl.col("before") < pl.col("row"), pl.col("latest") < pl.col("start"))
        .group_by("row")
        .agg(pl.col("ended").max(), before=pl.col("before").sort())
    )
    length = pl.col("end") - pl.col("start")
    complete = (
        numbered.join(kept, on="row", how="left", maintain_order="left")
        .with_columns(
            gap=pl.col("start") - pl.col("ended").fill_null(pl.col("start").min()) + pl.col("idle"),
            transfer=pl.when("communication").then(pl.col("end") - pl.col("latest")).otherwise(length - pl.col("idle")),
        )
        .with_columns(
            kept=pl.min_horizontal("gap", pl.col("gap").median().over("type", "communication").cast(pl.Int64)),
            ideal=pl.when("communication")
            .then(pl.col("transfer").clip(0).median().over("type", "communication"))
            .otherwise(pl.col("transfer").mean().over("type", "communication")),
        )
    )
    number = complete["group"].rank("dense").cast(pl.Int64) - 1
    first: list[int] = [0]
    predecessors: list[int] = []
    for before in complete["before"].to_list():
        predecessors.extend(before or ())
        first.append(len(predecessors))
    columns = complete.drop("row", "group", "before", "ended")
    return Job(columns, first, predecessors, number.fill_null(-1).to_list(), int(number.max() or -1) + 1)  # type: ignore[arg-type]


def makespan(job: Job, gaps: Sequence[float], transfers: Sequence[float]) -> float:
    """Return the time from the start of a job to its last end.

    ``gaps``, ``transfers``: of each operation, in the order of the job."""
    ends: list[float] = []  # of computation
    begun = [0.0] * job.groups  # latest start of the ranks of a communication
    last = 0.0
    first, predecessors, group = job.first, job.predecessors, job.group
    for number, (gap, transfer) in enumerate(zip(gaps, transfers, strict=True)):
        start = 0.0
        for before in predecessors[first[number] : first[number + 1]]:
            shared = group[before]
            end = ends[before] if shared < 0 else begun[shared] + transfers[before]
            if end > start:
                start = end
        start += gap
        mine = group[number]
        if mine >= 0 and start > begun[mine]:
            begun[mine] = start
        ends.append(start + transfer)
    for number, shared in enumerate(group):
        end = ends[number] if shared < 0 else begun[shared] + transfers[number]
        if end > last:
            last = end
    return last


def noise(start: str, end: str) -> pl.Expr:
    """Return how much earlier than recorded an operation may have ended, in ns."""
    return (OVERLAP_SHARE * (pl.col(end) - pl.col(start))).clip(upper_bound=OVERLAP_NS).cast(pl.Int64)


def _together(operations: pl.DataFrame) -> pl.DataFrame:
    """Treat computation that waits for all ranks as a communication.

    Such an operation, often the norm of all gradients, starts at different times and ends at the same time in nearly every step."""
    computing = operations.filter(~pl.col("communication")).with_columns(position=pl.int_range(pl.len()).over("rank", "step", "work"))
    key = ["work", "position"]
    spread = (
        computing.group_by(*key, "step")
        .agg(
            ranks=pl.col("rank").n_unique(),
            starts=pl.col("start").max() - pl.col("start").min(),
            ends=pl.col("end").max() - pl.col("end").min(),
        )
        .filter(pl.col("ranks") == operations["rank"].n_unique(), pl.col("ranks") > 1)
    )
    waits = (pl.col("starts") >= APART_NS) & (pl.col("starts") >= APART * pl.col("ends"))
    waiting = (
        spread.group_by(key).agg(share=waits.mean(), steps=pl.len()).filter(pl.col("share") >= 1 - OFTEN, pl.col("steps") >= LEAST_STEPS)
    )
    first = int(operations.select(pl.col("match").max()).item() or 0) + 1
    matched = computing.join(waiting.select(key), on=key).select(
        "row", together=pl.struct("work", "position", "step").rank("dense") + first
    )
    return (
        operations.join(matched, on="row", how="left", maintain_order="left")
        .with_columns(
            communication=pl.col("communication") | pl.col("together").is_not_null(),
            match=pl.coalesce("match", pl.col("together").cast(pl.Int64)),
        )
        .drop("together")
    )


def _in_stream(operations: pl.DataFrame) -> pl.DataFrame:
    before = pl.col("row").shift(1).over("rank", "stream")
    return operations.select("row", before=before).drop_nulls()


def _between_streams(operations: pl.DataFrame) -> pl.DataFrame:
    """Return the operations of other streams that ended before in each step."""
    line = ["rank", "stream"]
    lines = operations.select(
        "row",
        "rank",
        "stream",
        "step",
        "start",
        "end",
        at=pl.int_range(pl.len()).over(line),
        position=pl.int_range(pl.len()).over(*line, "step"),
    ).with_columns(of=pl.len().over(*line, "step"))
    steps = lines.group_by(*line, "step").agg(begin=pl.col("at").min(), length=pl.len())
    streams = lines.select(*line).unique().rename({"stream": "other"})
    pairs = (
        lines.select("row", *line, "step", "position", "of", time="start")
        .join(streams, on="rank")
        .filter(pl.col("stream") != pl.col("other"))
        .sort("time")
    )
    ended = lines.select("rank", "at", other="stream", time=(pl.col("end") - noise("start", "end")).cum_max().over(line)).sort("time")
    counted = (
        pairs.join_asof(ended, on="time", by=["rank", "other"], check_sortedness=False)
        .join(steps.rename({"stream": "other"}), on=["rank", "other", "step"])
        .with_columns(behind=pl.col("at").fill_null(-1) + 1 - pl.col("begin"))
    )
    return (
        counted.with_columns(
            usual=pl.col("behind").quantile(OFTEN, "lower").over("rank", "stream", "other", "position", "of", "length").cast(pl.Int64)
        )
        .with_columns(at=pl.col("begin") + pl.min_horizontal("behind", "usual") - 1)
        .join(lines.select("rank", "at", other="stream", before="row"), on=["rank", "other", "at"])
        .select("row", "before")
    )
