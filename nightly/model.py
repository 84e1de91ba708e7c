"""Data that the parts of a night exchange; stored data is JSON."""

from __future__ import annotations

import marshal
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from ..ingest.object_store.objects import ObjectInfo

if TYPE_CHECKING:
    from ..report_templates.text.look import Look

Kind = Literal["hosted", "traces", "recording", "store"]
"""The hosted profiler's layout; traces, exports, Python profiles and logs of GPUs; `.prt` files; a run store."""
State = Literal["reported", "failed", "running", "waiting"]
"""reported: there is a report. failed: there is a reason. running: the job has not ended. waiting: another night has it, or a limit ended
this night."""


@dataclass(frozen=True, slots=True)
class FoundRun:
    """One run below the prefix that is searched. ``id``: its path there, with slashes, unique, never empty ("." for the prefix itself).

    ``complete``: whether the job of the run has ended, according to an end marker or else its age (discover.py). ``fingerprint``: hex
    digest over path, size and ETag of each object; it differs after every change of the run."""

    id: str
    kind: Kind
    objects: tuple[ObjectInfo, ...]
    complete: bool
    fingerprint: str
    perhaps: tuple[ObjectInfo, ...] = ()
    """Possible files of the run, not among ``objects``: each belongs to it if it begins like a run's file."""
    settled_ns: int = 2**64
    """The run is not complete if a file of ``perhaps`` belongs to it and was written after this (Unix time)."""
    stores: tuple[FoundRun, ...] = ()
    """Run stores next to the run, which are the runs if none of ``objects`` begins like a run's file."""
    recording: bool = False
    """Whether a ``postrun record`` began in the run and has not ended."""

    @property
    def bytes(self) -> int:
        return sum(one.size for one in self.objects)

    @property
    def modified_ns(self) -> int:
        """Return when its newest object was written (Unix time)."""
        return max(one.modified_ns for one in self.objects)


def packed(objects: Iterable[ObjectInfo]) -> bytes:
    """Return objects in a third of the memory; for this process only."""
    return marshal.dumps([(one.path, one.size, one.etag, one.modified_ns) for one in objects])


def unpacked(data: bytes) -> tuple[ObjectInfo, ...]:
    """Return the objects that ``packed`` got."""
    return tuple(ObjectInfo(*fields) for fields in marshal.loads(data))


@dataclass(frozen=True, slots=True)
class CustomRule:
    """A rule of --custom-rule: its class, values, and the content of its file, for workers on other machines."""

    kind: str
    values: tuple[tuple[str, str], ...]
    code: bytes


@dataclass(frozen=True, slots=True)
class ReportOptions:
    """Options of `postrun report` for each run. They can be pickled, and a report is outdated if they change."""

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
    """The image as a data URL, for workers on other machines, and its alternative text."""
    dashboard: bool = False
    memory_limit: str = "600MB"
    threads: int | None = 1
    max_unpacked: str | None = None
    redact: tuple[str, ...] = ()
    mode: int = 0o600
    """Permissions of the files."""
    peaks: tuple[tuple[str, float], ...] = ()
    price_per_gpu_hour: tuple[float, str] | None = None
    custom_rules: tuple[CustomRule, ...] = ()
    custom_files: tuple[str, ...] = ()
    """The files of ``custom_rules``, which are used where they exist with this content: they may import others next to them."""
    rule_timeout: float = 300.0

    @property
    def look(self) -> Look:
        """Return the look of the report."""
        from ..report_templates.text.logo import Logo
        from ..report_templates.text.look import Look

        return Look(self.sections, self.theme, self.title, None if self.logo is None else Logo(*self.logo), self.dashboard)

    @property
    def of_reading(self) -> dict[str, Any]:
        """Return the options with which files are read."""
        return {"memory_limit": self.memory_limit, "threads": self.threads, "max_unpacked": self.max_unpacked}

    @property
    def of_store(self) -> dict[str, Any]:
        """Return the options with which a run's store is created."""
        return {**self.of_reading, "redact": self.redact}


