"""The cases in the order in which a part runs them; decisive cases come first."""

from __future__ import annotations

from . import (
    against_torch,
    basics,
    conflicts,
    costs,
    cycles,
    endings,
    examples,
    graphs,
    injection,
    libraries,
    ranges,
    samples,
    threads,
)
from .case import Case

CASES = (
    Case(0, "facts of the machine, and which CUPTI is used", 1, 60, basics.facts),
    Case(1, "the kernels of a training are recorded", 1, 60, basics.first_kernel),
    Case(2, "known counts of kernels, copies, memsets and synchronizations", 1, 60, basics.known_counts),
    Case(4, "times of kernels against the host's clock and events", 1, 60, basics.clock),
    Case(5, "20 windows, nothing between them", 1, 90, basics.windows),
    Case(12, "other profilers before, in and after a window", 1, 150, conflicts.other_profilers),
    Case(3, "the same training as torch.profiler sees it", 1, 120, against_torch.against_torch, stub=False),
    Case(6, "1,000 starts and stops", 1, 130, cycles.cycles),
    Case(7, "CUDA graphs", 1, 110, graphs.graphs),
    Case(13, "a subscriber that only listens to calls", 1, 40, conflicts.listener),
    Case(17, "Python threads while a window closes", 2, 40, threads.gil),
    Case(9, "many threads, streams and contexts", 2, 40, threads.threads),
    Case(8, "graphs captured while windows open and close", 2, 30, graphs.captures),
    Case(15, "programs into which the driver loads the recorder", 2, 100, injection.injection),
    Case(16, "ends of programs", 2, 60, endings.endings),
    Case(10, "NVTX ranges", 2, 40, ranges.nvtx, stub=False),
    Case(18, "overhead in a window and after it", 2, 110, costs.overhead),
    Case(19, "bytes of an event, and whether the recorder keeps up", 2, 60, costs.size),
    Case(11, "samples of the GPU", 2, 45, samples.nvml, stub=False),
    Case(21, "a CUPTI that does not fit", 2, 40, libraries.libraries),
    Case(14, "Nsight Compute and Compute Sanitizer around the program", 2, 70, conflicts.tools_around, stub=False),
    Case(20, "a window of minutes", 2, 230, costs.long_window, least=90),
    Case(22, "examples for tests without a GPU", 0, 10, examples.examples),
)
