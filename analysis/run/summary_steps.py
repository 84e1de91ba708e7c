"""Step times on the first page: median, longest step, uneven processes, and the share of data loading."""

from __future__ import annotations

import statistics
from dataclasses import dataclass
from typing import Final

import polars as pl

from ..report.rows import Quantiles
from ..report.steps import Step, Steps
from ..steps.profiled import others_of
from ..steps.step_time import main_steps, step_times, times_by_step
from ..toolkit import wording
from ..toolkit.quantiles import quantiles

SEVERAL: Final = 10  # steps; with fewer, outer percentiles and the longest step mean little
_UNEVEN: Final = 1.1  # median step of the slowest process / of the fastest, above which the text names both processes


def spread(steps: Steps) -> Quantiles | None:
    """Return the quantiles of the :func:`.step_times`; None without steps."""
    times = step_times(steps)
    return quantiles(pl.Series(times.values, dtype=pl.Float64)) if times else None


@dataclass(frozen=True, slots=True)
class LongestStep:
    """The longest of several steps. ``ns``: its step time. ``ratio``: to the median. ``name``: "step 120", "step 120 of rank 3"."""

    step: Step
    ns: int
    ratio: float
    name: str


def longest_step(steps: Steps) -> LongestStep | None:
    """Return the longest main step by step time, unprofiled if possible; None if few."""
    every, median = main_steps(steps.steps), step_times(steps)
    times = times_by_step(every)
    candidates = [step for step in others_of(every) if step in times]
    if len(candidates) < SEVERAL or median is None:
        return None
    longest = max(candidates, key=lambda step: times[step])
    several = len({(step.node, step.rank, step.pid) for step in candidates}) > 1
    of = f" of {wording.process(longest.node, longest.rank, longest.pid)}" if several else ""
    return LongestStep(longest, times[longest], times[longest] / median.median_ns, f"{wording.step(longest.index, longest.again)}{of}")


def profiled_left_out(steps: Steps) -> bool:
    """Return whether the search for the longest step leaves out profiled steps."""
    every = main_steps(steps.steps)
    return len(others_of(every)) < len(every)


def uneven_processes(steps: Steps) -> tuple[tuple[float, str], tuple[float, str]] | None:
    """Return median step (ns) and name of fastest and slowest process, if they differ."""
    timed = main_steps(steps.steps)
    durations: dict[tuple[str, int | None, int | None], list[int]] = {}
    for step in timed:
        durations.setdefault((step.node, step.rank, step.pid), []).append(step.duration_ns)
    medians = {process: statistics.median(values) for process, values in durations.items()}
    if len(medians) < 2 or any(step.on_device for step in timed):
        return None
    fast, slow = min(medians, key=lambda process: medians[process]), max(medians, key=lambda process: medians[process])
    if medians[slow] <= _UNEVEN * medians[fast]:
        return None
    return (medians[fast], wording.process(*fast)), (medians[slow], wording.process(*slow))


@dataclass(frozen=True, slots=True)
class Loading:
    """Data loading and total time of the typical steps of all processes, in nanoseconds, and the number of these steps."""

    waited_ns: float
    total_ns: float
    steps: int

    @property
    def percent(self) -> float:
        """Share of data loading; ``total_ns`` must not be 0."""
        return 100 * self.waited_ns / self.total_ns


def data_loading(steps: Steps) -> Loading | None:
    """Sum data loading over the processes with typical parts; None without any."""
    parts = [part for part in steps.parts if part.typical]
    if not parts:
        return None
    return Loading(sum(part.loading_ns for part in parts), sum(part.total_ns for part in parts), sum(part.steps for part in parts))


def loading_basis(steps: Steps) -> str:
    """Word the base of data loading: " in the 5 steps that were traced", or ""."""
    traced = [part for part in steps.parts if part.typical and part.numbers]
    return f" in the {wording.plural(sum(part.steps for part in traced), 'step')} that were traced" if traced else ""
