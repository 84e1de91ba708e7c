"""A case of the suite: its number, criteria in words, time limit and the function that runs it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from .bench import Bench

DECISIVE = frozenset({0, 1, 2, 4, 5, 12})


@dataclass(frozen=True)
class Case:
    """``check`` runs programs on the bench, collects problems, and raises Failed or Skipped where it cannot go on."""

    number: int
    title: str
    part: int  # 1, 2, or 0: both
    limit: int  # seconds; the case starts only if this much time is left
    check: Callable[[Bench], None]
    stub: bool = True  # whether it can also run with the stub libraries

    @property
    def decisive(self) -> bool:
        return self.number in DECISIVE
