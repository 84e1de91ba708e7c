"""Details of the rules over traces of single devices: idle time, precision, copies and short kernels."""

from __future__ import annotations

from .detail_rows import CountedTime, Gpu, ProcessRow, ProfiledDevice
from .details import DetailsRow, RuleDetails


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


class InputBoundProcess(ProcessRow):
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


class MatrixOperator(DetailsRow):
    """Matrix work in FP32 that calls of an operator with inputs of the same sizes launched. ``module``, ``line`` (file:line): those
    with at least half of the time."""

    operator: str
    shape: str | None
    count: int
    time_ns: int
    module: str | None = None
    line: str | None = None


class LowPrecisionDetails(RuleDetails):
    """All but ``devices`` is None if no device could be evaluated. ``operators``: FP32 work alone, longest first."""

    devices: tuple[MatrixDevice, ...]
    shares: tuple[PrecisionShare, ...] | None = None
    kernels: tuple[MatrixKernel, ...] | None = None
    fp32_ns: int | None = None
    matrix_ns: int | None = None
    fp32_percent: float | None = None
    alternatives: tuple[str, ...] | None = None
    operators: tuple[MatrixOperator, ...] | None = None


class PageableDevice(ProfiledDevice):
    """Numbers are None if the trace does not record the kind of host memory. ``caused_idle_ns``: host waits that would not be there
    without the calls that copy pageable memory to the device."""

    pageable_ns: int | None
    percent: float | None
    exposed_ns: int | None
    issue: bool | None
    caused_idle_ns: int | None = None


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
    site: str | None = None  # function or range around the call that causes the most idle time


class ExposedCopiesDevice(ProfiledDevice):
    """``exposed_ns``: copies and memsets that no kernel covers. ``bucket_ns``: of copies of gradients out of the buckets of DDP."""

    exposed_ns: int
    percent: float
    bucket_ns: int
    issue: bool


class ExposedCopy(DetailsRow):
    """Copies or memsets of one kind and operator, over all devices. Those that run at the same time each count.

    ``kind``: HtoD, DtoH, DtoD, PtoP or Memset; ``memory``: pinned or pageable, None if unknown or not of the host. ``operator``: the
    innermost that does more than copy. ``bandwidth_gb_per_s``: of copies from 1 MiB. ``link_gb_per_s``: bandwidth of PCIe of the slowest
    device. ``site``: function or range around the longest."""

    kind: str
    memory: str | None
    operator: str | None
    count: int
    bytes: int | None
    time_ns: int
    exposed_ns: int
    bandwidth_gb_per_s: float | None
    link_gb_per_s: int | None
    site: str | None


class ExposedCopiesDetails(RuleDetails):
    """``copies``: of the devices with an issue, longest exposed first; without an issue only those of the buckets of DDP."""

    devices: tuple[ExposedCopiesDevice, ...]
    copies: tuple[ExposedCopy, ...]


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
    upload: bool = False  # it copies pageable memory to the device


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
