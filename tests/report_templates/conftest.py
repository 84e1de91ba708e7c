"""Hand-made Reports for the tests of the templates: a rich one, a CPU-only one, one of system metrics, and an empty one."""

# ruff: noqa: E501  (tables of values read better than one value per line)

from __future__ import annotations

import dataclasses
import itertools
import math
import random
import sys
from pathlib import Path

import pytest
from postrun.analysis.report import (
    ActiveTime,
    Activity,
    AnnotationGroup,
    Annotations,
    Device,
    DeviceTime,
    Framework,
    Generator,
    GpuTime,
    Histogram,
    Idle,
    JobStatistics,
    Kernel,
    Launches,
    LaunchPair,
    MemoryOperation,
    MetricUsage,
    Node,
    Note,
    OperatorRow,
    Precision,
    Process,
    ProfileRow,
    PythonProfile,
    Quantiles,
    Report,
    Run,
    Series,
    Share,
    Source,
    Step,
    StepGroup,
    StepParts,
    Steps,
    Summary,
    SystemUsage,
    Tile,
    UnitHeat,
)

sys.path.insert(0, str(Path(__file__).parent))  # this file is also loaded by its path
sys.path.insert(0, str(Path(__file__).parents[1] / "helpers"))

from hand_made_rules import findings, rule_results

MS = 1_000_000
S = 1_000_000_000
START = 1_795_243_200 * S  # 2026-11-21 06:40:00 UTC

HOSTILE = (
    "<script>alert(1)</script>",
    '"><img src=x onerror=alert(2)>',
    "](javascript:alert(3)) [x](https://evil.example/x)",
    "{{ 7 * 7 }} {% raw %} $\\frac{1}{0}$ &amp; &#x3c;b&#x3e;",
    "void " + "cutlass::device_kernel<" * 400 + "float" + ">" * 400,
    "long" * 2500,
    "\u202egnirts desrever\u202c \u05e9\u05dc\u05d5\u05dd \u0645\u0631\u062d\u0628\u0627",
    "\U0001f525 emoji \U0001f469\u200d\U0001f4bb kernel \u4e2d\u6587",
    "nul\x00 bell\x07 escape\x1b[31m newline\nsecond line",
    "</style></svg></title>]]><!-- fill: #0072b2",
)


def quantiles(values: list[float]) -> Quantiles:
    ordered = sorted(values)

    def at(q: float) -> float:
        position = q * (len(ordered) - 1)
        low = int(position)
        high = min(low + 1, len(ordered) - 1)
        return ordered[low] + (ordered[high] - ordered[low]) * (position - low)

    mean = sum(ordered) / len(ordered)
    deviation = math.sqrt(sum((value - mean) ** 2 for value in ordered) / len(ordered))
    return Quantiles(len(ordered), ordered[0], at(0.05), at(0.25), at(0.5), at(0.75), at(0.95), at(0.99), ordered[-1], mean, deviation)


def histogram(values: list[float], bins: int = 40) -> Histogram:
    low, high = min(values), max(values)
    width = (high - low) / bins or 1.0
    counts = [0] * bins
    for value in values:
        counts[min(bins - 1, int((value - low) / width))] += 1
    return Histogram(tuple(low + width * i for i in range(bins + 1)), tuple(counts), "ns", False)


def shares(*parts: tuple[str, int, int]) -> tuple[Share, ...]:
    total_ns = sum(total for _, total, _ in parts) or 1
    return tuple(Share(name, total, count, 100.0 * total / total_ns) for name, total, count in parts)


def empty_report() -> Report:
    """Nothing was found in any file."""
    missing = "No {} in this run: record it with the profiler.".format
    return Report(
        generator=Generator("postrun", "0.1.0", START + 1300 * S, {"duckdb": "2.0.0", "polars": "2.1.0"}),
        run=Run("empty", "unknown", None, None, False, None, None, None, (), {}, {}, {}, ()),
        summary=Summary("Nothing that postrun knows was found.", "0 nodes", (), ()),
        nodes=(),
        devices=(),
        processes=(),
        job_statistics=JobStatistics(*[None] * 11, missing("step")),  # type: ignore[arg-type]
        system_usage=SystemUsage((), (), None, None, (), (), missing("system metric")),
        time_breakdown=(),
        kernels=(),
        categories=(),
        precision=Precision((), ()),
        activity=Activity((), None),
        memory_operations=(),
        launches=Launches(0, 0, 0, 0, 0, 0, None, None, (), (), missing("launch")),
        idle=(),
        steps=Steps((), (), (), missing("step")),
        annotations=Annotations((), (), missing("annotation")),
        framework=Framework((), (), (), (), (), (), (), missing("framework event")),
        python_profile=PythonProfile((), missing("Python profile")),
        rules=(),
        findings=(),
        data_quality=(),
        options={"top": 15},
    )


