"""Facts about the session of an Nsight Systems export: its start, machine, processes, GPUs and losses.

The export contains the environment of the process, which is full of secrets: only the variables that name a rank are read.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from ..store.time_limits import YEAR_2001_NS
from . import schema as schema
from .schema import Export

_RANK: Final = ("RANK", "OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK", "SLURM_PROCID", "MV2_COMM_WORLD_RANK")
_LOCAL_RANK: Final = ("LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_RANK", "MPI_LOCALRANKID", "SLURM_LOCALID", "MV2_COMM_WORLD_LOCAL_RANK")
_WORLD_SIZE: Final = ("WORLD_SIZE", "OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "SLURM_NTASKS", "MV2_COMM_WORLD_SIZE")
_ENVIRONMENT: Final = re.compile(r'([A-Z0-9_]+)="?(\d{1,9})"?')
_LONGEST: Final = 200

# Meanings of the numbers if the export has no table of them.
_COPY_KINDS: Final = dict(enumerate((
    None, "HtoD", "DtoH", "HtoA", "AtoH", "AtoA", "AtoD", "DtoA", "DtoD", "HtoH", "PtoP", "unified HtoD", "unified DtoH", "unified DtoD",
)))  # fmt: skip
_MEMORY_KINDS: Final = dict(enumerate(("Pageable", "Pinned", "Device", "Array", "Managed", "Device Static", "Managed Static")))
_SYNC_KINDS: Final = {1: "Event Sync", 2: "Stream Wait Event", 3: "Stream Sync", 4: "Context Sync"}
_SYNC_WORDS: Final = (
    ("EVENT_SYNCHRONIZE", "Event Sync"), ("STREAM_WAIT_EVENT", "Stream Wait Event"), ("STREAM_SYNCHRONIZE", "Stream Sync"),
    ("CONTEXT_SYNCHRONIZE", "Context Sync"),
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Ranks:
    rank: int | None = None
    local_rank: int | None = None
    world_size: int | None = None


@dataclass(slots=True)
class Session:
    """``base_ns``: offset to the times of events. ``relative``: they have no epoch. ``pids``, ``names``, ``ranks``: by global process id.

    ``devices``: number of the GPU by global process id and the process's number for it. ``launched``: ranks in the environment of the
    process that was started. ``losses``: severity, text and count of the profiler's complaints.
    """

    base_ns: int
    relative: bool
    hostname: str | None
    cores: int | None
    gpus: list[dict[str, Any]]
    pids: dict[int, int]
    names: dict[int, str]
    devices: dict[tuple[int | None, int | None], int]
    contexts: dict[tuple[int | None, int | None], int]
    ranks: dict[int, Ranks]
    launched: Ranks
    metadata: dict[str, Any]
    schema_version: str | None
    losses: list[tuple[int, str, int]] = field(default_factory=list)

    def pid(self, process: int) -> int:
        """Return the process id of a global one (8, 8, 24 and 24 bits).

        The bits identify hardware, machine, process and thread.
        """
        return self.pids.get(process, (process >> 24) & 0xFFFFFF)


def read_session(export: Export) -> Session:
    properties = {str(name): value for name, value in export.rows(schema.EXPORT, ("name", "value")) if isinstance(value, str)}
    capture = [(str(name), value) for name, value in export.rows(schema.CAPTURE, ("name", "value")) if isinstance(value, str)]
    system = {str(name): value for name, value in export.rows(schema.SYSTEM, ("name", "value")) if isinstance(value, str)}
    settings = dict(reversed(capture))
    base, relative = _start(export, properties)
    hostname = system.get("Hostname") or (settings.get("DEVICE_DISPLAY_NAME") if settings.get("DEVICE_TYPE") else None)
    pids, names = {}, {}
    for process, pid, name in export.rows(schema.PROCESSES, ("globalPid", "pid", "name")):
        if type(process) is int and type(pid) is int and 0 <= pid < 2**31:
            pids[process] = pid
            if isinstance(name, str) and name:
                names[process] = name[:_LONGEST]
    by_pid = {pid: process for process, pid in pids.items()}
    words = [settings.get("PROCESS_0:COMMAND")] + [settings.get(f"PROCESS_0:ARGUMENT_{i}") for i in range(1000)]
    command = " ".join(word for word in words if word)[:2000] or None
    versions = {
        "nsight_systems": properties.get("EXPORT_PRODUCT_VERSION"), "nsight_systems_schema": properties.get("EXPORT_SCHEMA_VERSION"),
        "command": command, "driver_version": system.get("NvDriverVersion"), "operating_system": system.get("OsDescription"),
    }  # fmt: skip
    return Session(
        base_ns=base,
        relative=relative,
        hostname=hostname[:255] if hostname and hostname.strip() else None,
        cores=_count(system.get("CpuCores")),
        gpus=list(_gpus(export)),
        pids=pids,
        names=names,
        devices=dict(_devices(export, by_pid)),
        contexts=dict(_contexts(export, by_pid)),
        ranks={
            process: Ranks(rank)
            for process, rank in export.rows(schema.MPI_RANKS, ("globalPid", "rank"))
            if type(process) is int and type(rank) is int and 0 <= rank < 2**31
        },
        launched=_launched(capture),
        metadata={key: value[:_LONGEST] for key, value in versions.items() if value},
        schema_version=properties.get("EXPORT_SCHEMA_VERSION"),
        losses=_losses(export),
    )


def _start(export: Export, properties: Mapping[str, str]) -> tuple[int, bool]:
    """Return the offset to the times of events, and whether they have no epoch."""
    if properties.get("EXPORT_PARAM_TIME_NORMALIZE") == "true":
        return 0, False
    for names in (schema.KERNEL, schema.RUNTIME, schema.NVTX, schema.MEMCPY):
        if (table := export.table(names)) is not None:
            starts = [start for batch in export.batches(table, ("start",), 16) for start in batch[0] if type(start) is int]
            if starts and min(starts) >= YEAR_2001_NS:
                return 0, False
    epochs = [epoch for (epoch,) in export.rows(schema.SESSION, ("utcEpochNs",)) if type(epoch) is int]
    return (epochs[0], False) if epochs and YEAR_2001_NS <= epochs[0] < 2**62 else (0, True)


def _gpus(export: Export) -> Iterator[dict[str, Any]]:
    """Yield the GPUs of the machine with the members of PyTorch's traces (devices.py)."""
    columns = (
        ("deviceId", "id"), "name", "uuid", ("totalMemory", "totalGlobalMem", "globalMemorySize"),
        ("smCount", "numMultiprocessors", "multiprocessorCount"), ("computeMajor", "computeCapabilityMajor"),
        ("computeMinor", "computeCapabilityMinor"),
    )  # fmt: skip
    uuids = {gpu: uuid for gpu, uuid in export.rows(schema.CUDA_DEVICES, ("gpuId", "uuid")) if isinstance(uuid, str) and uuid}
    for number, name, uuid, memory, processors, major, minor in export.rows(schema.GPUS, columns):
        if type(number) is int:
            text = name[:_LONGEST] if isinstance(name, str) and name else None
            yield {
                "id": number, "name": text, "uuid": (uuid if isinstance(uuid, str) and uuid else uuids.get(number)),
                "totalGlobalMem": memory or None, "numSms": processors or None, "computeMajor": major, "computeMinor": minor,
            }  # fmt: skip


