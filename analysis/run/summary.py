"""The first page of a report: sections of a report -> headline, subtitle, five figures, warnings."""

from __future__ import annotations

from ..report.model import Summary
from .summary_data import SummaryData
from .summary_headline import headline
from .summary_subtitle import subtitle
from .summary_tiles import tiles
from .summary_warnings import warnings


def summary(data: SummaryData) -> Summary:
    """Write the first page."""
    return Summary(headline(data), subtitle(data), tiles(data), warnings(data.run, data.notes))
