"""The cases in the order in which a part runs them; decisive cases come first."""

from __future__ import annotations

from . import against_torch, basics, conflicts, cycles, graphs, threads
from .case import Case

CASES = (
    Case(0, "facts of the machine, and which CUPTI is used", 1, 60, basics.facts),
    Case(1, "the kernels of a training are recorded", 1, 60, basics.first_kernel),
    Case(2, "known counts of kernels, copies, memsets and synchronizations", 1, 60, basics.known_counts),
    Case(4, "times of kernels against the host's clock and events", 1, 60, basics.clock),
    Case(5, "20 windows, nothing between them", 1, 90, basics.windows),
    Case(12, "other profilers before, in and after a window", 1, 150, conflicts.other_profilers),
    Case(3, "the same training as torch.profiler sees it", 1, 120, against_torch.against_torch, stub=False),
    Case(6, "1,000 starts and stops", 1, 120, cycles.cycles),
    Case(7, "CUDA graphs", 1, 110, graphs.graphs),
    Case(13, "a subscriber that only listens to calls", 1, 40, conflicts.listener),
    Case(8, "graphs captured while windows open and close", 2, 40, graphs.captures),
    Case(9, "many threads, streams and contexts", 2, 60, threads.threads),
    Case(14, "Nsight Compute and Compute Sanitizer around the program", 2, 130, conflicts.tools_around, stub=False),
)
