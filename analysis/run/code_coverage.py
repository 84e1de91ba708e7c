"""Sentences on the share of the device time that has a known operator or module, for the headline and for data quality."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from ..report.device import DeviceTime
from ..report.modules import ModuleCoverage
from ..report.run import Note
from ..report.steps import WorkOutsideSteps
from ..toolkit import wording

_LOW_PERCENT: Final = 80.0  # below it, figures by operator and module leave out too much to go unmentioned
_WHY: Final = (
    "It was launched before the profile began, or by a CUDA graph. For a graph, also report a trace of the program without graphs."
)


def unattributed(coverage: ModuleCoverage | None, before_percent: float = 0.0) -> str:
    """Report the share of device time without operator and module, if large; else "".

    ``before_percent``: the share that was launched before the profile began and is not to be reported."""
    if coverage is None or coverage.attributed_percent is None or coverage.attributed_percent + before_percent >= _LOW_PERCENT:
        return ""
    return f"{wording.whole_percent(100 - coverage.attributed_percent)} of the device time has no known operator or module."


def before_profile_percent(breakdown: Sequence[DeviceTime], outside: Sequence[WorkOutsideSteps]) -> float:
    """Return the share of the busy time that was launched before the profile began.

    That is work before the first step whose launch is not in the trace: the end of a step that was not recorded. It has no operator."""
    busy = sum(device.busy_ns for device in breakdown)
    before = sum(work.busy_ns for work in outside if work.when == "before")
    unlinked = sum(device.busy_ns - device.linked_busy_ns for device in breakdown)
    return 100 * max(0, min(before, unlinked)) / busy if busy else 0.0


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
