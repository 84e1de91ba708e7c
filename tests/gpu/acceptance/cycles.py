"""Case 6: a thousand starts and stops, as sessions and as windows, next to a thread that launches all the time."""

from __future__ import annotations

from . import checks
from .bench import Bench, Done

CYCLES, FROM, KERNELS = 1000, 100, 10
GROWTH_KIB = 16 * 1024  # of main memory and of the device's
MEDIAN_MS, MAXIMUM_MS = 50, 2000


def cycles(bench: Bench) -> None:
    count = bench.scaled(CYCLES, least=20)
    first = min(FROM, count // 2)
    for how in ("sessions", "windows"):  # one after the other, as free device memory is that of all processes
        run = bench.workload(how, "cycles", count, first, how, limit=bench.left())
        report = dict(run.report)
        bench.figures[how] = report | {"recorded": _recorded(run)}
        bench.require(checks.equal(_recorded(run), count * KERNELS, "kernels of the first thread"), how)
        for resource in ("resident_kib", "device_kib"):
            bench.require(checks.at_most(report[resource], GROWTH_KIB, f"growth of {resource}", " KiB"), how)
        for resource in ("threads", "descriptors"):
            bench.require(checks.at_most(report[resource], 0, f"growth of {resource}"), how)
        bench.require(checks.at_most(report["median_ms"], MEDIAN_MS, "median cycle", " ms"), how)
        bench.require(checks.at_most(report["maximum_ms"], MAXIMUM_MS, "longest cycle", " ms"), how)


def _recorded(done: Done) -> int:
    return len(checks.named(done.tables("kernel")["kernel"], "postrun_alpha"))
