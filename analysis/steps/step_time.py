"""Step time of a run: listed steps -> one time per step. Report, comparison, nightly index, history and tickets take it from here."""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

import polars as pl

from ..report.rows import Quantiles
from ..report.steps import Step, Steps
from ..toolkit.quantiles import quantiles
from ..toolkit.wording import count, plural

FROM_STEP_TO_STEP: Final = "from step to step"
DEVICE: Final = "device"
HOST: Final = "host"
NAMES: Final = {FROM_STEP_TO_STEP: "step time", DEVICE: "GPU time per step", HOST: "step time"}


@dataclass(frozen=True, slots=True)
class StepTimes:
    """One time per step in ns, the median over the processes, in order of the steps.

    ``measure``: FROM_STEP_TO_STEP if the steps are timed on the device; DEVICE, the GPU time per step, if no two of these follow each
    other, such as for one recorded step; HOST if no step has device work. ``recorded``: number of the steps; the time of those that do
    not follow a recorded step is unknown from step to step."""

    measure: str
    values: tuple[float, ...]
    recorded: int

    @property
    def median_ns(self) -> float:
        return statistics.median(self.values)

    @property
    def partly(self) -> bool:
        """Whether several steps have no time because the one before is unknown."""
        return self.measure == FROM_STEP_TO_STEP and self.recorded > len(self.values) + 1

    @property
    def counted(self) -> str:
        """Number of the times in words, of all steps if these are more."""
        if self.partly:
            return f"the {count(len(self.values))} of {count(self.recorded)} steps whose previous step was recorded"
        return plural(len(self.values), "step")

    @property
    def name(self) -> str:
        """Name of the figure: "step time", "GPU time per step"."""
        return NAMES[self.measure]


def step_times(steps: Steps) -> StepTimes | None:
    """Return the times of the main steps of a run; None without steps."""
    return times_of(main_steps(steps.steps))


def times_of(steps: Sequence[Step]) -> StepTimes | None:
    """Return the times of these steps, which are all timed on the device or none is."""
    if not steps:
        return None
    if not steps[0].on_device:
        values, measure = per_step(steps, host=True), HOST
    elif values := from_step_to_step(steps):
        measure = FROM_STEP_TO_STEP
    else:
        values, measure = per_step(steps), DEVICE
    return StepTimes(measure, tuple(values), len({(step.again, step.index) for step in steps})) if values else None


def main_steps(every: Sequence[Step]) -> list[Step]:
    """Return the steps that represent the run.

    These are the steps timed on the device if any are, else those timed on the host, of the phase that took longest. Evaluation is not
    mixed with training, nor steps of a whole job with those that were profiled.
    """
    pool = [step for step in every if step.on_device] or list(every)
    time: Counter[str | None] = Counter()
    for step in pool:
        time[step.phase] += step.duration_ns
    main = min(time, key=lambda phase: (-time[phase], phase or ""), default=None)
    return [step for step in pool if step.phase == main]


def from_step_to_step(steps: Sequence[Step]) -> list[float]:
    """Return the time from each step to the next, between the ends of their GPU work.

    The result has one value per step whose predecessor was also recorded: the median over the processes. Unlike the GPU time per step it
    includes the wait for data, counts no time twice if the work of two steps overlaps, and nothing of the work that was launched before
    the first step.
    """
    return _medians(lengths_by_step(steps))


def lengths_by_step(steps: Sequence[Step]) -> dict[tuple[int, int], list[int]]:
    """Return the times from step to step of all processes by ``again`` and number."""
    lengths: dict[tuple[int, int], list[int]] = {}
    for step, length in lengths_of(steps).items():
        lengths.setdefault((step.again, step.index), []).append(length)
    return lengths


def lengths_of(steps: Sequence[Step]) -> dict[Step, int]:
    """Return the time from step to step of each step, if its predecessor is known."""
    lengths: dict[Step, int] = {}
    for listed in by_process(steps).values():
        ordered = sorted(listed, key=lambda step: (step.again, step.index, step.start_ns))
        until = 0
        for before, after in pairwise(ordered):
            until = max(until, before.start_ns + before.duration_ns)
            end = after.start_ns + after.duration_ns
            if after.index == before.index + 1 and after.again == before.again and end > until:
                lengths[after] = end - until
    return lengths


def times_by_step(steps: Sequence[Step]) -> dict[Step, int]:
    """Return the known step times of steps of one phase.

    They are from step to step for steps that are timed on the device, and the duration on the host for others."""
    return lengths_of([step for step in steps if step.on_device]) | {step: step.duration_ns for step in steps if not step.on_device}


def spread_of(steps: Sequence[Step]) -> Quantiles | None:
    """Return the quantiles of the times from step to step; None if none is known."""
    return quantiles(pl.Series(list(lengths_of(steps).values()), dtype=pl.Int64))


def work_overlaps(steps: Sequence[Step]) -> bool:
    """Return whether the GPU work of most steps overlaps that of the step before."""
    lengths = lengths_of(steps)
    return 2 * sum(step.duration_ns > length for step, length in lengths.items()) > len(lengths)


def per_step(steps: Sequence[Step], *, host: bool = False) -> list[float]:
    """Return one duration per step: the median over the processes."""
    lengths: dict[tuple[int, int], list[int]] = {}
    for step in steps:
        length = step.host_duration_ns if host else step.duration_ns
        if length > 0:
            lengths.setdefault((step.again, step.index), []).append(length)
    return _medians(lengths)


def by_process(steps: Sequence[Step]) -> dict[tuple[str, int | None, int | None], list[Step]]:
    """Group steps by process, in their order."""
    groups: dict[tuple[str, int | None, int | None], list[Step]] = {}
    for step in steps:
        groups.setdefault((step.node, step.rank, step.pid), []).append(step)
    return groups


def _medians(lengths: dict[tuple[int, int], list[int]]) -> list[float]:
    return [float(statistics.median(lengths[key])) for key in sorted(lengths)]
