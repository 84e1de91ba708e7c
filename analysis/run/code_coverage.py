"""Sentences on the share of the device time that has a known operator or module, for the headline and for data quality."""

from __future__ import annotations

from typing import Final

from ..report.modules import ModuleCoverage
from ..report.run import Note
from ..toolkit import wording

_LOW_PERCENT: Final = 80.0  # below it, figures by operator and module leave out too much to go unmentioned
_WHY: Final = (
    "It was launched before the profile began, or by a CUDA graph. For a graph, also report a trace of the program without graphs."
)


def unattributed(coverage: ModuleCoverage | None) -> str:
    """Report the share of device time without operator and module, if large; else ""."""
    if coverage is None or coverage.attributed_percent is None or coverage.attributed_percent >= _LOW_PERCENT:
        return ""
    return f"{wording.whole_percent(100 - coverage.attributed_percent)} of the device time has no known operator or module."


def coverage_notes(coverage: ModuleCoverage) -> tuple[Note, ...]:
    """Return a note on device time without operator and module, if it is large."""
    text = unattributed(coverage)
    if not text:
        return ()
    known = [
        f"{code} for {wording.percent(percent)}"
        for code, percent in (("modules are known", coverage.known_percent), ("source lines", coverage.lines_percent))
        if percent is not None
    ]
    more = f" {wording.capitalized(', '.join(known))}." if coverage.known_percent is not None else ""
    return (Note(None, "info", "no_operator", f"{text} {_WHY}{more}", 1, None, None),)
