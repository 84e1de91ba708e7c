"""What do the parts of a night hand to each other? Plain data; what is stored is JSON."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

from ..ingest.object_store.objects import ObjectInfo

Kind = Literal["hosted", "traces", "recording", "store"]
"""The hosted profiler's layout; traces, exports, Python profiles and logs of GPUs; `.prt` files; a run store."""
State = Literal["reported", "failed", "running", "waiting"]
"""reported: there is a report. failed: there is a reason. running: the job has not ended. waiting: another night has it, or a limit ended
this one."""


@dataclass(frozen=True, slots=True)
class FoundRun:
    """One run below the prefix that is searched. ``id``: its place there, with slashes, unique, never empty ("." for the prefix itself).

    ``complete``: whether the job that made it has ended, as far as the layout tells (an end marker; else by age, see discover.py).
    ``fingerprint``: hex digest over path, size and ETag of each object: another one means that the run has changed.
    """

    id: str
    kind: Kind
    objects: tuple[ObjectInfo, ...]
    complete: bool
    fingerprint: str
    perhaps: tuple[ObjectInfo, ...] = ()
    """Not among ``objects``: files of which each belongs to the run where it begins like one of a run."""
    settled_ns: int = 2**64
    """When a file of ``perhaps`` was written after this (Unix time), the run with it is not complete."""
    stores: tuple[FoundRun, ...] = ()
    """The run stores that stand beside, which are the runs where none of ``objects`` begins like one of a run."""

    @property
    def bytes(self) -> int:
        return sum(one.size for one in self.objects)

    @property
    def modified_ns(self) -> int:
        """When its newest object was written (Unix time)."""
        return max(one.modified_ns for one in self.objects)


@dataclass(frozen=True, slots=True)
class ReportOptions:
    """How each run is reported: what `postrun report` has as options. Can be pickled, and is part of what makes a report new."""

    formats: tuple[str, ...] = ("html", "pdf", "json")
    top: int = 15
    paper: str = "A4"
    timeline_events: int = 300_000
    rules: tuple[str, ...] | None = None
    preset: str = "documented"
    settings: tuple[tuple[str, str], ...] = ()
    sections: tuple[str, ...] | None = None
    theme: str = "auto"
    title: str | None = None
    logo: tuple[str, str] | None = None
    """The picture as a data address, for workers on other machines, and its text."""
    memory_limit: str = "600MB"
    threads: int | None = 1
    max_unpacked: str | None = None
    redact: tuple[str, ...] = ()
    mode: int = 0o600
    """Permissions of the files."""

    @property
    def of_reading(self) -> dict[str, Any]:
        """The options with which files are read."""
        return {"memory_limit": self.memory_limit, "threads": self.threads, "max_unpacked": self.max_unpacked}

    @property
    def of_store(self) -> dict[str, Any]:
        """The options with which the store of a run is made."""
        return {**self.of_reading, "redact": self.redact}


@dataclass(frozen=True, slots=True)
class Task:
    """One run to report: a unit of work, idempotent, that any worker on any machine can do. ``source`` and ``out`` are URLs or folders;
    reports go to ``runs/<id>/<first 16 digits of fingerprint>-<of options>/`` below ``out``. ``attempt``: from 2 on, what may have ended
    the worker of the first is done in a process of its own."""

    run: FoundRun
    source: str
    out: str
    options: ReportOptions
    generated_at_ns: int
    attempt: int = 1


@dataclass(frozen=True, slots=True)
class Row:
    """One run in the index: what was read from its report, or why there is none. Percentages 0 to 100, times in ns (Unix where absolute).

    A done-marker (``runs/<id>/done.json``) holds exactly this. Figures are None where the run does not give them.
    """

    id: str
    state: State
    kind: Kind
    fingerprint: str
    options: str  # digest of the options and the version of postrun
    bytes: int
    files: int
    reason: str | None = None  # of failed and waiting
    of_machine: bool = False  # failed for want of disk or memory there: the next night tries again
    folder: str | None = None  # of the report's files, below the output
    written: tuple[str, ...] = ()  # files in it
    attempts: int = 1
    seconds: float | None = None  # that the report took
    reported_at_ns: int | None = None
    name: str | None = None
    labels: dict[str, str] = field(default_factory=dict)
    status: str | None = None  # of the job: completed, failed, stopped, partial, unknown
    started_ns: int | None = None
    duration_ns: int | None = None
    nodes: int | None = None
    ranks: int | None = None
    gpus: int | None = None
    gpu_name: str | None = None
    headline: str | None = None
    gpu_busy_percent: float | None = None  # busy time of all devices / their spans
    gpu_active_percent: float | None = None  # of the samples of utilisation that are above 0
    gpu_active_derived: bool | None = None  # no utilisation was sampled: of stretches of the trace with a kernel
    gpu_utilization_percent: float | None = None  # mean over time of the sampled utilisation
    steps: int | None = None
    step_median_ns: int | None = None  # time from step to step (docs/definitions.md), which is not the report's step time
    exposed_communication_percent: float | None = None  # of the devices' span
    gpu_memory_percent: float | None = None  # highest sampled
    verdicts: dict[str, str] = field(default_factory=dict)  # rule -> IssuesFound, NoIssuesFound, NotEvaluated, Error
    warnings: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """As JSON values; :func:`row_of` is its inverse."""
        return {name: list(value) if isinstance(value := getattr(self, name), tuple) else value for name in self.__slots__}


def row_of(data: dict[str, Any]) -> Row:
    """The row that ``to_json`` made; fields of later versions are left out. Raises ValueError where a needed one is missing or of another
    type."""
    known = {name: value for name, value in data.items() if name in Row.__slots__}
    for name in ("written", "warnings"):
        if name in known:
            known[name] = tuple(known[name])
    try:
        return Row(**known)
    except TypeError as error:
        raise ValueError(f"not a row of the index: {error}") from None
