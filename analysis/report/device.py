"""Plain data on device work: its time by activity, kernels, copies, launches, operators and allocators."""

from __future__ import annotations

from dataclasses import dataclass

from .rows import Histogram, OfProcess, Quantiles, Share


@dataclass(frozen=True, slots=True)
class DeviceTime(OfProcess):
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
class GpuTime:
    """Profile windows of all GPUs by activity, added up: span = computation + exposed communication + exposed memory operations + idle.
    A GPU that processes share counts once. ``first_ns``, ``last_ns``: first start and last end of any kernel, copy or memset."""

    gpus: int
    first_ns: int
    last_ns: int
    span_ns: int
    computation_ns: int
    exposed_communication_ns: int
    exposed_memory_ns: int
    idle_ns: int


@dataclass(frozen=True, slots=True)
class Kernel:
    """All executions of the kernels of one name, over every device. Shares: of the summed kernel time; of (profile span x devices).

    ``category``, ``precision``: those of the operators with the longest time, by the name without operators. ``operator``, ``shape``:
    sizes of its inputs; null if no operator, or none with equal sizes, takes half of the time. ``grid``: null if executions differ."""

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
    operator: str | None = None
    shape: str | None = None
    grid: tuple[int, int, int] | None = None
    occupancy_percent: float | None = None  # mean over the time of executions with a known one
    percent_of_roof: float | None = None  # shortest time that the peaks of the device allow, in percent of the time
    module: str | None = None  # with at least half of the time, with * for numbers if several; None: unknown


@dataclass(frozen=True, slots=True)
class Precision:
    """Kernel time by arithmetic (includes unknown). ``matrix``: the same over GEMM, attention and convolution only. ``sources``: kernel
    time by what shows the precision: the types of the operator's inputs (``operator``), the ``kernel name``, or ``unknown``."""

    shares: tuple[Share, ...]
    matrix: tuple[Share, ...]
    sources: tuple[Share, ...] = ()


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
    outside_count: int = 0  # operations that were launched outside of the recorded steps (Steps.outside), their time and bytes
    outside_ns: int = 0
    outside_bytes: int = 0


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
class AllocatorMemory(OfProcess):
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
class StreamQueue(OfProcess):
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
