"""Roles of ranks: coordinates in the parallel layout of a job, and the ranks that do the same work.

The process groups of Megatron-LM and of PyTorch's DeviceMesh (FSDP, TorchTitan, Accelerate) have descriptions; the place of a rank in the
list of such a group is its coordinate. Without pipeline groups, ranks that run the same kernels in each step and communicate with each
other are peers. Otherwise the roles are unknown.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final, NamedTuple

import polars as pl

from ...ingest.store.store import Store
from ..device.collectives import ONE_TO_ONE
from ..report.causes import Role
from ..toolkit.contents import PROCESSES
from ..toolkit.places import Places
from ..toolkit.shared import shared
from .groups import ProcessGroups, process_groups
from .matching import matched_collectives

GROUPS: Final = "groups"
WORK: Final = "work"
UNKNOWN: Final = "unknown"

PIPELINE: Final = "pipeline_stage"
DATA: Final = "data_parallel"
TENSOR: Final = "tensor_parallel"
EXPERT: Final = "expert_parallel"
CONTEXT: Final = "context_parallel"
COORDINATES: Final = (PIPELINE, DATA, TENSOR, EXPERT, CONTEXT)

_DATA_AND_CONTEXT: Final = "data_and_context_parallel"
_SHARD: Final = "shard"
_SHARD_AND_CONTEXT: Final = "shard_and_context_parallel"
_REPLICATE: Final = "replicate"

# Descriptions of process groups, in upper case. Megatron-LM: `group_desc` in core/parallel_state.py. DeviceMesh: "mesh_" and the name of
# the dimension, which the program chooses. Groups of several ways of parallelism, such as MODEL_PARALLEL_GROUP, give no coordinate.
_PURPOSES: Final = {
    PIPELINE: r"PIPELINE_MODEL_PARALLEL_GROUP|(MESH_)?(PP|PIPE|PIPELINE|STAGE)",
    TENSOR: r"TENSOR_MODEL_PARALLEL_GROUP|(MESH_)?(TP|TENSOR|TENSOR_PARALLEL)",
    EXPERT: r"EXPERT_MODEL_PARALLEL_GROUP|(MESH_)?(EP|EXPERT|EXPERT_PARALLEL)",
    CONTEXT: r"CONTEXT_PARALLEL_GROUP|(MESH_)?(CP|CONTEXT|CONTEXT_PARALLEL|SP|ULYSSES)",
    DATA: r"DATA_PARALLEL_GROUP|(MESH_)?(DP|DDP|DATA|DATA_PARALLEL|FSDP|BATCH)",
    _DATA_AND_CONTEXT: r"DATA_PARALLEL_GROUP_WITH_CP|MESH_DP_CP",
    _SHARD: r"MESH_(DP_SHARD|SHARD)",
    _SHARD_AND_CONTEXT: r"MESH_DP_SHARD_CP",
    _REPLICATE: r"MESH_(DP_REPLICATE|REPLICATE)",
}
_SAME: Final = 0.02  # relative difference up to which the numbers of kernels of two ranks count as equal
_CLASSES: Final = 64  # kinds of work that are told apart; a pipeline has a few

_KERNELS: Final = """
    SELECT process, name, grid_x, grid_y, grid_z, count(*) AS n FROM device_run WHERE kind = 'kernel' AND process IS NOT NULL GROUP BY ALL
