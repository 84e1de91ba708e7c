"""The rule files: the keys and values of the hosted service's rule output."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest
from postrun.analysis.report import Report, RuleResult
from postrun.analysis.report.rule_details import DETAILS
from postrun.report_templates.output.render import render
from postrun.report_templates.output.rule_json import rule_files
from rule_details import details_from

BOX = {"samples": 9, "min": 1, "p5": 2, "p25": 3, "p50": 4, "p75": 5, "p95": 6, "max": 9, "mean": 4.5, "lower": 1, "upper": 8,
       "whisker_lower": 1, "whisker_upper": 7}  # fmt: skip
BOX_VALUES = {"p25": 3, "p50": 4, "p75": 5, "p95": 6, "upper": 8, "lower": 1}
S = 1_000_000_000


def result(rule: str, details: dict[str, Any], **more: Any) -> RuleResult:
    arguments: dict[str, Any] = {
        "verdict": "IssuesFound", "category": "system", "reason": None, "capture": None, "triggered": 3, "violations": 4, "datapoints": 5,
        "windows": 6, "windows_triggered": 2, "first_ns": 1, "last_ns": 1_700_000_000_123_456_789,
        "parameters": {"threshold_p95": 70, "mode": None, "scan_interval_us": 60_000_000}, "changed_parameters": {}, "parameter_table": (),
        "finding": None, "recommendation": None, "checks": "", "condition": "", "advice": "", **more,
    }  # fmt: skip
    typed = details and rule in DETAILS and arguments["category"] == "system"
    return RuleResult(rule=rule, details=details_from(rule, details) if typed else details, **arguments)


@pytest.fixture
def empty(small_reports: dict[str, Report]) -> Report:
    return small_reports["empty"]


def content(report: Report, rule: str, details: dict[str, Any], **more: Any) -> dict[str, Any]:
    """The file of one rule, read back."""
    files = rule_files(dataclasses.replace(report, rules=(result(rule, details, **more),)))
    assert list(files) == [f"{rule}.json"]
    loaded = json.loads(files[f"{rule}.json"])
    assert isinstance(loaded, dict)
    return loaded


def details_of(report: Report, rule: str, details: dict[str, Any], **more: Any) -> Any:
    return content(report, rule, details, **more)["Details"]


def test_the_keys_are_those_of_the_service(empty: Report) -> None:
    output = content(empty, "HostBound", {"devices": [{"node": "n", "device": 0}]}, category="trace")
    assert output == {
        "RuleTriggered": 3, "Violations": 4, "Datapoints": 5, "Details": {"devices": [{"node": "n", "device": 0}]},
        "RuleParameters": "threshold_p95:70\nmode:None", "Verdict": "IssuesFound", "Reason": None,
    }  # fmt: skip


def test_step_outlier_names_its_factor_twice_as_the_service_does(empty: Report) -> None:
    parameters = {"stddev": 3, "mode": None, "n_outliers": 10, "scan_interval_us": 1}
    output = content(empty, "StepOutlier", {}, parameters=parameters)
    assert sorted(output["RuleParameters"].split("\n")) == ["mode:None", "n_outliers:10", "stddev:3", "threshold:3"]
    assert output["Details"] == {"step_details": {}}


def test_low_gpu_utilization(empty: Report) -> None:
    device = {"node": "algo-1", "device": 0, "p95": 48.05, "p5": 30.95, "triggered": 2, "box": BOX}
    quiet = {"node": "algo-1", "device": 1, "p95": 99.0, "p5": 90.0, "triggered": 0, "box": BOX}
    assert details_of(empty, "LowGPUUtilization", {"devices": [device, quiet]}) == {
        "algo-1": {"gpu0": {"gpu_max": 9, "gpu_95": 48.05, "gpu_5": 30.95, **BOX_VALUES}},
        "last_timestamp": 1_700_000_000_123_456,
    }
    assert details_of(empty, "LowGPUUtilization", {"devices": [quiet]}) == {}


def test_gpu_memory_increase(empty: Report) -> None:
    device = {"node": "a", "device": 2, "violations": 1, "largest_increase": 7.25, "box": BOX}
    assert details_of(empty, "GPUMemoryIncrease", {"devices": [device]}, last_ns=None) == {
        "a": {"gpu2": {"increase": 7.25, "gpu_max": 9, "p05": 2, **BOX_VALUES}}
    }


def test_batch_size(empty: Report) -> None:
    boxes = {"cpu": BOX, "gpu": BOX, "gpu_memory": BOX}
    device = {"node": "a", "device": 0, "violations": 1, "boxes": boxes}
    assert details_of(empty, "BatchSize", {"devices": [device, {**device, "device": 1, "violations": 0}]}) == {
        "a": {"cpu": BOX_VALUES, "gpu0": BOX_VALUES, "gpu0_memory": BOX_VALUES},
        "last_timestamp": 1_700_000_000_123_456,
    }


@pytest.mark.parametrize("rule", ["CPUBottleneck", "IOBottleneck"])
def test_bottlenecks(empty: Report, rule: str) -> None:
    details = {"total": {"snapshots": 2400, "low": 800}, "active": {"phases": [{"name": "TRAIN", "time_ns": 1, "percent": 75.0}]}}
    assert details_of(empty, rule, details) == {"low_gpu_utilization": 800, "phase": {"Step:ModeKeys.TRAIN": 75.0}}
    assert details_of(empty, rule, {}, verdict="NotEvaluated") == {}


def test_load_balancing(empty: Report) -> None:
    device = {"node": "a", "device": 0, "samples": 4, "evaluated": True, "histogram": [0.25, 0.75, *[0.0] * 48]}
    devices = [device, {**device, "device": 1}, {**device, "node": "b"}, {**device, "node": "b", "device": 1, "evaluated": False}]
    ends = [{"node": "a", "device": 0}, {"node": "a", "device": 1}, {"node": "b", "device": 0}]
    pairs = [
        {"a": ends[0], "b": ends[1], "distance": 0.75, "violation": True},
        {"a": ends[0], "b": ends[2], "distance": 0.5, "violation": True},
        {"a": ends[1], "b": ends[2], "distance": 0.1, "violation": False},
    ]
    counts = [1, 3, *[0] * 48]
    assert details_of(empty, "LoadBalancing", {"devices": devices, "pairs": pairs}) == {
        "a": {
            "workloads": {"gpu0": counts, "gpu1": counts},
            "distances": {"gpu0": {"gpu1": 0.75}},
            "distances_to_other_nodes": {"gpu0": {"b/gpu0": 0.5}},
        },
        "b": {"workloads": {"gpu0": counts}, "distances": {}},
    }
    mean = [{"a": ends[0], "b": None, "distance": 0.75, "violation": True}]
    assert details_of(empty, "LoadBalancing", {"devices": [], "pairs": mean}) == {
        "a": {"workloads": {}, "distances": {}, "distances_to_mean": {"gpu0": 0.75}}
    }


def test_overall_system_usage(empty: Report) -> None:
    values = {"unit": "%", "max": 71.004, "p99": 70, "p95": 60, "p50": 50, "min": 40, "derived": False}
    metrics = [{"metric": name, **values} for name in ("gpu", "network", "io_wait", "disk_read", "cpu_memory")]
    details = details_of(empty, "OverallSystemUsage", {"nodes": [{"node": "a", "statement": "", "metrics": metrics}]})
    row = {"a": {"max": 71.0, "p99": 70, "p95": 60, "p50": 50, "min": 40}}
    assert details == {"Network": row, "GPU": row, "CPU memory": row, "I/O": row}


def test_max_initialization_time(empty: Report) -> None:
    details = {"started_ns": 1_000 * S, "ended_ns": 1_200 * S + 5_000, "initialization_ns": 119 * S, "loop_ns": 60 * S}
    assert details_of(empty, "MaxInitializationTime", details) == {
        "step_num": {"first": 1_119_000_000, "last": 1_179_000_000},
        "job_start": 1000.0,
        "job_end": 1200.000005,
    }
    assert details_of(empty, "MaxInitializationTime", {}) == {"step_num": {}}


def test_overall_framework_metrics(empty: Report) -> None:
    def row(name: str, ns: int, percent: float) -> dict[str, Any]:
        return {"name": name, "total_ns": ns, "count": 1, "percent": percent}

    details = {
        "phases": [row("TRAIN", 1, 12.5), row("other", 1, 87.5)],
        "step_parts": [row("forward", 3 * S, 75.0), row("backward", S, 25.0)],
        "operator_time": [row("CPU operators", 1, 60.0), row("GPU operators", 1, 40.0)],
        "cpu_operators": [row("aten::mm", 2_500_000, 100.0)],
        "gpu_operators": [row("aten::mm", 1_500_000, 100.0)],
        "collectives": [row("ncclAllReduce", 1, 100.0)],
        "notes": [],
    }
    assert details_of(empty, "OverallFrameworkMetrics", details) == {
        "ratio": {"cpu_functions": 60.0, "gpu_functions": 40.0},
        "phase": {"Step:ModeKeys.TRAIN": 12.5, "others": 87.5},
        "phase_time": {},
        "general": {"forward": 75.0, "backward": 25.0},
        "forward_backward": {"Forward pass": 75.0, "Backward pass": 25.0},
        "CPU": {"aten::mm": 100.0},
        "CPU_total": {"aten::mm": 2500},
        "GPU": {"aten::mm": 100.0},
        "GPU_total": {"aten::mm": 1500},
        "horovod": {"ncclAllReduce": 100.0},
    }


def test_step_outlier(empty: Report) -> None:
    histogram = {"edges": [0.0, 0.5 * S, 1.0 * S], "counts": [7, 2], "unit": "ns", "logarithmic": False, "beyond": 0}
    train = {
        "node": "algo-1", "rank": 0, "pid": 26, "phase": "TRAIN", "steps": 10, "mean_ns": 0.25 * S, "std_ns": 0.5 * S, "outliers": 1,
        "max_ns": 2 * S, "p99_ns": 1.5 * S, "p95_ns": S, "p50_ns": 0.5 * S, "min_ns": 0.125 * S, "normal_histogram": histogram,
    }  # fmt: skip
    worker = {"node": "algo-1", "rank": 0, "pid": 26}
    slowest = [
        {**worker, "phase": "TRAIN", "index": 9, "outlier": True},
        {**worker, "phase": "TRAIN", "index": 3, "outlier": False},
        {**worker, "phase": "EVAL", "index": 1, "outlier": True},
    ]
    evaluated = {**train, "phase": "EVAL", "steps": 4, "normal_histogram": None}
    details = details_of(empty, "StepOutlier", {"groups": [evaluated, train], "slowest": slowest, "active": {"phases": []}})
    assert list(details) == ["step_details"]
    assert details["step_details"]["algo-1-26"] == {
        "step_stats": {"mean": 0.25, "max": 2.0, "p99": 1.5, "p95": 1.0, "p50": 0.5, "min": 0.125},
        "number_of_outliers": 1,
        "phase": "Step:ModeKeys.TRAIN",
        "stddev": 0.5,
        "probs": [7, 2],
        "binedges": [0.0, 0.5, 1.0],
        "step_numbers": ["9"],
    }
    others = [value for key, value in details["step_details"].items() if key != "algo-1-26"]
    assert [(value["phase"], value["step_numbers"]) for value in others] == [("Step:ModeKeys.EVAL", ["1"])]


def test_dataloader(empty: Report) -> None:
    details = {
        "nodes": [
            {"node": "a", "cores": 8, "loaders": 8.0, "issue": False},
            {"node": "b", "cores": 4, "loaders": 1.0, "issue": True},
        ],
        "configurations": [
            {"node": "a", "pin_memory": True, "num_workers": 8, "count": 1},
            {"node": "b", "pin_memory": False, "num_workers": 0, "count": 1},
        ],
        "loading": {"count": 2, "p25_ns": S, "p50_ns": 2 * S, "p95_ns": 3 * S, "max_ns": 4 * S, "total_ns": 5 * S},
        "histogram": {"edges": [0.0, 1.0 * S], "counts": [2], "unit": "ns", "logarithmic": False, "beyond": 0},
    }
    assert details_of(empty, "Dataloader", details) == {
        "pin_memory": False, "num_workers": 0, "cores": 4, "dataloaders": 1,
        "dataloading_time": {"p25": 1.0, "p50": 2.0, "p95": 3.0, "probs": [2], "binedges": [0.0, 1.0]},
    }  # fmt: skip


def test_a_rule_of_that_name_that_is_not_ours_keeps_its_own_details(empty: Report) -> None:
    assert details_of(empty, "Dataloader", {"mine": 1}, category="custom") == {"mine": 1}


@pytest.mark.parametrize(
    "rule",
    [
        "LowGPUUtilization", "BatchSize", "CPUBottleneck", "IOBottleneck", "GPUMemoryIncrease", "LoadBalancing", "OverallSystemUsage",
        "MaxInitializationTime", "OverallFrameworkMetrics", "StepOutlier", "Dataloader",
    ],
)  # fmt: skip
def test_a_rule_that_looked_at_nothing_has_a_file_that_says_so(empty: Report, rule: str) -> None:
    output = content(empty, rule, {}, verdict="NotEvaluated", reason="no samples", triggered=0)
    assert (output["Verdict"], output["Reason"], output["RuleTriggered"]) == ("NotEvaluated", "no samples", 0)
    assert isinstance(output["Details"], dict)


def test_names_of_rules_become_names_of_files_in_one_folder(empty: Report) -> None:
    named = [result(rule, {}, category="custom") for rule in ("../../up", "a/b", "a b", "A/B", "𝛼")]
    summary = result("ProfilerReport", {}, category="report")
    files = rule_files(dataclasses.replace(empty, rules=(summary, *named)))
    assert list(files) == ["_up.json", "a_b.json", "a_b-2.json", "A_B-3.json", "_.json"]


def test_render_writes_the_folder_and_names_it(empty: Report, tmp_path: Path) -> None:
    two = dataclasses.replace(empty, rules=(result("StepOutlier", {}), result("HostBound", {"name": "\ud800"}, category="trace")))
    written = render(two, tmp_path, ("rule-json", "junit"))
    assert written == {"junit": tmp_path / "report.junit.xml", "rule-json": tmp_path / "profiler-reports"}
    assert sorted(path.name for path in tmp_path.iterdir()) == ["profiler-reports", "report.junit.xml"]
    assert sorted(path.name for path in written["rule-json"].iterdir()) == ["HostBound.json", "StepOutlier.json"]
    for path in written["rule-json"].iterdir():
        json.loads(path.read_text("utf-8"))


def test_files_of_an_earlier_report_go_and_those_of_others_stay(empty: Report, tmp_path: Path) -> None:
    folder = tmp_path / "profiler-reports"
    render(dataclasses.replace(empty, rules=(result("StepOutlier", {}), result("BatchSize", {}))), tmp_path, ("rule-json",))
    hosted = {"RuleTriggered": 0, "Violations": 0, "Details": {}, "Datapoints": 0, "RuleParameters": ""}
    (folder / "Hosted.json").write_text(json.dumps(hosted), encoding="utf-8")
    (folder / "broken.json").write_bytes(b"\xff{")
    (folder / "box_plot.png").write_bytes(b"")
    render(dataclasses.replace(empty, rules=(result("BatchSize", {}),)), tmp_path, ("rule-json",))
    assert sorted(path.name for path in folder.iterdir()) == ["BatchSize.json", "Hosted.json", "box_plot.png", "broken.json"]


def test_equal_reports_give_equal_bytes(empty: Report) -> None:
    report = dataclasses.replace(empty, rules=(result("LowGPUUtilization", {"devices": []}),))
    assert rule_files(report) == rule_files(report)
