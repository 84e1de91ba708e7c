"""Hand-made verdicts for the tests of the templates, one of every rule: five issues, an error, and some not evaluated."""

# ruff: noqa: E501  (tables of values read better than one value per line)

from __future__ import annotations

import math
from typing import Any

from postrun.analysis.report import Finding, RuleParameter, RuleResult
from postrun.analysis.report.rule_details import DETAILS
from rule_details import details_from

MS = 1_000_000
S = 1_000_000_000
START = 1_795_243_200 * S
SPAN = 1100 * S
DEVICES = [("node-0" if rank < 4 else "node-1", rank, rank % 4) for rank in range(8)]


def box(middle: float, spread: float = 12.0) -> dict[str, float]:
    return {
        "samples": 2244, "min": max(0.0, middle - 3 * spread), "p5": max(0.0, middle - 2 * spread), "p25": max(0.0, middle - spread),
        "p50": middle, "p75": min(100.0, middle + spread), "p95": min(100.0, middle + 2 * spread), "max": min(100.0, middle + 3 * spread),
        "mean": middle, "lower": max(0.0, middle - 2.5 * spread), "upper": min(100.0, middle + 2.5 * spread),
        "whisker_lower": max(0.0, middle - 2.4 * spread), "whisker_upper": min(100.0, middle + 2.4 * spread),
    }  # fmt: skip


def bins(center: float, wide: float, number: int, beyond: int = 0, count: int = 60) -> dict[str, Any]:
    edges = [center - wide + 2 * wide * i / count for i in range(count + 1)]
    weights = [math.exp(-((((i + 0.5) / count - 0.5) * 6) ** 2) / 2) for i in range(count)]
    return {"edges": edges, "counts": [round(number * weight / sum(weights)) for weight in weights], "unit": "ns", "logarithmic": False, "beyond": beyond}  # fmt: skip


def result(rule: str, category: str, verdict: str, finding: str | None = None, **more: Any) -> RuleResult:
    parameters = more.pop("given", {"threshold": (50, "%", 50, False, None)})
    table = tuple(
        RuleParameter(name, value, unit, default, changed, seconds, f"meaning of {name}")
        for name, (value, unit, default, changed, seconds) in parameters.items()
    )
    scan = RuleParameter("scan_interval_us", 60_000_000, "µs", 60_000_000, False, None, "length of an evaluation window")
    values: dict[str, Any] = {
        "reason": None, "capture": None, "triggered": 0, "violations": 0, "datapoints": 2400, "windows": 20, "windows_triggered": 0, "first_ns": None,
        "last_ns": None, "details": {}, "recommendation": None,
    } | more  # fmt: skip
    return RuleResult(
        rule=rule, category=category, verdict=verdict, finding=finding,
        parameters={parameter.name: parameter.value for parameter in (*table, scan)},
        changed_parameters={parameter.name: parameter.value for parameter in table if parameter.changed},
        parameter_table=(*table, scan),
        checks=f"What {rule} looks at, in one sentence.", condition="a share is over threshold", advice="Do what helps.", informs=rule.startswith("Overall"), **values,
    )  # fmt: skip


def active(**names: int) -> list[dict[str, Any]]:
    return [{"name": name, "time_ns": time * S, "percent": float(time)} for name, time in names.items()]


