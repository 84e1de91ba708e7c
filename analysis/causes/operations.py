"""Operations of a job for its simulation: kernels and collectives of each rank -> runs of computation kernels, and communication.

The computation kernels of a stream are cut where communication begins after one of them, and where one begins after communication, in
nearly every step and rank of a role. So the runs of one step have the same kernels as those of the other steps and ranks of the role.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

import polars as pl

from ...ingest.store.store import Store
from ..device.collectives import ONE_TO_ONE
from ..toolkit.places import batches, one_of
from .simulation import OFTEN, OPERATIONS, OVERLAP_NS, noise

KERNELS: Final = 4_000_000  # computation kernels that are read at most; a longer job is simulated over its first steps
OPERATIONS_MOST: Final = 300_000  # up to which runs are also cut where the kernel changes
LINES: Final = 512  # lines of communication that are compared with each other
COMPARED: Final = 2_000_000  # pairs of operations that are compared, about
ALIKE: Final = 2.0  # variance between positions of a step / variance within them, up to which the position does not matter
MEETING: Final = 0.9  # share of the transfers of two streams that have to overlap if the streams are two ends of one connection
AT_ONCE: Final = 500_000  # kernels in memory at once; one process is never divided
_LINE: Final = ("process", "stream")
_AROUND: Final = ("role", "count", "position", "among", "operations")
_COMMUNICATION: Final = {
    "process": pl.Int64, "stream": pl.Int64, "start": pl.Int64, "end": pl.Int64, "operation": pl.String, "bytes": pl.Int64,
    "group_size": pl.Int64, "match": pl.Int64, "shift_ns": pl.Int64,
}  # fmt: skip


def operations(store: Store, calls: pl.DataFrame, steps: pl.DataFrame, roles_of: Mapping[int, int]) -> pl.DataFrame:
    """Return the operations of the steps, with the column ``role``.

    ``calls``: :func:`.matching.matched_collectives`. ``steps``: process, number, start, end (ns); each process has the same numbers.
    ``roles_of``: number of the role of each process."""
    steps = _affordable(store, steps)
    roles = pl.DataFrame({"process": roles_of.keys(), "role": roles_of.values()}, schema={"process": pl.Int64, "role": pl.Int64})
    communication = _in_steps(calls.select(pl.col(name).cast(kind) for name, kind in _COMMUNICATION.items()), steps)
    communication = communication.join(roles, on="process")
    shifts = communication.group_by("process").agg(pl.col("shift_ns").first())
    columns = [*OPERATIONS, "role"]
    rows = pl.concat([_runs(store, steps, roles, communication).select(columns), _transfers(communication).select(columns)])
    shift = pl.col("shift_ns").fill_null(0)
    return _paired(
        rows.join(shifts, left_on="rank", right_on="process", how="left").with_columns(pl.col("start", "end") + shift).drop("shift_ns")
    )


def _affordable(store: Store, steps: pl.DataFrame) -> pl.DataFrame:
    count = store.frame("SELECT count(*) FROM device_run WHERE computation").item()
    numbers = steps["number"].unique().sort()
    most = max(1, len(numbers) * KERNELS // max(count, 1))
    return steps.filter(pl.col("number").is_in(numbers.head(most).implode()))


def _kernels(store: Store, steps: pl.DataFrame) -> Iterator[pl.DataFrame]:
    """Yield the computation kernels of the steps, those of some processes at a time."""
    where = "computation AND process IS NOT NULL AND start_ns >= ? AND start_ns < ?"
    span = [steps["start"].min(), steps["end"].max()]
    counts: list[tuple[int, int]] = store.frame(
        f"SELECT process::BIGINT, count(*) FROM device_run WHERE {where} GROUP BY process ORDER BY process", span
    ).rows()
    for processes in batches(counts, AT_ONCE) or [[]]:
        sql = f"""
            SELECT process::BIGINT AS process, stream, name, start_ns AS start, end_ns AS "end" FROM device_run
            WHERE {where} AND {one_of("process", processes)}
        """
        yield _in_steps(store.frame(sql, span), steps)


def _in_steps(rows: pl.DataFrame, steps: pl.DataFrame) -> pl.DataFrame:
    """Add ``step``; leave out what begins in none of the steps."""
    begins = steps.select("process", "start", step="number", until="end").sort("start")
    joined = rows.sort("start").join_asof(begins, on="start", by="process", check_sortedness=False)
    return joined.filter(pl.col("start") < pl.col("until")).drop("until")


def work_orders(store: Store, steps: pl.DataFrame) -> dict[int, tuple[int, int]]:
    """Return the order of the kernels of each process in most steps, hashed.

    Stages of a pipeline differ by their schedule."""
    orders: dict[int, tuple[int, int]] = {}
    for kernels in _kernels(store, _affordable(store, steps)):
        main = kernels.group_by(_LINE).agg(busy=(pl.col("end") - pl.col("start")).sum()).sort("busy", "stream", descending=[True, False])
        main = main.unique("process", keep="first", maintain_order=True)
        ordered = kernels.join(main, on=_LINE, how="semi").sort("start")
        position = pl.int_range(pl.len(), dtype=pl.UInt64).over("process", "step")
        mixed = pl.struct("name", position.alias("position")).hash() // 2**20  # so that the sum of a step does not overflow
        sums = ordered.with_columns(mixed=mixed).group_by("process", "step").agg(pl.col("mixed").sum(), kernels=pl.len())
        usual = sums.group_by("process", "mixed", "kernels").len().sort("len", "mixed", "kernels", descending=[True, False, False])
        usual = usual.unique("process", keep="first", maintain_order=True)
        orders |= {process: (mixed, number) for process, mixed, number in usual.select("process", "mixed", "kernels").iter_rows()}
    return orders


def _runs(store: Store, steps: pl.DataFrame, roles: pl.DataFrame, communication: pl.DataFrame) -> pl.DataFrame:
    """Combine the computation kernels between two cuts.

    The kernels are read twice, because the cuts of a role depend on all of its ranks."""
    read = [_around(numbered, communication) for numbered in _numbered(store, steps, roles)]
    cuts = _cuts(pl.concat(around for around, _ in read))
    cut_at_changes = sum(changes for _, changes in read) <= OPERATIONS_MOST
    changed = pl.col("changed") if cut_at_changes else pl.lit(False)
    runs = pl.concat(_combined(numbered, cuts, changed) for numbered in _numbered(store, steps, roles)).sort(*_LINE, "step", "start")
    position = pl.int_range(pl.len()).over(*_LINE, "step")
    placed = runs.with_columns(position=position, count=pl.len().over(*_LINE, "step"))
    alike = placed.join(_alike(placed), on=["role", "work", "count"], how="semi").select(*_LINE, "step", "run", alike=True)
    return (
        placed.join(alike, on=[*_LINE, "step", "run"], how="left", maintain_order="left")
        .with_columns(position=pl.when(pl.col("alike").is_null()).then("position"))
        .with_columns(
            rank="process",
            type=pl.struct("role", "work", "position", "count").hash(),
            communication=pl.lit(False),
            idle=(pl.col("end") - pl.col("start") - pl.col("busy")).clip(lower_bound=0),
            match=pl.lit(None, pl.Int64),
        )
        .cast(OPERATIONS)
    )


def _numbered(store: Store, steps: pl.DataFrame, roles: pl.DataFrame) -> Iterator[pl.DataFrame]:
    """Yield the kernels of some processes, numbered on their stream in each step.

    Adds role, index (0 for the first), count (kernels there), and changed (the kernel before is another one)."""
    line = (*_LINE, "step")
    for kernels in _kernels(store, steps):
        yield (
            kernels.join(roles, on="process")
            .sort("start", "end")
            .with_columns(
                index=pl.int_range(pl.len(), dtype=pl.Int64).over(line),
                count=pl.len().over(line).cast(pl.Int64),
                changed=pl.col("name").ne_missing(pl.col("name").shift(1).over(line)),
            )
        )


def _combined(kernels: pl.DataFrame, cuts: pl.DataFrame, changed: pl.Expr) -> pl.DataFrame:
    """Return the runs of kernels between two cuts.

    ``kernels``: numbered. ``changed``: other kernels before which runs are cut. Columns: process, stream, step, run, role, start, end, busy
    (ns), work (hash)."""
    line = [*_LINE, "step"]
    counts = kernels.select(*line, "count", "role").unique()
    begin = cuts.join(counts, on=["role", "count"]).select(*line, index="cut", cut=True).unique()
    return (
        kernels.join(begin, on=[*line, "index"], how="left", maintain_order="left")
        .with_columns(
            run=(pl.col("cut").fill_null(False) | changed).cast(pl.Int64).cum_sum().over(line), hashed=pl.col("name").hash() // 2**20
        )
        .group_by(*line, "run", "role")
        .agg(
            pl.col("start").min(),
            pl.col("end").max(),
            busy=(pl.col("end") - pl.col("start")).sum(),
            work=pl.struct(pl.col("hashed").sum(), pl.len().alias("kernels")).hash(),
        )
    )


def _alike(runs: pl.DataFrame) -> pl.DataFrame:
    """Return the work that takes the same time at each position of a step.

    Columns: role, work, count. Such are the micro-batches of a step, but not layers of different sizes. It is an analysis of variance of
    the times relative to the rank's."""
    kind = ["role", "work", "count"]
    time = pl.col("busy") / pl.col("busy").mean().over(*kind, "process")
    places = (
        runs.filter(pl.col("busy") > 0)
        .with_columns(time=time)
        .group_by(*kind, "position")
        .agg(pl.col("time").mean(), pl.len(), squares=(pl.col("time") - pl.col("time").mean()).pow(2).sum())
    )
    mean = (pl.col("time") * pl.col("len")).sum() / pl.col("len").sum()
    between = (pl.col("len") * (pl.col("time") - mean) ** 2).sum() / (pl.len() - 1)
    within = pl.col("squares").sum() / (pl.col("len").sum() - pl.len())
    return (
        places.group_by(kind)
        .agg(places=pl.len(), ratio=between / within)
        .filter(pl.col("places") > 1, pl.col("ratio") < ALIKE)
        .select(kind)
    )


