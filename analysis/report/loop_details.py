"""Details of the rules over the training loop: initialization, steps, data loading and framework."""

from __future__ import annotations

from .detail_rows import Active, ProcessRow
from .details import DetailsRow, RuleDetails
from .framework import OperatorRow
from .rows import Histogram, Share


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


class StepGroup(ProcessRow):
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


class SlowStep(ProcessRow):
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


class PreprocessingRow(DetailsRow):
    """``what``: a line of the program (``line``), as file(line): function, or an operator. ``percent``: of the
    time of the loader's calls."""

    node: str
    rank: int | None
    pid: int | None
    what: str
    line: bool
    calls: int
    time_ns: int
    percent: float


class HostPreprocessingDetails(RuleDetails):
    """``loading_ns``: time of the loader's calls; ``known_percent``: the part that ``rows`` and other rows name, None if
    the waits are too short to look. ``waited_ns``: time for
    which devices, or without them steps, wait meanwhile; ``waited_percent``: of ``base``."""

    rows: tuple[PreprocessingRow, ...]
    loading_ns: int
    known_percent: float | None
    waited_ns: int
    waited_percent: float
    base: str
