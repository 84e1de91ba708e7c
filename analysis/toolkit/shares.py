"""Shares of a total: (name, time, count) -> rows with percentages."""

from __future__ import annotations

from collections.abc import Iterable

from ..report.model import Share


def shares(parts: Iterable[tuple[str, int, int]]) -> tuple[Share, ...]:
    """(name, time, count) added up by name, longest first (then by name), with the percent of the whole."""
    sums: dict[str, tuple[int, int]] = {}
    for name, time, count in parts:
        before = sums.get(name, (0, 0))
        sums[name] = (before[0] + time, before[1] + count)
    whole = sum(time for time, _ in sums.values())
    ordered = sorted(sums.items(), key=lambda item: (-item[1][0], item[0]))
    return tuple(Share(name, time, count, percent_of(time, whole)) for name, (time, count) in ordered)


def percent_of(part: int, whole: int) -> float:
    """``part`` of ``whole`` in percent; 0 of nothing is 0."""
    return 100 * part / whole if whole else 0.0
