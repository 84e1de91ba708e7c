"""Plain data on the run: sources, nodes, devices and processes, the first page, the times of the job, and notes of the readers."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Generator:
    """The program that wrote the report, and when."""

    name: str
    version: str
    generated_at_ns: int
    versions: dict[str, str]  # of the libraries the figures depend on


@dataclass(frozen=True, slots=True)
class Source:
    """One input file. ``format`` is "unknown" for files without a reader; they are listed and otherwise ignored. ``clock_offset_ns``:
    added to its times to align them with the clock of the other files; ``clock_evidence``: the source of this offset."""

    path: str
    format: str
    bytes: int | None
    sha256: str | None
    events: int
    first_ns: int | None
    last_ns: int | None
    clock_offset_ns: int | None = None
    clock_evidence: str | None = None


@dataclass(frozen=True, slots=True)
class Run:
    """The run of the report. ``status``: completed, failed, stopped, partial or unknown."""

    name: str
    status: str
    started_at_ns: int | None
    ended_at_ns: int | None
    relative_times: bool  # no source has an epoch: times count from an anchor of 0
    framework: str | None
    instance_type: str | None
    world_size: int | None
    resources: tuple[str, ...]
    hyperparameters: dict[str, str]
    labels: dict[str, str]
    metadata: dict[str, str]
    sources: tuple[Source, ...]


@dataclass(frozen=True, slots=True)
class Node:
    hostname: str
    cores: int | None
    memory_bytes: int | None
    gpus: int | None


@dataclass(frozen=True, slots=True)
class Device:
    """A GPU. ``used``: it has events or samples in this run (traces list every device of the node)."""

    node: str
    index: int
    name: str | None
    uuid: str | None
    memory_bytes: int | None
    sm_count: int | None
    compute_capability: str | None
    vendor: str | None
    used: bool


@dataclass(frozen=True, slots=True)
class Process:
    node: str
    pid: int | None
    rank: int | None
    local_rank: int | None
    world_size: int | None
    label: str | None


@dataclass(frozen=True, slots=True)
class Tile:
    """One of the figures at the top of the first page: a label, its value, and a second line. Text is ready to show; ``number`` is the
    value for programs (``unit``: percent or ns), None if it is not known."""

    # gpu_utilization, gpu_busy, cpu_utilization, step_time, iteration_time, tokens_per_s, exposed_communication, data_loading, copies, mfu,
    # gpu_memory_peak, lower_precision, longest_step, main_memory
    key: str
    label: str
    value: str
    detail: str
    anchor: str  # section that explains it
    number: float | None = None
    unit: str = "percent"


@dataclass(frozen=True, slots=True)
class Summary:
    """The first page: the headline, and at most four tiles, all known. ``figures``: all figures, for programs; those that are not known
    have the reason as their second line. ``caveats``: limits of the recording that weaken the conclusions."""

    headline: str
    subtitle: str  # "8 × H100 80GB, 2 nodes · PyTorch 2.13 · 18 min 42 s · completed · data: complete"
    tiles: tuple[Tile, ...]
    warnings: tuple[str, ...]  # "partial: rank 5 cut off", "times are relative"
    figures: tuple[Tile, ...] = ()
    caveats: tuple[str, ...] = ()  # "Only rank 3 of 8 ranks was captured: ..."


@dataclass(frozen=True, slots=True)
class JobStatistics:
    """Times of the job; initialization, training loop and finalization as documented for the hosted report, with the loop's end at the
    last step's END. Step-derived fields are None with fewer than two steps. ``absent``: why, in a sentence. ``captured_only``: there
    are only profiler traces, so that the times are those of the captured window and not of the job. ``apart_ns``: if the files are not of
    one run, the longest time between one file and the next; the times of a job are not known then."""

    started_at_ns: int | None
    ended_at_ns: int | None
    duration_ns: int | None
    loop_started_at_ns: int | None
    loop_ended_at_ns: int | None
    loop_ns: int | None
    initialization_ns: int | None
    finalization_ns: int | None
    initialization_percent: float | None
    loop_percent: float | None
    finalization_percent: float | None
    absent: str | None
    captured_only: bool = False
    apart_ns: int = 0


@dataclass(frozen=True, slots=True)
class Note:
    """A repair, loss or assumption of the readers, of one kind (code). ``files``: number of files; if above 1, then ``file`` and
    ``message`` are those of the first file, and ``count`` includes all files."""

    file: str | None
    severity: str  # info, warning, error
    code: str
    message: str
    count: int
    first_ns: int | None
    last_ns: int | None
    files: int = 1
