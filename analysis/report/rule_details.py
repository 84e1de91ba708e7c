"""Details of the built-in rules: what each one measured, per node, device, process or kernel.

A class per rule, in :data:`DETAILS` by the rule's name. The order of the fields is the order of the keys in report.json.
"""

from __future__ import annotations

from typing import Final

from . import cause_details as cause_details  # so that its classes are in DETAILS
from .communication_details import ExposedCollective, SlowCollectivesDetails
from .details import DetailsRow, RuleDetails
from .framework import OperatorRow
from .rows import Histogram, Share


class Gpu(DetailsRow):
    node: str
    device: int


class _Process(DetailsRow):
    node: str
    rank: int | None
    pid: int | None


class ProfiledDevice(_Process):
    """A device of a profile, with the time from its first event to the end of its last."""

    device: int | None
    span_ns: int


class Box(DetailsRow):
    """A box plot in percent. ``lower``, ``upper``: fences at 1.5 IQR, cut to min and max. Whiskers end at the last value within them."""

    samples: int
    min: float
    p5: float
    p25: float
    p50: float
    p75: float
    p95: float
    max: float
    mean: float
    lower: float
    upper: float
    whisker_lower: float
    whisker_upper: float


class NamedTime(DetailsRow):
    """``percent``: of the times of all names of the kind."""

    name: str
    time_ns: int
    percent: float


class Active(DetailsRow):
    """Phases, annotations and operators that were active in a set of intervals, longest first."""

    phases: tuple[NamedTime, ...] = ()
    annotations: tuple[NamedTime, ...] = ()
    operators: tuple[NamedTime, ...] = ()


# -- rules over samples ----------------------------------------------------------------------------------------------------


class Snapshots(DetailsRow):
    """Snapshots of a node by state; ``above``, ``other`` and ``bottleneck`` sum to 100 %."""

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
    """``p95``, ``p5``: of the last evaluated window. ``unused_samples``: samples of the pattern times their unused share."""

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
    """``histogram``: share of the samples per bin of 2 % utilization."""

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


# -- rules over the training loop ------------------------------------------------------------------------------------------


class MaxInitializationTimeDetails(RuleDetails):
    started_ns: int | None
    ended_ns: int | None
    duration_ns: int | None
    initialization_ns: int | None
    loop_ns: int | None
    finalization_ns: int | None
    initialization_percent: float | None
    loop_percent: float | None
    finalization_percent: float | None
    steps: bool
    first_step: int | None
    measured_from: str
    active: Active | None = None


class StepGroup(_Process):
    """The steps of one process and phase. ``evaluable``: enough steps for one to be an outlier."""

    phase: str | None
    on_device: bool
    steps: int
    mean_ns: float
    std_ns: float
    threshold_ns: float
    outliers: int | None
    most_outliers: int
    evaluable: bool
    issue: bool | None
    every_steps: int | None
    extra_ns: int | None
    robust_threshold_ns: float
    robust_outliers: int
    max_ns: float
    p99_ns: float
    p95_ns: float
    p50_ns: float
    min_ns: float
    histogram: Histogram | None
    normal_histogram: Histogram | None


class RanInStep(DetailsRow):
    """Time in a slow step, in a typical step, and the difference."""

    kind: str
    name: str
    time_ns: int
    typical_ns: int
    extra_ns: int


class SlowStep(_Process):
    phase: str | None
    index: int | None
    start_ns: int
    duration_ns: int
    typical_ns: int
    outlier: bool
    active: tuple[RanInStep, ...]


class StepOutlierDetails(RuleDetails):
    """``limit_percent``: largest share of steps that can be outliers at all."""

    groups: tuple[StepGroup, ...]
    slowest: tuple[SlowStep, ...]
    limit_percent: float
    fewest_steps: int
    active: Active


class LoadingNode(DetailsRow):
    """``source`` of ``loaders``: "num_workers" or "overlap" of the loader intervals. ``issue``: None if not evaluated."""

    node: str
    cores: int | None
    loaders: float | None
    source: str
    percent_of_cores: float | None
    seconds: int
    training_processes: int
    recorded_processes: int | None
    issue: bool | None


