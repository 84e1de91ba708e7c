"""In which parts of the time did two runs differ: computation, communication, memory operations, idle time, launches, data loading?"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence
from typing import Final

from ..report.comparison import Amount, Basis, DevicePair
from ..report.model import DeviceTime, Report
from ..steps.ranges import LOADING
from ..toolkit.places import in_order
from .basis import SAME, UNDECIDED, amount, per_unit, state

PARTS: Final = (
    ("computation", "computation_ns"),
    ("exposed communication", "exposed_communication_ns"),
    ("exposed memory operations", "exposed_memory_ns"),
    ("idle", "idle_ns"),
)
"""They add up to the span of a device."""
_WAITS: Final = ("exposed communication", "idle", "communication")
_WORK: Final = ("kernel", "memcpy", "memset")  # Classes of a step whose time does not depend on what the host does
_WITHIN: Final = (("communication", "communication_ns"), ("memory operations", "memory_ns"))


HOST_NAMES: Final = {LOADING: "data loading", "cpu_op": "operators on the host", "runtime": "CUDA calls on the host", "kernel": "kernels"}
"""Parts of the average step under other names than in report.json."""


def host_name(name: str) -> str:
    return HOST_NAMES.get(name, name)


def whole(base: Report, new: Report, on: Basis, threshold_percent: float, error_ns: float | None) -> Amount | None:
    """The devices' span per unit, which holds what waits; None without devices in both."""
    if not base.time_breakdown or not new.time_breakdown:
        return None
    spans = [float(sum(d.span_ns for d in r.time_breakdown)) for r in (base, new)]
    return amount("span", spans, on, least_ns=per_unit(spans, on)[0] * threshold_percent / 100, error_ns=error_ns)


def parts(
    base: Report, new: Report, on: Basis, least_ns: float, error_ns: float | None, shift_ns: tuple[float, float] | None
) -> tuple[tuple[Amount, ...], tuple[Amount, ...]]:
    """The parts that add up, and what they hide. ``least_ns``: the smallest effect per unit that is a change; what waits must exceed
    ``error_ns``, too, and is undecided where that is not known. ``shift_ns``: the interval of the steps' shift, see :func:`_explained`."""
    if not base.time_breakdown or not new.time_breakdown:
        return (), ()

    def of(devices: tuple[Sequence[DeviceTime], Sequence[DeviceTime]], listed: Iterable[tuple[str, str]]) -> tuple[Amount, ...]:
        return tuple(
            amount(
                name,
                [float(sum(getattr(d, field) for d in side)) for side in devices],
                on,
                least_ns=least_ns,
                error_ns=error_ns if name in _WAITS else 0.0,
            )
            for name, field in listed
        )

    both = (base.time_breakdown, new.time_breakdown)
    return _explained(of(both, PARTS), least_ns, shift_ns), of(both, _WITHIN)


def _explained(found: tuple[Amount, ...], least_ns: float, shift_ns: tuple[float, float] | None) -> tuple[Amount, ...]:
    """A few very long steps spread the mean of what waits so far that nothing exceeds it. The shift of the steps does not know them: where
    all of its interval leaves at least half of the largest effect on what waits, after the work, that has changed, too."""
    waits = [part for part in found if part.name in _WAITS]
    if shift_ns is None or not waits:
        return found
    work = sum(part.effect_ns for part in found if part.name not in _WAITS)
    low, high = (shift - work for shift in shift_ns)
    most = max(waits, key=lambda part: abs(part.effect_ns))
    least = abs(most.effect_ns) / 2
    if abs(most.effect_ns) < least_ns or not (low >= least if most.effect_ns > 0 else high <= -least):
        return found
    changed = dataclasses.replace(most, state=state(most.base_ns, most.new_ns))
    return tuple(changed if part is most else part for part in found)


