"""The data model of a comparison of two runs: plain data with everything that comparison.html, .pdf and .json may show, and nothing else.

Units are in the names, as in :mod:`postrun.analysis.report`. ``base`` is the earlier run, ``new`` the evaluated one; an effect is new
minus base. Times of a run are divided by its steps, or by its seconds, as ``basis`` states. ``None`` means "not known".
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field
from typing import Any, Final

from .json_text import json_text
from .run import Generator

SCHEMA_VERSION: Final = 1


@dataclass(frozen=True, slots=True)
class Side:
    """One of the two runs. ``given``: what was named on the command line; ``read_from``: "traces" or "report.json"."""

    name: str
    given: str | None
    read_from: str
    status: str
    headline: str
    subtitle: str
    warnings: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Difference:
    """A difference between the runs apart from their measurements. ``limits``: the conclusion that it rules out; None if the comparison
    accounts for it."""

    name: str
    base: str
    new: str
    limits: str | None


@dataclass(frozen=True, slots=True)
class Basis:
    """The divisor of each run's times, and their number in each run. ``unit``: "step" (of one process; on the host if a run has no GPU
    activity), "range" (the annotated range ``name``), "work" (what base does in a second of GPU time, by the counts of the kernels or
    operators of both runs, which ``name`` states) or "second" (of the span of a device; how much work it did is not known). ``why``: why
    not by steps."""

    unit: str
    base: float
    new: float
    why: str | None
    name: str | None = None


@dataclass(frozen=True, slots=True)
class Verdict:
    """``state``: slower, faster, same (a change beyond 10% or the threshold is ruled out) or "cannot say". ``percent``: change of the
    time, positive if slower; ``low_percent``, ``high_percent``: its 99% interval, or, of counts, what the edges of the profiles can
    cut. ``evidence``: steps, ranges, counts, or None."""

    state: str
    percent: float | None
    low_percent: float | None
    high_percent: float | None
    evidence: str | None
    text: str
    base_ns: float | None = None  # the time of each run that the verdict compares
    new_ns: float | None = None
    runs_percent: float | None = None  # how much equal runs differ, of several base runs; the interval is at least as wide


@dataclass(frozen=True, slots=True)
class SharedNames:
    """Share of each run's time, without communication, in the names that both runs have. ``kind``: kernels, operators or modules."""

    kind: str
    base_percent: float
    new_percent: float


@dataclass(frozen=True, slots=True)
class Spread:
    """Durations of one run: their number and quantiles."""

    count: int
    p5: float
    p25: float
    p50: float
    p75: float
    p95: float
    max: float


@dataclass(frozen=True, slots=True)
class StepComparison:
    """The durations of steps in both runs, one value per step: the median over the processes.

    ``measure``: "from step to step" (end of the GPU work of one step to that of the next), "device" (first start to last end of the GPU
    work of a step) or "host". ``verdict``: slower, faster, same (within typical range, or below the threshold), or undecided (too few
    steps, or the programs differ). ``p_value``: two-sided rank-sum test. ``likelier``: the probability that a step of new takes longer than
    one of base. ``shift_*_percent``: Hodges-Lehmann estimate of the change and its 99% interval. ``edges``, ``*_counts``: both
    distributions over the same bins; ``*_beyond`` values are above the last edge."""

    measure: str
    verdict: str
    base: Spread
    new: Spread
    change_ns: float  # of the medians
    change_percent: float
    p95_change_percent: float
    p_value: float | None
    likelier: float
    shift_percent: float | None
    shift_low_percent: float | None
    shift_high_percent: float | None
    edges: tuple[float, ...]
    base_counts: tuple[int, ...]
    new_counts: tuple[int, ...]
    base_beyond: int
    new_beyond: int
    text: str


@dataclass(frozen=True, slots=True)
class Amount:
    """A time per unit of the basis. ``state``: grown, shrunk, added, vanished, same, or undecided (too few steps, or a base run lacks
    it). Counts are also per unit. ``change_percent``: of base; None if base is 0."""

    name: str
    base_ns: float
    new_ns: float
    effect_ns: float
    change_percent: float | None
    state: str
    base_count: float | None = None
    new_count: float | None = None
    noise_ns: float | None = None  # of a wait, or of several base runs: chance causes a smaller effect (99 of 100 cases); None: unknown


