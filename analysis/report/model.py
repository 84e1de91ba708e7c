"""The data model of a report: plain data with everything that HTML, PDF and report.json may show, and nothing else.

Units are in the names: ``*_ns`` nanoseconds (``*_at_ns``, ``start_ns``, ``first_ns``: since the Unix epoch, UTC, unless
``run.relative_times``), ``*_percent`` 0..100, ``*_bytes`` bytes, ``*_gb_per_s`` 10^9 bytes per second. ``None`` means "not known", never
zero; an empty tuple means "nothing of this kind in the run", and ``absent`` names the capture that would supply it.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Self, dataclass_transform

from .causes import Gap, Iteration, IterationKind, Program, Role
from .collectives import Collective, CollectiveTotals
from .json_text import json_text

SCHEMA_VERSION: Final = 1


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

    # gpu_busy, step_time, exposed_communication, data_loading, lower_precision; in a run without a GPU `cpu_utilisation`, longest_step and
    # main_memory replace the first, third and fifth
    key: str
    label: str
    value: str
    detail: str
    anchor: str  # section that explains it
    number: float | None = None
    unit: str = "percent"


@dataclass(frozen=True, slots=True)
class Summary:
    """The first page: one sentence, and the tiles."""

    headline: str
    subtitle: str  # "2 nodes x 4 H100 · PyTorch 2.13 · 18 min 42 s"
    tiles: tuple[Tile, ...]
    warnings: tuple[str, ...]  # "partial: rank 5 cut off", "times are relative"


@dataclass(frozen=True, slots=True)
class JobStatistics:
    """Times of the job; initialization, training loop and finalization as documented for the hosted report, with the loop's end at the
    last step's END. Step-derived fields are None with fewer than two steps. ``absent``: why, in a sentence. ``captured_only``: there
    are only profiler traces, so that the times are those of the captured window and not of the job."""

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


@dataclass(frozen=True, slots=True)
class MetricUsage:
    """Quantiles (linear interpolation) of one metric of one node; percentages are first averaged over the node's own units per
    snapshot, network is receive + transmit. metric: network, gpu, cpu, cpu_memory, gpu_memory, io_wait, disk_read, disk_write."""

    node: str
    metric: str
    unit: str
    samples: int
    max: float
    p99: float
    p95: float
    p50: float
    min: float
    derived: bool


@dataclass(frozen=True, slots=True)
class ActiveTime:
    """Share of utilization samples above 0 %, pooled over every unit (GPU or core) of every node."""

    points: int
    active: int
    active_percent: float
    derived: bool  # from kernel activity, because no utilization was sampled


@dataclass(frozen=True, slots=True)
class Series:
    """One metric over time, averaged over the units of a node and, for more than about 400 points, over equal buckets.

    ``time_ns``, ``mean``, ``low``, ``high`` have equal length; low and high are the lowest and highest unit value in the bucket."""

    node: str
    metric: str  # gpu, cpu, gpu_memory, io_wait, cpu_memory, network
    unit: str
    time_ns: tuple[int, ...]
    mean: tuple[float, ...]
    low: tuple[float, ...]
    high: tuple[float, ...]
    derived: bool


@dataclass(frozen=True, slots=True)
class UnitHeat:
    """Utilization of every single core or GPU of a node over time: ``values[unit][bucket]`` in percent (None: no sample)."""

    node: str
    metric: str  # cpu, gpu
    units: tuple[int, ...]
    time_ns: tuple[int, ...]
    values: tuple[tuple[float | None, ...], ...]
    derived: bool


@dataclass(frozen=True, slots=True)
class GpuClocks:
    """Power and clock of one GPU over its samples, and how long its clock was reduced: because of heat, of power, or by the hardware for
    one of the two. Times are parts of ``sampled_ns``; None if nothing of the kind was sampled."""

    node: str
    device: int
    power_p50_w: float | None
    power_max_w: float | None
    sm_clock_p50_mhz: float | None
    sm_clock_min_mhz: float | None
    sm_clock_max_mhz: float | None
    sampled_ns: int | None
    heat_ns: int | None
    power_ns: int | None
    hardware_ns: int | None


@dataclass(frozen=True, slots=True)
class SystemUsage:
    nodes: tuple[MetricUsage, ...]
    statements: tuple[tuple[str, str], ...]  # (node, sentence)
    gpu_active: ActiveTime | None
    cpu_active: ActiveTime | None
    series: tuple[Series, ...]
    heat: tuple[UnitHeat, ...]
    absent: str | None
    gpu_clocks: tuple[GpuClocks, ...] = ()
    throttling: tuple[tuple[str, str], ...] = ()  # (node, sentence)


@dataclass(frozen=True, slots=True)
class _OfProcess:
    node: str
    rank: int | None
    pid: int | None


@dataclass(frozen=True, slots=True)
class DeviceTime(_OfProcess):
    """Time of one device by activity, as one process saw it (definitions: interval unions over all streams).

    span = computation + exposed communication + exposed memory operations + idle."""

    device: int
    device_name: str | None
    events: int
    first_ns: int
    span_ns: int
    busy_ns: int
    idle_ns: int
    computation_ns: int
    communication_ns: int
    exposed_communication_ns: int
    overlap_percent: float | None  # communication covered by computation / communication
    memory_ns: int
    exposed_memory_ns: int
    memcpy_ns: int  # union
    memset_ns: int  # union
    kernel_total_ns: int  # summed, not a union
    linked_busy_ns: int  # busy time of the events whose launch is in the trace; other tools count only these

    def of_span(self, time_ns: float) -> float:
        """Return a time in percent of the span; 0 without a span."""
        return 100 * time_ns / self.span_ns if self.span_ns else 0.0

    @property
    def exposed_communication_percent(self) -> float:
        """Exposed communication in percent of the span."""
        return self.of_span(self.exposed_communication_ns)

    @property
    def idle_percent(self) -> float:
        """Idle time in percent of the span."""
        return self.of_span(self.idle_ns)


@dataclass(frozen=True, slots=True)
class Kernel:
    """All executions of the kernels of one name, over every device. Shares: of the summed kernel time; of (profile span x devices)."""

    name: str
    short_name: str
    category: str
    precision: str
    count: int
    total_ns: int
    min_ns: int
    mean_ns: float
    max_ns: int
    share_of_kernel_time: float  # percent
    share_of_profile: float  # percent
    outside_count: int = 0  # executions that were launched outside of the recorded steps (Steps.outside), and their time
    outside_ns: int = 0


@dataclass(frozen=True, slots=True)
class Share:
    """One part of a total: summed time, number of events, percent of the total."""

    name: str
    total_ns: int
    count: int
    percent: float


@dataclass(frozen=True, slots=True)
class Precision:
    """Kernel time by arithmetic (from kernel names; includes unknown). ``matrix``: the same over GEMM, attention and convolution only."""

    shares: tuple[Share, ...]
    matrix: tuple[Share, ...]


@dataclass(frozen=True, slots=True)
class Activity:
    """Summed durations of kernels, memcpy, memset and synchronization. ``sync_source``: the origin of the last records, "device" or
    "host"; None without any."""

    shares: tuple[Share, ...]
    sync_source: str | None


@dataclass(frozen=True, slots=True)
class MemoryOperation:
    """Copies of one kind (HtoD, DtoH, DtoD, PtoP, HtoH; "pageable"/"pinned" if the trace records it) or memsets."""

    kind: str
    memory: str | None  # pageable, pinned or None
    count: int
    total_ns: int
    total_bytes: int | None
    bandwidth_gb_per_s: float | None
    percent: float


@dataclass(frozen=True, slots=True)
class Histogram:
    """Counts per bin; ``edges`` has one more entry than ``counts``. ``unit``: ns. ``logarithmic``: edges grow by a constant factor.
    ``beyond``: number of values above the last edge, which are in no bin."""

    edges: tuple[float, ...]
    counts: tuple[int, ...]
    unit: str
    logarithmic: bool
    beyond: int = 0


@dataclass(frozen=True, slots=True)
class Quantiles:
    """Quantiles of durations, in nanoseconds, linear interpolation between order statistics."""

    count: int
    min: float
    p5: float
    p25: float
    p50: float
    p75: float
    p95: float
    p99: float
    max: float
    mean: float
    std: float  # population


@dataclass(frozen=True, slots=True)
class LaunchPair:
    """A launch call and the device work it started. latency = start of the execution - end of the call."""

    node: str
    rank: int | None
    device: int
    stream: int | None
    call: str
    kernel: str
    launch_start_ns: int
    launch_end_ns: int
    run_start_ns: int
    latency_ns: int


@dataclass(frozen=True, slots=True)
class Launches:
    """Launch latency over all pairs of launch and execution. ``negative``: pairs whose execution starts before the call ends (concurrent
    start or clock skew); they are counted, and not part of ``latency``. ``graph_runs``: executions beyond the first of one correlation
    (CUDA/HIP graphs)."""

    calls: int
    pairs: int
    runs_without_launch: int
    launches_without_run: int
    graph_runs: int
    negative: int
    latency: Quantiles | None
    histogram: Histogram | None
    slowest: tuple[LaunchPair, ...]
    call_time: tuple[Share, ...]  # host time by launch and synchronization call
    absent: str | None


@dataclass(frozen=True, slots=True)
class Idle:
    """Gaps before the kernels, copies and memsets of one stream by cause: host wait (until the launch call had ended), kernel wait (from
    there, below 30 us), other. ``waiting_ns``: the part of other in which the work was launched; the launch of the rest is unknown."""

    node: str
    rank: int | None
    device: int
    stream: int
    gaps: int
    host_wait_ns: int
    kernel_wait_ns: int
    other_ns: int
    waiting_ns: int = 0


@dataclass(frozen=True, slots=True)
class Step(_OfProcess):
    """One training step on one process. ``duration_ns`` is the device duration, or the host's if the step launched no device work.
    ``profiled``: the profilers of a configuration that were active in the step and made it longer ("cProfile"), or None. ``again``:
    number of earlier steps with the same number, if numbers restart in each epoch."""

    phase: str | None
    index: int
    start_ns: int
    duration_ns: int
    on_device: bool
    host_duration_ns: int
    profiled: str | None = None
    again: int = 0


@dataclass(frozen=True, slots=True)
class StepGroup(_OfProcess):
    """Durations of the steps of one (node, process, phase): GPU time per step, or that on the host. ``slowest``: at most ten steps, longest
    first."""

    phase: str | None
    on_device: bool
    quantiles: Quantiles
    histogram: Histogram
    slowest: tuple[Step, ...]
    step_time_ns: float | None = None  # median from step to step; None if no two steps follow each other, or on the host


@dataclass(frozen=True, slots=True)
class StepParts(_OfProcess):
    """Parts of the average step of a process. Wall time is assigned in this order, each class getting the time that the ones before it
    left: kernel, memcpy, memset, communication, runtime, data_loader, cpu_op, other (the order of the PyTorch TensorBoard plugin).

    ``annotated``: no event of the process was recorded, or events in some steps only while ranges are annotated in all; the parts are the
    outermost annotated ranges in its steps, by name in the order in which they first began (those of data loading are called
    data_loader), and other. ``loading_names``: the names of these, without the number at their end. ``numbers``: numbers of the steps
    with recorded events if only some of ``of`` steps have them, else empty; ``partly``: further steps that were recorded in part.
    ``typical``: whether these steps represent all steps."""

    steps: int
    mean_step_ns: float
    mean_ns: dict[str, float]
    annotated: bool = False
    loading_names: tuple[str, ...] = ()
    numbers: tuple[int, ...] = ()
    of: int = 0
    typical: bool = True
    partly: tuple[int, ...] = ()

    @property
    def total_ns(self) -> float:
        """Wall time of all steps."""
        return self.mean_step_ns * self.steps

    @property
    def loading_ns(self) -> float:
        """Time in which all steps waited for data."""
        return self.mean_ns.get("data_loader", 0.0) * self.steps


@dataclass(frozen=True, slots=True)
class StepTrend(_OfProcess):
    """Steps of one (node, process, phase) that became longer or shorter over the run: the medians of the first and the last quarter of
    ``steps`` steps, and the part of the average step with the largest change (None if not known)."""

    phase: str | None
    on_device: bool
    steps: int
    first_ns: float
    last_ns: float
    part: str | None


@dataclass(frozen=True, slots=True)
class WorkOutsideSteps(_OfProcess):
    """Device work of a process that no recorded step launched, and that is in no figure per step. ``when`` it was launched: "before" the
    first step, "between" steps whose numbers do not follow each other, or "after" the last one. ``busy_ns``: union of the ``runs`` of
    kernels, copies and memsets, from ``first_ns`` to ``last_ns``. ``longest``: the name with the longest summed time."""

    device: int
    when: str
    runs: int
    busy_ns: int
    first_ns: int
    last_ns: int
    longest: str | None


@dataclass(frozen=True, slots=True)
class Steps:
    """``steps``: by process, phase and time; ``left_out``: number of steps that are only in ``groups``. If a profiler marked steps, only
    some of the steps of the job, timed on the host, are listed."""

    steps: tuple[Step, ...]
    groups: tuple[StepGroup, ...]
    parts: tuple[StepParts, ...]
    absent: str | None
    trends: tuple[StepTrend, ...] = ()
    trend: str | None = None  # a sentence on the one of the main steps that changed most
    left_out: int = 0
    profiled: str | None = None  # a sentence on the steps that a profiler of a configuration made longer
    parts_absent: str | None = None  # why no parts are known, although events were recorded
    traced: str | None = None  # if the operators were recorded in some steps only: "in 2 of 20 steps (steps 5 and 6)"
    outside: tuple[WorkOutsideSteps, ...] = ()


@dataclass(frozen=True, slots=True)
class StepBar:
    """Parts of the time of adjacent steps, ``first`` to ``last`` by their number, summed over ``steps`` steps of one or all ranks: step =
    computation + exposed communication + exposed memory operations + idle. A step lasts from the end of the device work of the one
    before it to the end of its own. Computation covers the hidden communication."""

    first: int
    last: int
    steps: int
    step_ns: int
    computation_ns: int
    exposed_communication_ns: int
    exposed_memory_ns: int
    idle_ns: int
    hidden_communication_ns: int

    def mean_ns(self, part: str) -> float:
        """Return the mean time of a part per step: "step", "idle"."""
        return float(getattr(self, f"{part}_ns") / self.steps)


@dataclass(frozen=True, slots=True)
class RankSteps(_OfProcess):
    """The bars of one process."""

    device: int
    bars: tuple[StepBar, ...]


@dataclass(frozen=True, slots=True)
class StepBreakdown:
    """Parts of the time over the steps. ``pooled``: number of adjacent steps per bar. ``mean``: over all processes; ``ranks``: of several
    ranks the two that compute longest, the one in the middle and the one that computes least. ``devices``: largest number of devices
    of a process; the bars show the one that computes most. ``average``: sums over the steps whose step before was recorded, over all
    processes; of a process without such over all of its steps. Means per step are over these."""

    steps: int = 0
    pooled: int = 1
    processes: int = 0
    mean: tuple[StepBar, ...] = ()
    ranks: tuple[RankSteps, ...] = ()
    absent: str | None = None
    devices: int = 1
    average: StepBar | None = None


@dataclass(frozen=True, slots=True)
class RankRow(_OfProcess):
    """One rank over the steps that several ranks have; times are means per step. ``waiting_ns``: communication beyond that of the rank
    with least of it in the same step, in each process group of its own. ``excess_percent``, ``steps_over``, ``others_wait_ns``,
    ``straggler``: from StragglerRank. ``waiting_group``: of several process groups the one in which the rank waits longest."""

    device: int
    steps: int
    step_ns: float
    computation_ns: float
    communication_ns: float
    waiting_ns: float | None
    exposed_communication_ns: float
    exposed_memory_ns: float
    idle_ns: float
    data_loading_ns: float | None
    excess_percent: float
    steps_over: int
    others_wait_ns: float | None
    straggler: bool
    waiting_group: str | None = None


@dataclass(frozen=True, slots=True)
class RankSpread:
    """One column of the ranks in quantiles, and the ranks with least and most of it."""

    name: str
    ranks: int
    min: float
    p5: float
    p50: float
    p95: float
    max: float
    least_rank: int | None
    most_rank: int | None


@dataclass(frozen=True, slots=True)
class RankComparison:
    """Comparison of the ranks, by rank. ``threshold_percent``: the excess of computation above the median at which a rank is over.
    ``groups``: the process groups whose waits are separated; 0 if the run names none and all ranks are taken as one."""

    threshold_percent: float = 0.0
    steps: int = 0
    ranks: tuple[RankRow, ...] = ()
    spread: tuple[RankSpread, ...] = ()
    sentences: tuple[str, ...] = ()
    absent: str | None = None
    groups: int = 0


@dataclass(frozen=True, slots=True)
class StepDifference:
    """Mean time of a part or of an activity (``kind``, ``name``) in the slow steps and in the typical ones, with the minimum and maximum
    of the typical ones. ``beyond``: number of slow steps in which it took longer than in any typical one. ``claimed``: the mean of the
    slow steps is outside the range of the typical ones."""

    kind: str
    name: str
    slow_ns: float
    typical_ns: float
    typical_low_ns: float
    typical_high_ns: float
    extra_ns: float
    beyond: int
    claimed: bool


@dataclass(frozen=True, slots=True)
class SlowSteps:
    """Differences of the slowest steps, on the process whose own work became longest in them. ``parts``: the step and its parts;
    ``beside``: data loading, host operators, waiting of the other ranks; ``ran``: only claimed differences, most extra time first."""

    node: str | None = None
    rank: int | None = None
    pid: int | None = None
    steps: int = 0
    slow: tuple[int, ...] = ()
    typical: int = 0
    parts: tuple[StepDifference, ...] = ()
    beside: tuple[StepDifference, ...] = ()
    ran: tuple[StepDifference, ...] = ()
    sentences: tuple[str, ...] = ()
    absent: str | None = None


@dataclass(frozen=True, slots=True)
class AnnotationGroup:
    """All ranges of one base name (trailing number cut off): "step_12" and "step_13" are one group."""

    name: str
    side: str  # host or device
    phase: str | None
    processes: int
    total_ns: int
    quantiles: Quantiles
    histogram: Histogram


@dataclass(frozen=True, slots=True)
class Annotations:
    groups: tuple[AnnotationGroup, ...]
    histograms: tuple[str, ...]  # names whose histogram is drawn (chosen with --histogram, or the ones that take longest)
    absent: str | None


@dataclass(frozen=True, slots=True)
class CounterSeries:
    """A number that the program recorded over time, such as the loss. ``values``: how many; values that are not finite are only counted.
    Up to 400 points: each value, or the mean, lowest and highest of stretches of equal time."""

    name: str
    node: str
    rank: int | None
    pid: int | None
    values: int
    not_finite: int
    first_not_finite_ns: int | None
    first: float | None
    last: float | None
    min: float | None
    max: float | None
    time_ns: tuple[int, ...]
    mean: tuple[float, ...]
    low: tuple[float, ...]
    high: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class OperatorRow:
    """Time of one operator: for CPU operators inclusive of their calls, for GPU operators the device work that they launched themselves."""

    name: str
    count: int
    total_ns: int
    percent: float


@dataclass(frozen=True, slots=True)
class PhaseMetrics:
    """Activity of the framework in one phase. ``by``: phase (TRAIN, EVAL, ...), or part of the step (forward, backward, ...).
    ``total_ns``: union of its ranges per process, summed. ``step_parts``: of a phase, the parts within its steps. ``cpu_operators``:
    those that begin within it on the same thread (of a phase: in the same process), inclusive times; percent of all operators of the
    phase."""

    by: str
    name: str
    total_ns: int
    step_parts: tuple[Share, ...]
    cpu_operators: tuple[OperatorRow, ...]


@dataclass(frozen=True, slots=True)
class Framework:
    """Time by phase (percent of the span from the first step's start to the last step's end, averaged over processes), by part of the
    step (forward, backward, optimizer, data loading), CPU operators (inclusive times) and GPU operators (device work they launched
    themselves; below 2 % is one row "other (< 2 %)"), collectives."""

    phases: tuple[Share, ...]
    step_parts: tuple[Share, ...]
    cpu_operators: tuple[OperatorRow, ...]
    gpu_operators: tuple[OperatorRow, ...]
    operator_time: tuple[Share, ...]  # CPU against GPU operators
    collectives: tuple[Share, ...]
    notes: tuple[str, ...]
    absent: str | None
    by_phase: tuple[PhaseMetrics, ...] = ()


@dataclass(frozen=True, slots=True)
class LaunchConfiguration:
    """All executions of one kernel with one launch configuration. ``shared_memory``: bytes per block; ``blocks_per_sm``: blocks of the
    grid / multiprocessors of the GPU. None if the trace does not record it."""

    name: str
    short_name: str
    category: str
    grid: tuple[int, int, int] | None
    block: tuple[int, int, int] | None
    registers: int | None
    shared_memory: int | None
    blocks_per_sm: float | None
    count: int
    total_ns: int
    share_of_kernel_time: float  # percent


@dataclass(frozen=True, slots=True)
class LaunchConfigurations:
    """``rows``: by category, the one that takes longest first, and within it by time; the 500 longest of all ``total``. ``kernels``:
    number of different kernels of all ``total``; None in reports without it."""

    rows: tuple[LaunchConfiguration, ...]
    total: int
    known_percent: float | None  # of the kernel time, if grid and block are known
    # of the kernel time, in grids with fewer blocks than the GPU has multiprocessors; without communication, which has few on purpose
    small_percent: float | None
    absent: str | None
    kernels: int | None = None


@dataclass(frozen=True, slots=True)
class GpuMemory:
    """Sampled memory in use on one GPU, by all processes. ``unit``: B, or % of its memory if bytes were not sampled. ``total``: its
    memory in that unit, None if not known. Up to 400 points: each sample, or the mean, lowest and highest of stretches of equal time."""

    node: str
    device: int
    unit: str
    samples: int
    total: float | None
    first: float
    last: float
    min: float
    max: float
    max_at_ns: int
    time_ns: tuple[int, ...]
    mean: tuple[float, ...]
    low: tuple[float, ...]
    high: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class AllocatorMemory(_OfProcess):
    """Memory of the framework's allocator of one process on one GPU: ``allocated`` to tensors, ``reserved`` from the GPU; bytes.
    ``events``: allocations and releases. ``total``: the memory of the GPU, None if not known. ``growth``: the largest rise of
    ``allocated`` from one moment to a later one. Up to 400 points (for more than 32 allocators fewer, at least 20): each event, or the
    lowest and highest of stretches of equal time."""

    device: int
    events: int
    total: int | None
    first: int
    last: int
    peak: int
    peak_at_ns: int
    reserved_at_peak: int | None
    reserved_peak: int | None
    growth: int
    growth_from_ns: int
    growth_to_ns: int
    time_ns: tuple[int, ...]
    low: tuple[int, ...]
    high: tuple[int, ...]
    reserved: tuple[int | None, ...]  # highest


@dataclass(frozen=True, slots=True)
class StreamQueue(_OfProcess):
    """Work that was launched on one stream and had not begun. ``runs``: kernels, copies and memsets; ``linked``: those whose launch is in
    the trace, which alone count for the following fields. ``mean_depth``: over ``span_ns``, from the first launch to the end of the
    last execution; ``empty_ns``: the part of ``busy_ns``, in which the stream was busy, with an empty queue. ``time_ns``, ``depth``:
    starts of stretches of equal time and their mean depths, for the streams with the largest number of executions."""

    device: int
    stream: int | None
    runs: int
    linked: int
    max_depth: int
    mean_depth: float | None
    span_ns: int
    busy_ns: int
    empty_ns: int
    time_ns: tuple[int, ...]
    depth: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class LaunchQueue:
    """``streams``: at most 100 of ``total``, those with the largest number of executions first."""

    streams: tuple[StreamQueue, ...]
    total: int
    absent: str | None


@dataclass(frozen=True, slots=True)
class OperatorKernel:
    """The device work of one name that one operator launched."""

    operator: str
    kernel: str
    kind: str  # kernel, memcpy, memset
    count: int
    total_ns: int


@dataclass(frozen=True, slots=True)
class DeviceOperator:
    """Device time of the work that an operator launched itself, not through an operator that it calls. ``calls``: of the operator, that
    launched."""

    name: str
    calls: int
    count: int
    total_ns: int
    percent: float  # of the device time of all kernels, copies and memsets
    kernels: int  # distinct ones


@dataclass(frozen=True, slots=True)
class OperatorAttribution:
    """``rows``: by device time, at most 200; ``kernels``: their kernels, by time, at most 400. ``linked_percent``: share of the device
    time that could be assigned to an operator."""

    rows: tuple[DeviceOperator, ...]
    further: int
    kernels: tuple[OperatorKernel, ...]
    linked_percent: float | None
    absent: str | None


@dataclass(frozen=True, slots=True)
class ProfileRow:
    """One function of a Python profile, over the windows of one group; seconds.

    ``function``: as pstats prints it; ``short``: with the shortest unique path. ``kind``: own code, library, standard library, built-in,
    profiler (time of profilers). ``calls``: None if the profiler samples. ``total_s``: own time. ``cumulative_s``: including its calls.
    ``timer``: total_time, cpu_time, off_cpu_time; None if unknown. ``label``: the ``label`` of its group."""

    function: str
    timer: str | None
    first_step: int | None
    last_step: int | None
    calls: int | None
    total_s: float
    cumulative_s: float
    primitive_calls: int | None = None
    short: str = ""
    kind: str = ""
    profiler: str = ""
    label: str = ""


@dataclass(frozen=True, slots=True)
class ProfileGroup:
    """Windows of Python profiles that belong together by one question; seconds.

    ``by``: steps, training phase, modes, job phase. ``label``: the steps or the phase, in words. ``wall_ns``: total length of the
    windows, None if one is unknown. ``total_s``: own time of all functions. ``rows``: the functions that take longest by own time, out of
    ``functions``; those of groups by steps are in :attr:`PythonProfile.rows`."""

    by: str
    label: str
    profiler: str
    timer: str | None
    windows: int
    processes: int
    wall_ns: int | None
    total_s: float
    calls: int | None
    functions: int
    rows: tuple[ProfileRow, ...] = ()


@dataclass(frozen=True, slots=True)
class FlameFrame:
    """A function as it was called on one path from the root; seconds. ``start_s``: its position on the axis. ``own_s``: time outside of
    its calls. ``kind``: as of functions; "other" for functions too small to be shown, "recursion" for calls back into a function
    above."""

    short: str
    function: str
    kind: str
    depth: int
    start_s: float
    total_s: float
    own_s: float


@dataclass(frozen=True, slots=True)
class FlameGraph:
    """The call tree of one profiler, timer and part of the job. ``exact``: the profiler recorded the tree; else it is estimated from
    callers and callees. ``folded``: frames that are not shown by themselves. ``deepest``: depth of the deepest frame shown, from 0."""

    label: str
    profiler: str
    timer: str | None
    exact: bool
    windows: int
    processes: int
    total_s: float
    frames: tuple[FlameFrame, ...]
    folded: int
    deepest: int


@dataclass(frozen=True, slots=True)
class PythonProfile:
    """``rows``: by profiler, timer and steps the functions that take longest by own time. ``groups``: of the same steps, and of phases.
    ``notes``: facts that a reader needs to interpret them."""

    rows: tuple[ProfileRow, ...]
    absent: str | None
    groups: tuple[ProfileGroup, ...] = ()
    flames: tuple[FlameGraph, ...] = ()
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Note:
    """A repair, loss or assumption of the readers, of one kind (code). ``files``: number of files; if above 1, then ``file`` and
    ``message`` are those of the first file, and ``count`` is of all."""

    file: str | None
    severity: str  # info, warning, error
    code: str
    message: str
    count: int
    first_ns: int | None
    last_ns: int | None
    files: int = 1


@dataclass(frozen=True, slots=True)
class RuleParameter:
    """Effective value of one parameter of a rule. ``changed``: it is not the default of the preset. ``seconds``: the same as time, if it
    counts samples and the sampling interval is known."""

    name: str
    value: int | float | str | None
    unit: str
    default: int | float | str | None
    changed: bool
    seconds: float | None
    meaning: str


@dataclass_transform(frozen_default=True)
class DetailsRow:
    """A subclass is a frozen dataclass. Without slots, so that rows can have two bases with fields."""

    def __init_subclass__(cls, *, kw_only: bool = False) -> None:
        dataclass(frozen=True, kw_only=kw_only)(cls)

    @classmethod
    def of(cls, source: object, **values: Any) -> Self:
        """Return a row of ``values``, and else of ``source``'s values of the same name."""
        names = {one.name for one in dataclasses.fields(cls)} - values.keys()  # type: ignore[arg-type]
        if not isinstance(source, Mapping):
            source = {name: getattr(source, name) for name in names if hasattr(source, name)}
        return cls(**values, **{name: source[name] for name in names if name in source})