class LoaderConfiguration(DetailsRow):
    node: str
    pin_memory: bool | None
    num_workers: int | None
    prefetch_factor: int | None
    count: int


class LoadingTimes(DetailsRow):
    count: int
    p25_ns: float | None
    p50_ns: float | None
    p95_ns: float | None
    max_ns: int | None
    total_ns: int


class DataloaderDetails(RuleDetails):
    nodes: tuple[LoadingNode, ...]
    configurations: tuple[LoaderConfiguration, ...]
    loading: LoadingTimes
    histogram: Histogram | None


class OverallFrameworkMetricsDetails(RuleDetails):
    phases: tuple[Share, ...]
    step_parts: tuple[Share, ...]
    operator_time: tuple[Share, ...]
    cpu_operators: tuple[OperatorRow, ...]
    gpu_operators: tuple[OperatorRow, ...]
    collectives: tuple[Share, ...]
    notes: tuple[str, ...]


# -- rules over traces -----------------------------------------------------------------------------------------------------


class HostBoundDevice(ProfiledDevice):
    idle_ns: int
    idle_percent: float
    host_wait_ns: int
    host_waits: int
    kernel_wait_ns: int
    other_ns: int
    host_percent: float
    issue: bool | None
    waiting_ns: int = 0


class CountedTime(DetailsRow):
    name: str
    count: int
    time_ns: int


class HostWait(DetailsRow):
    """``name``: the kernel that ended the wait."""

    device: str
    start_ns: int
    time_ns: int
    name: str


class HostActivity(DetailsRow):
    activity: str
    time_ns: int
    percent: float


class HostCall(CountedTime):
    longest_ns: int


class TimeOf(DetailsRow):
    name: str
    time_ns: int


class HostBoundDetails(RuleDetails):
    """``host``, ``ranges``, ``calls``: host activity during the waits. ``first_use``: the longest call of a profile of a warm-up."""

    devices: tuple[HostBoundDevice, ...]
    kernels: tuple[CountedTime, ...]
    longest: tuple[HostWait, ...]
    host: tuple[HostActivity, ...]
    ranges: tuple[TimeOf, ...]
    calls: tuple[HostCall, ...]
    after_synchronisation_ns: int
    first_use: TimeOf | None


class InputBoundProcess(_Process):
    steps: int
    steps_ns: int
    waiting_ns: int
    percent: float
    issue: bool


class LoaderSettings(DetailsRow):
    """``core_percent``: mean utilization of the node's cores. ``processes``: training processes of the node."""

    num_workers: int | None
    prefetch_factor: int | None
    pin_memory: bool | None
    cores: int | None
    core_percent: float | None
    processes: int


class InputBoundDetails(RuleDetails):
    processes: tuple[InputBoundProcess, ...]
    loader: LoaderSettings


class CommunicationDevice(ProfiledDevice):
    communication_ns: int
    exposed_ns: int
    exposed_percent: float
    overlap_percent: float | None
    issue: bool | None


class CollectiveKernel(CountedTime):
    exposed_ns: int


class ExposedCommunicationDetails(RuleDetails):
    """``collectives``: longest exposed first; their times can add up to more than those of the devices, where calls overlap."""

    devices: tuple[CommunicationDevice, ...]
    kernels: tuple[CollectiveKernel, ...]
    collectives: tuple[ExposedCollective, ...] = ()


class MatrixDevice(Gpu):
    name: str | None
    compute_capability: str | None
    matrix_units: tuple[str, ...]
    eligible: bool
    matrix_ns: int
    fp32_ns: int
    unknown_ns: int
    fp32_percent: float
    issue: bool | None


class PrecisionShare(DetailsRow):
    precision: str
    time_ns: int
    percent: float


class MatrixKernel(DetailsRow):
    name: str
    category: str
    precision: str
    count: int
    time_ns: int


