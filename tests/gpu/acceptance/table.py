"""The cases in the order in which a part runs them; decisive cases come first."""

from __future__ import annotations

from . import basics, conflicts
from .case import Case

CASES = (
    Case(0, "facts of the machine, and which CUPTI is used", 1, 60, basics.facts),
    Case(1, "the kernels of a training are recorded", 1, 60, basics.first_kernel),
    Case(2, "known counts of kernels, copies, memsets and synchronizations", 1, 60, basics.known_counts),
    Case(4, "times of kernels against the host's clock and events", 1, 60, basics.clock),
    Case(5, "20 windows, nothing between them", 1, 90, basics.windows),
    Case(12, "other profilers before, in and after a window", 1, 150, conflicts.other_profilers),
    Case(13, "a subscriber that only listens to calls", 1, 40, conflicts.listener),
    Case(14, "Nsight Compute and Compute Sanitizer around the program", 2, 130, conflicts.tools_around, stub=False),
)
