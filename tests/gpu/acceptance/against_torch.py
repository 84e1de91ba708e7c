"""Case 3: the same training under torch.profiler and under postrun, in turns, has the same kernels, copies and launches."""

from __future__ import annotations

import ctypes
from collections.abc import Iterable
from typing import Any

from . import checks
from .bench import Bench, Done, Skipped

PAIRS, STEPS = 5, 200
LONGEST_SYMBOL = 1024  # bytes; the profiler leaves longer ones as they are


def against_torch(bench: Bench) -> None:
    if not bench.has("torch"):
        raise Skipped("PyTorch is not installed")
    profiled: list[Done] = []
    recorded: list[Done] = []
    for pair in range(PAIRS):
        profiled.append(bench.script(f"profiler{pair}", "mlp.py", "profiler", STEPS, limit=60))
        recorded.append(bench.script(f"postrun{pair}", "mlp.py", "window", STEPS, limit=60))
    actual, expected = [_of_recording(done) for done in recorded], [done.report for done in profiled]
    bench.figures |= {
        "kernels": [sum(map(len, run["kernels"].values())) for run in actual],
        "kernels_of_profiler": [sum(map(len, run["kernels"].values())) for run in expected],
        "kernel_ms": [round(_kernel_ns(run) / checks.MS, 3) for run in actual],
        "kernel_ms_of_profiler": [round(_kernel_ns(run) / checks.MS, 3) for run in expected],
        "launches": [run["launches"] for run in actual],
        "median_step_us": [done.report["median_step_ns"] / 1000 for done in recorded],
        "median_step_us_of_profiler": [done.report["median_step_ns"] / 1000 for done in profiled],
    }
    bench.demand(all(run["kernels"] for run in expected), "torch.profiler recorded no kernels")
    for pair, (ours, theirs) in enumerate(zip(actual, expected, strict=True)):
        about = f"pair {pair}"
        bench.require(checks.listed(_counts(ours, theirs)), about)
        for figure in ("copies", "sets", "launches"):
            bench.require(checks.equal(ours[figure], theirs[figure], figure), about)
    bench.require(checks.same_kernels(_pooled(actual), _pooled(expected)), "all pairs together")


def _counts(ours: dict[str, Any], theirs: dict[str, Any]) -> list[str]:
    names = [name for name, values in ours["kernels"].items() for _ in values]
    return checks.counts_equal(names, {name: len(values) for name, values in theirs["kernels"].items()}, "kernels")


def _kernel_ns(run: dict[str, Any]) -> int:
    return sum(sum(values) for values in run["kernels"].values())


def _pooled(runs: Iterable[dict[str, Any]]) -> dict[str, list[int]]:
    pooled: dict[str, list[int]] = {}
    for run in runs:
        for name, values in run["kernels"].items():
            pooled.setdefault(name, []).extend(values)
    return pooled


def _of_recording(done: Done) -> dict[str, Any]:
    """The same figures as the script reports of torch.profiler."""
    tables = done.tables("kernel", "memcpy", "memset", "api")
    kernels: dict[str, list[int]] = {}
    for row in tables["kernel"]:
        kernels.setdefault(demangled(row["name"] or ""), []).append(row["duration_ns"])
    sums = {table: [len(tables[table]), sum(row["bytes"] for row in tables[table])] for table in ("memcpy", "memset")}
    launches = sum("aunchKernel" in (row["name"] or "") for row in tables["api"])
    return {"kernels": kernels, "copies": sums["memcpy"], "sets": sums["memset"], "launches": launches}


def demangled(name: str) -> str:
    """A C++ symbol as the profiler writes it; other names as they are."""
    if len(name) > LONGEST_SYMBOL:
        return name
    library = ctypes.CDLL("libstdc++.so.6")
    library.__cxa_demangle.restype = ctypes.c_void_p
    status = ctypes.c_int()
    text = library.__cxa_demangle(name.encode(), None, None, ctypes.byref(status))
    if status.value != 0 or not text:
        return name
    result = ctypes.string_at(text).decode(errors="replace")
    ctypes.CDLL(None).free(ctypes.c_void_p(text))
    return result