class RuleDetails(DetailsRow):
    """Base of the details of the built-in rules, which are in :mod:`postrun.analysis.report.rule_details`.

    A field whose default is None has no key in report.json while it is None. Details of other rules, empty ones, and those of another
    version of postrun are dicts."""


@dataclass(frozen=True, slots=True)
class RuleResult:
    """The result of one rule. ``verdict``: IssuesFound, NoIssuesFound, NotEvaluated or Error; ``reason``: why it is one of the last two,
    and ``capture`` which capture would supply the missing data. ``triggered``: times triggered; ``violations``, ``datapoints``:
    violations of the rule among all data evaluated; ``windows``: evaluation windows. ``parameters``: name to effective value,
    ``changed_parameters`` those that are not the default. ``details``: per node and device, keys depend on the rule. ``finding``: one
    sentence; ``recommendation``: what to do. ``informs``: the rule reports figures and never finds an issue."""

    rule: str
    category: str  # report, system, framework, trace, custom
    verdict: str
    reason: str | None
    capture: str | None
    triggered: int
    violations: int
    datapoints: int
    windows: int
    windows_triggered: int
    first_ns: int | None
    last_ns: int | None
    parameters: dict[str, Any]
    changed_parameters: dict[str, Any]
    parameter_table: tuple[RuleParameter, ...]
    details: RuleDetails | dict[str, Any]
    finding: str | None
    recommendation: str | None
    checks: str
    condition: str
    advice: str
    informs: bool = False


