"""Index of all runs: the data of index.json and of its page."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from . import places
from .history import Family, Finding, Settings
from .model import Row

FEW_ALONE: Final = 3  # From so many runs on that are each alone in their family it is told: nothing is compared with them


@dataclass(frozen=True, slots=True)
class Index:
    """What index.json and the page are made of. ``rows``: the newest, newest first; ``failed``: of all runs. ``added``: the columns ADDED,
    by id. ``alone``: of all runs, those that are the only one of their family."""

    generated_at_ns: int
    version: str
    place: str
    total: int
    states: Mapping[str, int]
    rows: tuple[Row, ...]
    added: Mapping[str, Mapping[str, Any]]
    findings: tuple[Finding, ...]
    failed: tuple[Row, ...]
    families: tuple[Family, ...]
    families_total: int
    alone: tuple[str, ...]
    settings: Settings

    @property
    def files(self) -> tuple[str, ...]:
        """Names of the index's files, the page for people first."""
        return places.INDEX_FILES

    @property
    def alone_told(self) -> tuple[str, str] | None:
        """Runs that no other is compared with, and what to do; None where they are few."""
        if len(self.alone) < FEW_ALONE:
            return None
        named = ", ".join(self.alone[:FEW_ALONE]) + (f" and {len(self.alone) - FEW_ALONE:,} more" if len(self.alone) > FEW_ALONE else "")
        return (
            f"{len(self.alone):,} runs are each alone in their family, so that they are compared with none: {named}",
            "where they are runs of one job, give the part of the names that they share as --family REGEX, or a label family in job.json",
        )

    @property
    def regressions(self) -> tuple[Finding, ...]:
        return tuple(one for one in self.findings if one.kind == "regression")
