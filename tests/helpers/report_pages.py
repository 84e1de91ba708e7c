"""The whole page of a report, rendered once for the tests that read it."""

from __future__ import annotations

from postrun.analysis.report import Report
from postrun.report_templates.output.pages import page
from postrun.report_templates.output.section_list import context

KEPT = 8
_pages: dict[tuple[int, str], tuple[Report, str]] = {}
"""Id of the report and target -> the page. The report is kept with it, so no other report gets its id."""


def html_of(report: Report, target: str = "html") -> str:
    """Render all sections for "html" or "pdf"; cached, as many tests read one report."""
    key = (id(report), target)
    if key not in _pages:
        while len(_pages) >= KEPT:
            del _pages[next(iter(_pages))]
        _pages[key] = report, page(context(report, lambda text, fraction: None), target)
    _pages[key] = _pages.pop(key)  # the last one read is the last to go
    return _pages[key][1]
