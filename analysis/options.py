"""Options of an analysis, with the selection of rules."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from .toolkit.options import AnalysisOptions

if TYPE_CHECKING:  # the recorder imports this package for its last line: Polars would delay it
    from .rules.engine.selection import Selection


@dataclass(frozen=True, slots=True)
class Options(AnalysisOptions):
    """Choices of an analysis. ``selection``: the rules that evaluate the run (None: all, with the documented defaults).

    Raises UsageError for ``peaks`` of an unknown type, or that are not positive numbers."""

    selection: Selection | None = None

    def __post_init__(self) -> None:
        if self.peaks:
            from .efficiency.peaks import checked_peaks

            object.__setattr__(self, "peaks", checked_peaks(self.peaks))