def devices(base: Report, new: Report, on: Basis, least_ns: float, error_ns: float | None) -> tuple[DevicePair, ...]:
    """Device by device: the same rank and device in both runs; nothing where ranks or devices are others."""
    sides = [{_place(device, report): device for device in report.time_breakdown} for report in (base, new)]
    if (
        not sides[0]
        or sides[0].keys() != sides[1].keys()
        or any(len(side) < len(r.time_breakdown) for side, r in zip(sides, (base, new), strict=True))
    ):
        return ()
    share = len(sides[0])
    own = Basis(on.unit, on.base / share, on.new / share, on.why)  # each process has its part of the steps
    if on.unit == "second":
        own = Basis(on.unit, 1.0, 1.0, on.why)
    found = []
    for place in sorted(sides[0], key=_order):
        before, after = (side[place] for side in sides)
        scale = [1e9 / d.span_ns if on.unit == "second" and d.span_ns else 1.0 for d in (before, after)]
        parts = [
            amount(
                name,
                [getattr(before, field) * scale[0], getattr(after, field) * scale[1]],
                own,
                least_ns=least_ns,
                error_ns=error_ns if name in _WAITS else 0.0,
            )
            for name, field in PARTS
        ]
        found.append(DevicePair(_called(after), before.device_name or "", after.device_name or "", tuple(parts)))
    return tuple(found)


def _place(device: DeviceTime, report: Report) -> tuple[int | str | None, ...]:
    """Ranks meet again wherever they ran; a device without a rank by its node and number, or its number alone on a single node."""
    if device.rank is not None:
        return (device.rank, device.device if sum(d.rank == device.rank for d in report.time_breakdown) > 1 else None)
    single = len({d.node for d in report.time_breakdown}) == 1
    return ("" if single else device.node, device.device)


def _order(place: tuple[int | str | None, ...]) -> tuple[tuple[int, str], ...]:
    return tuple((part, "") if isinstance(part, int) else (-1, in_order(part or "")) for part in place)


def _called(device: DeviceTime) -> str:
    return f"rank {device.rank}, GPU {device.device}" if device.rank is not None else f"{device.node} GPU {device.device}"


def host_parts(base: Report, new: Report, threshold_percent: float, error_ns: float | None, summed: Sequence[Amount]) -> tuple[Amount, ...]:
    """What the average step was spent on, as the report divides it (StepParts); nothing where only one run's steps have recorded events.
    Data loading is among them where both runs tell it. ``summed``: of :func:`parts`; where idle time changed, data loading that changed
    with it is no chance. All but the work of GPUs must exceed ``error_ns``, as waits must."""
    sides = [tuple(part for part in report.steps.parts if part.typical) for report in (base, new)]
    if not all(sides) or len({part.annotated for side in sides for part in side}) > 1:
        return ()
    counts = [sum(part.steps for part in side) for side in sides]
    steps = Basis("step", counts[0], counts[1], None)
    step_ns = sum(part.mean_step_ns * part.steps for part in sides[0]) / counts[0]
    least = step_ns * threshold_percent / 100
    named = list(dict.fromkeys(name for side in sides for part in side for name in part.mean_ns))
    if not all(_tells_loading(report) for report in (base, new)):
        named = [name for name in named if name != LOADING]
    idle = next((part for part in summed if part.name == "idle" and part.state not in (SAME, UNDECIDED)), None)
    found = []
    for name in named:
        totals = [sum(part.mean_ns.get(name, 0.0) * part.steps for part in side) for side in sides]
        one = amount(name, totals, steps, least_ns=least, error_ns=0.0 if name in _WORK else error_ns)
        if name == LOADING and idle is not None and idle.effect_ns * one.effect_ns > 0:
            one = amount(name, totals, steps, least_ns=least)
        found.append(one)
    return tuple(found)


def _tells_loading(report: Report) -> bool:
    """Whether the run tells how long its steps waited for data: a trace without events of a data loader and without ranges named so does
    not, and its 0 is no wait that has gone."""
    if any(part.mean_ns.get(LOADING) for part in report.steps.parts):
        return True
    tile = next((tile for tile in report.summary.tiles if tile.key == "data_loading"), None)
    return tile is None or tile.number is not None
