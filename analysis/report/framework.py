"""Plain data on the framework: annotated ranges, phases and operators."""

from __future__ import annotations

from dataclasses import dataclass

from .rows import Histogram, Quantiles, Share


@dataclass(frozen=True, slots=True)
class AnnotationGroup:
    """All ranges of one base name (trailing number cut off): "step_12" and "step_13" are one group. ``formats``: of their files."""

    name: str
    side: str  # host or device
    phase: str | None
    processes: int
    total_ns: int
    quantiles: Quantiles
    histogram: Histogram
    formats: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Annotations:
    groups: tuple[AnnotationGroup, ...]
    histograms: tuple[str, ...]  # names whose histogram is drawn (chosen with --histogram, or the ones that take longest)
    absent: str | None


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
    themselves; below 2% is one row "other (< 2%)"), collectives. ``processes``: over which the times of phases are summed; None if
    unknown. ``parts_of_mean_step``: the percentages of ``step_parts`` are of the mean step, because not all parts were recorded in the
    same steps; their times are sums over all recorded steps."""

    phases: tuple[Share, ...]
    step_parts: tuple[Share, ...]
    cpu_operators: tuple[OperatorRow, ...]
    gpu_operators: tuple[OperatorRow, ...]
    operator_time: tuple[Share, ...]  # CPU against GPU operators
    collectives: tuple[Share, ...]
    notes: tuple[str, ...]
    absent: str | None
    by_phase: tuple[PhaseMetrics, ...] = ()
    processes: int | None = None
    parts_of_mean_step: bool = False