def details() -> dict[str, dict[str, Any]]:
    """Details of every rule, by its name."""
    sampled = [{"node": node, "device": device} for node, _, device in DEVICES]
    traced = [{"node": node, "rank": rank, "pid": 1000 + rank, "device": device, "span_ns": SPAN} for node, rank, device in DEVICES]
    kernels = [{"name": f"void at::native::kernel_{i}<float, {i}>(float*, int)", "short_name": f"kernel_{i}", "category": "GEMM", "precision": "FP32", "count": 4000 - 100 * i, "time_ns": (40 - i) * S, "exposed_ns": (20 - i) * S, "mean_ns": 4000 + i, "gap_ns": (30 - i) * S} for i in range(15)]  # fmt: skip
    during = {
        "phases": active(TRAIN=80, EVAL=20),
        "annotations": active(**{f"range_{i}": 40 - 4 * i for i in range(8)}),
        "operators": active(**{f"aten_{i}": 30 - 2 * i for i in range(12)}),
    }
    bottleneck = {
        "total": {"snapshots": 2400, "low": 1400, "bottlenecks": 1300, "above_percent": 41.7, "other_percent": 4.1, "bottleneck_percent": 54.2, "of_low_percent": 92.9},
        "nodes": [{"node": node, "snapshots": 1200, "low": 700, "bottlenecks": 650, "above_percent": 41.7, "other_percent": 4.1, "bottleneck_percent": 54.2, "of_low_percent": 92.9, "issue": True, "windows": 20, "windows_exceeded": 12, "unused": [3]} for node in ("node-0", "node-1")],
        "active": during,
        "bottleneck_ns": 100 * S,
    }  # fmt: skip
    distances = [[None if a == b else min(0.99, 0.08 * abs(a - b) + 0.05) for b in range(8)] for a in range(8)]
    return {
        "LowGPUUtilization": {
            "devices": [
                row | {
                    "derived": False, "samples": 2244, "state": "under-utilized" if i < 2 else "fluctuating" if i == 2 else "unused" if i == 7 else "fine",
                    "windows": 12, "triggered": 12 if i < 3 else 0, "under_utilised": 12, "fluctuating": 0, "triggered_percent": 100.0,
                    "p95": 48.1 + 6 * i, "p5": 31.0, "first_ns": START + 60 * S, "last_ns": START + 1000 * S, "pattern": "idle tail" if i == 1 else "whole run", "idle_tail_ns": 300 * S,
                    "box": box(20 + 9 * i), "histogram": [math.exp(-((b - 10 - 4 * i) ** 2) / 20) / 7.93 for b in range(50)],
                }
                for i, row in enumerate(sampled)
            ]
        },
        "BatchSize": {
            "devices": [
                row | {"memory_figure": "footprint", "samples": 2244, "windows": 12, "violations": 4 if i == 1 else 0, "first_ns": START, "last_ns": START + S, "cpu_p95": 40.0, "gpu_p95": 50.0, "gpu_memory_p95": 30.0, "boxes": {"cpu": box(30), "gpu": box(40 + 3 * i), "gpu_memory": box(25, 4)}}
                for i, row in enumerate(sampled)
            ]
        },
        "CPUBottleneck": bottleneck,
        "IOBottleneck": bottleneck,
        "GPUMemoryIncrease": {
            "devices": [
                row | {"memory_figure": "footprint", "samples": 2244, "violations": 19, "largest_increase": 12.5 + i, "episodes": [{"start_ns": START + 100 * S, "end_ns": START + 160 * S, "largest": 12.5 + i, "samples": 19}], "slope_percent_per_hour": 3.2 - i, "box": box(40 + 4 * i, 5)}
                for i, row in enumerate(sampled)
            ]
        },
        "LoadBalancing": {
            "compared": "pairs",
            "devices": [row | {"derived": False, "samples": 2244, "mean": 20.0 + 9 * i, "histogram": [math.exp(-((b - 10 - 4 * i) ** 2) / 20) / 7.93 for b in range(50)], "evaluated": True} for i, row in enumerate(sampled)],
            "matrix": distances,
            "pairs": [{"a": sampled[a], "b": sampled[b], "distance": distances[a][b], "mean_difference": 9.0 * (b - a), "violation": distances[a][b] > 0.5} for a in range(8) for b in range(7, a, -1)],
        },
        "OverallSystemUsage": {"nodes": [{"node": "node-0", "statement": "well used", "metrics": []}]},
        "MaxInitializationTime": {"started_ns": START, "ended_ns": START + 1122 * S, "duration_ns": 1122 * S, "initialization_ns": 60 * S, "loop_ns": 1030 * S, "finalization_ns": 32 * S, "initialization_percent": 5.3, "loop_percent": 91.8, "finalization_percent": 2.9, "steps": True},
        "OverallFrameworkMetrics": {"phases": [], "notes": []},
        "StepOutlier": {
            "groups": [
                {"node": node, "rank": rank, "pid": 1000 + rank, "phase": "TRAIN", "on_device": True, "steps": 300, "mean_ns": 272 * MS, "std_ns": 352 * MS, "threshold_ns": 1330 * MS, "outliers": 12 - rank if rank < 3 else 0, "evaluable": True, "robust_threshold_ns": 300 * MS, "robust_outliers": 12, "max_ns": 2500 * MS, "p99_ns": 2000 * MS, "p95_ns": 500 * MS, "p50_ns": 200 * MS, "min_ns": 190 * MS, "histogram": bins(300 * MS, 290 * MS, 290, 10), "normal_histogram": bins(200 * MS, 15 * MS, 288)}
                for node, rank, _ in DEVICES
            ],
            "slowest": [
                {"node": "node-0", "rank": 0, "pid": 1000, "phase": "TRAIN", "index": 20 * i, "start_ns": START + i * 60 * S, "duration_ns": (2500 - 90 * i) * MS, "typical_ns": 200 * MS, "outlier": True, "active": [{"kind": "operator", "name": "aten::convolution_backward_overrideable", "time_ns": 2 * S, "typical_ns": 100 * MS, "extra_ns": 1900 * MS}, {"kind": "loader", "name": "DataLoader.__next__", "time_ns": S, "typical_ns": 0, "extra_ns": S}]}
                for i in range(10)
            ],
            "limit_percent": 10.0,
            "active": during,
        },
        "Dataloader": {
            "nodes": [{"node": node, "cores": 64, "loaders": 2, "source": "num_workers", "percent_of_cores": 3.1, "seconds": 900, "issue": True} for node in ("node-0", "node-1")],
            "configurations": [{"node": "node-0", "pin_memory": False, "num_workers": 2, "prefetch_factor": 2, "count": 4}],
            "loading": {"count": 3000, "p25_ns": 40 * MS, "p50_ns": 59 * MS, "p95_ns": 120 * MS, "max_ns": 300 * MS, "total_ns": 180 * S},
            "histogram": bins(60 * MS, 55 * MS, 3000, 4),
        },
        "HostBound": {"devices": [row | {"idle_ns": 300 * S, "idle_percent": 27.3, "host_wait_ns": (120 + 10 * i) * S, "kernel_wait_ns": 30 * S, "other_ns": (150 - 10 * i) * S, "host_percent": 40.0 + 3.3 * i, "issue": i > 2} for i, row in enumerate(traced)], "kernels": kernels},
        "HostPreprocessing": {"rows": [{"node": "node-0", "rank": 0, "pid": 1000, "what": f"data.py({10 + i}): transform_{i}", "line": True, "calls": 4000, "time_ns": (40 - 9 * i) * S, "percent": 40.0 - 9 * i} for i in range(3)], "loading_ns": 100 * S, "known_percent": 93.0, "waited_ns": 80 * S, "waited_percent": 7.3, "base": "GPU time in the profile window"},
        "ExposedCommunication": {"devices": [row | {"communication_ns": 300 * S, "exposed_ns": (140 + 10 * i) * S, "exposed_percent": (140 + 10 * i) / 11, "overlap_percent": 40.0, "issue": True} for i, row in enumerate(traced)], "kernels": kernels, "collectives": [{"operation": "all-reduce", "bytes": 25 * 2**20, "element_type": "Float", "group": "DATA_PARALLEL_GROUP", "group_size": 8, "group_size_assumed": i == 1, "stream": 20, "part": "backward", "launcher": "DDP", "count": 4800, "time_ns": 300 * S, "exposed_ns": (140 - i) * S, "waiting_ns": None if i else 40 * S, "transfer_ns": None if i else 100 * S, "last_rank": None if i else 7} for i in range(3)]},
        "LowPrecision": {"devices": [row | {"name": "NVIDIA H100", "compute_capability": "9.0", "matrix_units": ["TF32", "BF16"], "eligible": True} for row in sampled], "shares": [{"precision": "FP32", "time_ns": 300 * S, "percent": 60.0}, {"precision": "BF16", "time_ns": 200 * S, "percent": 40.0}], "kernels": kernels, "fp32_ns": 300 * S, "matrix_ns": 500 * S, "fp32_percent": 60.0, "alternatives": ["TF32", "BF16"]},
        "PageableCopies": {"devices": [row | {"pageable_ns": 40 * S, "percent": 3.6, "issue": True} for row in traced], "copies": [{"kind": "HtoD", "count": 4800, "time_ns": 40 * S, "bytes": 220 * 2**30, "bandwidth_gb_per_s": 4.7, "pinned_bandwidth_gb_per_s": 24.1}]},
        "SyncBound": {"devices": [row | {"sync_ns": 200 * S, "blocked_idle_ns": 130 * S, "percent": 11.8, "issue": True} for row in traced], "calls": [{"name": "cudaStreamSynchronize", "operator": "aten::item", "count": 300, "time_ns": 100 * S, "blocked_idle_ns": 90 * S}]},
        "ShortKernels": {"devices": [row | {"launches": 90_000, "short": 60_000, "short_percent": 66.7, "gap_ns": 60 * S, "gap_percent": 5.5, "issue": False} for row in traced], "kernels": kernels},
        "StragglerRank": {"ranks": [row | {"steps": 300, "computation_per_step_ns": (90 + (25 if i == 7 else i)) * MS, "excess_percent": 20.0 if i == 7 else 1.0, "steps_over": 280 if i == 7 else 3, "steps_over_percent": 93.3, "waiting_per_step_ns": (2 if i == 7 else 25 - i) * MS, "straggler": i == 7, "confirmed": True} for i, row in enumerate(traced)], "steps": 300, "median_ns": 94 * MS},
        "SlowCollectives": {"groups": [{"group": f"dp{i} [0, 1, 2, 3, 4, 5, 6, 7]", "description": "DATA_PARALLEL_GROUP", "operation": "all-reduce", "ranks": 8, "nodes": 1, "count": 640, "smallest_bytes": 100 * 2**20, "largest_bytes": 200 * 2**20, "transfer_ns": 90 * S, "bus_gb_per_s": 91.0 if i else 340.0, "link": "NVLink", "link_gb_per_s": 450.0, "peers_gb_per_s": 340.0 if i else 91.0, "peer_groups": 1, "slow_by_link": 640 * i, "slow_by_peers": 640 * i, "issue": bool(i)} for i in range(2)]},
        "ExposedCopies": {"devices": [row | {"exposed_ns": 90 * S, "percent": 8.2, "bucket_ns": 4 * S, "issue": False} for row in traced], "copies": [{"kind": "DtoD", "memory": None, "operator": "torch.distributed.ddp.reducer::copy_bucket_to_grad", "count": 4800, "bytes": 2**30, "time_ns": 4 * S, "exposed_ns": 4 * S, "bandwidth_gb_per_s": 300.0, "link_gb_per_s": None, "site": None}]},
        "UnfusedElementwise": {"devices": [row | {"chains": 9000, "kernels": 40_000, "time_ns": 60 * S, "extra_ns": 40 * S, "extra_percent": 3.6, "issue": False} for row in traced], "kernels": [{"name": "vectorized_elementwise_kernel[CUDAFunctor_add]", "count": 20_000, "time_ns": 30 * S}]},
        "UnfusedAttention": {"devices": [row | {"time_ns": 30 * S, "fused_ns": 10 * S, "excess_ns": 20 * S, "excess_percent": 1.8, "issue": False} for row in traced], "chains": [{"batch": 96, "queries": 1024, "keys": 1024, "width": 64, "type": "bf16", "calls": 4800, "time_ns": 240 * S, "products_ns": 80 * S, "softmax_ns": 60 * S, "between_ns": 100 * S, "fused_ns": 80 * S, "module": "GPT/h.3/attn", "line": "model.py:42"}]},
        "LowOccupancy": {"kernels": [{"name": f"flash_fwd_splitkv_{i}", "category": "attention", "operator": "aten::_flash_attention_forward", "shape": "1x8x1x128, 1x8x4096x128, 1x8x4096x128", "blocks": 8 * (i + 1), "multiprocessors": 132, "occupancy_percent": 4.0, "percent_of_roof": 11.0, "count": 4800, "time_ns": (90 - 10 * i) * S, "percent": 9.0 - i, "saving_ns": (80 - 10 * i) * S, "issue": True} for i in range(3)]},
        "LayoutConversions": {"devices": [row | {"conversion_ns": 150 * S, "percent": 13.6, "issue": True} for row in traced], "conversions": [{"kind": "convolution", "kernel": "nchwToNhwcKernel", "operator": "aten::convolution", "shape": "32x64x56x56, 64x64x3x3", "count": 4800, "time_ns": 150 * S}]},
        "InefficientMatmul": {"products": [{"operator": "aten::mm", "shape": "M 4096, N 50257, K 768", "types": "bf16", "calls": 300, "time_ns": 90 * S, "tflops": 120.0, "percent_of_roof": 12.1, "peer_percent": 61.0, "peers": 9, "peer_ns": 18 * S, "reasons": ["alignment: N = 50257 is not a multiple of 8"], "kernel": "cutlass_80_wmma_tensorop_bf16_s161616gemm_bf16_16x16_128x1_nn_align1", "module": "GPT_0/Linear_0", "line": "train.py:42"}], "lost_ns": 72 * S, "lost_percent": 6.5, "compared": 11, "alone": 2},
        "Recompiles": {"functions": [{"function": "forward", "file": "/app/model.py", "line": 40 + i, "module": "GPT/h.3/attn", "caller": "train.py:80", "ranks": 8, "compilations": 90 - i, "recompilations": 80 - i, "time_ns": 90 * S, "late_ns": 80 * S, "idle_ns": (70 - i) * S, "reason": "tensor 'x' size mismatch at index 0. expected 32, actual 17", "limit_reached": i == 1, "graph_breaks": i, "graph_break": "/app/model.py:52: Failed to trace builtin operator" if i else None, "logged_compilations": 96, "logged_recompilations": 88, "logged_ns": 120 * S} for i in range(3)], "compilations": 267, "recompilations": 250, "unknown": 0, "late": 237, "compile_ns": 260 * S, "late_ns": 240 * S, "lost_ns": 200 * S, "lost_percent": 18.2, "base": "GPU time in the profile window", "base_ns": 1100 * S, "logged_compilations": 288, "logged_recompilations": 264, "logged_ns": 360 * S},
        "TemperatureRule": {"threshold": 80, "hottest_ns": 12 * S, "nested": {"mean": 71.25, "names": ["a", "b"]}, "devices": [{"device": "GPU 3", "peak": 88.0, "ok": False}, {"device": "GPU 1", "peak": 70.5, "ok": True}]},
    }  # fmt: skip


