"""Shared parts of the blocks of all rules: the rule and its run, names of devices, and cells.

A block function takes a :class:`RuleContext` and the details of its rule, and returns figures and tables.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from ...analysis.report.cause_details import ComparedRank
from ...analysis.report.detail_rows import Gpu, ProfiledDevice
from ...analysis.report.rows import Histogram
from ...analysis.report.rules import RuleResult
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
class RuleContext:
    """A rule, the id of its section, and when the run began, which its times are relative to."""

    id: str
    rule: RuleResult
    start_ns: int

    @property
    def issue(self) -> bool:
        return self.rule.verdict == "IssuesFound"

    def parameter(self, name: str) -> float | None:
        """Return the value of a parameter if it is a finite number."""
        value = self.rule.parameters.get(name)
        return value if isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value) else None

    def after(self, ns: float | None) -> Cell:
        """Write a moment as the time since the run began."""
        return Cell(UNKNOWN) if ns is None else Cell(duration(max(0.0, ns - self.start_ns)), sort=ns)


def device_name(row: Device) -> str:
    """Return "rank 3 · node-0 GPU 3", or the process if the device is unknown."""
    rank: int | None = getattr(row, "rank", None)
    if row.device is None:
        return labels.process(row.node, rank, row.pid)
    return labels.device(row.node, rank, row.device)


def device_cell(row: Device) -> Cell:
    """Name a device; the cell is sorted by its rank, else by its number."""
    rank = getattr(row, "rank", None)
    return Cell(device_name(row), sort=rank if rank is not None else row.device)


def listed(texts: Sequence[str] | None) -> str | None:
    """Join the first texts."""
    return ", ".join(clip(text, 30) for text in (texts or ())[:6]) or None


def answer(truth: bool | None, yes: str, no: str) -> Cell:
    return Cell(UNKNOWN if truth is None else yes if truth else no)


def marked(issue: bool | None, word: str = "over") -> Cell:
    """Mark a row that is over the threshold, or outside both."""
    return Cell(f"✕ {word}", mark="v-issue") if issue else Cell("within")


def bins(histogram: Histogram | None, label: str, mark: float | None, limit: float | None = None) -> Bins | None:
    """Return a histogram of durations if it has values and its edges are in order."""
    if histogram is None or len(histogram.edges) != len(histogram.counts) + 1 or not sum(histogram.counts):
        return None
    if histogram.edges[0] < 0 or sorted(histogram.edges) != list(histogram.edges):
        return None
    return Bins(label, histogram.edges, histogram.counts, mark, histogram.beyond, histogram.logarithmic and histogram.edges[0] > 0, limit)


def narrow(drawn: Bins) -> bool:
    """Test whether all values are within 1%, so that the histogram is one block."""
    return not drawn.beyond and drawn.edges[-1] - drawn.edges[0] < _NEARLY * drawn.edges[-1]


def share(value: float | None) -> str:
    """Write a percentage that may be negative."""
    return percent(0.0 if value is not None and abs(value) < _SMALL else value)


def points(value: float | None) -> str:
    """Write a difference of percentages."""
    if value is None:
        return UNKNOWN
    return f"{0.0 if abs(value) < _SMALL else value:.1f}\u00a0points".replace("-", "−")
