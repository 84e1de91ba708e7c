"""Parts of the time of two runs, compared: computation, communication, memory operations, idle time, data loading."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from ..report.comparison import Amount, Basis, DevicePair
from ..report.device import DeviceTime
from ..report.model import Report
from ..report.steps import StepBar
from ..steps.ranges import LOADING
from ..toolkit.places import in_order
from .basis import Noise, amount, per_unit, with_noise

EXPOSED: Final = "exposed communication"
IDLE: Final = "idle"
PARTS: Final = (
    ("computation", "computation_ns"),
    (EXPOSED, "exposed_communication_ns"),
    ("exposed memory operations", "exposed_memory_ns"),
    (IDLE, "idle_ns"),
)
"""They add up to the profile window of a device."""
_WAITS: Final = {EXPOSED: EXPOSED, IDLE: IDLE, "communication": EXPOSED}  # wait -> part of the GPU time with its noise
_WORK: Final = ("kernel", "memcpy", "memset")  # classes of a step whose time does not depend on the host
_ON_DEVICE: Final = {LOADING: IDLE, "communication": EXPOSED}  # part of the step -> part of the GPU time that it causes
_WITHIN: Final = (("communication", "communication_ns"), ("memory operations", "memory_ns"))


HOST_NAMES: Final = {LOADING: "data loading", "cpu_op": "operators on the host", "runtime": "CUDA calls on the host", "kernel": "kernels"}
"""Display names of the parts of the average step that differ from those in report.json."""


def host_name(name: str) -> str:
    return HOST_NAMES.get(name, name)


def total_span(
    base: Report, new: Report, on: Basis, threshold_percent: float, noise: Noise, shift_ns: tuple[float, float] | None
) -> Amount | None:
    """Compare the devices' profile windows per unit; None unless both have any."""
    if not base.time_breakdown or not new.time_breakdown:
        return None
    if (sums := _in_steps(base, new, on)) is not None:
        averages, on = sums
        spans = [float(bar.step_ns) for bar in averages]
    else:
        spans = [float(sum(d.span_ns for d in r.time_breakdown)) for r in (base, new)]
    least_ns = per_unit(spans, on)[0] * threshold_percent / 100
    span = amount("span", spans, on, least_ns=least_ns, noise=noise)
    return _by_shift(span, least_ns, shift_ns) if shift_ns is not None else span


def parts(base: Report, new: Report, on: Basis, least_ns: float, noise: Noise, shift_ns: tuple[float, float] | None) -> tuple[Amount, ...]:
    """Compare the parts that add up.

    ``least_ns``: the smallest effect per unit that is a change. The effect on a wait must also be at least its ``noise``, and is
    undecided if that is not known. ``shift_ns``: the interval of the shift of the step times, see :func:`_by_shift`.
    """
    if not base.time_breakdown or not new.time_breakdown:
        return ()
    if (sums := _in_steps(base, new, on)) is not None:
        averages, on = sums
        totals = [(name, [float(getattr(bar, field)) for bar in averages]) for name, field in PARTS]
    else:
        totals = _sums(base, new, PARTS)
    return _explained(_amounts(totals, on, least_ns, noise), least_ns, shift_ns)


def within(base: Report, new: Report, on: Basis, least_ns: float, noise: Noise) -> tuple[Amount, ...]:
    """Compare the parts with their hidden time. ``noise``: with the result of parts()."""
    if not base.time_breakdown or not new.time_breakdown:
        return ()
    if (sums := _in_steps(base, new, on)) is not None:
        averages, on = sums
        communication = [float(bar.exposed_communication_ns + bar.hidden_communication_ns) for bar in averages]
        return _amounts([("communication", communication)], on, least_ns, noise)
    return _amounts(_sums(base, new, _WITHIN), on, least_ns, noise)


def _sums(base: Report, new: Report, fields: Iterable[tuple[str, str]]) -> list[tuple[str, list[float]]]:
    return [(name, [float(sum(getattr(d, field) for d in r.time_breakdown)) for r in (base, new)]) for name, field in fields]


def _in_steps(base: Report, new: Report, on: Basis) -> tuple[tuple[StepBar, StepBar], Basis] | None:
    """Return sums over the steps, and their number, if a run has work outside.

    A process with several devices has no such sums over all of them.
    """
    first, second = base.step_breakdown.average, new.step_breakdown.average
    outside = base.steps.outside or new.steps.outside
    several = max(base.step_breakdown.devices, new.step_breakdown.devices) > 1
    if on.unit != "step" or not outside or several or first is None or second is None:
        return None
    return (first, second), Basis("step", first.steps, second.steps, None)


def _amounts(totals: Iterable[tuple[str, Sequence[float]]], on: Basis, least_ns: float, noise: Noise) -> tuple[Amount, ...]:
    return tuple(
        amount(name, pair, on, least_ns=least_ns, noise=noise if name in _WAITS else None, part=_WAITS.get(name, ""))
        for name, pair in totals
    )