def _devices(export: Export, by_pid: Mapping[int, int]) -> Iterator[tuple[tuple[int | None, int | None], int]]:
    """Yield the GPU for a process and its own number: it may see only some GPUs."""
    listed = {gpu["id"] for gpu in _gpus(export)} if export.table(schema.GPUS) == "TARGET_INFO_GPU" else set()
    for gpu, number, pid in export.rows(schema.CUDA_DEVICES, ("gpuId", "cudaId", "pid")):
        if type(gpu) is int and type(number) is int and type(pid) is int and gpu in listed:
            yield (by_pid.get(pid, pid << 24), number), gpu


def _contexts(export: Export, by_pid: Mapping[int, int]) -> Iterator[tuple[tuple[int | None, int | None], int]]:
    for pid, context, device in export.rows(schema.CONTEXTS, (("processId", "pid"), "contextId", "deviceId")):
        if type(pid) is int and type(context) is int and type(device) is int:
            yield (by_pid.get(pid, pid << 24), context), device


def _launched(capture: list[tuple[str, str]]) -> Ranks:
    ranks: dict[str, int] = {}
    for name, value in capture:
        if name == "PROCESS_0:ENVIRONMENT_VARIABLE" and (match := _ENVIRONMENT.fullmatch(value)):
            ranks[match[1]] = int(match[2])
    rank, local, world = (next((ranks[name] for name in names if name in ranks), None) for names in (_RANK, _LOCAL_RANK, _WORLD_SIZE))
    return Ranks(rank, local, world or None) if rank is not None else Ranks()


_LOST: Final = re.compile(
    r"\blost\b|\bdropped\b|\bmissing\b|not (all|every|collected)|incomplete|overflow|may be inaccurate", re.IGNORECASE
)
_NOTHING_LOST: Final = re.compile(r"\b(no|0|zero) (events?|records?|samples?)\b.{0,30}\b(lost|dropped|missing)", re.IGNORECASE)


def _losses(export: Export) -> list[tuple[int, str, int]]:
    """Return the profiler's warnings and errors, and messages about lost data."""
    counts: dict[tuple[int, str], int] = {}
    for severity, text in export.rows(schema.DIAGNOSTICS, ("severity", "text")):
        if not isinstance(text, str):
            continue
        level = severity if severity in (2, 3) else 2 if _LOST.search(text) and not _NOTHING_LOST.search(text) else 0
        if level:
            line = " ".join(text.split())[:400]
            counts[level, line] = counts.get((level, line), 0) + 1
    return [(level, text, count) for (level, text), count in counts.items()]


def copy_kinds(export: Export) -> dict[int, str | None]:
    """Return the direction of a copy by its number."""
    return {**_COPY_KINDS, **{number: _copy_kind(name) for number, name in _enum(export, schema.COPY_KINDS)}}


def _copy_kind(name: str) -> str | None:
    match = re.search(r"(UVM_)?([HDAP])TO([HDAP])$", name, re.IGNORECASE)
    return None if match is None else ("unified " if match[1] else "") + f"{match[2].upper()}to{match[3].upper()}"


def memory_kinds(export: Export) -> dict[int, str]:
    """Return the kind of memory of a copy by its number."""
    named = {
        number: name.upper().rpartition("MEMORY_KIND_")[2].replace("_", " ").title() for number, name in _enum(export, schema.MEMORY_KINDS)
    }
    return {**_MEMORY_KINDS, **named}


def sync_kinds(export: Export) -> dict[int, str]:
    named = {number: known for number, name in _enum(export, schema.SYNC_KINDS) for word, known in _SYNC_WORDS if word in name.upper()}
    return named or _SYNC_KINDS


def _enum(export: Export, names: tuple[str, ...]) -> Iterator[tuple[int, str]]:
    for number, name in export.rows(names, ("id", "name")):
        if type(number) is int and isinstance(name, str):
            yield number, name


def _count(value: str | None) -> int | None:
    return int(value) if value and value.isascii() and value.isdigit() and 0 < int(value[:9]) < 100_000 and len(value) < 9 else None
