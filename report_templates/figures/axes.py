"""Positions of ticks on an axis, and the unit of a time axis."""

from __future__ import annotations

import math
from typing import NamedTuple


class TimeUnit(NamedTuple):
    name: str
    nanoseconds: float


_UNITS = (
    TimeUnit("ns", 1.0),
    TimeUnit("µs", 1e3),
    TimeUnit("ms", 1e6),
    TimeUnit("s", 1e9),
    TimeUnit("min", 60e9),
    TimeUnit("h", 3600e9),
    TimeUnit("d", 86400e9),
)


def time_unit(longest_ns: float) -> TimeUnit:
    """Return the largest unit in which ``longest_ns`` is at least 2, or nanoseconds."""
    return next((unit for unit in reversed(_UNITS) if longest_ns >= 2 * unit.nanoseconds), _UNITS[0])


def nice_ticks(low: float, high: float, most: int) -> list[float]:
    """Return at most ``most`` + 1 multiples of 1, 2, or 5 times a power of 10."""
    span = high - low
    if not span > 0:
        return [low]
    raw = span / most
    power = 10.0 ** math.floor(math.log10(raw))
    step = next(factor * power for factor in (1, 2, 5, 10) if factor * power >= raw * (1 - 1e-9))
    first = math.ceil(low / step - 1e-9)
    last = math.floor(high / step + 1e-9)
    return [round(number * step, 12) for number in range(first, last + 1)]