@dataclass(frozen=True, slots=True)
class Task:
    """One run to report: an idempotent unit of work for any worker on any machine. ``source`` and ``out`` are URLs or folders; reports are
    written to ``runs/<id>/<first 16 digits of fingerprint>-<of options>/`` below ``out``. ``attempt``: from the second one, the step that
    may have ended the first worker runs in a process of its own. ``tickets``: that link to the run's report. ``night``:
    its id."""

    run: FoundRun
    source: str
    out: str
    options: ReportOptions
    generated_at_ns: int
    attempt: int = 1
    tickets: tuple[str, ...] = ()
    night: str | None = None


@dataclass(frozen=True, slots=True)
class Row:
    """One run in the index: figures of its report, or the reason for its absence. Percentages are 0 to 100, times in ns (Unix if absolute).

    A done-marker (``runs/<id>/done.json``) contains exactly this. Figures are None if the run does not provide them."""

    id: str
    state: State
    kind: Kind
    fingerprint: str
    options: str  # digest of the options
    bytes: int
    files: int
    reason: str | None = None  # if it failed or waits
    of_machine: bool = False  # failed for lack of disk or memory there: the next night tries again
    folder: str | None = None  # of the report's files, below the output
    written: tuple[str, ...] = ()  # files in it
    attempts: int = 1
    seconds: float | None = None  # that the report took
    reported_at_ns: int | None = None
    report_version: int | None = None  # version.REPORT of the postrun that tried
    postrun: str | None = None  # its version
    night: str | None = None  # id of the night that reported it (unannounced.py)
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
    gpu_active_percent: float | None = None  # of the utilization samples above 0
    gpu_active_derived: bool | None = None  # no utilization was sampled: share of the trace's intervals with a kernel
    gpu_utilization_percent: float | None = None  # mean over time of the sampled utilization
    steps: int | None = None
    step_median_ns: int | None = None  # step time (docs/definitions.md), the value of the report
    exposed_communication_percent: float | None = None  # of the devices' span
    gpu_memory_percent: float | None = None  # highest sampled
    iteration_median_ns: int | None = None  # of the main kind of iterations of an inference engine
    mfu_percent: float | None = None
    data_loading_percent: float | None = None  # of the mean step
    gpu_memory_peak_bytes: int | None = None  # allocated, the highest of the processes
    # GPU-ns: GPUs in use x duration of the job, and the parts of it; gpu_hours.py
    allocated_ns: int | None = None
    allocated_initialization_ns: int | None = None
    allocated_productive_ns: int | None = None
    allocated_slow_excess_ns: int | None = None
    allocated_data_wait_ns: int | None = None
    allocated_checkpoint_ns: int | None = None
    allocated_evaluation_ns: int | None = None
    allocated_lost_steps_ns: int | None = None
    allocated_restart_gap_ns: int | None = None
    allocated_between_steps_ns: int | None = None
    allocated_tail_ns: int | None = None
    allocated_not_recorded_ns: int | None = None
    sampled_ns: int | None = None  # of allocated_ns: with samples of the GPU utilization
    inactive_ns: int | None = None  # of sampled_ns: no sample above 0%
    price_per_gpu_hour: float | None = None
    currency: str | None = None
    cost: float | None = None  # allocated GPU-hours x price
    cost_per_step: float | None = None  # cost / training steps, each counted once
    verdicts: dict[str, str] = field(default_factory=dict)  # rule -> IssuesFound, NoIssuesFound, NotEvaluated, Error
    warnings: tuple[str, ...] = ()
    tickets: tuple[str, ...] = ()  # that link to the report

    @property
    def at_ns(self) -> int:
        """Return the start of the run, else the time of its report.

        Without either it is far in the future."""
        return self.started_ns if self.started_ns is not None else self.reported_at_ns if self.reported_at_ns is not None else 2**63

    def to_json(self) -> dict[str, Any]:
        """Return JSON values; :func:`row_of` is the inverse."""
        return {name: list(value) if isinstance(value := getattr(self, name), tuple) else value for name in self.__slots__}


def row_of(data: dict[str, Any]) -> Row:
    """Return the row that ``to_json`` encoded. Raise ValueError for other data."""
    known = {name: value for name, value in data.items() if name in Row.__slots__}
    for name in ("written", "warnings", "tickets"):
        if name in known:
            known[name] = tuple(known[name])
    try:
        return Row(**known)
    except TypeError as error:
        raise ValueError(f"not a row of the index: {error}") from None
