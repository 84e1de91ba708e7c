"""Section "Idle causes": its lead in plain words."""

from __future__ import annotations

import dataclasses

import pytest
from postrun.analysis.report.device import Idle
from postrun.analysis.report.model import Report
from postrun.report_templates.sections.idle import idle

MS = 10**6


@pytest.mark.parametrize(
    ("times", "cause"),
    [
        ((6, 1, 3, 0), "the host had not launched the next work"),
        ((1, 6, 3, 0), "the next work was launched and about to start"),
        ((3, 1, 6, 6), "the next work was launched, but still had to wait"),
        ((3, 1, 6, 0), "the launch of the next work is not in the trace, so the cause is unknown"),
    ],
)
def test_the_lead_states_the_largest_cause(rich: Report, times: tuple[int, int, int, int], cause: str) -> None:
    host, kernel, rest, waiting = (time * MS for time in times)
    row = Idle("node-0", 0, 0, 7, gaps=4, host_wait_ns=host, kernel_wait_ns=kernel, other_ns=rest, waiting_ns=waiting)
    lead = idle(dataclasses.replace(rich, idle=(row,))).lead.replace("\u00a0", " ")
    assert lead == (
        f"1 stream ran nothing in 4 gaps, 10.0 ms in total. In 60.0% of this time, {cause}. Other streams of the GPU may run meanwhile, so"
        " this is not GPU idle time."
    )
