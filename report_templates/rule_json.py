"""How do the verdicts look to programs that read the hosted service's rule output? One JSON file per rule, in its shape.

``RuleTriggered``, ``Violations``, ``Details``, ``Datapoints`` and ``RuleParameters`` ("name:value" lines) are the service's keys;
``Verdict`` and ``Reason`` stand beside them, because 0 times triggered can also mean that there was nothing to look at. Details of the
documented rules have the service's keys as far as the data is there: GPUs are "gpu0", moments are microseconds (``job_start`` and
``job_end``: seconds), durations are seconds, a GPU that did not trigger the rule is left out. Other rules have ours.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

from ..analysis.report import Report, RuleResult

_ROWS = Iterable[Mapping[str, Any]]
_MODES: Final = ("TRAIN", "EVAL", "PREDICT", "GLOBAL")
_METRICS: Final = {
    "network": "Network", "gpu": "GPU", "cpu": "CPU", "cpu_memory": "CPU memory", "gpu_memory": "GPU memory", "io_wait": "I/O",
}  # fmt: skip
_KINDS: Final = {"CPU operators": "cpu_functions", "GPU operators": "gpu_functions", "other": "others"}
_BOX: Final = ("p25", "p50", "p75", "p95", "upper", "lower")


def rule_files(report: Report) -> dict[str, bytes]:
    """File name -> content, a file for each rule but ProfilerReport (the sum of the others). Equal reports give equal bytes."""
    files: dict[str, bytes] = {}
    for result in report.rules:
        if result.category != "report":
            stem = re.sub(r"[^A-Za-z0-9_-]+", "_", result.rule) or "rule"
            name, number = f"{stem}.json", 1
            while name.lower() in {used.lower() for used in files}:
                number += 1
                name = f"{stem}-{number}.json"
            text = json.dumps(_content(result), ensure_ascii=False, allow_nan=False)
            files[name] = (text + "\n").encode("utf-8", "backslashreplace")
    return files


def ours(data: bytes) -> bool:
    """Is this the content of a file that :func:`rule_files` made?"""
    try:
        content = json.loads(data)
    except ValueError:
        return False
    return isinstance(content, dict) and {"RuleTriggered", "Verdict", "Reason"} <= content.keys()


def _content(result: RuleResult) -> dict[str, Any]:
    shape = _SHAPES.get(result.rule)
    details = shape(result.details, result) if shape and result.category != "custom" else result.details
    return {
        "RuleTriggered": result.triggered,
        "Violations": result.violations,
        "Details": _rounded(details),
        "Datapoints": result.datapoints,
        "RuleParameters": "\n".join(f"{name}:{value}" for name, value in _parameters(result)),
        "Verdict": result.verdict,
        "Reason": result.reason,
    }


def _parameters(result: RuleResult) -> Iterable[tuple[str, Any]]:
    """The service leaves out the scan interval, which it does not judge by, and names the factor of StepOutlier twice."""
    if result.rule == "StepOutlier" and "stddev" in result.parameters:
        yield "threshold", result.parameters["stddev"]
    yield from ((name, value) for name, value in result.parameters.items() if name != "scan_interval_us")


# -- one function per documented rule: our details, the result -> the service's Details ------------------------------------


def _low_gpu_utilization(details: Mapping[str, Any], result: RuleResult) -> dict[str, Any]:
    def row(device: Mapping[str, Any]) -> dict[str, Any]:
        box = device.get("box") or {}
        return {"gpu_max": box.get("max"), "gpu_95": device.get("p95"), "gpu_5": device.get("p5"), **_box(box)}

    return _by_gpu((device for device in _list(details, "devices") if device.get("triggered")), row, result)


def _gpu_memory_increase(details: Mapping[str, Any], result: RuleResult) -> dict[str, Any]:
    def row(device: Mapping[str, Any]) -> dict[str, Any]:
        box = device.get("box") or {}
        return {"increase": device.get("largest_increase"), "gpu_max": box.get("max"), "p05": box.get("p5"), **_box(box)}

    return _by_gpu((device for device in _list(details, "devices") if device.get("violations")), row, result)


def _batch_size(details: Mapping[str, Any], result: RuleResult) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for device in _list(details, "devices"):
        if device.get("violations"):
            boxes, node = device.get("boxes") or {}, found.setdefault(device["node"], {})
            gpu = _gpu(device)
            node.setdefault("cpu", _box(boxes.get("cpu") or {}))
            node[gpu], node[f"{gpu}_memory"] = _box(boxes.get("gpu") or {}), _box(boxes.get("gpu_memory") or {})
    return _dated(found, result)


def _bottleneck(details: Mapping[str, Any], result: RuleResult) -> dict[str, Any]:
    total, active = details.get("total") or {}, details.get("active") or {}
    found: dict[str, Any] = {"low_gpu_utilization": total.get("low")} if total else {}
    if phases := _percents(active.get("phases") or ()):
        found["phase"] = phases
    return found


def _load_balancing(details: Mapping[str, Any], result: RuleResult) -> dict[str, Any]:
    """``distances``: pairs of one node, as the service has them; those with another node's GPU stand apart."""
    found: dict[str, Any] = {}
    for device in _list(details, "devices"):
        if device.get("evaluated"):
            node = found.setdefault(device["node"], {"workloads": {}, "distances": {}})
            samples = device.get("samples") or 0
            node["workloads"][_gpu(device)] = [round(share * samples) for share in device.get("histogram") or ()]
    for pair in _list(details, "pairs"):
        one, other = pair["a"], pair.get("b")
        if not pair.get("violation"):
            continue
        node = found.setdefault(one["node"], {"workloads": {}, "distances": {}})
        if other is None:
            node.setdefault("distances_to_mean", {})[_gpu(one)] = pair["distance"]
        elif other["node"] == one["node"]:
            node["distances"].setdefault(_gpu(one), {})[_gpu(other)] = pair["distance"]
        else:
            apart = node.setdefault("distances_to_other_nodes", {}).setdefault(_gpu(one), {})
            apart[f"{other['node']}/{_gpu(other)}"] = pair["distance"]
    return found


