"""Options of an analysis, with the selection of rules."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from .toolkit.options import AnalysisOptions

if TYPE_CHECKING:  # the recorder imports this package for its last line: Polars would delay it
    from .rules.engine.selection import Selection


@dataclass(frozen=True, slots=True)
class Options(AnalysisOptions):
    """Choices of an analysis. ``selection``: the rules that evaluate the run (None: all, with the documented defaults)."""

    selection: Selection | None = None
