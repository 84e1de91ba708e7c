"""What the blocks of all rules share: the rule that is shown, names of devices, and cells.

A block function takes a :class:`Shown` and the details of its rule, and returns figures and tables.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from ...analysis.report.model import Histogram, Report, RuleResult
from ...analysis.report.rule_details import ComparedRank, Gpu, ProfiledDevice
from ..blocks import Figure
from ..blocks.tables import Cell, Table
from ..figures.histogram import Bins
from ..text import labels
from ..text.formats import UNKNOWN, clip, duration, percent

Blocks = Sequence[Figure | Table | None]
Device = Gpu | ProfiledDevice | ComparedRank

_NEARLY: Final = 0.01
_SMALL: Final = 0.05


@dataclass(frozen=True, slots=True)
class Shown:
    """A rule, the id of its section, and when the run began, which its times are relative to."""

    id: str
    rule: RuleResult
    start_ns: int

    @property
    def issue(self) -> bool:
        return self.rule.verdict == "IssuesFound"

    def parameter(self, name: str) -> float | None:
        """The effective value of a parameter that is a finite number."""
        held = self.rule.parameters.get(name)
        return held if isinstance(held, int | float) and not isinstance(held, bool) and math.isfinite(held) else None

    def after(self, ns: float | None) -> Cell:
        """A moment as time since the run began."""
        return Cell(UNKNOWN) if ns is None else Cell(duration(max(0.0, ns - self.start_ns)), sort=ns)


def shown(report: Report, rule: RuleResult, id: str) -> Shown:
    return Shown(id, rule, report.run.started_at_ns or 0)


def place(row: Device) -> str:
    """ "rank 3 · node-0 GPU 3", or the process if the device is unknown."""
    rank: int | None = getattr(row, "rank", None)
    if row.device is None:
        return labels.process(row.node, rank, row.pid)
    return labels.device(row.node, rank, row.device)


def where(row: Device) -> Cell:
    """The cell that names a device; sorted by its rank, else by its number."""
    rank = getattr(row, "rank", None)
    return Cell(place(row), sort=rank if rank is not None else row.device)


def listed(texts: Sequence[str] | None, most: int = 6) -> str | None:
    """The first texts, in a row."""
    return ", ".join(clip(text, 30) for text in (texts or ())[:most]) or None


def answer(truth: bool | None, yes: str, no: str) -> Cell:
    return Cell(UNKNOWN if truth is None else yes if truth else no)


def marked(issue: bool | None, word: str = "over") -> Cell:
    """Whether this row is over the threshold, or outside of both."""
    return Cell(f"✕ {word}", mark="v-issue") if issue else Cell("within")


def bins(found: Histogram | None, label: str, mark: float | None, limit: float | None = None) -> Bins | None:
    """A histogram of durations, if it has values and its edges are in order."""
    if found is None or len(found.edges) != len(found.counts) + 1 or not sum(found.counts):
        return None
    if found.edges[0] < 0 or sorted(found.edges) != list(found.edges):
        return None
    return Bins(label, found.edges, found.counts, mark, found.beyond, found.logarithmic and found.edges[0] > 0, limit)


def narrow(drawn: Bins) -> bool:
    """Whether all values lie within one percent, so that the histogram is one block."""
    return not drawn.beyond and drawn.edges[-1] - drawn.edges[0] < _NEARLY * drawn.edges[-1]


def share(value: float | None) -> str:
    """A percentage that may lie below zero."""
    return percent(0.0 if value is not None and abs(value) < _SMALL else value)


def points(value: float | None) -> str:
    """A difference of percentages."""
    if value is None:
        return UNKNOWN
    return f"{0.0 if abs(value) < _SMALL else value:.1f}\u00a0points".replace("-", "−")
