"""By what are the times of two runs divided, so that runs of unlike length compare: by their steps, or by their seconds?"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Sequence
from itertools import pairwise
from typing import Final

from ..report.comparison import Amount, Basis
from ..report.model import Report, Step
from ..steps.steps import main_steps

_COVERED: Final = 0.5
"""Steps that took less of their processes' span than this, from the begin of the first to the end of the last, say little of it."""
_Process = tuple[str, int | None, int | None]
SECOND_NS: Final = 1e9
SAME: Final = "same"
GROWN: Final = "grown"
SHRUNK: Final = "shrunk"
ADDED: Final = "added"
VANISHED: Final = "vanished"
UNDECIDED: Final = "undecided"  # A wait whose effect is at least the threshold, where too few steps tell how far it spreads
SMALLEST_PERCENT: Final = 0.2  # Of the whole time: a kernel or a kind of copies that changed by less is not named
SURE: Final = 2.58  # Standard errors that an effect must have: 99 of 100 cases


def basis(base: Report, new: Report) -> Basis:
    """Steps of a process, where both runs have steps with device work on every device's process, or a run has no device work and both have
    steps; else seconds of the devices' span."""
    if not base.time_breakdown or not new.time_breakdown:
        own = [len(main_steps(report.steps.steps)) for report in (base, new)]
        if all(own):
            return Basis("step", own[0], own[1], None)
    found = [_steps(report) for report in (base, new)]
    counts = [one for one in found if isinstance(one, int)]
    if len(counts) == 2:
        return Basis("step", counts[0], counts[1], None)
    why = "; ".join(f"{side}: {one}" for side, one in zip(("base", "new"), found, strict=True) if isinstance(one, str))
    return Basis("second", _seconds(base), _seconds(new), why)


def device_steps(report: Report) -> list[Step]:
    """The main steps, where they are timed on the device."""
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
    """From the begin of the first step to the end of the last, summed over the processes: what lies between two steps, such as the wait for
    data, is a part of them where their numbers follow each other and no step of another phase began between them."""
    own, others = (
        by_process(one) for one in (steps, [step for step in report.steps.steps if step.on_device and step.phase != steps[0].phase])
    )
    total = 0
    for process, listed in own.items():
        starts = sorted(step.start_ns for step in others.get(process, ()))
        ordered = sorted(listed, key=lambda step: (step.index, step.start_ns))
        total += sum(step.duration_ns for step in ordered)
        for before, after in pairwise(ordered):
            end = before.start_ns + before.duration_ns
            if after.index == before.index + 1 and bisect_right(starts, before.start_ns) == bisect_right(starts, after.start_ns):
                total += after.start_ns - end  # less where the work of two steps overlaps
    return total


def by_process(steps: Sequence[Step]) -> dict[_Process, list[Step]]:
    """The steps of each process, in their order."""
    found: dict[_Process, list[Step]] = {}
    for step in steps:
        found.setdefault((step.node, step.rank, step.pid), []).append(step)
    return found


def changed(base: float, new: float) -> float | None:
    """The change in percent of ``base``; None where that is nothing."""
    return 100 * (new - base) / base if base else None


def amount(
    name: str,
    totals: Sequence[float],
    on: Basis,
    *,
    least_ns: float,
    error_ns: float | None = 0.0,
    counts: Sequence[float] | None = None,
) -> Amount:
    """``totals`` of both runs per unit. Its state is another than "same" where the effect is at least ``least_ns`` per unit. What waits for
    something else, such as idle time, spreads as the steps do: it must exceed the standard error ``error_ns`` of their mean, too, and is
    undecided where that is not known."""
    before, after = per_unit(totals, on)
    change = changed(before, after)
    return Amount(
        name=name,
        base_ns=before,
        new_ns=after,
        effect_ns=after - before,
        change_percent=change,
        state=_state(before, after, least_ns, error_ns),
        base_count=counts[0] / on.base if counts and on.base else None,
        new_count=counts[1] / on.new if counts and on.new else None,
    )


def per_unit(totals: Sequence[float], on: Basis) -> tuple[float, float]:
    """Totals of base and new by their units; the same where they differ by no more than the division rounds."""
    base, new = totals
    before, after = base / on.base if on.base else 0.0, new / on.new if on.new else 0.0
    return before, before if math.isclose(before, after, rel_tol=1e-12) else after


def _state(before: float, after: float, least_ns: float, error_ns: float | None) -> str:
    effect = abs(after - before)
    if not effect or effect < least_ns:
        return SAME
    if error_ns is None:
        return UNDECIDED
    return state(before, after) if effect >= SURE * error_ns else SAME


def state(before: float, after: float) -> str:
    """grown, shrunk, added, vanished or same, of amounts that are not the same beyond doubt."""
    if before == after:
        return SAME
    if not before:
        return ADDED
    if not after:
        return VANISHED
    return GROWN if after > before else SHRUNK