@dataclass(frozen=True, slots=True)
class DevicePair:
    """The same device, or the same rank, in both runs; ``parts`` as in :class:`Comparison`."""

    name: str
    base_device: str
    new_device: str
    parts: tuple[Amount, ...]


@dataclass(frozen=True, slots=True)
class KernelChange:
    """A kernel in both runs, or in one. ``matched``: "name" (the full name), "short name" (short name and category: only template
    arguments differ), None (in one run only). ``state`` as in :class:`Amount`. Precision: of each run, None if the kernel is not in it.
    Times are per unit of the basis, means per execution of the kernel."""

    short_name: str
    category: str
    state: str
    matched: str | None
    base_names: tuple[str, ...]
    new_names: tuple[str, ...]
    base_precision: str | None
    new_precision: str | None
    base_count: float
    new_count: float
    base_mean_ns: float | None
    new_mean_ns: float | None
    base_ns: float
    new_ns: float
    effect_ns: float
    change_percent: float | None
    duration_state: str | None = None  # of one execution: longer, shorter or same; None if a run or a base run lacks it
    count_state: str | None = None  # per unit: more, fewer or same; None if per second, or if a run or a base run lacks it
    noise_ns: float | None = None  # of a communication kernel, which waits, or of several base runs, as in :class:`Amount`


@dataclass(frozen=True, slots=True)
class OperatorChange:
    """The calls of an operator by a module in both runs, or in one.

    ``state``: gone, new, other shape, other type, more calls, fewer calls, other kernel, other module, slower, faster (both of one call),
    undecided (slower or faster, but a base run lacks the call) or same; ``reasons``: all of these that apply, the strongest first.
    ``module``: of new, of base if it is gone; ``base_module``: if it is another one. ``instead``: of a gone operator, the operators that
    are new in its module. ``matched``: "inputs" (same module, dims and types), "operator" (same module), "several" (the same, all inputs
    together), "moved" (another module with the same inputs), None (in one run only). Calls and times are per unit of the basis."""

    operator: str
    module: str | None
    base_module: str | None
    state: str
    reasons: tuple[str, ...]
    matched: str | None
    base_dims: str | None
    new_dims: str | None
    base_types: str | None
    new_types: str | None
    base_kernels: tuple[str, ...]
    new_kernels: tuple[str, ...]
    base_precision: str | None
    new_precision: str | None
    base_calls: float
    new_calls: float
    base_ns: float
    new_ns: float
    effect_ns: float
    change_percent: float | None
    instead: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ShareChange:
    """Percent of the time, and of the executions, of matrix kernels in one precision."""

    name: str
    base_percent: float
    new_percent: float
    base_count_percent: float
    new_count_percent: float
    state: str


@dataclass(frozen=True, slots=True)
class MemoryChange:
    """Copies of one kind, or memsets. Times, counts and bytes are per unit of the basis."""

    kind: str
    memory: str | None
    state: str
    base_count: float
    new_count: float
    base_ns: float
    new_ns: float
    effect_ns: float
    change_percent: float | None
    base_bytes: float | None
    new_bytes: float | None
    base_gb_per_s: float | None
    new_gb_per_s: float | None
    noise_ns: float | None = None  # of several base runs


@dataclass(frozen=True, slots=True)
class Measure:
    """A single figure. ``unit``: ns, count, percent or bytes. None in a run without it."""

    name: str
    unit: str
    base: float | None
    new: float | None
    change_percent: float | None
    state: str


@dataclass(frozen=True, slots=True)
class SampledMean:
    """The mean over time of a sampled percentage, over the nodes with samples. ``difference_points``: new minus base, in percentage
    points. None in a run without samples of it in that time; ``absent`` names the run and the reason."""

    name: str
    base_percent: float | None
    new_percent: float | None
    difference_points: float | None
    absent: str | None


