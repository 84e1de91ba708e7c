"""Roles of ranks: their coordinates in the parallel layout of a job.

The process groups of Megatron-LM and of PyTorch's DeviceMesh (FSDP, TorchTitan, Accelerate) have descriptions; the place of a rank in the
list of such a group is its coordinate.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from typing import Final

from ...ingest.store.store import Store
from ..report.causes import Role
from ..toolkit.contents import PROCESSES
from ..toolkit.places import Places
from ..toolkit.shared import shared
from .groups import ProcessGroups, process_groups
from .peers import GROUPS, UNKNOWN, Peers

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


def roles(store: Store, peers: Peers, places: Places | None = None) -> tuple[Role, ...]:
    """Return the role of each rank with device work, by place."""
    places = places or Places(store)
    known = coordinates(store)
    ranks_of = Counter(peers.roles.values())
    rows = []
    for process in working_processes(store):
        location = places.process(process)
        stage, data, tensor, expert, context = (known.get(process, {}).get(name) for name in COORDINATES)
        alone = process not in peers.roles or ranks_of[peers.roles[process]] == 1
        source = GROUPS if process in known else UNKNOWN if alone else peers.source
        rows.append((location.order, Role(*location, stage, data, tensor, expert, context, source)))
    return tuple(role for _, role in sorted(rows, key=lambda row: row[0]))


@shared
def coordinates(store: Store) -> Mapping[int, Mapping[str, int]]:
    """Return the coordinates of each process that its groups give."""
    groups = process_groups(store)
    return {process: known for process in groups.of_process if (known := _coordinates(process, groups))}


@shared
def working_processes(store: Store) -> tuple[int, ...]:
    """Return the processes with device work, by id; hosts without a GPU have no role."""
    if not store.has_rows("device_event"):
        return ()
    ids = store.frame(PROCESSES).select("id").to_series()
    working = store.frame("SELECT DISTINCT process FROM device_run WHERE process IS NOT NULL").to_series()
    return tuple(sorted(set(ids) & set(working)))


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
