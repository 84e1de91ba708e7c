"""Shares of a total: (name, time, count) -> rows with percentages."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable

from ..report.device import DeviceTime
from ..report.rows import Share


def shares(parts: Iterable[tuple[str, int, int]]) -> tuple[Share, ...]:
    """Add up (name, time, count) by name, with percent of the total, longest first."""
    sums: dict[str, tuple[int, int]] = {}
    for name, time, count in parts:
        before = sums.get(name, (0, 0))
        sums[name] = (before[0] + time, before[1] + count)
    total = sum(time for time, _ in sums.values())
    ordered = sorted(sums.items(), key=lambda item: (-item[1][0], item[0]))
    return tuple(Share(name, time, count, percent_of(time, total)) for name, (time, count) in ordered)


def percent_of(part: int, total: int) -> float:
    """Return ``part`` of ``total`` in percent; 0 if the total is 0."""
    return 100 * part / total if total else 0.0


def percent_of_spans(devices: Collection[DeviceTime], time: Callable[[DeviceTime], int]) -> float:
    """Return the summed ``time`` of devices in percent of their spans."""
    return percent_of(sum(map(time, devices)), sum(device.span_ns for device in devices))