def system_report() -> Report:
    """Return two nodes of four GPUs with sampled utilization and no traces."""
    chance = random.Random(5)
    nodes = ("node-0", "node-1")
    usage, series, heat = [], [], []
    times = tuple(START + i * 3 * S for i in range(360))
    for number, node in enumerate(nodes):
        usage += [
            MetricUsage(node, "gpu", "percent", 1440, 99.0, 98.2, 97.0, 61.4 - 20 * number, 0.0, False),
            MetricUsage(node, "gpu_memory", "percent", 1440, 81.0, 80.2, 79.0, 77.4, 3.0, False),
            MetricUsage(node, "cpu", "percent", 5760, 88.0, 71.2, 40.3, 22.4, 1.0, False),
            MetricUsage(node, "io_wait", "percent", 5760, 35.0, 12.2, 4.0, 0.4, 0.0, False),
            MetricUsage(node, "network", "bytes/s", 360, 2.5e9, 2.2e9, 1.9e9, 8.1e8, 1200.0, False),
        ]
        wave = [max(0.0, min(100.0, 55 + 35 * math.sin(i / 17 + number) + chance.gauss(0, 6))) for i in range(360)]
        for metric, level in (("gpu", 1.0), ("gpu_memory", 0.8), ("cpu", 0.4)):
            mean = tuple(level * value for value in wave)
            series.append(
                Series(node, metric, "percent", times, mean, tuple(v * 0.8 for v in mean), tuple(min(100.0, v * 1.15) for v in mean), False)
            )
        heat.append(
            UnitHeat(
                node,
                "gpu",
                tuple(range(4)),
                times[::3],
                tuple(tuple(None if i in (40, 41) else min(100.0, wave[3 * i] * (1 - 0.2 * u)) for i in range(120)) for u in range(4)),
                False,
            )
        )
    empty = empty_report()
    return dataclasses.replace(
        empty,
        run=dataclasses.replace(empty.run, name="system-only", status="completed", started_at_ns=START, ended_at_ns=START + 1122 * S),
        summary=Summary("GPUs were busy 58% of the time.", "2 nodes x 4 GPUs · 18 min 42 s", (), ("no trace: only system metrics",)),
        nodes=tuple(Node(node, 64, 512 * 2**30, 4) for node in nodes),
        job_statistics=dataclasses.replace(empty.job_statistics, started_at_ns=START, ended_at_ns=START + 1122 * S, duration_ns=1122 * S),
        system_usage=SystemUsage(
            tuple(usage),
            (("node-0", "GPUs are well utilized."), ("node-1", "GPUs are under-used, the processors are probably the bottleneck.")),
            ActiveTime(2880, 2500, 86.8, False),
            ActiveTime(46080, 21000, 45.6, False),
            tuple(series),
            tuple(heat),
            None,
        ),
    )


