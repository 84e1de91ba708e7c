"""Who launches collectives, and in which part of the step: host ranges around the launch call -> launcher and part.

Names of ranges, operators and Python functions that only one library has decide. A launcher is None if the trace does not show it.
"""

from __future__ import annotations

import re
from typing import Final

import polars as pl

from ...ingest.store.store import Store
from ..steps.part_ranges import part_ranges_of
from ..toolkit.contents import kinds
from ..toolkit.intervals import length_inside, union

FSDP2: Final = "FSDP2"
FSDP: Final = "FSDP"
DEEPSPEED: Final = "DeepSpeed"
MEGATRON: Final = "Megatron"
TORCHREC: Final = "TorchRec"
VLLM: Final = "vLLM"
SGLANG: Final = "SGLang"
DDP: Final = "DDP"
HOOKS: Final = "gradient hooks"
EXPLICIT: Final = "torch.distributed"
NCCL: Final = "NCCL"
GRAPH: Final = "CUDA graph"

_HOOK, _MODEL = "hook", "DDP range"
# Names around launch calls, the innermost libraries first. A file is part of the name of a Python function: "torch/x.py(12): f".
_AROUND: Final = {
    FSDP2: r"^FSDP::|^fsdp::|torch/distributed/(fsdp/_fully_shard|_composable/fsdp)/",
    FSDP: r"^FullyShardedDataParallel\.|torch/distributed/fsdp/",
    DEEPSPEED: r"(^|/)deepspeed/|^DeepSpeed",
    MEGATRON: r"(^|/)megatron/",
    TORCHREC: r"^All2All_|^## ((wait_|start_)?sparse_data_dist|sdd_|all2all_|alltoall_|KJT|Pooled)|(^|/)torchrec/",
    VLLM: r"(^|/)vllm/|^vllm::|^_C_custom_ar::",
    SGLANG: r"(^|/)sglang/|^sgl_kernel::",
    _HOOK: r"torch::autograd::AccumulateGrad$",
    _MODEL: r"^DistributedDataParallel\.forward$",
    EXPLICIT: r"^c10d::|^record_param_comms$|^nccl:|^_c10d_functional::|torch/distributed/distributed_c10d",
}
_LIBRARIES: Final = (FSDP2, FSDP, DEEPSPEED, MEGATRON, TORCHREC, VLLM, SGLANG)
_PARTS: Final = {
    "backward": r"^FSDP::(pre|post)_backward|^FullyShardedDataParallel\._(pre|post)_backward",
    "forward": r"^FSDP::(pre|post)_forward|^FullyShardedDataParallel\.(forward$|_(pre|post)_forward)",
}
_MEGATRON_GROUP: Final = re.compile(r"^[A-Z0-9_]+_GROUP(_[A-Z0-9]+)*$")  # descriptions of its process groups
_IN_FORWARD: Final = ("broadcast",)  # what DDP's forward sends itself: buffers; the rest inside it is the model's

_LAUNCHES: Final = """
    WITH kernel AS (
        SELECT process, device, stream, start_ns, correlation FROM device_run AS e WHERE communication AND {condition}
    ), call AS (
        SELECT e.process, e.correlation, arg_min(e.tid, e.start_ns) AS tid, min(e.start_ns) AS launch_ns,
            arg_min(e.start_ns + e.duration_ns, e.start_ns) AS launch_end_ns, arg_min(n.text, e.start_ns) AS call
        FROM host_event AS e JOIN name AS n ON n.id = e.name
        WHERE e.kind IN ('launch', 'call') AND e.correlation IN (SELECT correlation FROM kernel) AND {condition}
        GROUP BY e.process, e.correlation
    )
    SELECT k.process, k.device, k.stream, k.start_ns AS start, c.tid, c.launch_ns, c.launch_end_ns,
        coalesce(contains(c.call, 'GraphLaunch'), false) AS graph
    FROM kernel AS k LEFT JOIN call AS c ON c.process = k.process AND c.correlation = k.correlation
    QUALIFY row_number() OVER (PARTITION BY k.process, k.device, k.stream, k.start_ns ORDER BY c.launch_ns) = 1
"""
_RANGES: Final = """
    WITH named AS (SELECT id, {classes} FROM name)
    SELECT e.process, e.tid, e.start_ns AS start, e.start_ns + e.duration_ns AS "end", n.* EXCLUDE (id)
    FROM annotation AS e JOIN named AS n ON n.id = e.name WHERE e.side = 'host' AND e.duration_ns > 0 AND ({any_class}) AND {condition}
    UNION ALL
    SELECT e.process, e.tid, e.start_ns, e.start_ns + e.duration_ns, n.* EXCLUDE (id)
    FROM host_event AS e JOIN named AS n ON n.id = e.name WHERE e.kind IN ('operator', 'python') AND ({any_class}) AND {condition}
"""