@dataclass(frozen=True, slots=True)
class PercentPair:
    """A percentage in both runs that compares even if the programs differ. ``of``: its base. None if unknown in a run."""

    name: str
    of: str
    base_percent: float | None
    new_percent: float | None


@dataclass(frozen=True, slots=True)
class Sampling:
    """Samples of both runs. ``over``: the time of the means, "steps" (from the first to the last), "profile" (the GPUs' spans), or "run"
    (all samples). No verdict follows from them."""

    over: str
    means: tuple[SampledMean, ...]


@dataclass(frozen=True, slots=True)
class VerdictChange:
    """One rule in both runs. ``outcome``: mended (the issue is gone), broken (a new issue), same, or other (one of the verdicts is
    missing, NotEvaluated or Error, or another base run has the verdict of new). ``parameters_differ``: the rule ran with other values, so
    that verdicts do not compare. ``informs``: the rule reports figures and never finds an issue. ``measure_same``: the verdict changed, but
    the ``state`` of the part of the time that the rule measures is same."""

    rule: str
    base: str | None
    new: str | None
    outcome: str
    base_finding: str | None
    new_finding: str | None
    parameters_differ: bool
    informs: bool = False
    measure_same: bool = False


@dataclass(frozen=True, slots=True)
class Change:
    """A change beyond spread and threshold. ``area``: step, part, data loading, host part (of runs without GPU activity), kernel,
    precision, memory operation, gpu memory, verdict. ``state``: grown, shrunk, added, vanished, "mended", broken, slower, faster.
    ``effect_ns`` per unit of the basis."""

    rank: int
    area: str
    name: str
    state: str
    effect_ns: float | None
    text: str


@dataclass(frozen=True, slots=True)
class Comparison:
    """The complete comparison. ``differences`` come first: those with ``limits`` rule out conclusions.

    ``headline``: the verdict in one sentence; ``details``: its evidence and the largest changes. ``different_programs``: the names of
    kernels, operators and modules barely overlap, as ``shared_names`` shows; then there is no verdict, and neither calls nor rules compare.

    ``parts``: computation, exposed communication, exposed memory operations and idle; they add up to ``whole``. ``within``: communication
    and memory operations including their hidden part; not a part of the sum. ``host_parts``: parts of the average step, in the order of
    the report. ``kernels``: largest effect first. ``percentages``: what compares even between different programs."""

    generator: Generator
    base: Side
    new: Side
    headline: str
    verdict: str  # slower, faster, same or "cannot say": the state of ``judgment``
    threshold_percent: float
    differences: tuple[Difference, ...]
    changes: tuple[Change, ...]
    basis: Basis
    steps: StepComparison | None
    device_steps: StepComparison | None  # the GPU work of a step, if steps are compared from step to step
    steps_absent: str | None
    whole: Amount | None
    parts: tuple[Amount, ...]
    within: tuple[Amount, ...]
    devices: tuple[DevicePair, ...]
    host_parts: tuple[Amount, ...]
    kernels: tuple[KernelChange, ...]
    categories: tuple[Amount, ...]
    precision: tuple[ShareChange, ...]
    memory_operations: tuple[MemoryChange, ...]
    launches: tuple[Measure, ...]
    idle: tuple[Amount, ...]
    gpu_memory: Measure | None
    sampling: Sampling
    rules: tuple[VerdictChange, ...]
    operators: tuple[Amount, ...] = ()
    judgment: Verdict | None = None
    operator_calls: tuple[OperatorChange, ...] = ()  # by module, operator and inputs, largest effect first
    details: str = ""
    shared_names: tuple[SharedNames, ...] = ()
    different_programs: bool = False
    percentages: tuple[PercentPair, ...] = ()
    baselines: tuple[Side, ...] = ()  # further base runs, whose spread is in the noise and the interval of the verdict
    schema_version: int = field(default=SCHEMA_VERSION)

    def to_dict(self) -> dict[str, Any]:
        """Return the comparison as plain dicts, lists, strings and numbers."""
        plain = dataclasses.asdict(self)
        return {"schema_version": plain.pop("schema_version"), **plain}

    def to_json(self) -> str:
        """Return comparison.json, in the form of ``Report.to_json``."""
        return json_text(self.to_dict())