def cpu_report() -> Report:
    """One process without a GPU, of whose trace no time has an epoch."""
    empty = empty_report()
    durations = [180.0 * MS + 9 * MS * math.sin(i) for i in range(40)]
    steps = tuple(
        Step("laptop", None, 4711, None, i, i * 200 * MS, int(duration), False, int(duration)) for i, duration in enumerate(durations)
    )
    return dataclasses.replace(
        empty,
        run=dataclasses.replace(
            empty.run,
            name="cpu only",
            status="completed",
            started_at_ns=0,
            ended_at_ns=8 * S,
            relative_times=True,
            framework="PyTorch 2.13",
            sources=(Source("trace.json.gz", "kineto", 123_456, "0" * 64, 12_345, 0, 8 * S),),
        ),
        summary=Summary(
            "No GPU was used; the median step took 180 ms.",
            "1 node · PyTorch 2.13 · 8.00 s",
            (Tile("step_time", "Step time", "180 ms", "p95 189 ms", "steps"),),
            ("times are relative",),
        ),
        nodes=(Node("laptop", 8, 16 * 2**30, 0),),
        processes=(Process("laptop", 4711, None, None, None, "python"),),
        job_statistics=JobStatistics(0, 8 * S, 8 * S, 0, 8 * S, 8 * S, 0, 0, 0.0, 100.0, 0.0, None),
        steps=Steps(
            steps, (StepGroup("laptop", None, 4711, None, False, quantiles(durations), histogram(durations, 20), steps[:3]),), (), None
        ),
        framework=dataclasses.replace(
            empty.framework,
            cpu_operators=(OperatorRow("aten::conv2d", 400, 3 * S, 61.2), OperatorRow("aten::mm", 800, S, 20.4)),
            operator_time=shares(("CPU", 5 * S, 1200)),
            absent=None,
        ),
        data_quality=(
            Note("trace.json.gz", "warning", "cut_off", "the file ends within an event; the last event was dropped", 1, None, None),
        ),
    )


