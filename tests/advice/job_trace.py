"""Kineto traces of a simulated job: one file per rank, as the PyTorch profiler writes them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from job_engine import Rank, Work

BASE_NS = 1_767_225_600_000_000_000  # 2026-01-01 00:00:00 UTC
START_NS = 5_000_000_000  # of the job after the base time

GPUS: dict[str, dict[str, Any]] = {
    "H100": {"name": "NVIDIA H100 80GB HBM3", "computeMajor": 9, "computeMinor": 0, "numSms": 132, "totalGlobalMem": 85017493504},
    "A100": {"name": "NVIDIA A100-SXM4-80GB", "computeMajor": 8, "computeMinor": 0, "numSms": 108, "totalGlobalMem": 85095874560},
    "V100": {"name": "Tesla V100-SXM2-32GB", "computeMajor": 7, "computeMinor": 0, "numSms": 80, "totalGlobalMem": 34079637504},
    "P100": {"name": "Tesla P100-SXM2-16GB", "computeMajor": 6, "computeMinor": 0, "numSms": 56, "totalGlobalMem": 17071734784},
    "MI300X": {"name": "AMD Instinct MI300X", "computeMajor": 9, "computeMinor": 4, "numSms": 304, "totalGlobalMem": 205571227648},
}
"""Device properties by the short name of a GPU."""


@dataclass(frozen=True, slots=True)
class Group:
    """A process group: its name, description and ranks."""

    name: str
    description: str
    ranks: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Layout:
    """The facts that the writer needs besides the ranks. ``from_ns``: recording begins; ``skew_ns``: clock error per node."""

    gpu: str
    gpus_per_node: int
    world_size: int
    groups: tuple[Group, ...] = ()
    recorded: tuple[int, ...] | None = None
    from_ns: int = 0
    skew_ns: tuple[int, ...] = ()
    metadata: bool = True
    record_shapes: bool = True


def _us(ns: int) -> float:
    return round(ns / 1000, 3)


def write_traces(folder: Path, ranks: Sequence[Rank], layout: Layout) -> int:
    """Write the traces and return the number of events."""
    folder.mkdir(parents=True, exist_ok=True)
    count = 0
    for rank in ranks:
        if layout.recorded is not None and rank.number not in layout.recorded:
            continue
        node, device = divmod(rank.number, layout.gpus_per_node)
        skew = layout.skew_ns[node % len(layout.skew_ns)] if layout.skew_ns else 0
        events = _metadata(rank, device) + _host(rank, layout, START_NS + skew) + _device(rank, device, layout, START_NS + skew)
        amd = "AMD" in GPUS[layout.gpu]["name"]
        properties = {"maxThreadsPerBlock": 1024, "warpSize": 64 if amd else 32, **GPUS[layout.gpu]}
        trace: dict[str, Any] = {
            "schemaVersion": 1,
            "deviceProperties": [{"id": number, **properties} for number in range(layout.gpus_per_node)],
            "record_shapes": int(layout.record_shapes),
            "with_stack": int(rank.stacks),
            "traceEvents": events,
            "traceName": f"node-{node}_{rank.pid}.pt.trace.json",
            "displayTimeUnit": "ms",
            "baseTimeNanoseconds": BASE_NS,
        }
        if layout.world_size > 1 and layout.metadata:
            trace["distributedInfo"] = {
                "backend": "nccl", "rank": rank.number, "world_size": layout.world_size, "pg_count": len(layout.groups),
                "pg_config": [
                    {"pg_name": g.name, "pg_desc": g.description, "backend_config": "cuda:nccl", "pg_size": len(g.ranks), "ranks": g.ranks}
                    for g in layout.groups if rank.number in g.ranks
                ],
                "nccl_version": "2.21.5",
            }  # fmt: skip
        (folder / f"node-{node}_{rank.pid}.1767225600000.pt.trace.json").write_text(json.dumps(trace), encoding="utf-8")
        count += len(events)
    return count


def _metadata(rank: Rank, device: int) -> list[dict[str, Any]]:
    rows = [(rank.pid, "process_name", {"name": "python3"}), (rank.pid, "process_labels", {"labels": "CPU"})]
    rows += [(device, "process_name", {"name": "python3"}), (device, "process_labels", {"labels": f"GPU {device}"})]
    return [{"ph": "M", "name": name, "pid": pid, "tid": 0, "ts": _us(START_NS), "args": args} for pid, name, args in rows]


def _host(rank: Rank, layout: Layout, offset: int) -> list[dict[str, Any]]:
    return [
        {
            "ph": "X", "cat": record.category, "name": record.name, "pid": rank.pid, "tid": record.thread,
            "ts": _us(record.start + offset), "dur": _us(record.end - record.start), "args": record.args,
        }
        for record in rank.records
        if record.start >= layout.from_ns
    ]  # fmt: skip


def _device(rank: Rank, device: int, layout: Layout, offset: int) -> list[dict[str, Any]]:
    events = []
    amd = "AMD" in GPUS[layout.gpu]["name"]
    for work in rank.works:
        assert work.start is not None
        assert work.end is not None
        if work.start < layout.from_ns:
            continue
        stream = 0 if amd and work.stream == COMPUTE_STREAM else work.stream
        args: dict[str, Any] = {
            "External id": work.external, "queued": 0, "device": device, "context": 1, "stream": stream, "correlation": work.correlation,
        }  # fmt: skip
        if work.category == "kernel":
            args |= {"grid": [132, 1, 1], "block": [256, 1, 1], "registers per thread": 128}
        events.append(
            {
                "ph": "X", "cat": work.category, "name": work.name, "pid": device, "tid": stream,
                "ts": _us(work.start + offset), "dur": _us(work.end - work.start), "args": args | work.args,
            }
        )  # fmt: skip
    for record in rank.records:
        if record.category == "user_annotation" and record.start >= layout.from_ns:
            inside = [work for work in rank.works if record.start <= work.launched < record.end and work.stream == COMPUTE_STREAM]
            if inside:
                events.append(_gpu_range(record.name, inside, device, offset, record.args))
    return events


COMPUTE_STREAM = 7


def _gpu_range(name: str, inside: Sequence[Work], device: int, offset: int, args: dict[str, Any]) -> dict[str, Any]:
    start, end = inside[0].start or 0, max(work.end or 0 for work in inside)
    return {
        "ph": "X", "cat": "gpu_user_annotation", "name": name, "pid": device, "tid": COMPUTE_STREAM,
        "ts": _us(start + offset), "dur": _us(end - start), "args": args,
    }  # fmt: skip
