"""Unit by which a comparison divides times, so that runs of different length compare: a step, or a second of GPU time."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Final

from ..report.comparison import Amount, Basis
from ..report.model import Report
from ..report.steps import Step
from ..steps.step_time import by_process, main_steps

_COVERED: Final = 0.5  # share of a process's profile window that its steps must cover, from first start to last end, to represent it
_Process = tuple[str, int | None, int | None]
SECOND_NS: Final = 1e9
SAME: Final = "same"
GROWN: Final = "grown"
SHRUNK: Final = "shrunk"
ADDED: Final = "added"
VANISHED: Final = "vanished"
UNDECIDED: Final = "undecided"  # a wait changed by at least the threshold, but there are too few steps to compute its spread
SMALLEST_PERCENT: Final = 0.2  # smallest named change of a kernel or a kind of copies, in percent of the whole time
SURE: Final = 2.58  # standard errors that an effect must exceed: 99 of 100 cases


def basis(base: Report, new: Report) -> Basis:
    """Return the unit of a comparison: a step if possible, else a second.

    Steps need, in both runs, steps with GPU activity in each process that uses a GPU. If one run has no GPU activity at all, both runs
    need steps.
    """
    if not base.time_breakdown or not new.time_breakdown:
        step_counts = [len(main_steps(report.steps.steps)) for report in (base, new)]
        if all(step_counts):
            return Basis("step", step_counts[0], step_counts[1], None)
    results = [_steps(report) for report in (base, new)]
    counts = [one for one in results if isinstance(one, int)]
    if len(counts) == 2:
        return Basis("step", counts[0], counts[1], None)
    why = "; ".join(f"{side}: {one}" for side, one in zip(("base", "new"), results, strict=True) if isinstance(one, str))
    return Basis("second", _seconds(base), _seconds(new), why)


def device_steps(report: Report) -> list[Step]:
    """Return the main steps that are timed on the device."""
    return [step for step in main_steps(report.steps.steps) if step.on_device]


def _seconds(report: Report) -> float:
    return sum(device.span_ns for device in report.time_breakdown) / SECOND_NS


def _steps(report: Report) -> int | str:
    steps = device_steps(report)
    if not steps:
        return "no steps with GPU work"
    stepped = {(step.node, step.rank, step.pid) for step in steps}
    devices = report.time_breakdown
    if any((device.node, device.rank, device.pid) not in stepped for device in devices):
        return "not every process with GPU work has steps"
    span: dict[_Process, int] = {}
    for device in devices:
        process = (device.node, device.rank, device.pid)
        span[process] = max(span.get(process, 0), device.span_ns)
    if _covered(report, steps) < _COVERED * sum(span.values()):
        return f"the steps cover less than {_COVERED:.0%} of what was captured"
    return len(steps)


def _covered(report: Report, steps: Sequence[Step]) -> int:
    """Sum the time from the start of the first to the end of the last step.

    The time between two steps, such as the wait for data, counts if their numbers are consecutive and no step of another phase began
    between them.
    """
    steps_of, others = (
        by_process(one) for one in (steps, [step for step in report.steps.steps if step.on_device and step.phase != steps[0].phase])
    )
    total = 0
    for process, listed in steps_of.items():
        starts = sorted(step.start_ns for step in others.get(process, ()))
        ordered = sorted(listed, key=lambda step: (step.index, step.start_ns))
        total += sum(step.duration_ns for step in ordered)
        for before, after in pairwise(ordered):
            end = before.start_ns + before.duration_ns
            if after.index == before.index + 1 and bisect_right(starts, before.start_ns) == bisect_right(starts, after.start_ns):
                total += after.start_ns - end  # less where the work of two steps overlaps
    return total


def changed(base: float, new: float) -> float | None:
    """Return the change in percent of ``base``; None if ``base`` is 0."""
    return 100 * (new - base) / base if base else None


@dataclass(frozen=True, slots=True)
class Noise:
    """The smallest effects on waits, in ns per unit, that chance does not explain.

    ``steps_ns``: of the mean time of the steps; None: too few steps. ``parts``: the compared parts of the GPU time.
    """

    steps_ns: float | None
    parts: tuple[Amount, ...] = ()

    def of(self, part: str, effect_ns: float) -> float | None:
        """Return the noise of a wait that is in ``part`` of the GPU time.

        A wait that changes as a changed part does has the noise of that part, so that a part and its pieces have one verdict.
        """
        for known in self.parts:
            if known.name == part and known.state not in (SAME, UNDECIDED) and known.effect_ns * effect_ns > 0:
                return known.noise_ns or 0.0
        return self.steps_ns


def amount(
    name: str,
    totals: Sequence[float],
    on: Basis,
    *,
    least_ns: float,
    noise: Noise | None = None,
    part: str = "",
    counts: Sequence[float] | None = None,
) -> Amount:
    """Compare the ``totals`` of both runs per unit.

    The state differs from "same" if the effect is at least ``least_ns`` per unit. Waiting, such as idle time, varies as the steps do: its
    effect must also be at least the ``noise`` of the ``part`` of the GPU time that it is in. Work has no noise.
    """
    before, after = per_unit(totals, on)
    change = changed(before, after)
    noise_ns = noise.of(part, after - before) if noise is not None else 0.0
    return Amount(
        name=name,
        base_ns=before,
        new_ns=after,
        effect_ns=after - before,
        change_percent=change,
        state=decide(before, after, least_ns, noise_ns),
        base_count=counts[0] / on.base if counts and on.base else None,
        new_count=counts[1] / on.new if counts and on.new else None,
        noise_ns=noise_ns or None,
    )


def with_noise(part: Amount, least_ns: float, noise_ns: float) -> Amount:
    """Return ``part`` with another noise, and the state that follows from it."""
    return replace(part, state=decide(part.base_ns, part.new_ns, least_ns, noise_ns), noise_ns=noise_ns or None)


def per_unit(totals: Sequence[float], on: Basis) -> tuple[float, float]:
    """Divide both totals by their units; equal except for rounding is equal."""
    base, new = totals
    before, after = base / on.base if on.base else 0.0, new / on.new if on.new else 0.0
    return before, before if math.isclose(before, after, rel_tol=1e-12) else after


def decide(before: float, after: float, least_ns: float, noise_ns: float | None) -> str:
    """Decide whether a time has changed. No other function does."""
    effect = abs(after - before)
    if not effect or effect < least_ns:
        return SAME
    if noise_ns is None:
        return UNDECIDED
    return state(before, after) if effect >= noise_ns else SAME


def state(before: float, after: float) -> str:
    """Return the state of a change that is known to be real."""
    if before == after:
        return SAME
    if not before:
        return ADDED
    if not after:
        return VANISHED
    return GROWN if after > before else SHRUNK


def more_often(base: int, new: int, on: Basis, threshold_percent: float) -> str:
    """Return whether it runs more or less often per unit, beyond the profiles' edges."""
    counts = per_unit([base, new], on)
    # A profile that cuts a step contains only some of its runs: up to one step's runs are missing at either end.
    complete_steps = on.unit == "step" and not base % int(on.base) and not new % int(on.new)
    edge = 0.0 if complete_steps or on.unit != "step" else (1 / on.base + 1 / on.new) * max(counts)
    if abs(counts[1] - counts[0]) <= max(edge, counts[0] * threshold_percent / 100):
        return SAME
    return "more" if counts[1] > counts[0] else "fewer"
