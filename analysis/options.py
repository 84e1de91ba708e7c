"""Which choices change what is analysed?"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .rules.selection import Selection


@dataclass(frozen=True, slots=True)
class Options:
    """top: rows in "top k" tables and figures. histograms: annotation base names to draw (none: the ones with most time).
    histograms_if_present: a name among them that no range has is left out. generated_at_ns: time shown as the report's making (None: now).
    name: shown instead of the run's own name. selection: the rules that judge the run (None: all, with the documented defaults)."""

    top: int = 15
    histograms: tuple[str, ...] = ()
    histograms_if_present: bool = False
    generated_at_ns: int | None = None
    name: str | None = None
    selection: Selection | None = None
