"""Section "How to read this" of a comparison: the conditions for calling a difference a change."""

from __future__ import annotations

from ...analysis.report.comparison import Comparison
from ..blocks import Section, say


def reading(made: Comparison) -> Section:
    found = Section(
        "reading",
        "How to read this",
        say("A change is beyond the spread of both runs and at least the threshold of {} %.", f"{made.threshold_percent:g}"),
    )
    found.facts["definitions"] = [
        (
            "Steps",
            "Slower or faster where a rank-sum test (Mann and Whitney) finds it at a level of 1 % and the medians differ by the threshold.",
        ),
        (
            "Parts",
            "Where the effect is at least the threshold, in percent of a step. Idle time and exposed communication must also exceed 2.58"
            " standard errors of the mean step; with fewer than five times from step to step they are undecided.",
        ),
        (
            "Kernels",
            "Where the effect is at least the threshold in percent of the kernel and 0.2 % of a step, and the mean moved by more than the"
            " shortest and longest run allow, or the number of runs changed.",
        ),
        ("Copies", "Where bytes and time changed by the threshold, or the time alone by 10 %, and the effect is 0.2 % of a step."),
        ("Effect", "New minus base. Times of all processes are divided by the steps of all processes."),
    ]
    if made.basis.unit == "second" and made.whole is not None:
        found.facts["definitions"].append(("Per second", f"Times are divided by seconds of the GPUs' span, because: {made.basis.why}."))
    return found
