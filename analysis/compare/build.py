"""Comparison of two runs: two Reports -> Comparison. docs/compare.md has the definitions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from ..report.comparison import Basis, Comparison, Side, StepComparison, Verdict
from ..report.model import Report
from ..report.run import Generator
from ..steps.step_time import FROM_STEP_TO_STEP
from .alike import GPU, differences
from .base_runs import BaseRun, among_base_runs, distinct
from .basis import UNDECIDED, Noise, basis
from .calls import operator_calls
from .changes import changes
from .classes import comparable
from .headline import details, headline
from .kernels import categories, communicating, kernels, operators, precision
from .launches import idle, launches
from .memory import gpu_memory, memory_operations
from .parts import devices, host_parts, parts, total_span, within
from .programs import differ, difference, shared_names
from .shares import percent_pairs
from .steps import compare_steps, mean_noise, of_different_work
from .utilization import sampling
from .verdict import different_programs, none, of_steps, repeated_ranges, same_work
from .verdicts import verdicts

THRESHOLD_PERCENT: Final = 3.0  # default: the same job on the same node varies by about this much from run to run


def compare(
    base: Report,
    new: Report,
    *,
    generator: Generator,
    threshold_percent: float = THRESHOLD_PERCENT,
    given: tuple[str | None, str | None] = (None, None),
    read_from: tuple[str, str] = ("traces", "traces"),
    baselines: Sequence[BaseRun] = (),
) -> Comparison:
    """Compare two reports; equal reports and arguments give equal comparisons.

    ``baselines``: further runs of the code of ``base``, each with its ``given`` and ``read_from``. A change is then also beyond the spread
    of the base runs. A recording counts once.

    A change is listed if it exceeds the spread of the values in the reports and ``threshold_percent``: of a step for steps, parts and data
    loading, of the value itself for kernels and copies. ``generator``: author and time of the comparison. ``given``, ``read_from``: see
    :class:`Side`.
    """
    sides = _side(base, given[0], read_from[0]), _side(new, given[1], read_from[1])
    compared = _compared(base, new, sides, generator, threshold_percent)
    if baselines:
        distinct_runs, repeated = distinct(base, new, baselines)
        runs = [_compared(base, run[0], (sides[0], _side(*run)), generator, threshold_percent) for run in distinct_runs]
        compared = among_base_runs(compared, runs, communicating(base, new))
        compared = replace(compared, differences=(*repeated, *compared.differences))
    compared = replace(compared, changes=tuple(replace(change, rank=rank) for rank, change in enumerate(changes(compared), 1)))
    return replace(compared, headline=headline(base, new, compared), details=details(compared))


def _compared(base: Report, new: Report, sides: tuple[Side, Side], generator: Generator, threshold_percent: float) -> Comparison:
    """Compare two reports, without the changes and the sentences."""
    base, new = comparable(base, new)
    steps, device_steps, absent = compare_steps(base, new, threshold_percent)
    outside = differences(base, new)
    shared = shared_names(base, new)
    if different := differ(shared, same_gpu=GPU not in {row.name for row in outside}):
        steps, device_steps = of_different_work(steps), of_different_work(device_steps)
        on, judgment, outside = basis(base, new), different_programs(), (difference(shared), *outside)
    else:
        on, judgment = _judged(base, new, steps, absent, threshold_percent)
    of_steps = Noise(mean_noise(base, new))
    noise = of_steps if on.unit == "step" else Noise(0.0)  # the spread of seconds is unknown
    shift = _shift(steps, on)
    span = total_span(base, new, on, threshold_percent, noise, shift)
    whole_ns = span.base_ns if span else 0.0
    least = whole_ns * threshold_percent / 100
    summed = parts(base, new, on, least, noise, shift)
    of_steps, noise = replace(of_steps, parts=summed), replace(noise, parts=summed)
    compared = Comparison(
        generator=generator,
        base=sides[0],
        new=sides[1],
        headline="",
        verdict=judgment.state,
        threshold_percent=threshold_percent,
        differences=outside,
        changes=(),
        basis=on,
        steps=steps,
        device_steps=device_steps,
        steps_absent=absent,
        whole=span,
        parts=summed,
        within=within(base, new, on, least, noise),
        devices=devices(base, new, on, least, noise),
        host_parts=host_parts(base, new, threshold_percent, of_steps),
        # GPU activity of only one run is not an addition.
        kernels=kernels(base, new, on, whole_ns, threshold_percent, noise) if span else (),
        categories=categories(base, new, on, least, noise) if span else (),
        precision=precision(base, new),
        memory_operations=memory_operations(base, new, on, whole_ns, threshold_percent) if span else (),
        launches=launches(base, new, on, threshold_percent),
        idle=idle(base, new, on, least, noise),
        gpu_memory=gpu_memory(base, new),
        sampling=sampling(base, new, on),
        rules=verdicts(base, new, summed, comparable=not different),
        operators=operators(base, new, on, least, noise) if span else (),
        judgment=judgment,
        operator_calls=operator_calls(base, new, on, whole_ns, threshold_percent) if span and not different else (),
        shared_names=shared,
        different_programs=different,
    )
    return replace(compared, percentages=percent_pairs(base.gpu_time, new.gpu_time, compared.precision, compared.sampling))


def _judged(base: Report, new: Report, steps: StepComparison | None, absent: str | None, threshold_percent: float) -> tuple[Basis, Verdict]:
    """Return the unit of the comparison, and the verdict with its evidence."""
    on = basis(base, new)
    if (judgment := of_steps(steps, threshold_percent)) is not None:
        return on, judgment
    if (repeated := repeated_ranges(base, new, threshold_percent)) is None and steps is None and on.unit == "second":
        repeated = same_work(base, new, threshold_percent)
    if repeated is None:
        return on, none(steps, absent, on)
    return (repeated.basis if on.unit == "second" else on), repeated.verdict


def _shift(steps: StepComparison | None, on: Basis) -> tuple[float, float] | None:
    """Return the interval of the shift of the step times in ns, if known."""
    if on.unit != "step" or steps is None or steps.measure != FROM_STEP_TO_STEP or steps.verdict == UNDECIDED:
        return None
    if steps.shift_low_percent is None or steps.shift_high_percent is None:
        return None
    return steps.base.p50 * steps.shift_low_percent / 100, steps.base.p50 * steps.shift_high_percent / 100


def _side(report: Report, source: str | None, read_from: str) -> Side:
    summary = report.summary
    return Side(report.run.name, source, read_from, report.run.status, summary.headline, summary.subtitle, summary.warnings)
