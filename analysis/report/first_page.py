"""Plain data on the first page: the strip of the job with phases and dips, and the recommended actions on one base."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class JobPhase:
    """A phase of the job. ``name``: initialization, training, finalization, or idle tail: a finalization with little utilization.
    ``utilization_percent``: mean over the phase, None without samples. ``rule``: the rule whose finding is on the phase."""

    name: str
    start_ns: int
    end_ns: int
    utilization_percent: float | None = None
    rule: str | None = None


@dataclass(frozen=True, slots=True)
class Dip:
    """A stretch of the training loop, or of a job without one, whose utilization is well below ``typical_percent``, the median.
    ``rules``: rules whose findings explain the dip; ``evidence``: recorded at the same time, in words. Without both it is unexplained."""

    start_ns: int
    end_ns: int
    mean_percent: float
    typical_percent: float
    rules: tuple[str, ...] = ()
    evidence: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class JobStrip:
    """The job over time. ``phases``: empty if the training loop is unknown. ``metric``: gpu or cpu, whose mean over all nodes is
    ``utilization`` at ``time_ns``, the starts of stretches of equal length; stretches without samples are missing. ``dips``: the longest,
    in the order of time, of ``dip_count``. ``window_start_ns``, ``window_end_ns``: the profile window, None without one."""

    start_ns: int
    end_ns: int
    phases: tuple[JobPhase, ...] = ()
    metric: str | None = None
    time_ns: tuple[int, ...] = ()
    utilization: tuple[float, ...] = ()
    dips: tuple[Dip, ...] = ()
    dip_count: int = 0
    window_start_ns: int | None = None
    window_end_ns: int | None = None


@dataclass(frozen=True, slots=True)
class Action:
    """A finding with its saving on the common base. ``finding``: its rank. ``percent``: the saving in percent of ``Actions.base``, or of
    ``base`` if that is not None: the finding cannot be converted. ``time_ns``: the saving in the unit of ``Actions.base_ns``.
    ``estimated``: converted from the profile, on the assumption that the profiled steps are typical. ``cost_percent``: the converted cost
    of a finding without a known saving. ``partly``: the rule of an action before it that is the cause of a part of this finding."""

    finding: int
    rule: str
    percent: float | None
    time_ns: int | None
    saving_kind: str | None
    estimated: bool = False
    base: str | None = None
    cost_percent: float | None = None
    partly: str | None = None


@dataclass(frozen=True, slots=True)
class Actions:
    """All findings, the first to take up first. ``base``: description of ``base_ns``, the sum over ``gpus`` GPUs (0: time of the
    run); "" if there is no common base."""

    base: str
    base_ns: int
    gpus: int
    rows: tuple[Action, ...]