def _overall_system_usage(details: Mapping[str, Any], result: RuleResult) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for node in _list(details, "nodes"):
        for metric in node.get("metrics") or ():
            if name := _METRICS.get(metric["metric"]):
                values = {key: None if metric.get(key) is None else round(metric[key], 2) for key in ("max", "p99", "p95", "p50", "min")}
                found.setdefault(name, {})[node["node"]] = values
    return {name: found[name] for name in _METRICS.values() if name in found}


def _max_initialization_time(details: Mapping[str, Any], result: RuleResult) -> dict[str, Any]:
    """``last`` is the end of the last step; the service has its start."""
    started, initialization, loop = details.get("started_ns"), details.get("initialization_ns"), details.get("loop_ns")
    steps: dict[str, Any] = {}
    if started is not None and initialization is not None:
        steps["first"] = (started + initialization) // 1000
        if loop is not None:
            steps["last"] = (started + initialization + loop) // 1000
    found: dict[str, Any] = {"step_num": steps}
    for key, value in (("job_start", started), ("job_end", details.get("ended_ns"))):
        if value is not None:
            found[key] = round(value / 1e9, 6)
    return found


def _overall_framework_metrics(details: Mapping[str, Any], result: RuleResult) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, rows in (("ratio", "operator_time"), ("phase", "phases"), ("general", "step_parts"), ("horovod", "collectives")):
        if shares := _percents(_list(details, rows)):
            found[key] = shares
    found.setdefault("phase_time", {})
    for key in ("CPU", "GPU"):
        if operators := list(_list(details, f"{key.lower()}_operators")):
            found[key] = {row["name"]: row.get("percent") for row in operators}
            found[f"{key}_total"] = {row["name"]: round(row["total_ns"] / 1000) for row in operators}
    parts = {row["name"]: row["total_ns"] for row in _list(details, "step_parts")}
    both = (parts.get("forward") or 0) + (parts.get("backward") or 0)
    if "forward" in parts and "backward" in parts and both:
        found["forward_backward"] = {"Forward pass": 100 * parts["forward"] / both, "Backward pass": 100 * parts["backward"] / both}
    return found