@dataclass(frozen=True, slots=True)
class Finding:
    """An issue, ranked by its worth. ``severity``: high for at least 20 percent of the time, medium for at least 5, else low. Times: see
    ``base``; the times of several findings overlap and do not add up. ``saving_kind``: whether the saving is "predicted" (by simulation) or
    an "upper_bound". ``explained_by``: the rule whose finding is the cause of this one, which then follows all findings that are not
    explained. Numbers are None if the issue has no time (such issues follow those with one)."""

    rank: int
    rule: str
    severity: str
    title: str
    text: str
    recommendation: str | None
    where: str | None
    cost_ns: int | None
    cost_percent: float | None
    cost_per_step_ns: float | None
    saving_ns: int | None
    saving_percent: float | None
    base: str | None
    saving_kind: str | None = None
    explained_by: str | None = None


@dataclass(frozen=True, slots=True)
class Report:
    """The complete report. ``rules``: in the order in which they ran, ProfilerReport first; ``findings``: by rank."""

    generator: Generator
    run: Run
    summary: Summary
    nodes: tuple[Node, ...]
    devices: tuple[Device, ...]
    processes: tuple[Process, ...]
    job_statistics: JobStatistics
    system_usage: SystemUsage
    time_breakdown: tuple[DeviceTime, ...]
    kernels: tuple[Kernel, ...]  # every kernel name, by total time, longest first
    categories: tuple[Share, ...]
    precision: Precision
    activity: Activity
    memory_operations: tuple[MemoryOperation, ...]
    launches: Launches
    idle: tuple[Idle, ...]
    steps: Steps
    annotations: Annotations
    framework: Framework
    python_profile: PythonProfile
    rules: tuple[RuleResult, ...]
    findings: tuple[Finding, ...]
    data_quality: tuple[Note, ...]
    options: dict[str, Any]  # effective options: top, histogram, ...
    counters: tuple[CounterSeries, ...] = ()  # by name, then process
    step_breakdown: StepBreakdown = StepBreakdown()
    rank_comparison: RankComparison = RankComparison()
    slow_steps: SlowSteps = SlowSteps()
    collectives: tuple[Collective, ...] = ()  # by operation, process group and size, longest total time first
    collective_totals: CollectiveTotals | None = None
    launch_configurations: LaunchConfigurations | None = None
    operators: OperatorAttribution | None = None
    launch_queue: LaunchQueue | None = None
    gpu_memory: tuple[GpuMemory, ...] = ()
    allocator_memory: tuple[AllocatorMemory, ...] = ()
    program: Program | None = None
    roles: tuple[Role, ...] = ()
    gaps: tuple[Gap, ...] = ()
    iterations: tuple[Iteration, ...] = ()  # the first in order of time
    iteration_kinds: tuple[IterationKind, ...] = ()  # figures of all iterations
    schema_version: int = field(default=SCHEMA_VERSION)

    def to_dict(self) -> dict[str, Any]:
        """Return the report as plain dicts, lists, strings and numbers."""
        fields = plain(self)
        return {"schema_version": fields.pop("schema_version"), **fields}

    def to_json(self) -> str:
        """Return report.json, with floats rounded to 9 significant digits.

        UTF-8 text, keys in field order, ending with a line feed. Equal reports give equal text. Non-finite numbers do not occur; they
        would raise ValueError."""
        return json_text(self.to_dict())


def plain(value: Any) -> Any:
    """Convert every dataclass in ``value`` to a dict of its fields, tuples to lists."""
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    if isinstance(value, dict):
        return {key: plain(item) for key, item in value.items()}
    if not dataclasses.is_dataclass(value):
        return value
    fields = ((item, getattr(value, item.name)) for item in dataclasses.fields(value))
    optional = isinstance(value, RuleDetails)
    return {item.name: plain(held) for item, held in fields if held is not None or not optional or item.default is not None}


ISSUES: Final = "IssuesFound"
FINE: Final = "NoIssuesFound"
NOT_EVALUATED: Final = "NotEvaluated"
ERROR: Final = "Error"
SMALL_PERCENT: Final = 2.0  # a finding worth less than this share of its base is the last to take up
VERDICTS: Final = (ISSUES, ERROR, FINE, NOT_EVALUATED)  # Most important first