class LowPrecisionDetails(RuleDetails):
    """All but ``devices`` is None if no device could be evaluated."""

    devices: tuple[MatrixDevice, ...]
    shares: tuple[PrecisionShare, ...] | None = None
    kernels: tuple[MatrixKernel, ...] | None = None
    fp32_ns: int | None = None
    matrix_ns: int | None = None
    fp32_percent: float | None = None
    alternatives: tuple[str, ...] | None = None


class PageableDevice(ProfiledDevice):
    """Numbers are None if the trace does not record the kind of host memory."""

    pageable_ns: int | None
    percent: float | None
    exposed_ns: int | None
    issue: bool | None


class PageableCopy(DetailsRow):
    kind: str
    count: int
    time_ns: int
    bytes: int | None
    bandwidth_gb_per_s: float | None
    pinned_bandwidth_gb_per_s: float | None


class PageableCopiesDetails(RuleDetails):
    devices: tuple[PageableDevice, ...]
    copies: tuple[PageableCopy, ...]
    host_calls: int
    host_blocked_ns: int


class SyncBoundDevice(ProfiledDevice):
    """``blocked_idle_ns``: the device was idle while a call blocked. ``drained_ns``: idle gaps that begin during such a call.
    ``caused_idle_ns``: host waits that would not be there without the calls."""

    sync_ns: int
    blocked_idle_ns: int
    percent: float
    drained_ns: int
    issue: bool | None
    caused_idle_ns: int = 0


class BlockingCall(DetailsRow):
    name: str
    operator: str | None
    count: int
    time_ns: int
    blocked_idle_ns: int
    caused_idle_ns: int = 0
    bytes: int | None = None  # of the copy of the costliest call
    site: str | None = None  # function or range around the costliest call


class SyncBoundDetails(RuleDetails):
    devices: tuple[SyncBoundDevice, ...]
    calls: tuple[BlockingCall, ...]


class ShortKernelsDevice(ProfiledDevice):
    launches: int
    short: int
    short_percent: float | None
    gap_ns: int
    gap_percent: float
    issue: bool | None


class ShortKernel(DetailsRow):
    name: str
    count: int
    mean_ns: float
    gap_ns: int


class ShortKernelsDetails(RuleDetails):
    devices: tuple[ShortKernelsDevice, ...]
    kernels: tuple[ShortKernel, ...]


class ComparedRank(_Process):
    """Medians over the steps. ``others_wait_ns``: how much longer the other ranks are in collectives."""

    device: int
    steps: int
    computation_per_step_ns: float
    excess_ns: float
    excess_percent: float
    steps_over: int
    steps_over_percent: float
    waiting_per_step_ns: float
    others_wait_ns: float | None
    straggler: bool
    confirmed: bool | None


class StragglerRankDetails(RuleDetails, kw_only=True):
    """``roles``: where the peers come from: groups, work, same (all ranks are peers) or unknown. ``gain_percent``: predicted saving of a
    step if the stragglers were as fast as their peers. ``explained_percent``: of the time that would go if all operations took their ideal
    time. ``not_simulated``: why there is no prediction."""

    ranks: tuple[ComparedRank, ...]
    steps: int
    median_ns: float
    roles: str | None = None
    gain_percent: float | None = None
    explained_percent: float | None = None
    not_simulated: str | None = None


# -- the sum of the documented rules ---------------------------------------------------------------------------------------


class RuleVerdict(DetailsRow):
    rule: str
    verdict: str


class ProfilerReportDetails(RuleDetails):
    rules: tuple[RuleVerdict, ...]


DETAILS: Final[dict[str, type[RuleDetails]]] = {
    "CPUBottleneck": BottleneckDetails,
    "IOBottleneck": BottleneckDetails,
    "SlowCollectives": SlowCollectivesDetails,
    **{kind.__name__.removesuffix("Details"): kind for kind in RuleDetails.__subclasses__() if kind is not BottleneckDetails},
}