def rich_report() -> Report:
    """Eight ranks on two nodes, 340 kernels, hostile names, everything filled."""
    chance = random.Random(7)
    system = system_report()
    devices = [("node-0" if rank < 4 else "node-1", rank, rank % 4) for rank in range(8)]
    span = 1100 * S
    breakdown = []
    for node, rank, index in devices:
        compute, exposed, copies = (int(span * part) for part in (0.58 - 0.02 * rank, 0.12 + 0.012 * rank, 0.021))
        idle = span - compute - exposed - copies
        breakdown.append(
            DeviceTime(
                node, rank, 1000 + rank, index, "NVIDIA H100 80GB HBM3", 312_000, START, span, span - idle, idle, compute, 2 * exposed, exposed,
                50.0, 3 * copies, copies, 2 * copies, copies, compute + 2 * exposed, span - idle,
            )
        )  # fmt: skip
    names = [
        ("ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)", "communication", "BF16"),
        ("void cutlass::Kernel2<cutlass_80_tensorop_bf16_s16816gemm_relu_bf16_256x128_32x3_nn_align8>(Params)", "GEMM", "BF16"),
        ("sm90_xmma_gemm_bf16bf16_bf16f32_f32_tn_n_tilesize128x128x64_warpgroupsize1x1x1_execute_segment_k_off_kernel__5x_cublas", "GEMM", "mixed"),
        ("void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<float>, at::detail::Array<char*, 3> >(int)", "elementwise", "FP32"),
        ("void flash_fwd_kernel<Flash_fwd_kernel_traits<128, 128, 64, 4, false, false, cutlass::bfloat16_t>>(Flash_fwd_params)", "attention", "BF16"),
        *((name, "other", "unknown") for name in HOSTILE),
    ]  # fmt: skip
    kinds = (("elementwise", "FP32"), ("reduction", "FP32"), ("GEMM", "TF32"), ("normalisation", "FP16"), ("optimizer", "FP32"))
    names += [(f"void generated_kernel_{i}<float, {i}>(float*, int)", *kinds[i % 5]) for i in range(340 - len(names))]
    totals = [int(900 * S / (i + 1.5) ** 1.2) for i in range(340)]
    counts = [chance.randint(200, 90_000) for _ in names]
    total_sum = sum(totals)
    kernels = tuple(
        Kernel(
            name, name if len(name) < 60 else name[:38] + "…" + name[-20:], category, precision, counts[i], totals[i], totals[i] // counts[i] // 3,
            totals[i] / counts[i], totals[i] // counts[i] * 7, 100.0 * totals[i] / total_sum, 100.0 * totals[i] / (span * 8),
        )
        for i, (name, category, precision) in enumerate(names)
    )  # fmt: skip

    def by(attribute: str, only: tuple[str, ...] = ()) -> tuple[Share, ...]:
        sums: dict[str, list[int]] = {}
        for kernel in kernels:
            if not only or kernel.category in only:
                entry = sums.setdefault(getattr(kernel, attribute), [0, 0])
                entry[0] += kernel.total_ns
                entry[1] += kernel.count
        return shares(*((name, total, count) for name, (total, count) in sorted(sums.items(), key=lambda item: -item[1][0])))

    steps, groups, parts = [], [], []
    for node, rank, _ in devices:
        mine = []
        for i in range(300):
            duration = 150 * MS + 6 * MS * rank + abs(chance.gauss(0, 6 * MS)) + (260 * MS if i in (17, 211) and rank == 7 else 0)
            mine.append(Step(node, rank, 1000 + rank, "TRAIN", i, START + 60 * S + i * 250 * MS, int(duration), True, int(duration * 1.1)))
        steps += mine
        durations = [float(step.duration_ns) for step in mine]
        groups.append(
            StepGroup(
                node, rank, 1000 + rank, "TRAIN", True, quantiles(durations), histogram(durations),
                tuple(sorted(mine, key=lambda step: -step.duration_ns)[:10]),
            )
        )  # fmt: skip
        mean = sum(durations) / len(durations)
        keys = {"kernel": 0.5, "memcpy": 0.03, "memset": 0.01, "communication": 0.19, "runtime": 0.04, "data_loader": 0.12, "cpu_op": 0.06}
        parts.append(
            StepParts(
                node, rank, 1000 + rank, 300, mean, {**{k: mean * v for k, v in keys.items()}, "other": mean * (1 - sum(keys.values()))}
            )
        )
    latencies = [math.exp(chance.gauss(9.6, 0.9)) for _ in range(4000)]
    edges = tuple(10 ** (2.5 + i / 10) for i in range(41))
    bins = tuple(sum(1 for value in latencies if low <= value < high) for low, high in itertools.pairwise(edges))
    slow = tuple(
        LaunchPair(node, rank, index, 7, "cudaLaunchKernel", names[rank + 4][0], START + rank * S, START + rank * S + 6000, START + rank * S + 9 * MS, 9 * MS - 6000)
        for node, rank, index in devices
    )  # fmt: skip
    forward = [42 * MS + chance.gauss(0, 2 * MS) for _ in range(2400)]
    annotations = tuple(
        AnnotationGroup(name, side, "TRAIN", 8, int(sum(forward) * factor), quantiles([v * factor for v in forward]), histogram([v * factor for v in forward]))
        for name, side, factor in (("Forward", "device", 1.0), ("Backward", "device", 1.9), ("Optimizer", "host", 0.3), (HOSTILE[0], "host", 0.01))
    )  # fmt: skip
    return dataclasses.replace(
        system,
        run=Run(
            "resnet50-ddp", "partial", START, START + 1122 * S, False, "PyTorch 2.13", "8x-h100-2n", 8,
            ("train-queue/a", "bucket/runs/1"), {"lr": "0.1", "batch_size": "256", HOSTILE[1]: HOSTILE[0]}, {"team": "vision"},
            {"cuda_runtime": "12.8"},
            (
                *(Source(f"/data/runs/resnet50-ddp/rank-{rank}.pt.trace.json.gz", "kineto", 21_000_000 + rank, f"{rank:064x}", 812_345, START, START + 1100 * S) for rank in range(8)),
                Source("/data/runs/resnet50-ddp/notes.txt", "unknown", 812, "f" * 64, 0, None, None),
            ),
        ),
        summary=Summary(
            "GPUs were busy 61% of the time. 19% of it waited for communication on rank 7.",
            "2 nodes x 4 H100 · PyTorch 2.13 · 18 min 42 s",
            (
                Tile("gpu_busy", "GPU busy", "61%", "p95 97%", "time-breakdown"),
                Tile("step_time", "Step time", "178 ms", "p95 243 ms", "steps"),
                Tile("exposed_communication", "Exposed communication", "18.9%", "88 ms per step", "time-breakdown"),
                Tile("data_loading", "Data loading", "33.4%", "59 ms per step", "framework"),
                Tile("lower_precision", "Lower precision", "41%", "of matrix time, BF16", "precision"),
            ),
            ("partial: rank 5 is cut off",),
        ),
        devices=tuple(
            Device(node, index, "NVIDIA H100 80GB HBM3", None, 80 * 2**30, 132, "9.0", "NVIDIA", True) for node, _, index in devices
        ),
        processes=tuple(Process(node, 1000 + rank, rank, rank % 4, 8, None) for node, rank, _ in devices),
        job_statistics=JobStatistics(
            START, START + 1122 * S, 1122 * S, START + 60 * S, START + 1090 * S, 1030 * S, 60 * S, 32 * S, 5.3, 91.8, 2.9, None
        ),
        time_breakdown=tuple(breakdown),
        kernels=kernels,
        categories=by("category"),
        precision=Precision(by("precision"), by("precision", ("GEMM", "attention", "convolution"))),
        activity=Activity(shares(("kernel", total_sum, 90_000), ("memcpy", 80 * S, 9000), ("memset", 6 * S, 4000), ("sync", 200 * S, 1000)), "host"),
        memory_operations=(
            MemoryOperation("HtoD", "pageable", 4800, 50 * S, 220 * 2**30, 4.72, 58.1),
            MemoryOperation("DtoD", None, 9000, 24 * S, 9000 * 2**30, 402.6, 27.9),
            MemoryOperation("DtoH", "pinned", 900, 6 * S, 100 * 2**30, 17.9, 7.0),
            MemoryOperation("Memset", None, 4000, 6 * S, None, None, 7.0),
        ),
        launches=Launches(
            2_500_000, 2_480_000, 1200, 20_000, 0, 310, quantiles(latencies), Histogram(edges, bins, "ns", True), slow,
            shares(("cudaLaunchKernel", 40 * S, 2_500_000), ("cudaStreamSynchronize", 25 * S, 9000), ("cudaMemcpyAsync", 8 * S, 14_000)), None,
        ),
        idle=tuple(Idle(node, rank, index, 7, 250_000, (90 + 5 * rank) * S, 30 * S, 40 * S) for node, rank, index in devices),
        steps=Steps(tuple(steps), tuple(groups), tuple(parts), None),
        annotations=Annotations(annotations, ("Backward", "Forward", HOSTILE[0]), None),
        framework=Framework(
            shares(("TRAIN", 900 * S, 300), ("EVAL", 100 * S, 10), ("others", 90 * S, 1)),
            shares(("backward", 500 * S, 300), ("forward", 260 * S, 300), ("data loading", 160 * S, 300), ("optimizer", 60 * S, 300)),
            tuple(OperatorRow(f"aten::operator_{i}", 1000 * i + 3, (40 - i) * S, 12.0 - 0.4 * i) for i in range(22)),
            tuple(OperatorRow(f"gpu::operator_{i}", 900 * i + 3, (30 - i) * S, 12.0 - 0.4 * i) for i in range(9)),
            shares(("CPU", 700 * S, 30_000), ("GPU", 400 * S, 9000)),
            shares(("all_reduce", 280 * S, 9000), ("broadcast", 2 * S, 12)),
            ("phases are averaged over 8 processes",),
            None,
        ),
        python_profile=PythonProfile(
            tuple(ProfileRow(f"train.py:{i}(step_{i})", "total_time", 5 * i, 5 * i + 4, 300, 12.5 / (i + 1), 25.0 / (i + 1)) for i in range(30)), None
        ),
        data_quality=(
            Note("/data/runs/resnet50-ddp/rank-5.pt.trace.json.gz", "warning", "cut_off", "the file ends within an event; everything before it was read", 1, START, None),
            Note(None, "info", "clock", "clocks of the nodes were aligned by collectives; offset 1.2 ms", 1, None, None),
        ),
        rules=rule_results(),
        findings=findings(),
        gpu_time=GpuTime(
            8, START, START + span, 8 * span, sum(row.computation_ns for row in breakdown),
            sum(row.exposed_communication_ns for row in breakdown), sum(row.exposed_memory_ns for row in breakdown),
            sum(row.idle_ns for row in breakdown),
        ),
        options={"top": 15, "histograms": ("Forward",), "name": None, "preset": "documented", "parameters": {"LowGPUUtilization_patience": 100}},
    )  # fmt: skip


MAKERS = {"rich": rich_report, "cpu": cpu_report, "system": system_report, "empty": empty_report}


@pytest.fixture(scope="session", params=sorted(MAKERS))
def any_report(request: pytest.FixtureRequest) -> Report:
    return MAKERS[request.param]()


@pytest.fixture(scope="session")
def rich() -> Report:
    return rich_report()


@pytest.fixture(scope="session")
def small_reports() -> dict[str, Report]:
    """The reports small enough for golden files."""
    return {"cpu": cpu_report(), "empty": empty_report()}
