"""Details of the rules over samples: utilization, bottlenecks, memory, batch size and balance."""

from __future__ import annotations

from .detail_rows import Active, Box, Gpu
from .details import DetailsRow, RuleDetails


class Snapshots(DetailsRow):
    """Snapshots of a node by state; ``above``, ``other`` and ``bottleneck`` sum to 100%."""

    snapshots: int
    low: int
    bottlenecks: int
    windows: int
    windows_exceeded: int
    above_percent: float | None
    other_percent: float | None
    bottleneck_percent: float | None
    of_low_percent: float | None


class _Node(DetailsRow):
    node: str


class BottleneckNode(Snapshots, _Node):
    """``issue``: None if the node has too few snapshots. ``unused``: GPUs that were idle for the whole run."""

    issue: bool | None
    first_ns: int | None
    last_ns: int | None
    used_gpus: int
    unused: tuple[int, ...]
    derived: bool


class BottleneckDetails(RuleDetails, kw_only=True):
    total: Snapshots
    nodes: tuple[BottleneckNode, ...]
    left_out: int | None = None
    active: Active = Active()
    bottleneck_ns: int
    without_gpu: bool | None = None


class LowGpu(Gpu):
    """``p95``, ``p5``: of the last evaluated window. ``unused_samples``: samples of the pattern times their unused share.
    ``histogram``: shares of the samples of the whole run in bins of 2%."""

    derived: bool
    samples: int
    state: str
    windows: int
    triggered: int
    under_utilised: int
    fluctuating: int
    triggered_percent: float | None
    p95: float | None
    p5: float | None
    lowest_p95: float | None
    lowest_p5: float | None
    first_ns: int | None
    last_ns: int | None
    pattern: str | None
    idle_head_ns: int | None
    idle_tail_ns: int | None
    idle_head_ends_ns: int | None
    idle_tail_starts_ns: int | None
    mean_between: float | None
    unused_samples: float
    box: Box
    rank: int | None = None
    histogram: tuple[float, ...] = ()


class LowGPUUtilizationDetails(RuleDetails):
    devices: tuple[LowGpu, ...]
    left_out: int | None = None


class Episode(DetailsRow):
    """A stretch of samples in which GPU memory grew. ``largest``: largest increase, percentage points."""

    start_ns: int
    end_ns: int
    largest: float
    samples: int


class GrowingMemory(Gpu):
    memory_figure: str
    samples: int
    evaluated: bool
    violations: int
    largest_increase: float | None
    episodes: tuple[Episode, ...]
    episodes_left_out: int
    slope_percent_per_hour: float | None
    box: Box
    rank: int | None = None


class GPUMemoryIncreaseDetails(RuleDetails):
    devices: tuple[GrowingMemory, ...]
    slope: str


class P95(DetailsRow):
    """p95 of utilization in one window."""

    cpu_p95: float | None
    gpu_p95: float | None
    gpu_memory_p95: float | None


class BatchSizeBoxes(DetailsRow):
    cpu: Box | None
    gpu: Box
    gpu_memory: Box | None


class BatchSizeGpu(Gpu):
    derived: bool
    memory_figure: str | None
    samples: int
    windows: int
    violations: int
    first_ns: int | None
    last_ns: int | None
    cpu_p95: float | None
    gpu_p95: float | None
    gpu_memory_p95: float | None
    at_last_violation: P95
    boxes: BatchSizeBoxes
    rank: int | None = None


class BatchSizeDetails(RuleDetails, kw_only=True):
    devices: tuple[BatchSizeGpu, ...]
    left_out: int | None = None
    caveats: tuple[str, ...]


class ComparedGpu(Gpu):
    """``histogram``: share of the samples per bin of 2% utilization."""

    rank: int | None
    derived: bool
    samples: int
    mean: float
    histogram: tuple[float, ...]
    evaluated: bool


class GpuPair(DetailsRow):
    """``b``: None if ``a`` is compared with the mean of all GPUs."""

    a: Gpu
    b: Gpu | None
    distance: float
    mean_difference: float
    violation: bool


class LoadBalancingDetails(RuleDetails):
    """``compared``: "pairs" or "mean". ``matrix``: distances of ``devices``, only of pairs."""

    compared: str
    devices: tuple[ComparedGpu, ...]
    pairs: tuple[GpuPair, ...]
    left_out: int
    pairs_left_out: int
    matrix: tuple[tuple[float | None, ...], ...] | None = None


class MetricQuantiles(DetailsRow):
    metric: str
    unit: str
    max: float
    p99: float
    p95: float
    p50: float
    min: float
    derived: bool
    samples: int


class NodeUsage(DetailsRow):
    node: str
    statement: str | None
    metrics: tuple[MetricQuantiles, ...]


class OverallSystemUsageDetails(RuleDetails):
    nodes: tuple[NodeUsage, ...]
    left_out: int | None = None
