"""Tests every figure of a report against a second, plain computation, on real traces and on odd ones."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
import recompute
import recompute_host
from postrun.analysis import analyze
from postrun.analysis.report import Report
from postrun.analysis.report.device import Kernel
from postrun.analysis.report.rows import Share
from postrun.ingest import ingest

pytestmark = pytest.mark.slow

REAL = (
    "h100/Falconsai_nsfw_image_detection__1016002.json.gz",
    "h100/Qwen_Qwen1.5-0.5B-Chat__1016005.json.gz",
    "mi300/gaunernst_bert-small-uncased__1016001.json.gz",
    "v100_ddp/rank-0.Apr_03_18_51_38.1102.pt.trace.json.gz",
    "v100_old_schema/resnet50_num_workers_0.json.gz",
    "diff_pair/v100_rank1_of_2.json.gz",
    "quirks/alexnet_no_steps.json.gz",
    "quirks/event_sync_trace.json.gz",
    "quirks/mi250_minitoy_train_ROCm6_2_kineto.json.gz",
    "quirks/nccl_data.json.gz",
    "quirks/rank_non_gpu.json.gz",
    "sampled_2_ranks",
)
US = 1_700_000_000_000_000


@pytest.mark.parametrize("name", REAL)
def test_real(shared_data: Path, report_of: Callable[[Path], Report], name: str) -> None:
    path = shared_data / "kineto" / name
    compare(sorted(path.glob("*.json.gz")) if path.is_dir() else [path], report_of(path))


def kernel(
    name: str, start: float, duration: float, correlation: int | None = None, category: str = "kernel", **args: Any
) -> dict[str, Any]:
    args = {"device": 0, "stream": 7, "correlation": correlation, **args}
    return {"cat": category, "name": name, "ts": US + start, "dur": duration, "pid": args["device"], "tid": args["stream"], "args": args}


def host(
    name: str, start: float, duration: float, correlation: int | None = None, category: str = "cuda_runtime", tid: int = 1
) -> dict[str, Any]:
    return {"cat": category, "name": name, "ts": US + start, "dur": duration, "pid": 9000, "tid": tid, "args": {"correlation": correlation}}


def step(number: int, start: float, duration: float, name: str = "ProfilerStep#") -> dict[str, Any]:
    return host(f"{name}{number}", start, duration, category="user_annotation")


def by_chance(seed: int) -> list[dict[str, Any]]:
    """Return work of two devices with every defect that real traces have."""
    chance = random.Random(seed)
    names = [
        "ampere_sgemm_128x64_tn",
        "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgs)",
        "elementwise_kernel",
        "cunn_SoftMaxForward",
    ]
    copies = [
        "Memcpy HtoD (Pageable -> Device)",
        "Memcpy HtoD (Pinned -> Device)",
        "Memcpy DtoH (Device -> Pinned)",
        "Memcpy DtoD (Device -> Device)",
    ]
    events = [step(i, 500 * i, 500) for i in range(6)] + [step(i, 500 * i + 10, 400, "step_") for i in range(6)]
    for _ in range(400):
        at, correlation = chance.randrange(0, 3000), chance.choice([None, 0, *range(1, 300)])
        where = {"device": chance.randrange(2), "stream": chance.choice([7, 20])}
        duration = chance.choice([0, 1, 0.25, 7.125, 40, -0.5, chance.randrange(90)])
        if chance.random() < 0.6:
            events.append(
                host(chance.choice(["cudaLaunchKernel", "cuLaunchKernelEx", "cudaGraphLaunch"]), at, 4.5, correlation, tid=at % 3)
            )
        if chance.random() < 0.7:
            events.append(kernel(chance.choice(names), at + chance.randrange(-2, 60), duration, correlation, **where))
        elif chance.random() < 0.7:
            size = {"bytes": chance.randrange(5000)} if chance.random() < 0.8 else {}
            events.append(kernel(chance.choice(copies), at, duration, correlation, "gpu_memcpy", **where, **size))
        else:
            events.append(kernel("Memset (Device)", at, 2, correlation, "gpu_memset", **where))
    events += [host("cudaDeviceSynchronize", 700 * i, 90.5, 1000 + i) for i in range(3)] + [host("aten::mm", 300, 99, category="cpu_op")]
    return [*events, {**kernel("lost", 0, 0), "ts": 0}, kernel("236 years", 5, 7.4e15), kernel("negative", 9, -50)]


ODD = {
    "graph of a thousand kernels": [
        step(1, 0, 2000), host("cudaGraphLaunch", 1, 20, 9), *(kernel(f"k{i % 7}", 15 + i * 2 + i // 99 * 60, 1.5, 9) for i in range(1000))
    ],
    "correlation 0": [host("hipLaunchKernel", 0, 5, 0, "hip_runtime"), kernel("ncclDevKernel_A", 10, 100, 0), kernel("k", 50, 100, 0)],
    "nothing but empty kernels": [kernel("k", 0, 0, 1), kernel("k", 0, 0, 2)],
    "launch at the border of two steps": [step(1, 0, 100), step(2, 100, 100), host("cudaLaunchKernel", 100, 5, 1), kernel("k", 150, 10, 1)],
    "steps without work": [step(i, 100 * i, 100, "step_") for i in range(3)] + [host("cudaLaunchKernel", 5, 5, 1), kernel("k", 90, 10, 1)],
    "runtime and driver call of one launch": [
        host("cudaLaunchKernel", 0, 50, 1), host("cuLaunchKernel", 10, 20, 1, "cuda_driver"), kernel("k", 60, 20, 1)
    ],
    "synchronization records": [kernel("k", 0, 9, 1), kernel("Event Sync", 5, 7, None, "cuda_sync"), host("cudaStreamSynchronize", 0, 9)],
    "ranges on both sides": [step(1, 0, 50), {**step(1, 9, 50), "cat": "gpu_user_annotation", "pid": 0}, kernel("k", 10, 5)],
    **{f"by chance, {seed}": by_chance(seed) for seed in range(4)},
}  # fmt: skip


@pytest.mark.parametrize("case", ODD)
def test_odd(tmp_path: Path, case: str) -> None:
    path = tmp_path / "trace.json"
    path.write_text(json.dumps({"traceEvents": [{"ph": "X", **event} for event in ODD[case]]}))
    check([path])


def test_bare_array_of_relative_whole_microseconds_in_the_old_spelling(tmp_path: Path) -> None:
    old = {
        "kernel": "Kernel",
        "gpu_memcpy": "Memcpy",
        "gpu_memset": "Memset",
        "cuda_runtime": "Runtime",
        "user_annotation": "user_annotation",
    }
    events = [event for event in by_chance(5) if event["cat"] in old and event["ts"] > 0]
    for event in events:
        event |= {"ph": "X", "cat": old[event["cat"]], "ts": int(event["ts"]) - US + 5, "dur": int(event["dur"])}
        if event["cat"] in {"Kernel", "Memcpy", "Memset"}:
            event["tid"] = f"stream {event['tid']}"
            del event["args"]["device"], event["args"]["stream"]
    path = tmp_path / "trace.json"
    path.write_text(json.dumps(events))
    check([path])


def check(paths: list[Path]) -> None:
    with ingest(paths) as store:
        compare(paths, analyze(store))


def compare(paths: list[Path], report: Report) -> None:
    """Compare every recomputed section with the report on files of one process each."""
    traces = [recompute.Trace(path) for path in paths]
    for section, (expected, actual) in sections(traces, report).items():
        assert actual == close(expected), section


def close(value: Any) -> Any:
    """Integers exactly, floats to the precision of a few roundings."""
    if isinstance(value, dict):
        return {key: close(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return type(value)(close(item) for item in value)
    return pytest.approx(value, rel=1e-9, abs=1e-9) if isinstance(value, float) else value


def picked(row: Any, like: dict[str, Any]) -> dict[str, Any]:
    """The fields of a row of the report that were recomputed."""
    return {key: value for key, value in asdict(row).items() if key in like}


def shared(rows: Iterable[Any]) -> dict[str, tuple[int, int, float]]:
    return {row.name: (row.total_ns, row.count, row.percent) for row in rows}


def largest(groups: dict[str, tuple[int, int, float]]) -> dict[str, tuple[int, int, float]]:
    """Groups as the report lists operators: those below 2% are one."""
    merged = {name: group for name, group in groups.items() if group[2] >= 2}
    small = [group for group in groups.values() if group[2] < 2]
    if small:
        total, everything = sum(group[0] for group in small), sum(group[0] for group in groups.values())
        merged["other (< 2%)"] = (total, sum(group[1] for group in small), 100 * total / everything if everything else 0.0)
    return merged


def classes(runs: list[tuple[Kernel, int]], report: Report) -> dict[str, tuple[Any, Any]]:
    """Return the shares of categories and precisions, by the rows of the kernels.

    Only their sums if operators classify kernels, because one kernel then has several classes; tests/real/test_kernel_classes_real.py
    recounts these."""
    every = sum(ns for _, ns in runs), len(runs)
    sources = {"category sources": report.category_sources, "precision sources": report.precision.sources}
    totals = {name: (every, total(shares)) for name, shares in sources.items()}
    if any(share.name == "operator" for shares in sources.values() for share in shares):
        return totals | {"categories": (every, total(report.categories)), "precision": (every, total(report.precision.shares))}
    matrix = {"GEMM", "attention", "convolution"}
    return totals | {
        "categories": (recompute.grouped((kernel.category, ns) for kernel, ns in runs), shared(report.categories)),
        "precision": (recompute.grouped((kernel.precision, ns) for kernel, ns in runs), shared(report.precision.shares)),
        "matrix": (recompute.grouped((k.precision, ns) for k, ns in runs if k.category in matrix), shared(report.precision.matrix)),
    }


def total(shares: Iterable[Share]) -> tuple[int, int]:
    listed = list(shares)
    return sum(share.total_ns for share in listed), sum(share.count for share in listed)


def sections(traces: list[recompute.Trace], report: Report) -> dict[str, tuple[Any, Any]]:
    """Return the recomputed and the reported contents, by section."""
    devices = [row for trace in traces for row in recompute.time_breakdown(trace)]
    kernels = recompute.kernels(traces)
    known = {kernel.name: kernel for kernel in report.kernels}
    runs = [(known[e["name"]], e["end"] - e["start"]) for trace in traces for e in trace.work if e["kind"] == "kernel"]
    memory, launches = recompute.memory_operations(traces), recompute_host.launches(traces)
    calls, slowest = launches.pop("call_time"), launches.pop("slowest")
    listed = [share for share in report.launches.call_time if share.name != "others"]
    gaps = [(*key, row) for trace in traces for key, row in sorted(recompute.idle(trace).items())]
    parts = [row for trace in traces if (row := recompute_host.step_parts(trace))]
    annotations = recompute_host.ranges(traces)
    communication = {name for name in kernels if recompute.COMMUNICATION.search(name)}
    result: dict[str, tuple[Any, Any]] = {
        "time_breakdown": (devices, [picked(row, devices[0]) for row in report.time_breakdown]),
        "kernels": (kernels, {row.name: picked(row, next(iter(kernels.values()))) for row in report.kernels}),
        "communication": (communication, {row.name for row in report.kernels if row.category == "communication"}),
        **classes(runs, report),
        "activity": (recompute.activity(traces), shared(report.activity.shares)),
        "memory": (memory, {(row.kind, row.memory): picked(row, next(iter(memory.values()))) for row in report.memory_operations}),
        "launches": (launches, picked(report.launches, launches)),
        "slowest launches": (slowest, [pair.latency_ns for pair in report.launches.slowest]),
        "calls": ({share.name: calls[share.name] for share in listed}, shared(listed)),
        "all calls": (sum(total for total, _, _ in calls.values()), sum(share.total_ns for share in report.launches.call_time)),
        "idle": (gaps, [(row.device, row.stream, picked(row, gaps[0][2])) for row in report.idle]),
        "steps": (
            [step for trace in traces for step in timed(recompute_host.steps(trace))],
            [(s.index, s.start_ns, s.duration_ns, s.on_device, s.host_duration_ns) for s in report.steps.steps],
        ),
        "parts": (parts, [picked(row, parts[0]) for row in report.steps.parts]),
        "annotations": (
            annotations,
            {(row.name, row.side): picked(row, next(iter(annotations.values()))) for row in report.annotations.groups},
        ),
        "CPU operators": (largest(recompute_host.cpu_operators(traces)), shared(report.framework.cpu_operators)),
        "GPU operators": (largest(recompute_host.gpu_operators(traces)), shared(report.framework.gpu_operators)),
    }
    for group in report.steps.groups:
        durations = [s.duration_ns for s in report.steps.steps if (s.rank, s.pid, s.on_device) == (group.rank, group.pid, group.on_device)]
        result[f"step times of rank {group.rank}, {group.on_device}"] = (recompute.quantiles(durations), asdict(group.quantiles))
    if len(traces) == len(devices) == 1 and devices[0]["span_ns"]:
        values = recompute.derived_utilization(traces[0])
        usage, active = report.system_usage.nodes[0], report.system_usage.gpu_active
        assert active is not None
        busy = next(figure.number for figure in report.summary.figures if figure.key == "gpu_busy")
        result["busy"] = (100 * devices[0]["busy_ns"] / devices[0]["span_ns"], busy)
        spread = {key: value for key, value in (recompute.quantiles(values) or {}).items() if key in {"min", "p50", "p95", "p99", "max"}}
        result["utilization"] = (spread, picked(usage, spread))
        result["active"] = ((len(values), sum(value > 0 for value in values)), (active.points, active.active))
    return result


def timed(steps: list[dict[str, Any]]) -> list[tuple[int, int, int, bool, int]]:
    """Return steps as the report lists them: by device work, if half of them have any."""
    mostly = 2 * sum(step["first"] is not None for step in steps) >= len(steps)
    rows = []
    for step in steps:
        worked = mostly and step["first"] is not None
        start, end = (step["first"], step["last"]) if worked else (step["start"], step["end"])
        rows.append((step["index"], start, end - start, worked, step["end"] - step["start"]))
    return sorted(rows, key=lambda row: row[1])
