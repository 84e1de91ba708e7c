"""Trace file of the PyTorch profiler for a rank, in the form that its TensorBoard handler writes.

Times are microseconds with three decimals, relative to ``baseTimeNanoseconds``; nothing is lost to the nanosecond.
"""

from __future__ import annotations

import gzip
import json
from pathlib import Path

from . import schedule
from .schedule import Work
from .training_run import Rank

BASE_TIME_NS = 1_767_225_600_000_000_000  # 2026-01-01 00:00:00 UTC
_MULTIPROCESSORS = 132
_MEMORY_BYTES = 85_017_493_504
SIMULATED = {"simulated": "true", "note": "made by postrun's simulation, not measured on hardware"}


def _us(nanoseconds: int) -> str:
    """Return microseconds with three decimals, without a float."""
    return f"{nanoseconds // 1000}.{nanoseconds % 1000:03d}"


def _device_properties(count: int) -> str:
    device = {
        "name": "NVIDIA H100 80GB HBM3",
        "totalGlobalMem": _MEMORY_BYTES,
        "computeMajor": 9,
        "computeMinor": 0,
        "maxThreadsPerBlock": 1024,
        "maxThreadsPerMultiprocessor": 2048,
        "regsPerBlock": 65536,
        "warpSize": 32,
        "sharedMemPerBlock": 49152,
        "numSms": _MULTIPROCESSORS,
        "regsPerMultiprocessor": 65536,
        "sharedMemPerBlockOptin": 232448,
        "sharedMemPerMultiprocessor": 233472,
    }
    return json.dumps([{"id": number, **device} for number in range(count)])


def _distributed(rank: int, world_size: int) -> str:
    group = {
        "pg_name": "0",
        "pg_desc": "default_pg",
        "backend_config": "cuda:nccl",
        "pg_size": world_size,
        "ranks": list(range(world_size)),
    }
    head = {"backend": "nccl", "rank": rank, "world_size": world_size, "pg_count": 1}
    return json.dumps({**head, "pg_config": [group], "nccl_version": "2.21.5"})


def _work_arguments(work: Work, world_size: int) -> str:
    """Return the part of an event's arguments that each execution of the work shares."""
    if work.kind in ("gpu_memcpy", "gpu_memset"):
        return f'"bytes": {work.bytes}'
    per_sm = work.grid / _MULTIPROCESSORS
    warps = per_sm * work.block / 32
    text = (
        f'"registers per thread": {work.registers}, "shared memory": {work.shared_memory}, '
        f'"blocks per SM": {per_sm:.6f}, "warps per SM": {warps:.6f}, "grid": [{work.grid}, 1, 1], '
        f'"block": [{work.block}, 1, 1], "est. achieved occupancy %": {min(100, int(warps / 64 * 100))}'
    )
    if work.kind == "collective":
        elements = work.bytes // 4
        text += (
            f', "Collective name": "allreduce", "In msg nelems": {elements}, "Out msg nelems": {elements}, '
            f'"Group size": {world_size}, "dtype": "Float", "In split size": "[]", "Out split size": "[]", '
            '"Process Group Name": "0", "Process Group Description": "default_pg", '
            f'"Process Group Ranks": "{list(range(world_size))}"'
        )
    return text


def _event(category: str, name: str, pid: int, tid: int, start: int, duration: int, arguments: str) -> str:
    """Return one complete event; ``name`` is JSON text already."""
    return (
        f'  {{\n    "ph": "X", "cat": "{category}", "name": {name}, "pid": {pid}, "tid": {tid},\n'
        f'    "ts": {_us(start - BASE_TIME_NS)}, "dur": {_us(duration)},\n    "args": {{\n      {arguments}\n    }}\n  }}'
    )


