"""Counts of the parts of an export."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(slots=True)
class Counts:
    """``lanes``: tracks in addition to those of the tree, for events that overlap. ``shifted_ns``: what was added to every time.
    ``cut``: events whose length could not be written as it is. ``rows``: of tables, by name."""

    tracks: int = 0
    lanes: int = 0
    slices: int = 0
    arrows: int = 0
    values: int = 0
    shifted_ns: int = 0
    cut: int = 0
    rows: dict[str, int] = field(default_factory=dict)
