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
        return _parts(seconds, 60, "min", "s")
    minutes = round(seconds / 60)
    return _parts(minutes, 60, "h", "min") if minutes < 48 * 60 else _parts(round(seconds / 3600), 24, "d", "h")


def _parts(total: int, size: int, unit: str, smaller: str) -> str:
    units, rest = divmod(total, size)
    return f"{units:,} {unit} {rest} {smaller}" if rest else f"{units:,} {unit}"
