"""Case 11: samples of the GPU agree with nvidia-smi."""

from __future__ import annotations

import bisect
import shutil
import subprocess
import threading
import time
from pathlib import Path

from . import checks
from .bench import Bench, Skipped

SECONDS, SAMPLE_MS = 10, 100
TOLERANCE_SAMPLES = 5
TOLERANCE_POWER = 0.10
TOLERANCE_MEMORY = 64 << 20
TOLERANCE_CLOCK_MHZ = 15  # a step
COST_US = 1000
QUERY = "uuid,power.draw,memory.used,clocks.sm"


def nvml(bench: Bench) -> None:
    smi = nvidia_smi()
    over = threading.Event()
    polls: list[tuple[int, str, float, float, float]] = []
    poller = threading.Thread(target=_poll, args=(smi, over, polls))
    if smi:
        poller.start()
    try:
        done = bench.workload("load", "load", SECONDS, SAMPLE_MS, limit=40)
    finally:
        over.set()
        if smi:
            poller.join()
    tables = done.tables("meta", "metric")
    actual = checks.facts_of(tables)
    unit = next((key.split(".")[1] for key, value in actual.items() if key.endswith(".uuid") and key.startswith("gpu.")), None)
    if unit is None:
        raise Skipped(f"no GPU was sampled: {actual.get('capability.gpu.samples', 'no reason is recorded')}")
    bench.require(checks.equal(actual.get("cuda.0.uuid"), actual.get(f"gpu.{unit}.uuid"), "UUID of the GPU in CUDA"))
    series = {
        name: sorted((row["time_ns"], row["value"]) for row in tables["metric"] if row["metric"] == name and row["unit"] == int(unit))
        for name in ("gpu_power", "gpu_memory_used_bytes", "gpu_sm_clock")
    }
    samples = len(series["gpu_power"])
    bench.figures["samples"] = samples
    expected = SECONDS * 1000 // SAMPLE_MS
    bench.demand(abs(samples - expected) <= TOLERANCE_SAMPLES, f"{samples} samples of power instead of {expected}")
    cost = checks.median([row["value"] for row in tables["metric"] if row["metric"] == "sampler.cost_us"] or [0])
    bench.figures["sampler_cost_us"] = cost
    bench.require(checks.at_most(cost, COST_US, "a sample", " µs"))
    if not polls:
        bench.figures["nvidia_smi"] = "not there" if not smi else "it answered nothing"
        return
    near = {name: [(_at(values, poll[0]), poll) for poll in polls] for name, values in series.items() if values}
    power = checks.median([abs(value - poll[2]) / poll[2] for value, poll in near.get("gpu_power", [])] or [9])
    memory = checks.median([abs(value - poll[3] * 2**20) for value, poll in near.get("gpu_memory_used_bytes", [])] or [9e9])
    sm_clock = checks.median([abs(value - poll[4]) for value, poll in near.get("gpu_sm_clock", [])] or [9e9])
    bench.figures["difference"] = {"power": round(power, 4), "memory_bytes": memory, "sm_clock_mhz": sm_clock, "polls": len(polls)}
    bench.require(checks.at_most(power, TOLERANCE_POWER, "power against nvidia-smi, relative"))
    bench.require(checks.at_most(memory, TOLERANCE_MEMORY, "memory against nvidia-smi", " bytes"))
    bench.require(checks.at_most(sm_clock, TOLERANCE_CLOCK_MHZ, "SM clock against nvidia-smi", " MHz"))
    bench.require(checks.equal(polls[0][1], actual.get(f"gpu.{unit}.uuid"), "UUID of the GPU in nvidia-smi"))


def nvidia_smi() -> str | None:
    """The path of nvidia-smi."""
    return shutil.which("nvidia-smi") or next((str(path) for path in Path("/usr/local/nvidia/bin").glob("nvidia-smi")), None)


def _poll(smi: str, over: threading.Event, polls: list[tuple[int, str, float, float, float]]) -> None:
    """Query nvidia-smi each second; an answer's time is the middle of the query."""
    over.wait(2)
    while not over.is_set():
        begin = time.time_ns()
        try:
            done = subprocess.run(
                [smi, f"--query-gpu={QUERY}", "--format=csv,noheader,nounits"], capture_output=True, text=True, timeout=10
            )
            uuid, power, memory, sm_clock = done.stdout.strip().splitlines()[0].split(", ")
            polls.append(((begin + time.time_ns()) // 2, uuid, float(power), float(memory), float(sm_clock)))
        except (OSError, ValueError, IndexError, subprocess.TimeoutExpired):
            return
        over.wait(1)


def _at(series: list[tuple[int, float]], when: int) -> float:
    """The value next to a time."""
    location = bisect.bisect_left(series, (when, 0.0))
    return float(min(series[max(location - 1, 0) : location + 1], key=lambda sample: abs(sample[0] - when))[1])
