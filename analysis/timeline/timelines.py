"""Which timeline do the files of a report draw?"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ..report.model import Report
    from .model import Timeline


def timeline_for(store: Any, report: Report, formats: Sequence[str], most: int) -> Timeline | None:
    """Of at most ``most`` events of the run; None for 0, or where no format draws it. ``report``: of the same run."""
    if not most or not {"html", "pdf"} & set(formats):
        return None
    from .build import timeline
    from .model import NOTHING

    return timeline(store, report, cap=most) or NOTHING
