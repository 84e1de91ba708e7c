"""Writes one JSON file per rule in the shape of the hosted service's rule output, for programs that read it.

``RuleTriggered``, ``Violations``, ``Details``, ``Datapoints`` and ``RuleParameters`` ("name:value" lines) are the service's keys.
``Verdict`` and ``Reason`` are added, because 0 times triggered can also mean that there was no data, and ``ExplainedBy`` if the finding of
another rule is the cause. Details of the documented rules have the service's keys if their data is available: GPUs are "gpu0", moments are
microseconds (``job_start`` and ``job_end``: seconds), durations are seconds, and a GPU that did not trigger the rule is omitted. Other
rules have their own details.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final, TypeVar

from ...analysis.report import rule_details
from ...analysis.report.model import Report, plain
from ...analysis.report.rows import Histogram, Share
from ...analysis.report.rules import RuleResult

D = TypeVar("D", bound=rule_details.Gpu)

_MODES: Final = ("TRAIN", "EVAL", "PREDICT", "GLOBAL")
_METRICS: Final = {
    "network": "Network", "gpu": "GPU", "cpu": "CPU", "cpu_memory": "CPU memory", "gpu_memory": "GPU memory", "io_wait": "I/O",
}  # fmt: skip
_KINDS: Final = {"CPU operators": "cpu_functions", "GPU operators": "gpu_functions", "other": "others"}


def rule_files(report: Report) -> dict[str, bytes]:
    """Return file name -> content for all rules except ProfilerReport, their sum."""
    files: dict[str, bytes] = {}
    causes = {finding.rule: finding.explained_by for finding in report.findings if finding.explained_by}
    for result in report.rules:
        if result.category != "report":
            stem = re.sub(r"[^A-Za-z0-9_-]+", "_", result.rule) or "rule"
            name, number = f"{stem}.json", 1
            while name.lower() in {used.lower() for used in files}:
                number += 1
                name = f"{stem}-{number}.json"
            text = json.dumps(_content(result, causes.get(result.rule)), ensure_ascii=False, allow_nan=False)
            files[name] = (text + "\n").encode("utf-8", "backslashreplace")
    return files


def ours(data: bytes) -> bool:
    """Test whether this is the content of a file of :func:`rule_files`."""
    try:
        content = json.loads(data)
    except ValueError:
        return False
    return isinstance(content, dict) and {"RuleTriggered", "Verdict", "Reason"} <= content.keys()


def _content(result: RuleResult, cause: str | None) -> dict[str, Any]:
    content: Any = result.details
    if result.rule in _SHAPES and isinstance(content, rule_details.DETAILS[result.rule]):
        content = _SHAPES[result.rule](content, result)
    elif not content and result.category != "custom":
        content = _EMPTY.get(result.rule, {})
    return {
        "RuleTriggered": result.triggered,
        "Violations": result.violations,
        "Details": _rounded(plain(content)),
        "Datapoints": result.datapoints,
        "RuleParameters": "\n".join(f"{name}:{value}" for name, value in _parameters(result)),
        "Verdict": result.verdict,
        "Reason": result.reason,
        **({"ExplainedBy": cause} if cause else {}),
    }


def _parameters(result: RuleResult) -> Iterable[tuple[str, Any]]:
    """Yield the service's parameters: no scan interval, StepOutlier's factor twice."""
    if result.rule == "StepOutlier" and "stddev" in result.parameters:
        yield "threshold", result.parameters["stddev"]
    yield from ((name, value) for name, value in result.parameters.items() if name != "scan_interval_us")


# -- one function per documented rule: our details, the result -> the service's Details ------------------------------------


def _low_gpu_utilization(details: rule_details.LowGPUUtilizationDetails, result: RuleResult) -> dict[str, Any]:
    def row(device: rule_details.LowGpu) -> dict[str, Any]:
        return {"gpu_max": device.box.max, "gpu_95": device.p95, "gpu_5": device.p5, **_box(device.box)}

    return _by_gpu([device for device in details.devices if device.triggered], row, result)


def _gpu_memory_increase(details: rule_details.GPUMemoryIncreaseDetails, result: RuleResult) -> dict[str, Any]:
    def row(device: rule_details.GrowingMemory) -> dict[str, Any]:
        return {"increase": device.largest_increase, "gpu_max": device.box.max, "p05": device.box.p5, **_box(device.box)}

    return _by_gpu([device for device in details.devices if device.violations], row, result)


def _batch_size(details: rule_details.BatchSizeDetails, result: RuleResult) -> dict[str, Any]:
    nodes: dict[str, Any] = {}
    for device in details.devices:
        if device.violations:
            boxes, node = device.boxes, nodes.setdefault(device.node, {})
            node.setdefault("cpu", _box(boxes.cpu))
            node[_gpu(device)], node[f"{_gpu(device)}_memory"] = _box(boxes.gpu), _box(boxes.gpu_memory)
    return _dated(nodes, result)


def _bottleneck(details: rule_details.BottleneckDetails, _: RuleResult) -> dict[str, Any]:
    phases = _percents(details.active.phases)
    return {"low_gpu_utilization": details.total.low, **({"phase": phases} if phases else {})}


def _load_balancing(details: rule_details.LoadBalancingDetails, _: RuleResult) -> dict[str, Any]:
    """Return histograms and ``distances`` by node; pairs across nodes are separate."""
    nodes: dict[str, Any] = {}
    for device in details.devices:
        if device.evaluated:
            node = nodes.setdefault(device.node, {"workloads": {}, "distances": {}})
            node["workloads"][_gpu(device)] = [round(share * device.samples) for share in device.histogram]
    for pair in details.pairs:
        if not pair.violation:
            continue
        node = nodes.setdefault(pair.a.node, {"workloads": {}, "distances": {}})
        if pair.b is None:
            node.setdefault("distances_to_mean", {})[_gpu(pair.a)] = pair.distance
        elif pair.b.node == pair.a.node:
            node["distances"].setdefault(_gpu(pair.a), {})[_gpu(pair.b)] = pair.distance
        else:
            apart = node.setdefault("distances_to_other_nodes", {}).setdefault(_gpu(pair.a), {})
            apart[f"{pair.b.node}/{_gpu(pair.b)}"] = pair.distance
    return nodes


def _overall_system_usage(details: rule_details.OverallSystemUsageDetails, _: RuleResult) -> dict[str, Any]:
    metrics: dict[str, Any] = {}
    for node in details.nodes:
        for metric in node.metrics:
            if name := _METRICS.get(metric.metric):
                values = {"max": metric.max, "p99": metric.p99, "p95": metric.p95, "p50": metric.p50, "min": metric.min}
                metrics.setdefault(name, {})[node.node] = {key: round(value, 2) for key, value in values.items()}
    return {name: metrics[name] for name in _METRICS.values() if name in metrics}


def _max_initialization_time(details: rule_details.MaxInitializationTimeDetails, _: RuleResult) -> dict[str, Any]:
    """Return the times of the job; ``last`` is the end, not start, of the last step."""
    steps: dict[str, Any] = {}
    if details.started_ns is not None and details.initialization_ns is not None:
        first = details.started_ns + details.initialization_ns
        steps["first"] = first // 1000
        if details.loop_ns is not None:
            steps["last"] = (first + details.loop_ns) // 1000
    times = (("job_start", details.started_ns), ("job_end", details.ended_ns))
    return {"step_num": steps, **{key: round(time / 1e9, 6) for key, time in times if time is not None}}


def _overall_framework_metrics(details: rule_details.OverallFrameworkMetricsDetails, _: RuleResult) -> dict[str, Any]:
    tables = (
        ("ratio", details.operator_time),
        ("phase", details.phases),
        ("general", details.step_parts),
        ("horovod", details.collectives),
    )
    metrics: dict[str, Any] = {key: _percents(rows) for key, rows in tables if rows}
    metrics.setdefault("phase_time", {})
    for key, operators in (("CPU", details.cpu_operators), ("GPU", details.gpu_operators)):
        if operators:
            metrics[key] = {row.name: row.percent for row in operators}
            metrics[f"{key}_total"] = {row.name: round(row.total_ns / 1000) for row in operators}
    parts = {row.name: row.total_ns for row in details.step_parts}
    total_ns = parts.get("forward", 0) + parts.get("backward", 0)
    if "forward" in parts and "backward" in parts and total_ns:
        metrics["forward_backward"] = {
            "Forward pass": 100 * parts["forward"] / total_ns,
            "Backward pass": 100 * parts["backward"] / total_ns,
        }
    return metrics


def _step_outlier(details: rule_details.StepOutlierDetails, _: RuleResult) -> dict[str, Any]:
    """Return the steps by worker, "node-pid", or "node-pid-PHASE" for rarer phases."""
    workers: dict[str, Any] = {}
    for group in sorted(details.groups, key=lambda group: -group.steps):
        worker = "-".join(str(part) for part in (group.node, group.pid) if part is not None)
        key = (group.node, group.rank, group.pid, group.phase)
        steps = [str(step.index) for step in details.slowest if step.outlier and (step.node, step.rank, step.pid, step.phase) == key]
        # A rank without a process id, or a further phase: a name of its own.
        for extra in (group.rank, group.phase, len(workers)):
            if worker in workers and extra is not None:
                worker = f"{worker}-{extra}"
        times = (("mean", group.mean_ns), ("max", group.max_ns), ("p99", group.p99_ns), ("p95", group.p95_ns), ("p50", group.p50_ns))
        workers[worker] = {
            "step_stats": {key: ns / 1e9 for key, ns in (*times, ("min", group.min_ns))},
            "number_of_outliers": group.outliers,
            "phase": _phase(group.phase),
            "stddev": group.std_ns / 1e9,
            **_histogram(group.normal_histogram),
            "step_numbers": steps,
        }
    phases = _percents(details.active.phases)
    return {"step_details": workers, **({"phase": phases} if phases else {})}


def _dataloader(details: rule_details.DataloaderDetails, _: RuleResult) -> dict[str, Any]:
    """Return the settings of the first node with an issue, else of the first node."""
    node = next((node for node in details.nodes if node.issue), details.nodes[0] if details.nodes else None)
    settings: dict[str, Any] = {}
    same = [loader for loader in details.configurations if node is None or loader.node == node.node]
    for key in ("pin_memory", "num_workers"):
        if values := [value for loader in (same or details.configurations) if (value := getattr(loader, key)) is not None]:
            settings[key] = values[0]
    if node is not None:
        settings |= {"cores": node.cores, "dataloaders": None if node.loaders is None else int(node.loaders)}
    loading = details.loading
    times = {"p25": _seconds(loading.p25_ns), "p50": _seconds(loading.p50_ns), "p95": _seconds(loading.p95_ns)}
    return {**settings, "dataloading_time": {**times, **_histogram(details.histogram)}}


_SHAPES: Final[dict[str, Callable[[Any, RuleResult], dict[str, Any]]]] = {
    "LowGPUUtilization": _low_gpu_utilization,
    "GPUMemoryIncrease": _gpu_memory_increase,
    "BatchSize": _batch_size,
    "CPUBottleneck": _bottleneck,
    "IOBottleneck": _bottleneck,
    "LoadBalancing": _load_balancing,
    "OverallSystemUsage": _overall_system_usage,
    "MaxInitializationTime": _max_initialization_time,
    "OverallFrameworkMetrics": _overall_framework_metrics,
    "StepOutlier": _step_outlier,
    "Dataloader": _dataloader,
}
# Details of a rule without any.
_EMPTY: Final[dict[str, dict[str, Any]]] = {
    "MaxInitializationTime": {"step_num": {}}, "OverallFrameworkMetrics": {"phase_time": {}}, "StepOutlier": {"step_details": {}},
}  # fmt: skip


def _by_gpu(devices: Sequence[D], row: Callable[[D], dict[str, Any]], result: RuleResult) -> dict[str, Any]:
    by_node: dict[str, Any] = {}
    for device in devices:
        by_node.setdefault(device.node, {})[_gpu(device)] = row(device)
    return _dated(by_node, result)


def _dated(content: dict[str, Any], result: RuleResult) -> dict[str, Any]:
    """Add the moment when the rule last triggered, if it did."""
    return {**content, "last_timestamp": result.last_ns // 1000} if content and result.last_ns is not None else content


def _gpu(device: rule_details.Gpu) -> str:
    return f"gpu{device.device}"


def _box(box: rule_details.Box | None) -> dict[str, Any]:
    return {key: None if box is None else getattr(box, key) for key in ("p25", "p50", "p75", "p95", "upper", "lower")}


def _percents(rows: Iterable[Share | rule_details.NamedTime]) -> dict[str, Any]:
    return {_KINDS.get(row.name, str(_phase(row.name))): row.percent for row in rows}


def _phase(name: str | None) -> str | None:
    return f"Step:ModeKeys.{name}" if name in _MODES else name


def _seconds(ns: float | None) -> float | None:
    return None if ns is None else ns / 1e9


def _histogram(histogram: Histogram | None) -> dict[str, Any]:
    return {"probs": list(histogram.counts), "binedges": [edge / 1e9 for edge in histogram.edges]} if histogram else {}


def _rounded(value: Any) -> Any:
    if isinstance(value, float):
        return float(f"{value:.15g}")
    if isinstance(value, dict):
        return {str(key): _rounded(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_rounded(item) for item in value]
    return value
