"""By what are the times of two runs divided, so that runs of unlike length compare: by their steps, or by their seconds?"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from .comparison import Amount, Basis
from .report import Report, Step
from .steps import main_steps

_COVERED: Final = 0.5
"""Steps that took less of their processes' span than this say little of it."""
SECOND_NS: Final = 1e9
SAME: Final = "same"
GROWN: Final = "grown"
SHRUNK: Final = "shrunk"
ADDED: Final = "added"
VANISHED: Final = "vanished"
SMALLEST_PERCENT: Final = 0.2
"""Of the whole time: a kernel or a kind of copies that changed by less is not named."""
SURE: Final = 2.58
"""Standard errors that an effect must have: 99 of 100 cases."""


def basis(base: Report, new: Report) -> Basis:
    """Steps of a process, where both runs have steps with device work on every device's process; else seconds of the devices' span."""
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
    span = sum(device.span_ns for device in devices)
    if sum(step.duration_ns for step in steps) < _COVERED * span:
        return f"the steps cover less than {_COVERED:.0%} of what was captured"
    return len(steps)


def changed(base: float, new: float) -> float | None:
    """The change in percent of ``base``; None where that is nothing."""
    return 100 * (new / base - 1) if base else None


def amount(name: str, totals: Sequence[float], on: Basis, *, least_ns: float, counts: Sequence[float] | None = None) -> Amount:
    """``totals`` of both runs per unit. Its state is another than "same" where the effect is at least ``least_ns`` per unit."""
    before, after = per_unit(totals, on)
    change = changed(before, after)
    return Amount(
        name=name,
        base_ns=before,
        new_ns=after,
        effect_ns=after - before,
        change_percent=change,
        state=state(before, after) if abs(after - before) >= least_ns else SAME,
        base_count=counts[0] / on.base if counts and on.base else None,
        new_count=counts[1] / on.new if counts and on.new else None,
    )


def per_unit(totals: Sequence[float], on: Basis) -> tuple[float, float]:
    """Totals of base and new by their units."""
    base, new = totals
    return base / on.base if on.base else 0.0, new / on.new if on.new else 0.0


def least_of(waits: bool, least_ns: float, error_ns: float | None) -> float:
    """The smallest effect that is a change. What waits for something else, such as idle time, spreads as the steps do: its effect must
    exceed the standard error ``error_ns`` of their mean, too, and is no change where that is not known."""
    if not waits:
        return least_ns
    return float("inf") if error_ns is None else max(least_ns, SURE * error_ns)


def state(before: float, after: float) -> str:
    """grown, shrunk, added, vanished or same, of amounts that are not the same beyond doubt."""
    if before == after:
        return SAME
    if not before:
        return ADDED
    if not after:
        return VANISHED
    return GROWN if after > before else SHRUNK
