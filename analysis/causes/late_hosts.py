"""Ranks whose host launches late, so that the other ranks wait for them: host waits of devices and waits in collectives, step by step.

A rank is late in a step if its device waited for the host longer than those of its peers, and most of that time the peers waited for the
rank in collectives. Host waits that all ranks have name no rank.
"""

from __future__ import annotations

from typing import Final

import polars as pl

from ..device.collectives import ONE_TO_ONE
from ..device.device_gaps import DeviceGaps
from .peers import Peers

STEPS: Final = 2  # a host that is late once may be late by chance
LATE: Final = 0.05  # of the mean time of a step: excess of the host waits from which a step counts
LEAST: Final = 0.01  # of the time of all steps: wait for one rank below which its host does not matter
CONFIRMED: Final = 0.5  # share of the excess that the peers wait for the rank on average

_SCHEMA: Final = {"process": pl.Int64, "steps": pl.Int64, "idle": pl.Int64, "waiting": pl.Int64, "first": pl.Int64, "last": pl.Int64}


def no_late_hosts() -> pl.DataFrame:
    """Return the result for a run without late hosts."""
    return pl.DataFrame(schema=_SCHEMA)


def late_hosts(gaps: DeviceGaps, calls: pl.DataFrame, steps: pl.DataFrame, peers: Peers) -> pl.DataFrame:
    """Return the processes whose host is late in at least two steps, the latest first.

    ``calls``: :func:`.exposed.exposed_calls`. ``steps``: those that all ranks have (process, number, start, end). Columns: process, steps
    (in which it is late), idle (excess of its host waits in them), waiting (exposed time of all ranks in collectives that wait for it, at
    most the excess each), first and last (begin of the first late step and end of the last). Times in ns."""
    empty = no_late_hosts()
    if peers.source == "unknown" or steps["process"].n_unique() < 2 or calls.is_empty():
        return empty
    waits = _waits(calls, steps)
    length = steps.select((pl.col("end") - pl.col("start")).sum()).item()
    if waits.group_by("last").agg(pl.col("wait").sum()).filter(pl.col("wait") >= LEAST * length).is_empty():
        return empty
    late = _excess(_host_waits(gaps), steps, peers)
    if late.is_empty():
        return empty
    excess = late.select(pl.col("process").alias("last"), "number", "excess")
    caused = waits.join(excess, on=["last", "number"]).group_by(pl.col("last").alias("process"), "number")
    confirmed = (
        late.join(caused.agg(waiting=pl.min_horizontal("wait", "excess").sum()), on=["process", "number"])
        .filter(pl.col("waiting") >= CONFIRMED * pl.col("excess") * (pl.col("ranks") - 1))
        .group_by("process")
        .agg(
            steps=pl.len().cast(pl.Int64),
            idle=pl.col("excess").sum(),
            waiting=pl.col("waiting").sum(),
            first=pl.col("start").min(),
            last=pl.col("end").max(),
        )
        .filter(pl.col("steps") >= STEPS)
        .sort("waiting", "process", descending=[True, False])
    )
    return confirmed.cast(_SCHEMA)  # type: ignore[arg-type]


def _host_waits(gaps: DeviceGaps) -> pl.DataFrame:
    """Return process, start, ready and end of the gaps that the host caused."""
    parts = []
    for group in gaps.groups():
        users = group.rows().filter(pl.len().over("row") == 1, pl.col("process").is_not_null())
        parts.append(group.host_waits().select("row", "start", "ready").join(users, on="row").select("process", "start", "ready"))
    empty = pl.DataFrame(schema={"process": pl.Int64, "start": pl.Int64, "ready": pl.Int64})
    return pl.concat([empty, *(part.cast(empty.schema) for part in parts)])


def _excess(waits: pl.DataFrame, steps: pl.DataFrame, peers: Peers) -> pl.DataFrame:
    """Return the late steps: the columns of ``steps``, excess, and ranks of the role."""
    # The device work of a step begins after the gap before it.
    ends = steps.sort("end").select("process", "number", until="end")
    of_step = (
        waits.sort("ready").join_asof(ends, left_on="ready", right_on="until", by="process", strategy="forward", check_sortedness=False)
        .drop_nulls("number").group_by("process", "number").agg(wait=(pl.col("ready") - pl.col("start")).sum())
    )  # fmt: skip
    role = pl.col("process").replace_strict(dict(peers.roles), default=None, return_dtype=pl.Int64)
    mean = steps.select((pl.col("end") - pl.col("start")).mean()).item()
    return (
        steps.join(of_step, on=["process", "number"], how="left")
        .with_columns(pl.col("wait").fill_null(0), role=role)
        .filter(pl.col("role").is_not_null())
        .with_columns(excess=pl.col("wait") - pl.col("wait").quantile(0.5, "lower").over("role", "number").cast(pl.Int64))
        .with_columns(ranks=pl.len().over("role", "number").cast(pl.Int64))
        .filter(pl.col("ranks") > 1, pl.col("excess") >= LATE * mean)
    )


def _waits(calls: pl.DataFrame, steps: pl.DataFrame) -> pl.DataFrame:
    """Return exposed waits for another rank: process, last, number, wait."""
    waited = calls.filter(pl.col("last").is_not_null(), ~pl.col("operation").is_in(ONE_TO_ONE), pl.col("last") != pl.col("process"))
    ends = steps.sort("end").select("process", "number", until="end")
    return (
        waited.select(pl.col("process", "last").cast(pl.Int64), "start", "exposed_waiting").sort("start")
        .join_asof(ends, left_on="start", right_on="until", by="process", strategy="forward", check_sortedness=False)
        .drop_nulls("number").group_by("process", "last", "number").agg(wait=pl.col("exposed_waiting").sum())
    )  # fmt: skip
