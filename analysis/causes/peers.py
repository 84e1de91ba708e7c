"""Ranks that do the same work: their peers are the only ranks that a rank is compared with.

Only the stages of a pipeline do different work, and they send to single ranks. Without such messages all ranks are peers.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

import polars as pl

from ...ingest.store.store import Store
from ..device.collectives import ONE_TO_ONE
from .operations import work_orders

GROUPS: Final = "groups"
WORK: Final = "work"
SAME: Final = "same"
UNKNOWN: Final = "unknown"

_SAME: Final = 0.02  # relative difference up to which the numbers of kernels of two ranks count as equal
_CLASSES: Final = 64  # kinds of work that a rank alone is compared with; a pipeline has a few

_KERNELS: Final = """
    SELECT process, name, grid_x, grid_y, grid_z, count(*) AS n FROM device_run WHERE kind = 'kernel' AND process IS NOT NULL GROUP BY ALL
"""
_STEPS: Final = "SELECT process, count(*) AS steps FROM step GROUP BY process"


@dataclass(frozen=True, slots=True)
class Peers:
    """Ranks that do the same work. ``roles``: number of the role of each process, in the order of pipeline stages if these are known.

    ``source``: groups (the process groups give the pipeline stages), work (ranks of a role run the same kernels), same (ranks send
    nothing to single ranks, so that all do the same), or unknown."""

    roles: Mapping[int, int]
    source: str

    def of(self, role: int) -> list[int]:
        """Return the processes of a role."""
        return sorted(process for process, number in self.roles.items() if number == role)

    @property
    def pipeline(self) -> bool:
        return self.source in (GROUPS, WORK) and len(set(self.roles.values())) > 1


def peers(store: Store, processes: Iterable[int], calls: pl.DataFrame, steps: pl.DataFrame, stages: Mapping[int, int | None]) -> Peers:
    """Return which of the processes do the same work.

    ``calls``: :func:`.matching.matched_collectives`. ``steps``: as for :func:`.operations.operations`. ``stages``: pipeline stage of each
    process, if its process groups name it."""
    ranks = sorted(processes)
    known = {process: stage for process in ranks if (stage := stages.get(process)) is not None}
    if ranks and len(known) == len(ranks):
        return Peers(known, GROUPS)
    if len(ranks) < 2 or not calls["operation"].is_in(ONE_TO_ONE).any():
        return Peers(dict.fromkeys(ranks, 0), SAME)
    orders = work_orders(store, steps) if len(steps) else {}
    classes = _divided(ranks, {process: orders.get(process, (process,)) for process in ranks})
    # Collectives connect the replicas of a stage: they separate stages that run the same kernels in the same order.
    connected = _communicating(calls)
    parts = [_divided(members, connected) for members in classes]
    classes = [part for members, split in zip(classes, parts, strict=True) for part in (split if min(map(len, split)) > 1 else [members])]
    if not orders or len(classes) < len(ranks):
        classes = _joined(store, classes, connected)
    roles = {process: number for number, members in enumerate(sorted(classes)) for process in members}
    return Peers(roles, WORK if len(classes) < len(ranks) else UNKNOWN)


def _divided(processes: Iterable[int], kinds: Mapping[int, object]) -> list[list[int]]:
    divided: dict[object, list[int]] = {}
    for process in processes:
        divided.setdefault(kinds.get(process), []).append(process)
    return list(divided.values())


def _joined(store: Store, classes: list[list[int]], connected: Mapping[int, int]) -> list[list[int]]:
    """Let a rank alone join ranks that run nearly the same kernels in each step.

    Collectives have to connect it with them."""
    result = sorted((sorted(members) for members in classes), key=lambda members: (len(members) == 1, members))
    alone = [members[0] for members in result if len(members) == 1 and members[0] in connected]
    if not alone:
        return result
    counts = store.frame(_KERNELS).with_columns(work=pl.struct("name", "grid_x", "grid_y", "grid_z").rank("dense"))
    steps = store.frame(_STEPS) if store.has_rows("step") else pl.DataFrame(schema={"process": pl.Int32, "steps": pl.Int64})
    counts = counts.join(steps, on="process", how="left").select("process", "work", n=pl.col("n") / pl.col("steps").fill_null(1))
    totals = dict(counts.group_by("process").agg(pl.col("n").sum()).rows())
    joined: set[int] = set()
    for members in result[:_CLASSES]:
        first = members[0]
        left = [rank for rank in alone if rank not in joined and rank != first and connected[rank] == connected.get(first)]
        if first in joined or not left:
            continue
        of_first = counts.filter(pl.col("process") == first).select("work", wanted="n")
        compared = (
            counts.filter(pl.col("process").is_in(left))
            .join(of_first, on="work", how="left")
            .group_by("process")
            .agg(apart=(pl.col("n") - pl.col("wanted").fill_null(0)).abs().sum(), common=pl.col("wanted").sum())
        )
        for process, apart, common in compared.rows():
            if apart + totals[first] - common <= _SAME * max(totals[first], totals[process]):
                members.append(process)
                joined.add(process)
    return [sorted(members) for members in result if len(members) > 1 or members[0] not in joined]


def _communicating(calls: pl.DataFrame) -> dict[int, int]:
    """Return a number for each process with matched collectives, equal if connected."""
    collective = calls.filter(pl.col("match").is_not_null(), ~pl.col("operation").is_in(ONE_TO_ONE))
    edges = (
        collective.select("match", "process").unique().sort("match", "process")
        .with_columns(before=pl.col("process").shift(1).over("match")).drop_nulls("before")
        .select("before", "process").unique(maintain_order=True).rows()
    )  # fmt: skip
    part = {process: process for edge in edges for process in edge}

    def root(process: int) -> int:
        while part[process] != process:
            part[process] = part[part[process]]
            process = part[process]
        return process

    for before, process in edges:
        part[root(process)] = root(before)
    return {process: root(process) for process in part}