def with_launchers(store: Store, calls: pl.DataFrame, condition: str) -> pl.DataFrame:
    """Add ``launcher``, ``part``, ``launch_ns`` and ``launch_end_ns`` to ``calls``.

    ``calls`` has the columns process, device, stream, ``start`` (of its first kernel), operation and group_description; they are of the
    processes of ``condition``, one of :func:`.places.process_conditions`. ``part``: backward, optimizer, forward, data loading; None if
    no range shows it. Times of the launch are None if it is not in the trace.
    """
    kernels = calls.select("process", "device", "stream", "start")  # a join of all columns would copy them
    launches = store.frame(_LAUNCHES.format(condition=condition))
    of_calls = kernels.join(launches, on=kernels.columns, how="left", maintain_order="left", nulls_equal=True)
    known = calls.hstack(of_calls.drop(kernels.columns))
    classes = {**_AROUND, **{f"in {part}": pattern for part, pattern in _PARTS.items()}}
    inside = _inside(store, known, classes, condition)
    flags = {name: pl.lit(inside[name]) for name in classes}
    operators = "operator" in kinds(store, "host_event")
    ddp_processes = _processes_with(store, _AROUND[_MODEL])
    with_model = pl.col("process").is_in(ddp_processes)
    part = _part(store, known, inside)
    gradients = (pl.col("operation") == "all-reduce") & with_model
    # Without operators in the trace, an all-reduce that backward launches in a process with DDP is one of its buckets.
    bucket = gradients & (flags[_HOOK] | (pl.lit(not operators) & (pl.lit(part).is_null() | (pl.lit(part) == "backward"))))
    megatron = pl.col("group_description").str.contains(_MEGATRON_GROUP.pattern).fill_null(False)
    launched = pl.col("launch_ns").is_not_null()
    cases = [
        (launched & pl.col("graph"), GRAPH),
        *((flags[library] | megatron if library == MEGATRON else flags[library], library) for library in _LIBRARIES),
        (launched & bucket, DDP),
        (pl.col("operation").is_in(_IN_FORWARD) & flags[_MODEL], DDP),
        (flags[_HOOK], HOOKS),
        (flags[EXPLICIT], EXPLICIT),
        (launched & operators, NCCL),
    ]
    launcher = pl.lit(None, pl.String)
    for evidence, name in reversed(cases):
        launcher = pl.when(evidence).then(pl.lit(name)).otherwise(launcher)
    return known.with_columns(launcher=launcher, part=pl.lit(part)).drop("graph")


def _inside(store: Store, calls: pl.DataFrame, classes: dict[str, str], condition: str) -> pl.DataFrame:
    """Return for each class whether a range of it surrounds the launch of each call."""
    columns = ", ".join(f'regexp_matches(text, ?) AS "{name}"' for name in classes)
    any_class = " OR ".join(f'n."{name}"' for name in classes)
    ranges = store.frame(_RANGES.format(classes=columns, any_class=any_class, condition=condition), list(classes.values()))
    return pl.DataFrame({name: _surrounded(calls, ranges.filter(name), ["process", "tid"]) for name in classes})


def _surrounded(calls: pl.DataFrame, ranges: pl.DataFrame, by: list[str]) -> pl.Series:
    moments = calls.select(*by, start="launch_ns", end=pl.col("launch_ns") + 1).with_columns(pl.col("start", "end").fill_null(0))
    covered = length_inside(moments, union(ranges.select(*by, "start", "end"), by), by)
    return (covered > 0) & calls["launch_ns"].is_not_null()


def _processes_with(store: Store, pattern: str) -> list[int]:
    sql = "SELECT DISTINCT process FROM annotation WHERE name IN (SELECT id FROM name WHERE regexp_matches(text, ?))"
    return store.frame(sql, [pattern])["process"].drop_nulls().to_list()


def _part(store: Store, calls: pl.DataFrame, inside: pl.DataFrame) -> pl.Series:
    """Return the part of the step in which each call was launched.

    A range of the launching thread decides. Threads of the autograd engine belong to the backward pass of another thread."""
    ranges = {part: rows for part, (_, rows) in part_ranges_of(store, calls["process"].unique().to_list()).items()}
    part = pl.Series("part", [None] * calls.height, dtype=pl.String)
    for name, rows in sorted(ranges.items(), key=lambda item: _ORDER.index(item[0])):
        around = _surrounded(calls, rows, ["process", "tid"])
        part = part.zip_with(part.is_not_null() | ~around, pl.Series([name] * calls.height, dtype=pl.String))
    for name in _PARTS:
        part = part.zip_with(~inside[f"in {name}"], pl.Series([name] * calls.height, dtype=pl.String))
    if "backward" in ranges:
        elsewhere = _surrounded(calls, ranges["backward"], ["process"])
        part = part.zip_with(part.is_not_null() | ~elsewhere, pl.Series(["backward"] * calls.height, dtype=pl.String))
    return part


_ORDER: Final = ("backward", "optimizer", "forward", "data loading")