def _explained(amounts: tuple[Amount, ...], least_ns: float, shift_ns: tuple[float, float] | None) -> tuple[Amount, ...]:
    """Compare the largest wait by the shift of the steps, less the effect on work."""
    waits = [part for part in amounts if part.name in _WAITS]
    if shift_ns is None or not waits:
        return amounts
    work = sum(part.effect_ns for part in amounts if part.name not in _WAITS)
    most = max(waits, key=lambda part: abs(part.effect_ns))
    return tuple(_by_shift(part, least_ns, (shift_ns[0] - work, shift_ns[1] - work)) if part is most else part for part in amounts)


def _by_shift(part: Amount, least_ns: float, shift_ns: tuple[float, float]) -> Amount:
    """Return ``part`` with the noise that ``shift_ns`` leaves, if that is smaller.

    A few very long steps can spread the mean of the waits so far that no effect exceeds the spread. The shift is robust against them. The
    noise is twice the distance from the effect to the farther end of the interval: an effect beyond it is at least half certain.
    """
    noise = 2 * max(abs(part.effect_ns - end) for end in shift_ns)
    return with_noise(part, least_ns, noise) if part.noise_ns is not None and noise < part.noise_ns else part


def devices(base: Report, new: Report, on: Basis, least_ns: float, noise: Noise) -> tuple[DevicePair, ...]:
    """Compare the devices in pairs; empty if ranks or devices of the runs differ.

    Also empty if times are divided by steps and a run has device work outside of them.
    """
    sides = [{_identity(device, report): device for device in report.time_breakdown} for report in (base, new)]
    if (
        not sides[0]
        or (on.unit == "step" and (base.steps.outside or new.steps.outside))
        or sides[0].keys() != sides[1].keys()
        or any(len(side) < len(r.time_breakdown) for side, r in zip(sides, (base, new), strict=True))
    ):
        return ()
    share = len(sides[0])
    device_basis = Basis(on.unit, on.base / share, on.new / share, on.why)  # each process has its part of the steps
    if on.unit == "second":
        device_basis = Basis(on.unit, 1.0, 1.0, on.why)
    pairs = []
    for identity in sorted(sides[0], key=_order):
        before, after = (side[identity] for side in sides)
        scale = [1e9 / d.span_ns if on.unit == "second" and d.span_ns else 1.0 for d in (before, after)]
        totals = [(name, [getattr(d, field) * factor for d, factor in zip((before, after), scale, strict=True)]) for name, field in PARTS]
        name = f"rank {after.rank}, GPU {after.device}" if after.rank is not None else f"{after.node} GPU {after.device}"
        pairs.append(DevicePair(name, before.device_name or "", after.device_name or "", _amounts(totals, device_basis, least_ns, noise)))
    return tuple(pairs)


def _identity(device: DeviceTime, report: Report) -> tuple[int | str | None, ...]:
    """Return the key that matches devices of two runs.

    It is the rank, wherever it ran, or node and number without a rank. On a single node the number alone is enough.
    """
    if device.rank is not None:
        return (device.rank, device.device if sum(d.rank == device.rank for d in report.time_breakdown) > 1 else None)
    single = len({d.node for d in report.time_breakdown}) == 1
    return ("" if single else device.node, device.device)


def _order(identity: tuple[int | str | None, ...]) -> tuple[tuple[int, str], ...]:
    return tuple((part, "") if isinstance(part, int) else (-1, in_order(part or "")) for part in identity)


def host_parts(base: Report, new: Report, threshold_percent: float, noise: Noise) -> tuple[Amount, ...]:
    """Compare the parts of the average step (StepParts).

    The result is empty unless both runs have parts of the same kind. Data loading is included if both runs recorded it. The effect on
    all parts except GPU activity must be at least the ``noise``, as that on waits.
    """
    sides = [tuple(part for part in report.steps.parts if part.typical) for report in (base, new)]
    if not all(sides) or len({part.annotated for side in sides for part in side}) > 1:
        return ()
    counts = [sum(part.steps for part in side) for side in sides]
    steps = Basis("step", counts[0], counts[1], None)
    step_ns = sum(part.total_ns for part in sides[0]) / counts[0]
    least = step_ns * threshold_percent / 100
    named = list(dict.fromkeys(name for side in sides for part in side for name in part.mean_ns))
    if not all(_loading_recorded(report) for report in (base, new)):
        named = [name for name in named if name != LOADING]
    amounts = []
    for name in named:
        totals = [sum(p.mean_ns.get(name, 0.0) * p.steps for p in side) for side in sides]
        of_waits = None if name in _WORK else noise
        amounts.append(amount(name, totals, steps, least_ns=least, noise=of_waits, part=_ON_DEVICE.get(name, "")))
    return tuple(amounts)


def _loading_recorded(report: Report) -> bool:
    """Return whether the run recorded how long its steps waited for data.

    In a trace without data-loader events and ranges for them, a wait of 0 is unknown rather than none.
    """
    if any(part.mean_ns.get(LOADING) for part in report.steps.parts):
        return True
    tile = next((tile for tile in (*report.summary.figures, *report.summary.tiles) if tile.key == "data_loading"), None)
    return tile is None or tile.number is not None
