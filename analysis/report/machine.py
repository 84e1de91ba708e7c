"""Plain data on samples: utilization, clocks and memory of nodes and GPUs, and numbers that the program recorded over time."""

from __future__ import annotations

from dataclasses import dataclass


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
    """Share of utilization samples above 0%, pooled over every unit (GPU or core) of every node."""

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
