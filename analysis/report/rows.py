"""Plain data that several parts of a report share: rows of a process, shares, histograms and quantiles."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class OfProcess:
    node: str
    rank: int | None
    pid: int | None


@dataclass(frozen=True, slots=True)
class Share:
    """One part of a total: summed time, number of events, percent of the total."""

    name: str
    total_ns: int
    count: int
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
