"""Chapters of the report: the question that each answers, and the sections that answer it, in their order."""

from __future__ import annotations

import itertools
from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from ..blocks import Section

Plan = Sequence[tuple[str, str, tuple[str, ...]]]
"""Chapter id, title, and ids of its sections. A chapter with the id of its only section has no headings of sections."""
_CHAPTERS: Final[Plan] = (
    ("findings", "Findings", ("findings",)),
    ("time", "Where the time goes", ("time-breakdown", "categories", "precision", "activity", "job-statistics")),
    ("pace", "Steps", ("steps", "step-breakdown", "slow-steps", "iterations")),
    ("across-ranks", "Ranks and communication", ("rank-comparison", "collectives")),
    ("device-work", "Kernels and operators", ("kernels", "launch-configurations", "operators", "efficiency")),
    ("modules", "Modules and source lines", ("modules",)),
    ("host", "Host", ("launches", "launch-queue", "idle", "framework", "annotations", "python-profile")),
    ("machine", "Machine", ("system-usage", "gpu-memory", "memory-operations")),
    ("timeline", "Timeline", ("timeline",)),
    ("rules", "All rules", ("rules",)),
    ("run-facts", "Appendix", ("information", "data-quality", "without-content", "appendix")),
)
_OPEN: Final = frozenset({"findings", "time", "timeline"})  # chapters whose sections are unfolded in HTML


@dataclass(frozen=True, slots=True)
class Chapter:
    """Sections that answer one question.

    ``number`` counts from 1, without the timeline (0), which HTML and PDF have in different places. ``opened``: HTML shows the
    sections unfolded.
    """

    id: str
    title: str
    number: int
    sections: tuple[Section, ...]
    opened: bool

    def rows(self, target: str) -> list[list[Section]]:
        """Return the sections of "html" or "pdf" in rows.

        The PDF has two compact ones next to each other.
        """
        rows: list[list[Section]] = []
        for section in self.sections:
            beside = rows[-1] if target == "pdf" and rows and len(rows[-1]) == 1 else None
            if beside and beside[0].compact and section.compact:
                beside.append(section)
            elif target == "html" or not section.html_only:
                rows.append([section])
        return rows

    @property
    def single(self) -> bool:
        """Whether the chapter is its only section."""
        return len(self.sections) == 1 and self.sections[0].id == self.id


def chapters(
    sections: Iterable[Section], *, timeline_first: bool = False, plan: Plan = _CHAPTERS, opened: Container[str] = _OPEN
) -> tuple[Chapter, ...]:
    """Put the sections into their chapters; chapters without sections are left out.

    ``opened``: ids of the chapters whose sections HTML shows unfolded.
    """
    by_id: Mapping[str, Section] = {section.id: section for section in sections}
    kept: Sequence[tuple[str, str, list[Section]]] = [
        (id, title, [by_id[name] for name in names if name in by_id]) for id, title, names in plan
    ]
    filled = [chapter for chapter in kept if chapter[2]]
    if timeline_first:
        filled.sort(key=lambda chapter: chapter[0] != "timeline")
    numbers = itertools.count(1)
    return tuple(Chapter(id, title, 0 if id == "timeline" else next(numbers), tuple(held), id in opened) for id, title, held in filled)
