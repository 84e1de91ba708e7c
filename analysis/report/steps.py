"""Plain data on steps: durations, parts, trends, bars over time, ranks compared, and the slowest steps."""

from __future__ import annotations

from dataclasses import dataclass

from .rows import Histogram, OfProcess, Quantiles


@dataclass(frozen=True, slots=True)
class Step(OfProcess):
    """One training step on one process. ``duration_ns`` is the device duration, or the host's if the step launched no device work.
    ``profiled``: the profilers of a configuration that were active in the step and made it longer ("cProfile"), or None. ``again``:
    number of earlier steps with the same number, if numbers restart in each epoch."""

    phase: str | None
    index: int
    start_ns: int
    duration_ns: int
    on_device: bool
    host_duration_ns: int
    profiled: str | None = None
    again: int = 0


@dataclass(frozen=True, slots=True)
class StepGroup(OfProcess):
    """Durations of the steps of one (node, process, phase): GPU time per step, or that on the host. ``slowest``: at most ten steps, longest
    first."""

    phase: str | None
    on_device: bool
    quantiles: Quantiles
    histogram: Histogram
    slowest: tuple[Step, ...]
    step_time_ns: float | None = None  # median from step to step; None if no two steps follow each other, or on the host


@dataclass(frozen=True, slots=True)
class StepParts(OfProcess):
    """Parts of the average step of a process. Wall time is assigned in this order, each class getting the time that the ones before it
    left: kernel, memcpy, memset, communication, runtime, data_loader, cpu_op, other (the order of the PyTorch TensorBoard plugin).

    ``annotated``: no event of the process was recorded, or events in some steps only while ranges are annotated in all; the parts are the
    outermost annotated ranges in its steps, by name in the order in which they first began (those of data loading are called
    data_loader), and other. ``loading_names``: the names of these, without the number at their end. ``numbers``: numbers of the steps
    with recorded events if only some of ``of`` steps have them, else empty; ``partly``: further steps that were recorded in part.
    ``typical``: whether these steps represent all steps."""

    steps: int
    mean_step_ns: float
    mean_ns: dict[str, float]
    annotated: bool = False
    loading_names: tuple[str, ...] = ()
    numbers: tuple[int, ...] = ()
    of: int = 0
    typical: bool = True
    partly: tuple[int, ...] = ()

    @property
    def total_ns(self) -> float:
        """Wall time of all steps."""
        return self.mean_step_ns * self.steps

    @property
    def loading_ns(self) -> float:
        """Time in which all steps waited for data."""
        return self.mean_ns.get("data_loader", 0.0) * self.steps


@dataclass(frozen=True, slots=True)
class StepTrend(OfProcess):
    """Steps of one (node, process, phase) that became longer or shorter over the run: the medians of the first and the last quarter of
    ``steps`` steps, and the part of the average step with the largest change (None if not known)."""

    phase: str | None
    on_device: bool
    steps: int
    first_ns: float
    last_ns: float
    part: str | None


@dataclass(frozen=True, slots=True)
class WorkOutsideSteps(OfProcess):
    """Device work of a process that no recorded step launched, and that is in no figure per step. ``when`` it was launched: "before" the
    first step, "between" steps whose numbers do not follow each other, or "after" the last one. ``busy_ns``: union of the ``runs`` of
    kernels, copies and memsets, from ``first_ns`` to ``last_ns``. ``longest``: the name with the longest summed time."""

    device: int
    when: str
    runs: int
    busy_ns: int
    first_ns: int
    last_ns: int
    longest: str | None


@dataclass(frozen=True, slots=True)
class Steps:
    """``steps``: by process, phase and time; ``left_out``: number of steps that are only in ``groups``. If a profiler marked steps, only
    some of the steps of the job, timed on the host, are listed."""

    steps: tuple[Step, ...]
    groups: tuple[StepGroup, ...]
    parts: tuple[StepParts, ...]
    absent: str | None
    trends: tuple[StepTrend, ...] = ()
    trend: str | None = None  # a sentence on the one of the main steps that changed most
    left_out: int = 0
    profiled: str | None = None  # a sentence on the steps that a profiler of a configuration made longer
    parts_absent: str | None = None  # why no parts are known, although events were recorded
    traced: str | None = None  # if the operators were recorded in some steps only: "in 2 of 20 steps (steps 5 and 6)"
    outside: tuple[WorkOutsideSteps, ...] = ()