LOW = {"threshold_p95": (70, "%", 70, False, None), "threshold_p5": (10, "%", 10, False, None), "patience": (100, "samples", 1000, True, 50.0), "window": (500, "samples", 500, False, 250.0)}  # fmt: skip
BATCH = {f"{name}_threshold_p95": (70, "%", 70, False, None) for name in ("cpu", "gpu", "gpu_memory")}


def rule_results() -> tuple[RuleResult, ...]:
    """Return results of all rules of the catalog, a custom one, and ProfilerReport."""
    held = details()
    fine, issue, none = "NoIssuesFound", "IssuesFound", "NotEvaluated"

    def of(rule: str, category: str, verdict: str, finding: str | None = None, **more: Any) -> RuleResult:
        details = held.get(rule, {})
        return result(rule, category, verdict, finding, details=details_from(rule, details) if rule in DETAILS else details, **more)

    return (
        result("ProfilerReport", "report", issue, "3 of 11 rules found an issue, 2 could not be evaluated.", details={"rules": []}, given={}),
        of("CPUBottleneck", "system", issue, "54.2% of the snapshots have a low GPU and a core above 90%, over the threshold of 50%.", triggered=1300, violations=1300, recommendation="Raise `num_workers=8` so that the processors load ahead: the GPUs waited in 1,300 of 2,400 snapshots."),
        of("IOBottleneck", "system", fine, "4.1% of the snapshots have a low GPU and I/O wait above 50%, below the threshold of 50%."),
        of("LowGPUUtilization", "system", issue, "3 of 8 GPUs stay below their thresholds: node-0 GPU 0 has p95 48.1%, below 70%.", triggered=36, violations=36, windows_triggered=12, first_ns=START + 60 * S, last_ns=START + 1000 * S, given=LOW, recommendation="Raise `batch_size=512`: memory is used to 40% only."),
        of("StepOutlier", "framework", issue, "33 of 2,400 steps are longer than mean + 3 standard deviations (1.33 s), over the limit of 10.", triggered=33, violations=33, given={"stddev": (3, "factor", 5, True, None), "mode": (None, "phase", None, False, None), "n_outliers": (10, "steps", 10, False, None)}, recommendation="Look at what runs in the slowest steps: `DataLoader.__next__` takes 1.00 s more than usual."),
        of("GPUMemoryIncrease", "system", fine, "No GPU's memory grew by more than 10 points within 250 s.", given={"increase": (10, "percentage points", 10, False, None)}),
        of("BatchSize", "system", fine, "CPU, GPU and GPU memory were never all below 70%.", given=BATCH),
        of("MaxInitializationTime", "framework", fine, "The training loop began after 60.0 s, within the threshold of 20 min.", given={"threshold": (20, "minutes", 20, False, None)}),
        of("LoadBalancing", "system", fine, "The furthest pair is 0.410 apart, below the threshold of 0.5.", given={"threshold": (0.5, "distance", 0.5, False, None)}),
        of("OverallSystemUsage", "system", fine, "node-0: well used."),
        of("Dataloader", "framework", none, reason="no loader events", capture="Profile with torch.profiler on CPU activity."),
        of("OverallFrameworkMetrics", "framework", fine, "TRAIN takes 82.6% of the time."),
        of("HostBound", "trace", fine, "The host's part of the idle time is 46.5%, below the threshold of 50%.", given={"idle_threshold": (20, "%", 20, False, None), "host_share": (50, "%", 50, False, None)}),
        of("ExposedCommunication", "trace", issue, "Exposed communication costs 1.40 s of 8.80 s, 15.9%, over the threshold of 10%.", triggered=8, violations=8, datapoints=8, windows=0, given={"threshold": (10, "%", 10, False, None)}, recommendation="Overlap the all-reduce with backward (`gradient_as_bucket_view=True`, bucket_cap_mb=50): 60% of it is exposed."),
        of("LowPrecision", "trace", issue, "60.0% of the matrix time ran in FP32, over the threshold of 30%.", triggered=1, violations=1, given={"threshold": (30, "%", 30, False, None)}, recommendation="Set `torch.backends.cuda.matmul.allow_tf32 = True`: these devices compute matrices in TF32."),
        result("PageableCopies", "trace", "Error", reason="KeyError: 'kind'"),
        of("SyncBound", "trace", none, reason="no synchronization calls in this run", capture="Profile with torch.profiler on CPU activity."),
        of("ShortKernels", "trace", fine, "Gaps of short kernels cost 5.5% of the span, below the threshold of 10%."),
        of("StragglerRank", "trace", issue, "Rank 7 computes 20.0% longer than the median in 280 of 300 steps, over the threshold of 10%.", triggered=1, violations=280, given={"threshold": (10, "%", 10, False, None)}, recommendation="Check node-1 GPU 3: temperature, clocks, and the data of rank 7."),
        of("SlowCollectives", "trace", fine, "all-reduce in dp1 reaches 91.0 GB/s, 20.2% of the 450 GB/s of its NVLink (threshold 40%)."),
        of("ExposedCopies", "trace", fine, "Copies and memsets while no kernel runs take at most 30.0 s of 1,100 s, 2.7% of the profile of one GPU."),
        of("UnfusedElementwise", "trace", fine, "Chains of elementwise kernels exceed the longest kernel of each chain by at most 40.0 s of 1,100 s, 3.6%."),
        of("UnfusedAttention", "trace", fine, "Attention as a chain of operators takes longer than one fused kernel at the peaks of the GPU by at most 20.0 s of 1,100 s, 1.8%."),
        of("LayoutConversions", "trace", fine, "Kernels that only change the layout of tensors take 150 s of 1,100 s, 13.6%."),
        of("InefficientMatmul", "trace", fine, "1 shape of matrix products loses 72.0 s to the rate of comparable ones."),
        of("TemperatureRule", "custom", fine, "No GPU was hotter than 88 °C."),
    )  # fmt: skip


