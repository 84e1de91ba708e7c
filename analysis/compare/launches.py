"""Kernel launches of two runs, compared: calls, host time, latency, and the causes of gaps."""

from __future__ import annotations

from collections.abc import Sequence

from ..report.comparison import Amount, Basis, Measure
from ..report.model import Report
from .basis import SAME, Noise, amount, changed, per_unit, state
from .parts import IDLE


def idle(base: Report, new: Report, on: Basis, least_ns: float, noise: Noise) -> tuple[Amount, ...]:
    """Compare the gaps before GPU activity by cause, summed over the streams."""
    if not base.idle or not new.idle:
        return ()
    causes = (("host wait", "host_wait_ns"), ("kernel wait", "kernel_wait_ns"), ("other", "other_ns"))
    totals = ((name, [sum(getattr(row, field) for row in report.idle) for report in (base, new)]) for name, field in causes)
    return tuple(amount(name, sums, on, least_ns=least_ns, noise=noise, part=IDLE) for name, sums in totals)


def launches(base: Report, new: Report, on: Basis, threshold_percent: float) -> tuple[Measure, ...]:
    """Compare launch calls and their host time per unit, and launch latency."""
    pair = (base.launches, new.launches)
    if not all(one.calls for one in pair):
        return ()
    calls = per_unit([one.calls for one in pair], on)
    times = per_unit([sum(part.total_ns for part in one.call_time) for one in pair], on)
    median, p95 = ([getattr(one.latency, name) if one.latency else None for one in pair] for name in ("p50", "p95"))
    return (
        _measure("launch calls", "count", calls, threshold_percent),
        _measure("host time in launch and synchronization calls", "ns", times, threshold_percent),
        _measure("launch latency, median", "ns", median, threshold_percent),
        _measure("launch latency, p95", "ns", p95, threshold_percent),
    )


def _measure(name: str, unit: str, pair: Sequence[float | None], threshold_percent: float) -> Measure:
    base, new = pair
    if base is None or new is None:
        return Measure(name, unit, base, new, None, SAME)
    change = changed(base, new)
    real = base != new and (change is None or abs(change) >= threshold_percent)
    return Measure(name, unit, base, new, change, state(base, new) if real else SAME)
