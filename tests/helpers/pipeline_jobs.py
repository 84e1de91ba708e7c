"""Pipeline jobs made by a plain simulation: stages that send micro-batches to each other, and ranks that reduce gradients.

Each stage runs as many forward passes as stages follow it, then one backward pass and one forward pass in turn. All times are in ns.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

NAMES = {
    "forward": ("forward", "BF16", "GEMM"),
    "backward": ("backward", "BF16", "GEMM"),
    "optimizer": ("optimizer", "FP32", "elementwise"),
    "ncclDevKernel_SendRecv": ("SendRecv", "unknown", "communication"),
    "ncclDevKernel_AllReduce": ("AllReduce", "unknown", "communication"),
}
FORWARD, BACKWARD, OPTIMIZER, SENDING, REDUCING = 20_000_000, 40_000_000, 5_000_000, 400_000, 3_000_000
COMPUTE, FORWARD_OUT, FORWARD_IN, BACKWARD_OUT, BACKWARD_IN, REDUCE = range(6)  # streams


@dataclass(frozen=True)
class Shape:
    """``noise``: relative standard deviation of durations. ``factor``: of the computation of (stage, replica, step)."""

    stages: int
    replicas: int
    steps: int = 10
    batches: int = 4
    noise: float = 0.02
    factor: Callable[[int, int, int], float] = lambda stage, replica, step: 1.0
    streams: Mapping[int, list[int]] = field(default_factory=dict)  # rank -> number of each stream; else 7, 8, ...


def order(shape: Shape, stage: int) -> list[tuple[str, int]]:
    """Return the passes of a stage with their micro-batches."""
    ahead = min(shape.stages - 1 - stage, shape.batches)
    passes = [("forward", batch) for batch in range(ahead)]
    for batch in range(shape.batches):
        if ahead + batch < shape.batches:
            passes.append(("forward", ahead + batch))
        passes.append(("backward", batch))
    return passes


def pipeline_job(shape: Shape, seed: int) -> dict[str, Any]:
    """Return the tables of a store; rank = stage x replicas + replica."""
    chance = random.Random(seed)
    kernels: list[tuple[int, int, str, int, int, int]] = []  # rank, stream, name, start, end, step
    ready = {(stage, replica): 0 for stage in range(shape.stages) for replica in range(shape.replicas)}

    def lasts(mean: float) -> int:
        return max(1000, round(mean * chance.gauss(1.0, shape.noise)))

    for step in range(shape.steps):
        for replica in range(shape.replicas):
            _passes(shape, replica, step, ready, kernels, lasts)
        for stage in range(shape.stages):
            members = [(stage, replica) for replica in range(shape.replicas)]
            end = max(ready[member] for member in members) + lasts(REDUCING)
            for member in members:
                rank = stage * shape.replicas + member[1]
                if shape.replicas > 1:
                    kernels.append((rank, REDUCE, "ncclDevKernel_AllReduce", ready[member] + 3000, end + chance.randrange(5000), step))
                update = end + 10_000
                ready[member] = update + lasts(OPTIMIZER)
                kernels.append((rank, COMPUTE, "optimizer", update, ready[member], step))
                ready[member] += 20_000
    return _tables(shape, kernels)


def _passes(
    shape: Shape, replica: int, step: int, ready: dict[tuple[int, int], int], kernels: list[Any], lasts: Callable[[float], int]
) -> None:
    left = {stage: order(shape, stage) for stage in range(shape.stages)}
    sent: dict[tuple[str, int, int], int] = {}  # pass, stage and micro-batch that was computed -> its end
    free: dict[tuple[int, int], int] = {}  # rank, stream -> end of its last transfer
    while any(left.values()):
        for stage, passes in left.items():
            while passes:
                name, batch = passes[0]
                source = stage - 1 if name == "forward" else stage + 1
                start = ready[stage, replica]
                if 0 <= source < shape.stages:
                    if (name, source, batch) not in sent:
                        break
                    outward, inward = (FORWARD_OUT, FORWARD_IN) if name == "forward" else (BACKWARD_OUT, BACKWARD_IN)
                    sender, receiver = source * shape.replicas + replica, stage * shape.replicas + replica
                    posted = max(start, free.get((receiver, inward), 0)) + 2000
                    sending = max(sent[name, source, batch], free.get((sender, outward), 0)) + 2000
                    end = max(posted, sending) + lasts(SENDING)
                    kernels.append((sender, outward, "ncclDevKernel_SendRecv", sending, end, step))
                    kernels.append((receiver, inward, "ncclDevKernel_SendRecv", posted, end + 1500, step))
                    free[sender, outward], free[receiver, inward] = end, end + 1500
                    start = end + 1500
                mean = (FORWARD if name == "forward" else BACKWARD) * shape.factor(stage, replica, step)
                begin = start + 5000
                ready[stage, replica] = begin + lasts(mean)
                kernels.append((stage * shape.replicas + replica, COMPUTE, name, begin, ready[stage, replica], step))
                sent[name, stage, batch] = ready[stage, replica]
                passes.pop(0)


def _tables(shape: Shape, kernels: list[tuple[int, int, str, int, int, int]]) -> dict[str, Any]:
    ranks = shape.stages * shape.replicas
    tables: dict[str, Any] = {
        "names": NAMES,
        "nodes": [{"id": 0, "hostname": "node-0"}],
        "processes": [{"id": rank, "node": 0, "pid": 100 + rank, "rank": rank, "world_size": ranks} for rank in range(ranks)],
        "device_event": [],
        "step": [],
    }
    times: dict[tuple[int, int], list[tuple[int, int]]] = {}
    for rank, stream, name, start, end, step in kernels:
        number = shape.streams[rank][stream] if rank in shape.streams else 7 + stream
        tables["device_event"].append({
            "node": 0, "process": rank, "device": rank, "kind": "kernel", "name": name, "start_ns": start, "duration_ns": end - start,
            "stream": number,
        })  # fmt: skip
        times.setdefault((rank, step), []).append((start, end))
    for (rank, step), parts in times.items():
        first, last = min(start for start, _ in parts), max(end for _, end in parts)
        tables["step"].append({
            "node": 0, "process": rank, "index": step, "host_start_ns": first, "host_duration_ns": last - first, "device_start_ns": first,
            "device_duration_ns": last - first, "device_events": len(parts),
        })  # fmt: skip
    return tables
