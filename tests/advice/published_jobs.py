"""The two published jobs with known causes, and recordings like them, as Kineto traces: each operation becomes a kernel with its launch."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import polars as pl
from job_trace import BASE_NS, GPUS, START_NS
from training_jobs import ADAM, BF16

_COMPUTATION: Final = {
    "forward-compute": BF16,
    "backward-compute": BF16.replace("_tn_n_", "_nt_n_"),
    "optimizer": ADAM,
    "optimizer-clip-main-grad": ADAM.replace("FusedAdamMathFunctor<float, 4>", "L2NormFunctor<float, float>"),
}
_RING: Final = "ncclDevKernel_{}_RING_LL(ncclDevKernelArgsStorage<4096ul>)"
_COLLECTIVES: Final = {
    "grads-reduce-scatter": ("reduce_scatter", _RING.format("ReduceScatter_Sum_f32"), 25),
    "params-all-gather": ("allgather", _RING.format("AllGather"), 25),
    "embedding-grads-all-reduce": ("allreduce", _RING.format("AllReduce_Sum_f32"), 25),
    "layernorm-grads-all-reduce": ("allreduce", _RING.format("AllReduce_Sum_f32"), 25),
    "forward-send": ("send", "ncclDevKernel_SendRecv(ncclDevKernelArgsStorage<4096ul>)", 21),
    "forward-recv": ("recv", "ncclDevKernel_SendRecv(ncclDevKernelArgsStorage<4096ul>)", 22),
    "backward-send": ("send", "ncclDevKernel_SendRecv(ncclDevKernelArgsStorage<4096ul>)", 23),
    "backward-recv": ("recv", "ncclDevKernel_SendRecv(ncclDevKernelArgsStorage<4096ul>)", 24),
}
_COMPUTE_STREAM, _GPUS_PER_NODE = 7, 8


@dataclass(frozen=True, slots=True)
class Published:
    """A published job. ``job``: AR or ST; ``groups``: collectives name their groups; ``streams``: what is added to stream numbers."""

    job: str
    groups: bool = True
    streams: int = 0


def _group(operation: str, stage: int, data: int, members: dict[tuple[int, int], int]) -> tuple[str, str, list[int]]:
    last = max(where for _, where in members)
    pipeline = [members[key] for key in sorted(members, key=lambda key: key[1]) if key[0] == data]
    if operation.endswith(("send", "recv")):
        return f"pp{data}", "PIPELINE_MODEL_PARALLEL_GROUP", pipeline
    if operation.startswith("embedding"):
        return f"embedding{data}", "EMBEDDING_GROUP", [members[data, where] for where in (0, last)]
    return f"dp{stage}", "DATA_PARALLEL_GROUP", [rank for (_, where), rank in sorted(members.items()) if where == stage]


def write_published(folder: Path, published: Published, data: Path) -> int:
    """Write a trace per recorded rank and return the number of events.

    ``data``: the folder of the recordings.
    """
    return write_recording(folder, pl.read_parquet(data / f"trace-{published.job}.parquet"), published)


def write_recording(folder: Path, recording: pl.DataFrame, published: Published) -> int:
    """Write a trace per rank of a recording, a row per operation."""
    rows = recording.with_columns(pl.col("optype").cast(pl.String), pl.col("start_ts", "duration").cast(pl.Float64))
    ends = rows.group_by("step").agg(end=(pl.col("start_ts") + pl.col("duration")).max()).sort("step")
    offsets = ends.select("step", offset=pl.col("end").cum_sum() - pl.col("end"))
    rows = rows.join(offsets, on="step").with_columns(pl.col("start_ts") + pl.col("offset")).sort("rank", "start_ts")
    rows = rows.filter((pl.col("optype") != "gc") & (pl.col("duration") > 0))
    places = rows.select("dp_rank", "stage", "rank").unique().iter_rows()
    members = {(data_rank, stage): rank for data_rank, stage, rank in places}
    numbers = sorted(members.values())
    folder.mkdir(parents=True, exist_ok=True)
    count = 0
    for index, number in enumerate(numbers):
        recorded = rows.filter(pl.col("rank") == number)
        events = _rank_events(recorded, index, published, members)
        node, pid = index // _GPUS_PER_NODE, 1000 + index
        trace = {
            "schemaVersion": 1,
            "deviceProperties": [{"id": n, **GPUS["H100"], "name": "NVIDIA H800"} for n in range(_GPUS_PER_NODE)],
            "distributedInfo": {"backend": "nccl", "rank": index, "world_size": len(numbers)},
            "traceEvents": events,
            "baseTimeNanoseconds": BASE_NS,
        }
        (folder / f"node-{node}_{pid}.{1760000000000 + index}.pt.trace.json").write_text(json.dumps(trace), encoding="utf-8")
        count += len(events)
    return count


def _described(operation: str, stage: int, data: int, members: dict[tuple[int, int], int]) -> dict[str, Any]:
    """Return what a record of a collective has on its group."""
    name, description, ranks = _group(operation, stage, data, members)
    return {
        "Group size": len(ranks), "Process Group Name": name, "Process Group Description": description, "Process Group Ranks": str(ranks)
    }  # fmt: skip


def _rank_events(recorded: pl.DataFrame, index: int, published: Published, members: dict[tuple[int, int], int]) -> list[dict[str, Any]]:
    pid, device, base = 1000 + index, index % _GPUS_PER_NODE, START_NS / 1000
    events: list[dict[str, Any]] = [{"ph": "M", "name": "process_name", "pid": pid, "tid": 0, "ts": base, "args": {"name": "python3"}}]
    steps = recorded.group_by("step").agg(begin=pl.col("start_ts").min(), end=(pl.col("start_ts") + pl.col("duration")).max())
    for step, begin, end in steps.sort("step").iter_rows():
        start, length = round(base + begin * 1e6 - 5, 3), round((end - begin) * 1e6, 3)
        events.append(
            {"ph": "X", "cat": "user_annotation", "name": f"ProfilerStep#{step}", "pid": pid, "tid": pid, "ts": start, "dur": length}
        )
    groups: dict[tuple[str, int, int], dict[str, Any]] = {}
    for correlation, row in enumerate(recorded.iter_rows(named=True), 1):
        operation, start, duration = row["optype"], round(base + row["start_ts"] * 1e6, 3), round(row["duration"] * 1e6, 3)
        ids = {"correlation": correlation, "External id": correlation}
        launch = {
            "ph": "X",
            "cat": "cuda_runtime",
            "name": "cudaLaunchKernel",
            "pid": pid,
            "tid": pid,
            "ts": start - 4,
            "dur": 1,
            "args": ids,
        }
        args: dict[str, Any] = {"device": device, "context": 1, **ids, "grid": [132, 1, 1], "block": [512, 1, 1]}
        if operation in _COLLECTIVES:
            kind, kernel, stream = _COLLECTIVES[operation]
            if published.groups:
                key = operation, row["stage"], row["dp_rank"]
                if key not in groups:
                    groups[key] = _described(*key, members)
                args |= {"Collective name": kind, "dtype": "Float", **groups[key]}
        else:
            kernel, stream = _COMPUTATION[operation], _COMPUTE_STREAM
        args["stream"] = stream + published.streams
        kernel_event = {
            "ph": "X",
            "cat": "kernel",
            "name": kernel,
            "pid": device,
            "tid": args["stream"],
            "ts": start,
            "dur": duration,
            "args": args,
        }
        events += [launch, kernel_event]
    return events
