"""Choices that change what a report contains."""

from __future__ import annotations

from dataclasses import dataclass

from .rules.engine.selection import Selection
from .toolkit.options import AnalysisOptions


@dataclass(frozen=True, slots=True)
class Options(AnalysisOptions):
    """Choices of an analysis. ``selection``: the rules that evaluate the run (None: all, with the documented defaults)."""

    selection: Selection | None = None
