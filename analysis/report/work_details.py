"""Details of the rules on chains of small kernels, and on kernels with small grids."""

from __future__ import annotations

from .detail_rows import CountedTime, ProfiledDevice
from .details import DetailsRow, RuleDetails


class ChainedDevice(ProfiledDevice):
    """``chains``: two or more kernels in a row on a stream; ``kernels``, ``time_ns``: all of them. ``extra_ns``: their time less that of
    the longest kernel of each chain; ``extra_percent``: of the span. ``fusible_ns``: elementwise, normalization, softmax and reduction
    kernels of eager operators, in chains or alone."""

    chains: int
    kernels: int
    time_ns: int
    extra_ns: int
    extra_percent: float
    issue: bool
    fusible_ns: int = 0


class UnfusedElementwiseDetails(RuleDetails):
    """``kernels``: those in chains."""

    devices: tuple[ChainedDevice, ...]
    kernels: tuple[CountedTime, ...]


class AttentionDevice(ProfiledDevice):
    """``time_ns``: chains of attention; ``fused_ns``: least time of fused attention by the peaks of the device (None: unknown), else their
    softmax, scale, mask and dropout count as ``excess_ns``; ``excess_percent``: of the span."""

    time_ns: int
    fused_ns: int | None
    excess_ns: int
    excess_percent: float
    issue: bool


class UnfusedAttentionChain(DetailsRow):
    """Chains of equal sizes on all devices. ``batch`` times heads, ``queries`` and ``keys``: sizes of the scores. ``between_ns``: scale,
    mask, dropout and conversions. ``module``, ``line``: those with at least half of the time, on the device with the longest."""

    batch: int
    queries: int
    keys: int
    width: int | None
    type: str | None
    calls: int
    time_ns: int
    products_ns: int
    softmax_ns: int
    between_ns: int
    fused_ns: int | None
    module: str | None
    line: str | None


class UnfusedAttentionDetails(RuleDetails):
    devices: tuple[AttentionDevice, ...]
    chains: tuple[UnfusedAttentionChain, ...]


class SmallGridKernel(DetailsRow):
    """Executions of a kernel with small grids. ``blocks``, ``multiprocessors``: of the launch configuration with the longest time.
    ``percent``: of the kernel time. ``saving_ns``: time x (1 - the larger of blocks per multiprocessor and share of the roof)."""

    name: str
    category: str
    operator: str | None
    shape: str | None
    blocks: int
    multiprocessors: int
    occupancy_percent: float | None
    percent_of_roof: float | None
    count: int
    time_ns: int
    percent: float
    saving_ns: int
    issue: bool


class LowOccupancyDetails(RuleDetails):
    kernels: tuple[SmallGridKernel, ...]


class LayoutDevice(ProfiledDevice):
    """``conversion_ns``: time of kernels that only change the layout of tensors; ``percent``: of the span."""

    conversion_ns: int
    percent: float
    issue: bool


class LayoutConversion(DetailsRow):
    """Executions of a kernel with inputs of the same sizes. ``kind``: "convolution" (the library converts NCHW and NHWC), "copy" (of the
    program, to another order of dimensions) or "transpose" (a kernel of another library)."""

    kind: str
    kernel: str
    operator: str | None
    shape: str | None
    count: int
    time_ns: int


class LayoutConversionsDetails(RuleDetails):
    """``conversions``: longest first."""

    devices: tuple[LayoutDevice, ...]
    conversions: tuple[LayoutConversion, ...]


class InefficientProduct(DetailsRow):
    """Calls of a matrix product with equal inputs that reach far less of the roof than comparable products of the run. ``peer_percent``: of
    the roof, the median of these (``peers``: their number). ``peer_ns``: device time at that rate. ``reasons``: what its sizes, layout and
    kernels show; without one its time does not count. ``line``: file:line."""

    operator: str
    shape: str
    types: str
    calls: int
    time_ns: int
    tflops: float | None
    percent_of_roof: float
    peer_percent: float
    peers: int
    peer_ns: int
    reasons: tuple[str, ...]
    kernel: str | None
    module: str | None
    line: str | None


class InefficientMatmulDetails(RuleDetails):
    """``products``: largest loss first. ``lost_ns``: time of those with a reason beyond the rate of their peers; ``lost_percent``: of the
    GPU time in the profile window. ``compared``: shapes with peers; ``alone``: those without."""

    products: tuple[InefficientProduct, ...]
    lost_ns: int
    lost_percent: float
    compared: int
    alone: int


class CompiledFunction(DetailsRow):
    """A function that torch.compile compiled within the profile, or according to a log. ``function``: its name, None if unknown; ``file``,
    ``line``: its first line; ``caller``: file:line that called it. ``ranks``: number of processes. ``recompilations``: after the first
    steps; ``time_ns``: all compilations on the host; ``late_ns``: the recompilations; ``idle_ns``: devices without work during the latter.
    ``reason``: the guard that failed most often.
    ``limit_reached``: calls run without compilation since then. ``graph_break``: the first one."""

    function: str | None
    file: str | None
    line: int | None
    module: str | None
    caller: str | None
    ranks: int
    compilations: int
    recompilations: int
    time_ns: int
    late_ns: int
    idle_ns: int
    reason: str | None
    limit_reached: bool
    graph_breaks: int
    graph_break: str | None
    logged_compilations: int
    logged_recompilations: int
    logged_ns: int


class RecompilesDetails(RuleDetails):
    """``functions``: longest idle time first. ``compilations``, ``recompilations``, ``late``, ``compile_ns``, ``late_ns``: within the
    profile; ``late``: recompilations after the first steps. ``unknown``: compilations without an id. ``lost_ns``: devices without work, or
    without devices time of the steps, during the late ones; ``lost_percent``: of ``base``. ``logged_*``: the logs, whenever it was."""

    functions: tuple[CompiledFunction, ...]
    compilations: int
    recompilations: int
    unknown: int
    late: int
    compile_ns: int
    late_ns: int
    lost_ns: int
    lost_percent: float | None
    base: str | None
    base_ns: int
    logged_compilations: int
    logged_recompilations: int
    logged_ns: int
