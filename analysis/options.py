"""Choices that change what a report contains."""

from __future__ import annotations

from dataclasses import dataclass

from .analysis_options import AnalysisOptions
from .rules.selection import Selection


@dataclass(frozen=True, slots=True)
class Options(AnalysisOptions):
    """The choices of the analyses, and selection: the rules that evaluate the run (None: all, with the documented defaults)."""

    selection: Selection | None = None