def _device_events(rank: Rank, world_size: int) -> list[str]:
    names: dict[Work, tuple[str, str, str]] = {}
    lines: list[str] = []
    device = rank.device
    for event in rank.device_events:
        work = event.work
        if work not in names:
            category = "kernel" if work.kind == "collective" else work.kind
            names[work] = category, json.dumps(work.name), _work_arguments(work, world_size)
        category, name, constant = names[work]
        queued = '"queued": 0, ' if category == "kernel" else ""
        arguments = (
            f'"External id": {event.external}, {queued}"device": {device}, "context": 1, '
            f'"stream": {event.stream}, "correlation": {event.correlation}, {constant}'
        )
        if category != "kernel":
            arguments += f', "memory bandwidth (GB/s)": {work.bytes / event.duration:.6f}'
        lines.append(_event(category, name, device, event.stream, event.start, event.duration, arguments))
    for part in rank.ranges:
        arguments = f'"External id": {part.external}'
        name = json.dumps(part.name)
        lines.append(_event("gpu_user_annotation", name, device, part.stream, part.start, part.duration, arguments))
    return lines


def _host_events(rank: Rank) -> list[str]:
    lines: list[str] = []
    for event in rank.host:
        arguments = f'"External id": {event.external}'
        if event.callback:
            arguments += f', "cbid": {event.callback}, "correlation": {event.correlation}'
        name = f'"{event.name}"'
        lines.append(_event(event.category, name, rank.pid, event.thread, event.start, event.duration, arguments))
    return lines


def _labels(rank: Rank, first: int) -> list[str]:
    """Return the metadata events that name processes and threads."""
    threads = {rank.pid: "pt_main_thread", rank.autograd_thread: "pt_autograd_0"}
    rows = [
        (rank.pid, 0, "process_name", {"name": "python3"}),
        (rank.pid, 0, "process_labels", {"labels": "CPU"}),
        (rank.device, 0, "process_name", {"name": "python3"}),
        (rank.device, 0, "process_labels", {"labels": f"GPU {rank.device}"}),
        *((rank.pid, tid, "thread_name", {"name": f"thread {tid} ({name})"}) for tid, name in threads.items()),
        *(
            (rank.device, stream, "thread_name", {"name": f"stream {stream} "})
            for stream in (schedule.STREAM_COMPUTE, schedule.STREAM_COLLECTIVES)
        ),
    ]
    time = _us(first - BASE_TIME_NS)
    return [
        f'  {{\n    "name": "{name}", "ph": "M", "ts": {time}, "pid": {pid}, "tid": {tid},\n    "args": {json.dumps(arguments)}\n  }}'
        for pid, tid, name, arguments in rows
    ]


def write_trace(folder: Path, rank: Rank, *, world_size: int, gpus_per_node: int, job_name: str) -> Path:
    """Write ``<host>_<pid>.<ns>.pt.trace.json.gz``; the same run gives the same bytes."""
    first, last = rank.steps[0].start, rank.steps[-1].end
    name = f"{rank.node}_{rank.pid}.{last + 350_000_000 + rank.rank}.pt.trace.json"
    events = [*_host_events(rank), *_device_events(rank, world_size), *_labels(rank, first)]
    text = (
        '\n{\n  "schemaVersion": 1,\n'
        f'  "deviceProperties": {_device_properties(gpus_per_node)},\n'
        f'  "distributedInfo": {_distributed(rank.rank, world_size)},\n'
        f'  "metadata": {json.dumps({"job": job_name, **SIMULATED})},\n'
        '  "cuda_runtime_version": 12060,\n  "cuda_driver_version": 12060,\n'
        '  "traceEvents": [\n' + ",\n".join(events) + "\n  ],\n"
        f'  "traceName": "simulated/{name}",\n  "displayTimeUnit": "ms",\n  "baseTimeNanoseconds": {BASE_TIME_NS}\n}}\n'
    )
    path = folder / f"{name}.gz"
    path.write_bytes(gzip.compress(text.encode("ascii"), compresslevel=4, mtime=0))
    return path