@dataclass(frozen=True, slots=True)
class StepBar:
    """Parts of the time of adjacent steps, ``first`` to ``last`` by their number, summed over ``steps`` steps of one or all ranks: step =
    computation + exposed communication + exposed memory operations + idle. A step lasts from the end of the device work of the one
    before it to the end of its own. Computation covers the hidden communication."""

    first: int
    last: int
    steps: int
    step_ns: int
    computation_ns: int
    exposed_communication_ns: int
    exposed_memory_ns: int
    idle_ns: int
    hidden_communication_ns: int

    def mean_ns(self, part: str) -> float:
        """Return the mean time of a part per step: "step", "idle"."""
        return float(getattr(self, f"{part}_ns") / self.steps)


@dataclass(frozen=True, slots=True)
class RankSteps(OfProcess):
    """The bars of one process."""

    device: int
    bars: tuple[StepBar, ...]


@dataclass(frozen=True, slots=True)
class StepBreakdown:
    """Parts of the time over the steps. ``pooled``: number of adjacent steps per bar. ``mean``: over all processes; ``ranks``: of several
    ranks the two that compute longest, the one in the middle and the one that computes least. ``devices``: largest number of devices
    of a process; the bars show the one that computes most. ``average``: sums over the steps whose step before was recorded, over all
    processes; of a process without such over all of its steps. Means per step are over these."""

    steps: int = 0
    pooled: int = 1
    processes: int = 0
    mean: tuple[StepBar, ...] = ()
    ranks: tuple[RankSteps, ...] = ()
    absent: str | None = None
    devices: int = 1
    average: StepBar | None = None


@dataclass(frozen=True, slots=True)
class RankRow(OfProcess):
    """One rank over the steps that several ranks have; times are means per step. ``waiting_ns``: communication beyond that of the rank
    with least of it in the same step, in each process group of its own. ``excess_percent``, ``steps_over``, ``others_wait_ns``,
    ``straggler``: from StragglerRank. ``waiting_group``: of several process groups the one with most of ``waiting_ns``."""

    device: int
    steps: int
    step_ns: float
    computation_ns: float
    communication_ns: float
    waiting_ns: float | None
    exposed_communication_ns: float
    exposed_memory_ns: float
    idle_ns: float
    data_loading_ns: float | None
    excess_percent: float
    steps_over: int
    others_wait_ns: float | None
    straggler: bool
    waiting_group: str | None = None


@dataclass(frozen=True, slots=True)
class RankSpread:
    """One column of the ranks in quantiles, and the ranks with least and most of it."""

    name: str
    ranks: int
    min: float
    p5: float
    p50: float
    p95: float
    max: float
    least_rank: int | None
    most_rank: int | None


@dataclass(frozen=True, slots=True)
class RankComparison:
    """Comparison of the ranks, by rank. ``threshold_percent``: the excess of computation above the median at which a rank is over.
    ``groups``: the process groups whose waits are separated; 0 if the run names none and all ranks are taken as one. ``timed_steps``:
    number of the steps that the means are of, whose previous step was recorded (all if there is none)."""

    threshold_percent: float = 0.0
    steps: int = 0
    ranks: tuple[RankRow, ...] = ()
    spread: tuple[RankSpread, ...] = ()
    sentences: tuple[str, ...] = ()
    absent: str | None = None
    groups: int = 0
    timed_steps: int = 0


@dataclass(frozen=True, slots=True)
class StepDifference:
    """Mean time of a part or of an activity (``kind``, ``name``) in the slow steps and in the typical ones, with the minimum and maximum
    of the typical ones. ``beyond``: number of slow steps in which it took longer than in any typical one. ``claimed``: the mean of the
    slow steps is outside the range of the typical ones."""

    kind: str
    name: str
    slow_ns: float
    typical_ns: float
    typical_low_ns: float
    typical_high_ns: float
    extra_ns: float
    beyond: int
    claimed: bool


@dataclass(frozen=True, slots=True)
class SlowSteps:
    """Differences of the slowest steps, on the process whose own work became longest in them. ``parts``: the step and its parts;
    ``beside``: data loading, host operators, waiting of the other ranks; ``ran``: only claimed differences, most extra time first."""

    node: str | None = None
    rank: int | None = None
    pid: int | None = None
    steps: int = 0
    slow: tuple[int, ...] = ()
    typical: int = 0
    parts: tuple[StepDifference, ...] = ()
    beside: tuple[StepDifference, ...] = ()
    ran: tuple[StepDifference, ...] = ()
    sentences: tuple[str, ...] = ()
    absent: str | None = None