def findings() -> tuple[Finding, ...]:
    by_name = {rule.rule: rule for rule in rule_results()}

    def of(
        rank: int,
        rule: str,
        title: str,
        where: str | None,
        percent: float | None,
        per_step: float | None,
        saving: float | None,
        base: str | None,
    ) -> Finding:
        text, advice = by_name[rule].finding or "", by_name[rule].recommendation
        ns = None if percent is None else int(percent / 100 * 8 * SPAN)
        return Finding(rank, rule, "high" if rank < 3 else "medium", title, text, advice, where, ns, percent, per_step, None if saving is None else int(saving / 100 * 8 * SPAN), saving, base)  # fmt: skip

    return (
        of(1, "CPUBottleneck", "Give the GPUs more processor time", "node-0, node-1", 54.2, None, 50.0, "GPU time of the run"),
        of(2, "ExposedCommunication", "Overlap all-reduce with backward", None, 15.9, 88.0 * MS, 15.9, "GPU time in the profile window"),
        of(3, "StragglerRank", "Check node-1 GPU 3", "rank 7, node-1 GPU 3", 9.0, 21.0 * MS, 9.0, "GPU time in the profile window"),
        of(4, "LowPrecision", "Compute matrices in BF16", "all devices", 4.0, 5.0 * MS, 2.0, "GPU time in the profile window"),
        of(5, "LowGPUUtilization", "Give the GPUs more work", "node-0 GPU 0, node-0 GPU 1", 3.1, None, None, "GPU time of the run"),
        of(6, "StepOutlier", "Look at the slowest steps", None, None, None, None, None),
    )