"""
_STEPS: Final = "SELECT process, count(*) AS steps FROM step GROUP BY process"


class Peers(NamedTuple):
    """Processes that do the same work. ``source``: as in :class:`Role`."""

    processes: tuple[int, ...]
    source: str


def roles(store: Store, places: Places | None = None) -> tuple[Role, ...]:
    """Return the role of each rank with device work, by place."""
    places = places or Places(store)
    known = coordinates(store)
    sources = {process: peers.source for peers in peer_groups(store) for process in peers.processes}
    rows = []
    for process in sorted(sources):
        location = places.process(process)
        stage, data, tensor, expert, context = (known.get(process, {}).get(name) for name in COORDINATES)
        source = GROUPS if process in known else sources[process]
        rows.append((location.order, Role(*location, stage, data, tensor, expert, context, source)))
    return tuple(role for _, role in sorted(rows, key=lambda row: row[0]))


@shared
def coordinates(store: Store) -> Mapping[int, Mapping[str, int]]:
    """Return the coordinates of each process that its groups give."""
    groups = process_groups(store)
    return {process: known for process in groups.of_process if (known := _coordinates(process, groups))}


@shared
def peer_groups(store: Store) -> tuple[Peers, ...]:
    """Return the ranks with device work, divided by role.

    By pipeline stage where the groups give it, else by the kernels of each step among ranks that communicate with each other. A process
    without peers has the source unknown.
    """
    if not store.has_rows("device_event"):
        return ()
    processes = _processes(store)
    known = coordinates(store)
    if len(processes) > 1 and any(PIPELINE in known.get(process, {}) for process in processes):
        stages: dict[int | None, list[int]] = {}
        for process in processes:
            stages.setdefault(known.get(process, {}).get(PIPELINE), []).append(process)
        return tuple(
            Peers(tuple(members), UNKNOWN if stage is None else GROUPS)
            for stage, members in sorted(stages.items(), key=lambda item: (item[0] is None, item[0] or 0))
        )
    return tuple(
        Peers(tuple(members), (GROUPS if all(process in known for process in members) else WORK) if len(members) > 1 else UNKNOWN)
        for members in _same_work(store, processes)
    )


def purpose(description: str | None) -> str | None:
    """Return what a group is for by its description: a coordinate or parts of some."""
    text = (description or "").upper()
    return next((name for name, pattern in _PURPOSES.items() if re.fullmatch(pattern, text)), None)


def _coordinates(process: int, groups: ProcessGroups) -> dict[str, int]:
    positions: dict[str, set[tuple[int, int]]] = {}  # purpose -> (place, size of the group)
    for key in groups.of_process[process]:
        kind, position = purpose(groups.groups[key].description), groups.position(process, key)
        if kind is not None and position is not None:
            positions.setdefault(kind, set()).add((position, len(groups.groups[key].members)))
    # Groups of one purpose that contradict each other give no coordinate.
    sure = {kind: next(iter(places)) for kind, places in positions.items() if len(places) == 1}
    known: dict[str, int] = {name: sure[name][0] for name in COORDINATES if name in sure}
    context = sure[CONTEXT][1] if CONTEXT in sure else 1
    # In both programs the context-parallel ranks of a data-parallel rank follow each other.
    if _SHARD in sure or _SHARD_AND_CONTEXT in sure:
        shard, size = sure[_SHARD] if _SHARD in sure else (sure[_SHARD_AND_CONTEXT][0] // context, sure[_SHARD_AND_CONTEXT][1] // context)
        replica = sure[_REPLICATE][0] if _REPLICATE in sure else 0
        known.setdefault(DATA, replica * size + shard)
    elif _REPLICATE in sure:
        known.setdefault(DATA, sure[_REPLICATE][0])
    if _DATA_AND_CONTEXT in sure:
        known.setdefault(DATA, sure[_DATA_AND_CONTEXT][0] // context)
    return known


def _processes(store: Store) -> list[int]:
    """Return the processes with device work, by id; hosts without a GPU have no role."""
    ids = store.frame(PROCESSES).select("id").to_series()
    working = store.frame("SELECT DISTINCT process FROM device_run WHERE process IS NOT NULL").to_series()
    return sorted(set(ids) & set(working))


def _same_work(store: Store, processes: list[int]) -> list[list[int]]:
    """Divide processes by the kernels of each step, and by who communicates."""
    if len(processes) < 2:
        return [[process] for process in processes]
    counts = store.frame(_KERNELS).with_columns(work=pl.struct("name", "grid_x", "grid_y", "grid_z").rank("dense"))
    steps = store.frame(_STEPS) if store.has_rows("step") else pl.DataFrame(schema={"process": pl.Int32, "steps": pl.Int64})
    counts = counts.join(steps, on="process", how="left").select("process", "work", n=pl.col("n") / pl.col("steps").fill_null(1))
    totals = dict(counts.group_by("process").agg(pl.col("n").sum()).rows())
    parts = _communicating(store)
    result: list[list[int]] = []
    left = [process for process in processes if totals.get(process)]
    for _ in range(_CLASSES):
        if not left:
            break
        first = left[0]
        of_first = counts.filter(pl.col("process") == first).select("work", wanted="n")
        compared = (
            counts.filter(pl.col("process").is_in(left))
            .join(of_first, on="work", how="left")
            .group_by("process")
            .agg(apart=(pl.col("n") - pl.col("wanted").fill_null(0)).abs().sum(), common=pl.col("wanted").sum())
        )
        apart = {process: apart + totals[first] - common for process, apart, common in compared.rows()}
        alike = [process for process in left if apart[process] <= _SAME * max(totals[first], totals[process])]
        divided: dict[int, list[int]] = {}
        for process in alike:
            divided.setdefault(parts.get(process, -1 if not parts else -2 - process), []).append(process)
        result += divided.values()
        left = [process for process in left if process not in set(alike)]
    placed = {process for members in result for process in members}
    return sorted([*result, *([process] for process in processes if process not in placed)])


def _communicating(store: Store) -> dict[int, int]:
    """Return a number for each process with matched collectives, equal if connected."""
    calls = matched_collectives(store).filter(pl.col("match").is_not_null(), ~pl.col("operation").is_in(ONE_TO_ONE))
    edges = (
        calls.select("match", "process").unique().sort("match", "process")
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
