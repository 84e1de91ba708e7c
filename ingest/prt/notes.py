"""Notes about what a recording of the C capture library lost: problems and ``capability.`` metadata -> ``ingest_note``."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

import polars as pl

from ...native.recording.loss_reasons import loss_reason
from ..store.store import Store
from ..store.tables import Severity
from .format import Problem, TraceFile

BROKEN: Final = frozenset(
    {
        "damaged", "missing_blocks", "truncated", "no_end", "undecodable", "no_zstd", "unknown_codec", "row_limit", "unreadable",
        "unpacked_limit",
    }
)  # fmt: skip
"""Codes of problems that mean that a part of the run is missing."""

_PROBLEMS: Final[dict[str, tuple[Severity, str]]] = {
    "damaged": ("warning", "Damaged bytes were skipped"),
    "missing_blocks": ("warning", "Blocks of events are missing"),
    "truncated": ("warning", "The file ends inside a block (a killed job, an unfinished copy); what comes before is reported"),
    "no_end": ("warning", "The recording was not stopped (a killed job), or goes on; the events up to there are reported"),
    "bad_header": ("warning", "The file's header is damaged; what follows was read"),
    "undecodable": ("warning", "Blocks of events could not be decoded"),
    "no_zstd": ("error", "Compressed blocks were left out: libzstd.so.1 cannot be loaded. Install it (Debian, Ubuntu: libzstd1)"),
    "unknown_codec": ("warning", "Blocks with a compression that this version does not know were left out; read them with a newer postrun"),
    "unknown_type": ("info", "Blocks of a kind that this version does not know were left out"),
    "unknown_encoding": ("warning", "Columns in an encoding that this version does not know were left out; read them with a newer postrun"),
    "out_of_order": ("warning", "The numbers of blocks go back: the file was put together from several"),
    "unpacked_limit": (
        "warning", "Blocks were left out: the file unpacks to more than the limit. Raise --max-unpacked to read them"
    ),
    "row_limit": ("warning", "Blocks that stand for more rows than a file of this size warrants were left out"),
    "no_clock": ("warning", "The file says nothing of its clock: times count from when it was made"),
    "bad_clock": ("warning", "Readings of the clock that contradict each other were left out; times may be wrong"),
    "bad_string": ("warning", "Names were damaged"),
    "unresolved_name": ("warning", "The names of some events are lost; they are shown as ?name and a number"),
    "out_of_range": ("warning", "Numbers beyond the range of their column were read as missing"),
    "unreadable": ("error", "The file could not be read to its end"),
}  # fmt: skip
_NO_ACTIVITY: Final = ("no NVIDIA driver", "no CUDA device", "the program did not use CUDA")
_GPU: Final = ("capability.gpu", "capability.cuda")
_WORKER_NO_END: Final = (
    "The recording of a worker process was not stopped (it was ended, or left by os._exit); the events up to there are reported."
)


def note_no_end(store: Store, source: int, file: str, *, worker: bool) -> None:
    """Note that a recording was not stopped, as is usual for a worker."""
    severity, text = _PROBLEMS["no_end"]
    store.note("info" if worker else severity, "no_end", _WORKER_NO_END if worker else f"{text}.", source=source, file=file)


def note_problems(store: Store, source: int, file: str, problems: Iterable[Problem]) -> bool:
    """Note damage, except no_end; return whether a part of the run is missing."""
    kinds: dict[str, list[Problem]] = {}
    for problem in problems:
        if problem.code == "no_end":
            continue
        kinds.setdefault(problem.code, []).append(problem)
    for code, sites in kinds.items():
        severity, text = _PROBLEMS.get(code, ("warning", f"Damage of kind {code} was found"))
        rows, size = sum(site.rows for site in sites), sum(site.bytes for site in sites)
        blocks = sum(site.blocks for site in sites)
        if code in {"damaged", "truncated", "missing_blocks", "undecodable"}:
            parts = [f"{n:,} {word}{'' if n == 1 else 's'}" for n, word in ((size, "byte"), (blocks, "block"), (rows, "row")) if n]
            text += f": {', '.join(parts)}, first at byte {sites[0].offset:,}" if parts else f", first at byte {sites[0].offset:,}"
        first = min((site.first_ns for site in sites if site.first_ns is not None), default=None)
        last = max((site.last_ns for site in sites if site.last_ns is not None), default=None)
        store.note(severity, code, f"{text}.", count=rows or blocks or len(sites), source=source, file=file, first_ns=first, last_ns=last)
    return any(code in BROKEN for code in kinds)


def note_losses(store: Store, source: int, file: str, opened: TraceFile) -> bool:
    """Note why records were lost; return whether a part of the run is missing."""
    losses = pl.from_arrow(opened.table("loss").arrow())
    assert isinstance(losses, pl.DataFrame)
    sums = losses.group_by("reason").agg(pl.col("count").sum(), pl.col("first_ns").min(), pl.col("last_ns").max()).sort("reason")
    for reason, count, first, last in sums.iter_rows():
        lost = loss_reason(reason)
        store.note("warning", lost.code, f"{lost.text}.", count=count, source=source, file=file, first_ns=first, last_ns=last)
    return any(loss_reason(reason).missing for reason in sums["reason"])


_LOST: Final = "capability.gpu.devices"
_ASKED: Final = "recording.gpu"  # Metadata of a recorder with the option to record GPUs
_VISIBLE: Final = re.compile(r"gpu\.(\d{1,4})\.visible")


def note_hidden(store: Store, source: int, file: str, metadata: Mapping[str, str]) -> None:
    """Note GPUs that were sampled although the sampling process cannot use them."""
    visible = {int(match[1]): value for key, value in metadata.items() if (match := _VISIBLE.fullmatch(key))}
    hidden = sorted(number for number, value in visible.items() if value == "0")
    if hidden:
        which = f"GPU {hidden[0]}" if len(hidden) == 1 else f"GPUs {', '.join(map(str, hidden))}"
        text = (
            f"{which} of the {len(visible)} of the machine {'was' if len(hidden) == 1 else 'were'} hidden from the process that sampled"
            " (CUDA_VISIBLE_DEVICES); where no other process of the job used them, their samples are of other work."
        )
        store.note("info", "gpu_hidden", text, count=len(hidden), source=source, file=file)


@dataclass(slots=True)
class Missing:
    """Activity that a file could not capture: its ``capability.`` metadata."""

    source: int
    file: str
    machine: str
    process: int
    pid: int
    metadata: Mapping[str, str]
    devices: bool  # whether some activity of GPUs was recorded

    def of_gpu(self, *, requested: bool) -> dict[str, str]:
        """Return why GPU activity is missing that existed or was requested."""
        requested = requested or self.metadata.get("config.EnableCuda", "").lower() not in {"", "0", "false", "no", "off"}
        reasons = {key: self.metadata[key] for key in _GPU if key in self.metadata}
        return {key: reason for key, reason in reasons.items() if requested or not reason.startswith(_NO_ACTIVITY)}

    def of_machine(self, *, gpus: bool) -> list[tuple[str, str]]:
        """Return what else is missing, and why; with ``gpus`` also GPU activity."""
        return [
            (key.removeprefix("capability."), reason)
            for key, reason in self.metadata.items()
            if key.startswith("capability.") and key != _LOST and (gpus or key not in _GPU)
        ]


def note_missing(store: Store, missing: Iterable[Missing]) -> None:
    """Note what could not be captured: GPU activity by reason, and all else at once."""
    files = list(missing)
    gpu: dict[str, list[Missing]] = {}
    active = {file.process for file in files if file.devices}
    requested = not active and any(_ASKED in file.metadata for file in files)
    reasons = [(file, file.of_gpu(requested=requested)) for file in files]
    programs = any(reason and _ASKED not in file.metadata for file, reason in reasons)  # they know better than the recorder
    for file, of_file in reasons:
        for reason in dict.fromkeys(of_file.values() if not programs or _ASKED not in file.metadata else ()):
            gpu.setdefault(reason, []).append(file)
        if lost := file.metadata.get(_LOST):
            store.note("warning", "gpu_lost", f"Not all GPUs could be sampled to the end: {lost}.", source=file.source, file=file.file)
    for reason, of in gpu.items():
        processes = {file.process for file in of}
        partly = bool(processes & active)
        which = f" of {len(processes)} processes" if len(processes) > 1 else f" of process {of[0].pid}" if active and not partly else ""
        text = f"Not all GPU activity{which} was recorded" if partly else f"GPU activity{which} was not recorded"
        store.note("warning", "gpu_not_captured", f"{text}: {reason}.", count=len(processes), source=of[0].source, file=of[0].file)
    # With some activity, or a warning about its absence, a process without activity needs no note.
    _note_machines(store, files, gpus=not active and not gpu)


def _note_machines(store: Store, files: list[Missing], *, gpus: bool) -> None:
    machines = {file.machine for file in files}
    where: dict[tuple[str, str], set[str]] = {}
    first: Missing | None = None
    for file in files:
        for part, reason in file.of_machine(gpus=gpus):
            where.setdefault((reason, part), set()).add(file.machine)
            first = first or file
    if first is None:
        return
    reasons: dict[tuple[str, tuple[str, ...]], list[str]] = {}
    for (reason, part), on in sorted(where.items(), key=lambda item: item[0][1]):
        reasons.setdefault((reason, tuple(sorted(on))), []).append(part)
    texts = [
        f"{', '.join(parts)}{'' if len(on) == len(machines) else ' on ' + ', '.join(on)} ({reason})"
        for (reason, on), parts in reasons.items()
    ]
    text = f"Not captured: {'; '.join(texts)}."
    store.note("info", "not_captured", text, count=len({part for _, part in where}), source=first.source, file=first.file)
