"""Cases 12, 13 and 14: other clients of CUPTI in the same process, and tools around it."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from typing import Any

from . import checks
from .bench import Bench, Done, Failed, Skipped, exit_name, tail

TOLERANCE_NS = 1500 * checks.MS  # how long a window may last after another client took CUPTI over
PAUSE_MS = 1300  # longer than the recorder takes to notice it
TORCH_ORDERS = ("before", "inside", "after", "around", "twice")
CLIENT_ORDERS = ("before", "inside", "yields", "stays", "after")
FREE_ORDERS = ("before", "yields", "after")  # in which CUPTI is free for the client, so that it misses nothing
TEARDOWN = {"": {}, "_teardown_0": {"TEARDOWN_CUPTI": "0"}, "_teardown_1": {"TEARDOWN_CUPTI": "1"}}
LAUNCH_TOLERANCE, LAUNCH_TOLERANCE_NS = 0.03, 100


def other_profilers(bench: Bench) -> None:
    """Kernels lost to another client of CUPTI are reported; that client loses none."""
    library = _library(bench)
    runs: dict[str, Callable[[], Done]] = {
        f"client_{order}_{finalizes}": lambda order=order, finalizes=finalizes: bench.workload(
            f"client_{order}_{finalizes}", "clients", order, library, finalizes, PAUSE_MS, limit=40
        )
        for order in CLIENT_ORDERS
        for finalizes in (0, 1)
    }
    clients = bench.together(runs)
    if not bench.tools.stub:
        bench.figures["client_seizes"] = _seized(bench, library)
    torch: dict[str, Done] = {}
    if bench.has("torch"):
        jobs: dict[str, Callable[[], Done]] = {
            f"torch_{order}{name}": lambda order=order, name=name, more=more: bench.script(
                f"torch_{order}{name}", "torch_profiler.py", order, limit=60, **more
            )
            for name, more in TEARDOWN.items()
            for order in ("alone", *TORCH_ORDERS)
        }
        torch = bench.together(jobs)
    else:
        bench.figures["torch"] = "not installed: only the client in C was tried"
    for name, done in clients.items():
        bench.figures[name] = _recorded(bench, done, "postrun_alpha")
        bench.figures[name]["client"] = {key: done.report[key] for key in ("error", "client_records")}
        if name.split("_")[1] in FREE_ORDERS:
            bench.require(checks.equal(done.report["error"], 0, f"{name}: error of the client"))
            launched = sum(phase["launched"] for phase in done.report["phases"] if phase["client"])
            bench.require(checks.equal(done.report["client_records"], launched, f"{name}: kernels that the client recorded"))
        if "yields" in name:
            after = bench.figures[name]["phases"][-1]
            bench.require(checks.equal(after["recorded"], after["launched"], f"{name}: kernels after the client had ended"))
    for suffix in TEARDOWN:
        alone = torch.get(f"torch_alone{suffix}")
        expected = _profiled(alone) if alone else []
        for name in (f"torch_{order}{suffix}" for order in TORCH_ORDERS):
            if name in torch:
                bench.figures[name] = _recorded(bench, torch[name], "") | {"profiler": _profiled(torch[name])}
                for actual in _profiled(torch[name]):
                    bench.require(checks.equal([actual], expected, f"{name}: kernels in the result of torch.profiler"))
    kept = torch.get("torch_inside") or clients.get("client_inside_1")
    if kept:
        bench.keep(kept, "conflict")


def _seized(bench: Bench, library: str) -> Any:
    """A figure only: the effect of a client that profiles without a subscription."""
    try:
        done = bench.workload("client_seizes", "clients", "seizes", library, 1, PAUSE_MS, limit=30, expect=None)
        if done.code != 0:
            return f"{exit_name(done.code)}: {tail(done.errors)}"
        return checks.missing_is_reported(done.report["phases"], done.tables("meta", "kernel", "loss"), TOLERANCE_NS, "postrun_alpha")
    except Failed as failure:
        return str(failure)


def _profiled(done: Done) -> list[float]:
    """Kernels in each result of torch.profiler, relative to those launched."""
    return [phase["profiled"] / phase["profiled_launches"] for phase in done.report["phases"] if "profiled" in phase]


def _library(bench: Bench) -> str:
    """The CUPTI that is recorded with on this machine."""
    actual = checks.facts_of(bench.workload("library", "counts", 1).tables("meta"))
    if "cupti.library" not in actual:
        raise Failed(f"nothing is recorded: {actual.get('capability.gpu', 'no reason given')}")
    return actual["cupti.library"]


def _recorded(bench: Bench, done: Done, kernel: str) -> dict[str, Any]:
    tables = done.tables("meta", "kernel", "loss")
    problems, phases = checks.missing_is_reported(done.report["phases"], tables, TOLERANCE_NS, kernel)
    bench.require(problems, done.name)
    actual = checks.facts_of(tables)
    kept = ("capability.gpu", "cupti.stays")
    return {"phases": phases, "windows": len(checks.windows_of(actual)), **{key: actual[key] for key in kept if key in actual}}


def listener(bench: Bench) -> None:
    """A subscriber that only listens does not keep a window open or calls slow."""
    done = bench.workload("listens", "clients", "listens", _library(bench), 0, 0)
    bench.figures |= _recorded(bench, done, "postrun_alpha")
    before, after = done.report["launch_ns"]
    bench.figures |= {"launch_ns_before": before, "launch_ns_after": after, "client_error": done.report["error"]}
    if not bench.tools.stub:
        limit = before + max(LAUNCH_TOLERANCE * before, LAUNCH_TOLERANCE_NS)
        bench.require(checks.at_most(after, limit, "a launch after the window", " ns"))


def tools_around(bench: Bench) -> None:
    """Under Nsight Compute and Compute Sanitizer programs end normally."""
    program = bench.tools.programs["workload"]
    commands = {
        "ncu": ["ncu", "--metrics", "gpu__time_duration.sum", "--launch-count", "3", "--clock-control", "none", program, "counts", 2],
        "compute_sanitizer": ["compute-sanitizer", "--tool", "memcheck", program, "counts", 2],
    }
    missing = [command[0] for command in commands.values() if shutil.which(str(command[0])) is None]
    if len(missing) == len(commands):
        raise Skipped(f"not on the PATH: {', '.join(map(str, missing))}")
    for name, command in commands.items():
        if command[0] in missing:
            bench.figures[name] = "not on the PATH"
            continue
        done = bench.run(name, command, limit=60, expect=None)
        if done.code != 0:
            bench.require([f"{name}: {exit_name(done.code)}: {tail(done.output + done.errors)}"])
            continue
        tables = done.tables("meta", "kernel", "loss")
        actual = checks.facts_of(tables)
        bench.figures[name] = {"kernels": len(tables["kernel"]), "reason": actual.get("capability.gpu")}
        recorded = len(tables["kernel"]) == sum(done.report["kernels"].values())
        bench.demand(
            recorded or "capability.gpu" in actual or bool(tables["loss"]), f"{name}: kernels are missing and no reason is recorded"
        )