def _around(kernels: pl.DataFrame, communication: pl.DataFrame) -> tuple[pl.DataFrame, int]:
    """Return between which kernels each communication is, and the number of changes.

    ``kernels``: numbered. Columns: role, count (kernels of the stream in the step), position (of the communication among those of its
    stream in the step), among, operations (hash of all of them), before, after (numbers of kernels)."""
    line = [*_LINE, "step"]
    ordered = communication.join(kernels.select("process").unique(), on="process", how="semi").sort("start", "end")
    ordered = ordered.with_columns(
        position=pl.int_range(pl.len()).over(line),
        among=pl.len().over(line),
        operations=(pl.col("operation").hash() // 2**20).sum().over(line),
    )
    pairs = ordered.select(
        "process", "step", "role", "position", "among", "operations", "start", resumed=pl.col("end") - noise("start", "end")
    ).join(kernels.select(*line, "count").unique(), on=["process", "step"])
    ended = kernels.select(*line, before=pl.col("index") + 1, time=(pl.col("end") - noise("start", "end")).cum_max().over(line)).sort(
        "time"
    )
    begun = kernels.select(*line, after=pl.col("index") + 1, time="start").sort("time")
    counted = (
        pairs.sort("start")
        .join_asof(ended, left_on="start", right_on="time", by=line, check_sortedness=False)
        .sort("resumed")
        .join_asof(begun, left_on="resumed", right_on="time", by=line, check_sortedness=False)
        .select(*_AROUND, pl.col("before", "after").fill_null(0))
    )
    return counted, int(kernels["changed"].sum())


def _cuts(around: pl.DataFrame) -> pl.DataFrame:
    """Return the numbers of kernels in their step before which runs are cut.

    Columns: role, count (kernels of the stream in the step), cut."""
    usual = around.group_by(_AROUND).agg(
        before=pl.col("before").quantile(OFTEN, "lower"), after=pl.col("after").quantile(1 - OFTEN, "higher")
    )
    cuts = pl.concat([usual.select("role", "count", cut="before"), usual.select("role", "count", cut="after")])
    return cuts.with_columns(pl.col("cut").cast(pl.Int64)).unique()


def _transfers(communication: pl.DataFrame) -> pl.DataFrame:
    key = ["operation", "bytes", "group_size"]
    one_to_one = pl.col("operation").is_in(ONE_TO_ONE)
    occurrence = pl.int_range(pl.len()).over("process", "step", *key)
    return (
        communication.sort("start", "end")
        .with_columns(occurrence=pl.when(~one_to_one).then(occurrence))
        .select(
            "stream", "step", "start", "end", "match", "role", "shift_ns",
            rank="process",
            communication=pl.lit(True),
            type=pl.struct(
                pl.col("operation").replace(list(ONE_TO_ONE), "send"), "bytes", "occurrence", size=pl.when(~one_to_one).then("group_size")
            ).hash(),
            work=pl.lit(0, pl.UInt64),
            idle=pl.lit(0, pl.Int64),
        )
        .cast(OPERATIONS)
    )  # fmt: skip


def _paired(rows: pl.DataFrame) -> pl.DataFrame:
    """Match two lines of communication that end together, each with no other.

    A line is the communication of one type on a stream. This finds sends and receives whose process group is not recorded."""
    line = ["rank", "stream", "type"]
    single = rows.with_row_index("row").filter(pl.col("communication"), pl.col("match").is_null()).sort("start", "end")
    single = single.with_columns(position=pl.int_range(pl.len()).over(line), among=pl.len().over(line))
    lines = single.select(*line).unique().sort(line).with_row_index("line")
    if not 1 < len(lines) <= LINES:
        return rows
    calls = single.join(lines, on=line)
    most = max(4, COMPARED // len(lines) ** 2)
    sample = calls.filter(pl.col("position") % (pl.col("among") // most).clip(lower_bound=1) == 0)
    sample = sample.select("line", "rank", "position", "among", "start", "end")
    shift = pl.col("end") - pl.col("end_of_peer")  # clocks differ
    apart = (shift - shift.median()).abs()
    meet = (pl.col("start") < pl.col("end_of_peer")) & (pl.col("start_of_peer") < pl.col("end"))
    scores = (
        sample.join(sample, on=["among", "position"], suffix="_of_peer")
        .filter(pl.col("rank") != pl.col("rank_of_peer"))
        .group_by("line", "line_of_peer")
        .agg(apart=apart.median(), meet=meet.mean(), limit=((pl.col("end") - pl.col("start")).median() / 2).clip(upper_bound=OVERLAP_NS))
        .filter(pl.col("meet") >= MEETING, pl.col("apart") <= pl.col("limit"))
        .filter(pl.col("apart") == pl.col("apart").min().over("line"), pl.col("apart") == pl.col("apart").min().over("line_of_peer"))
        .filter(pl.col("line") < pl.col("line_of_peer"), pl.len().over("line") == 1, pl.len().over("line_of_peer") == 1)
        .with_row_index("pair")
    )
    ends = pl.concat([scores.select("pair", "line"), scores.select("pair", line="line_of_peer")])
    first = int(rows.select(pl.col("match").max()).item() or 0) + 1
    matched = calls.join(ends, on="line").select("row", found=pl.struct("pair", "position").rank("dense").cast(pl.Int64) + first)
    joined = rows.with_row_index("row").join(matched, on="row", how="left")
    return joined.with_columns(match=pl.coalesce("match", "found")).drop("row", "found")
