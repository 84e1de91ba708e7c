"""A case of the suite: its number, criteria in words, time limit and the function that runs it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from .bench import Bench

DECISIVE = frozenset({0, 1, 2, 4, 5, 12})


@dataclass(frozen=True)
class Case:
    """``check`` runs programs on the bench, collects problems, and raises Failed or Skipped if it cannot go on."""

    number: int
    title: str
    part: int  # 1, 2, or 0: both
    limit: int  # seconds
    check: Callable[[Bench], None]
    stub: bool = True  # whether it can also run with the stub libraries
    least: int = 0  # seconds with which the case can start, if fewer than its limit

    @property
    def needs(self) -> int:
        """Seconds that have to be left when the case starts."""
        return self.least or self.limit

    @property
    def decisive(self) -> bool:
        return self.number in DECISIVE