def _step_outlier(details: Mapping[str, Any], result: RuleResult) -> dict[str, Any]:
    """A worker is "node-pid"; where it has steps of several phases, the one with most steps has the plain name."""
    found: dict[str, Any] = {}
    for group in sorted(_list(details, "groups"), key=lambda group: -(group.get("steps") or 0)):
        worker = "-".join(str(part) for part in (group["node"], group.get("pid")) if part is not None)
        phase = group.get("phase")
        steps = [
            str(step["index"])
            for step in _list(details, "slowest")
            if step.get("outlier") and all(step.get(key) == group.get(key) for key in ("node", "rank", "pid", "phase"))
        ]
        # A rank without a process id, or a further phase: a name of its own.
        for extra in (group.get("rank"), phase, len(found)):
            if worker in found and extra is not None:
                worker = f"{worker}-{extra}"
        found[worker] = {
            "step_stats": {key: _seconds(group.get(f"{key}_ns")) for key in ("mean", "max", "p99", "p95", "p50", "min")},
            "number_of_outliers": group.get("outliers"),
            "phase": _phase(phase),
            "stddev": _seconds(group.get("std_ns")),
            **_histogram(group.get("normal_histogram")),
            "step_numbers": steps,
        }
    phases = _percents((details.get("active") or {}).get("phases") or ())
    return {"step_details": found, **({"phase": phases} if phases else {})}


def _dataloader(details: Mapping[str, Any], result: RuleResult) -> dict[str, Any]:
    """The service has one of each for the whole run: those of the first machine with an issue, else of the first."""
    nodes = list(_list(details, "nodes"))
    node = next((one for one in nodes if one.get("issue")), nodes[0] if nodes else None)
    found: dict[str, Any] = {}
    configurations = list(_list(details, "configurations"))
    same = [one for one in configurations if node is None or one.get("node") == node.get("node")]
    for key in ("pin_memory", "num_workers"):
        if values := [one[key] for one in (same or configurations) if one.get(key) is not None]:
            found[key] = values[0]
    if node is not None:
        loaders = node.get("loaders")
        found |= {"cores": node.get("cores"), "dataloaders": None if loaders is None else int(loaders)}
    loading = details.get("loading") or {}
    if loading:
        times = {key: _seconds(loading.get(f"{key}_ns")) for key in ("p25", "p50", "p95")}
        found["dataloading_time"] = {**times, **_histogram(details.get("histogram"))}
    return found


_SHAPES: Final[dict[str, Callable[[Mapping[str, Any], RuleResult], dict[str, Any]]]] = {
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


def _by_gpu(devices: _ROWS, row: Callable[[Mapping[str, Any]], dict[str, Any]], result: RuleResult) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for device in devices:
        found.setdefault(device["node"], {})[_gpu(device)] = row(device)
    return _dated(found, result)


def _dated(found: dict[str, Any], result: RuleResult) -> dict[str, Any]:
    """With the moment the rule last triggered, where it did."""
    return {**found, "last_timestamp": result.last_ns // 1000} if found and result.last_ns is not None else found


def _list(details: Mapping[str, Any], key: str) -> _ROWS:
    return details.get(key) or ()


def _gpu(device: Mapping[str, Any]) -> str:
    return f"gpu{device['device']}"


def _box(box: Mapping[str, Any]) -> dict[str, Any]:
    return {key: box.get(key) for key in _BOX}


def _percents(rows: _ROWS) -> dict[str, Any]:
    return {_KINDS.get(str(row["name"]), str(_phase(row["name"]))): row.get("percent") for row in rows}


def _phase(name: str | None) -> str | None:
    return f"Step:ModeKeys.{name}" if name in _MODES else name


def _seconds(ns: float | None) -> float | None:
    return None if ns is None else ns / 1e9


def _histogram(histogram: Mapping[str, Any] | None) -> dict[str, Any]:
    if not histogram:
        return {}
    return {"probs": list(histogram["counts"]), "binedges": [edge / 1e9 for edge in histogram["edges"]]}


def _rounded(value: Any) -> Any:
    if isinstance(value, float):
        return float(f"{value:.15g}")
    if isinstance(value, dict):
        return {str(key): _rounded(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_rounded(item) for item in value]
    return value
