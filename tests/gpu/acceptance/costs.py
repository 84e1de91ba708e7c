"""Cases 18, 19 and 20: the cost of recording in time, bytes and memory, also over minutes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from . import checks
from .bench import Bench, Done

KINDS = {"launches": 20000, "replays": 1000}  # operations in a block
TORCH_STEPS = 150
STEP_ON, STEP_AFTER, STEP_AFTER_STAYING, CPU_ON = 0.03, 0.01, 0.02, 0.05
LAUNCH_ON_NS = 2500
PLAIN = {"MALLOC_PERTURB_": "0"}  # no cost that the recorder does not cause
VARIANTS = {"": PLAIN, "_stay": PLAIN | {"POSTRUN_CUPTI_STAY": "1"}, "_finalize": PLAIN | {"POSTRUN_CUPTI_STAY": "0"}}
EVENTS, PER_SECOND, BYTES = 1_000_000, 150_000, 24
LONG_SECONDS, SHORTEST_SECONDS, LONG_KERNELS_PER_SECOND, LONG_GROWTH = 180, 60, 11_111, 0.20
LONG_MARGIN_S = 25  # of the case, around the recorded time
CPU_NOISE_S = 0.2
LONG_KIB = 64 * 1024


def overhead(bench: Bench) -> None:
    """The default meets the criteria; staying attached and finalizing are measured."""
    for suffix, variables in VARIANTS.items():
        for kind, count in KINDS.items():
            done = bench.workload(f"{kind}{suffix}", "overhead", kind, bench.scaled(count, least=50), **variables)
            costs = _costs(done.report)
            bench.figures[f"{kind}{suffix}"] = costs
            if not suffix and not bench.tools.stub:
                _require_native(bench, kind, done, costs)
        if bench.has("torch"):
            done = bench.script(f"training{suffix}", "torch_overhead.py", TORCH_STEPS, **variables)
            costs = _costs({name: [block[0] for block in blocks] for name, blocks in done.report.items()})
            cpu = _costs({name: [block[1] for block in blocks] for name, blocks in done.report.items()})
            bench.figures[f"training{suffix}"] = costs | {"cpu_on": cpu["on"], "cpu_off": cpu["off"]}
            if not suffix:
                bench.require(checks.at_most(costs["on"], STEP_ON, "a training step in a window, relative"))
                bench.require(checks.at_most(costs["off"], _after(done), "a training step after a window, relative"))
                bench.require(checks.at_most(cpu["on"], CPU_ON, "processor time in a window, relative"))


def _require_native(bench: Bench, kind: str, done: Done, costs: Mapping[str, Any]) -> None:
    if kind == "launches":
        bench.require(checks.at_most(costs["on_ns"], LAUNCH_ON_NS, "a launch in a window", " ns more"))
    else:
        bench.require(checks.at_most(costs["on"], STEP_ON, "a graph replay in a window, relative"))
        bench.require(checks.at_most(costs["off"], _after(done), "a graph replay after a window, relative"))


def _after(done: Done) -> float:
    return STEP_AFTER_STAYING if "cupti.stays" in checks.facts_of(done.tables("meta")) else STEP_AFTER


def _costs(blocks: Mapping[str, Sequence[float]]) -> dict[str, Any]:
    """Return medians in and after a window, relative to those before the first."""
    before, on, off = (checks.median(blocks[name]) for name in ("before", "on", "off"))
    return {
        "before_ns": round(before, 1),
        "on": round(on / before - 1, 4),
        "off": round(off / before - 1, 4),
        "on_ns": round(on - before, 1),
        "off_ns": round(off - before, 1),
    }


def size(bench: Bench) -> None:
    """Bytes of a kernel and its call, and whether the recorder keeps up."""
    events = bench.scaled(EVENTS, least=2000)
    done = bench.workload("rate", "rate", events, PER_SECOND, limit=60, **PLAIN)
    files = done.files()
    kernels, lost = done.rows("kernel"), done.tables("loss")
    stored = sum(file.stat().st_size for file in files)
    bench.figures |= {"kernels": kernels, "per_second": done.report["per_second"], "bytes_per_launch": round(stored / events, 2)}
    bench.require(checks.equal(kernels, done.report["launched"], "kernels"))
    bench.require(checks.nothing_lost(lost))
    if not bench.tools.stub:
        bench.require(checks.at_most(stored / events, BYTES, "bytes of a kernel and its call"))
        bench.demand(done.report["per_second"] > 0.5 * PER_SECOND, f"only {done.report['per_second']} launches a second")


def long_window(bench: Bench) -> None:
    """In a window of minutes, neither memory nor processor time grows."""
    seconds = min(LONG_SECONDS, int(bench.left()) - LONG_MARGIN_S)
    if bench.tools.stub:
        seconds = 3
    kernels = seconds * (LONG_KERNELS_PER_SECOND if not bench.tools.stub else 400)
    done = bench.workload("long", "long", seconds, kernels, limit=bench.left(), **PLAIN)
    report = done.report
    first, _, last = report["cpu_s"]
    bench.figures |= report | {"seconds": seconds, "recorded": done.rows("kernel")}
    if seconds < LONG_SECONDS:
        bench.figures["note"] = f"{seconds} s instead of {LONG_SECONDS} s were left"
    bench.require(checks.equal(done.rows("kernel"), report["kernels"], "kernels"))
    bench.require(checks.at_most(last, first * (1 + LONG_GROWTH) + CPU_NOISE_S, "processor time of other threads in the last third", " s"))
    bench.require(checks.at_most(report["resident_kib"], LONG_KIB, "growth of main memory", " KiB"))
    bench.require(checks.at_most(report["device_kib"], LONG_KIB, "growth of device memory", " KiB"))
    bench.require(checks.untimed(done.tables("loss")))
