"""Timeline of a report, made only if a requested format draws it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ..report.model import Report
    from .model import Timeline


def timeline_for(store: Any, report: Report, formats: Sequence[str], most: int) -> Timeline | None:
    """Return the timeline with at most ``most`` events; None if no format draws it."""
    if not most or not {"html", "pdf"} & set(formats):
        return None
    from .build import timeline
    from .model import NOTHING

    return timeline(store, report, cap=most) or NOTHING
