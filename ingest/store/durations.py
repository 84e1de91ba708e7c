"""Durations in notes: nanoseconds -> text."""

from __future__ import annotations


def duration(ns: int) -> str:
    """Format a duration as the report does: 5.19 ms, 2.00 s, 18 min 42 s."""
    for unit, size in (("ns", 1), ("\N{MICRO SIGN}s", 10**3), ("ms", 10**6), ("s", 10**9)):
        rounded = float(f"{ns / size:.3g}")
        if rounded < (60 if unit == "s" else 1000):
            decimals = 0 if rounded >= 100 or size == 1 else 1 if rounded >= 10 else 2
            return f"{ns / size:.{decimals}f} {unit}"
    seconds = round(ns / 10**9)
    if seconds < 3600:
        return f"{seconds // 60} min {seconds % 60:02} s"
    minutes, hours = round(seconds / 60), round(seconds / 3600)
    return f"{minutes // 60} h {minutes % 60:02} min" if minutes < 48 * 60 else f"{hours // 24} d {hours % 24} h"
