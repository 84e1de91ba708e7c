"""The rules find in complete folders what a second opinion, computed from the files alone, finds."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
from judging import rules_of
from postrun.analysis.options import Options
from postrun.analysis.rules.checks import load_balancing
from postrun.analysis.rules.engine.selection import select
from postrun.ingest import ingest
from rule_details import plain_details
from slow_params import slow_except

sys.path.insert(0, str(Path(__file__).resolve().parent.parent.parent.parent / "helpers"))

from second_opinion import opinions, random_settings, read_run, write_run


@pytest.fixture(autouse=True)
def any_number(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lift the least number of samples of LoadBalancing: the runs are small."""
    monkeypatch.setattr(load_balancing, "samples_for_distance", lambda *_: 0)


TOP = ("verdict", "triggered", "violations", "datapoints", "windows", "windows_triggered")
# Chosen so that every rule finds an issue in some run and none, or too little data, in others.
SEEDS = (3030, 3050, 3054, 3056, 3070, 3082, 3088, 3098)


def same(actual: Any, expected: Any) -> bool:
    if actual is None or expected is None:
        return actual is expected
    if isinstance(expected, (bool, str, list)) or (isinstance(expected, int) and isinstance(actual, int)):
        return bool(actual == expected)
    return bool(actual == pytest.approx(float(expected), rel=1e-9, abs=1e-9))


def compared(location: str, actual: Mapping[str, Any], expected: Mapping[str, Any], keys: tuple[str, ...] | None = None) -> Iterator[str]:
    """Yield one line per figure that differs, or that the rule does not return."""
    for key in keys or tuple(expected):
        if key not in expected:
            continue
        if isinstance(expected[key], dict):
            yield from compared(f"{location}.{key}", actual.get(key) or {}, expected[key])
        elif key not in actual or not same(actual[key], expected[key]):
            value = expected[key]
            yield f"{location}.{key}: rule {actual.get(key)!r}, second opinion {float(value) if isinstance(value, Fraction) else value!r}"


def rows(details: Mapping[str, Any], name: str, *keys: str) -> dict[Any, Any]:
    return {tuple(row[key] for key in keys) if len(keys) > 1 else row[keys[0]]: row for row in details.get(name, ())}


def episodes_cut(episodes: list[dict[str, Any]]) -> Fraction:
    """Return the size of the twenty-first episode, or -1.

    Twenty episodes are shown; of episodes of this size any can be among them."""
    largest = sorted((episode["largest"] for episode in episodes), reverse=True)
    return largest[20] if len(largest) > 20 else Fraction(-1)


def disagreements(folder: Path, preset: str, settings: Mapping[str, Any]) -> list[str]:
    expected = opinions(read_run(folder), preset, settings)
    with ingest([folder]) as store:
        report = rules_of(store, Options(selection=select(preset=preset, settings=settings)))
    actual = {result.rule: result for result in report.rules}
    lines: list[str] = []
    for rule, opinion in expected.items():
        result = actual[rule]
        top = {key: getattr(result, key) for key in TOP}
        lines += compared(rule, top, opinion, ("verdict",))
        if opinion["verdict"] == result.verdict == "NotEvaluated":
            continue
        lines += compared(rule, top, opinion, TOP[1:])
        details = plain_details(result)
        if "devices" in opinion:
            devices = rows(details, "devices", "node", "device")
            if set(devices) != set(opinion["devices"]):
                lines.append(f"{rule}: devices {sorted(devices)}, second opinion {sorted(opinion['devices'])}")
            for key, figures in opinion["devices"].items():
                device = dict(devices.get(key, {}))
                figures = dict(figures)
                if (unused := figures.pop("unused", None)) is not None and unused != (device.get("state") == "unused"):
                    lines.append(f"{rule} {key}: state {device.get('state')}, unused {unused}")
                episodes = figures.pop("episodes", None)
                lines += compared(f"{rule} {key}", device, figures)
                if episodes is not None:
                    listed = {row["start_ns"]: row for row in device.get("episodes", ())}
                    for episode in sorted(episodes, key=lambda row: -row["largest"])[:20]:
                        if episode["largest"] > episodes_cut(episodes):
                            lines += compared(f"{rule} {key} episode", listed.get(episode["start_ns"], {}), episode)
                    if len(device.get("episodes", ())) + device.get("episodes_left_out", 0) != len(episodes):
                        lines.append(f"{rule} {key}: {len(device.get('episodes', ()))} episodes, second opinion {len(episodes)}")
        if rule.endswith("Bottleneck"):
            nodes = rows(details, "nodes", "node")
            if set(nodes) != set(opinion["nodes"]):
                lines.append(f"{rule}: nodes {sorted(nodes)}, second opinion {sorted(opinion['nodes'])}")
            for node, figures in opinion["nodes"].items():
                lines += compared(
                    f"{rule} {node}", nodes.get(node, {}), {k: v for k, v in figures.items() if k not in ("seen", "exceeded")}
                )
        if rule == "LoadBalancing":
            pairs = {
                frozenset(((row["a"]["node"], row["a"]["device"]), (row["b"]["node"], row["b"]["device"]))): row for row in details["pairs"]
            }
            for pair, distance in opinion["pairs"].items():
                lines += compared(f"{rule} {pair}", pairs.get(frozenset(pair), {}), {"distance": distance})
            for row in details["devices"]:
                key = (row["node"], row["device"])
                lines += compared(f"{rule} {key}", row, {"mean": opinion["means"][key], "evaluated": key in opinion["judged"]})
                if row["histogram"] != pytest.approx(opinion["shares"][key], abs=1e-12):
                    lines.append(f"{rule} {key}: histogram")
        if rule == "MaxInitializationTime":
            lines += compared(rule, details, {k: v for k, v in opinion.items() if k != "verdict"})
        if rule == "StepOutlier":
            groups = rows(details, "groups", "node", "pid", "phase")
            if set(groups) != set(opinion["groups"]):
                lines.append(f"{rule}: groups {sorted(groups)}, second opinion {sorted(opinion['groups'])}")
            for key, figures in opinion["groups"].items():
                lines += compared(f"{rule} {key}", groups.get(key, {}), figures)
            slowest = [row["duration_ns"] - groups[row["node"], row["pid"], row["phase"]]["p50_ns"] for row in details["slowest"]]
            if slowest != pytest.approx([float(extra) for extra in opinion["slowest"]]):
                lines.append(f"{rule}: slowest {slowest}, second opinion {opinion['slowest']}")
        if rule == "OverallSystemUsage":
            for row in details["nodes"]:
                metrics = rows(row, "metrics", "metric")
                statement = opinion["statements"][row["node"]]
                if statement and not row["statement"].startswith(statement):
                    lines.append(f"{rule} {row['node']}: {row['statement']}, second opinion {statement}")
                for metric, figures in opinion["nodes"][row["node"]].items():
                    lines += compared(f"{rule} {row['node']} {metric}", metrics.get(metric, {}), figures)
        if rule == "OverallFrameworkMetrics":
            phases = rows(details, "phases", "name")
            for name, figures in opinion["phases"].items():
                lines += compared(f"{rule} {name}", phases.get(name, {}), figures)
        if rule == "Dataloader":
            nodes = rows(details, "nodes", "node")
            for node, figures in opinion["nodes"].items():
                lines += compared(f"{rule} {node}", nodes.get(node, {}), figures)
            lines += compared(rule, details["loading"], opinion["loading"])
    issue = any(opinion["verdict"] == "IssuesFound" for opinion in expected.values())
    if (actual["ProfilerReport"].verdict == "IssuesFound") != issue:
        lines.append(f"ProfilerReport: {actual['ProfilerReport'].verdict}")
    return lines


@pytest.mark.parametrize("seed", slow_except(SEEDS[:4], SEEDS))
def test_the_rules_agree_with_a_second_opinion(seed: int, tmp_path: Path) -> None:
    write_run(tmp_path, seed)
    preset, settings = random_settings(seed)
    assert disagreements(tmp_path, preset, settings) == []


def write_samples(folder: Path, node: str, series: Mapping[tuple[str, str, str], list[float]]) -> None:
    """Write values by (Type, Name, Dimension), every half second after a full minute."""
    files: dict[int, list[str]] = {}
    for (kind, name, dimension), values in series.items():
        for k, value in enumerate(values):
            at = 1_700_000_040_001 + 500 * k
            record = {"Type": kind, "Name": name, "Dimension": dimension, "Value": value, "NodeId": node, "Timestamp": at / 1000}
            files.setdefault(at // 60_000 * 60, []).append(json.dumps(record))
    for minute, lines in files.items():
        location = folder / "system" / "incremental" / "2023111422"
        location.mkdir(parents=True, exist_ok=True)
        (location / f"{minute}.{node}.json").write_text("\n".join(lines) + "\n", encoding="utf-8")


GPU, MEMORY = ("gpu", "gpu0", "GPUUtilization"), ("gpu", "gpu0", "GPUMemoryUtilization")
SECOND_GPU = ("gpu", "gpu1", "GPUUtilization")
CORE, WAIT = ("cpu", "cpu0", "CPUUtilization"), ("cpu", "cpu0", "I/OWaitPercentage")
EVERY = (GPU, MEMORY, SECOND_GPU, CORE, WAIT)
SMALL = {
    "LowGPUUtilization_patience": 100, "BatchSize_patience": 100, "BatchSize_window": 50, "CPUBottleneck_patience": 100,
    "IOBottleneck_patience": 100, "GPUMemoryIncrease_patience": 100, "GPUMemoryIncrease_window": 50, "LoadBalancing_patience": 100,
}  # fmt: skip
SAMPLE_RULES = ("LowGPUUtilization", "BatchSize", "CPUBottleneck", "IOBottleneck", "GPUMemoryIncrease", "LoadBalancing")


def reasons(folder: Path, settings: Mapping[str, Any]) -> dict[str, tuple[str, str | None]]:
    with ingest([folder]) as store:
        report = rules_of(store, Options(selection=select(settings=settings)))
    return {result.rule: (result.verdict, result.reason) for result in report.rules}


@pytest.mark.parametrize(
    ("left_out", "expected"),
    [
        ((CORE,), {"CPUBottleneck": "no CPU samples in this run", "BatchSize": "no CPU samples in this run"}),
        ((WAIT,), {"IOBottleneck": "no I/O wait samples in this run"}),
        ((MEMORY,), {"GPUMemoryIncrease": "no GPU memory samples in this run", "BatchSize": "no GPU memory samples in this run"}),
        ((SECOND_GPU,), {"LoadBalancing": "one GPU in this run, nothing to compare it with"}),
        (
            (GPU, SECOND_GPU),
            {
                **dict.fromkeys(("LowGPUUtilization", "BatchSize", "CPUBottleneck", "IOBottleneck"), "no GPU utilization in this run"),
                "LoadBalancing": "no GPU utilization in this run",
            },
        ),
    ],
)
def test_what_is_missing_is_said(left_out: tuple[tuple[str, str, str], ...], expected: dict[str, str], tmp_path: Path) -> None:
    write_samples(tmp_path, "algo-1", {key: [75.0, 90.0] * 101 for key in EVERY if key not in left_out})
    actual = reasons(tmp_path, SMALL)
    for rule in SAMPLE_RULES:
        assert actual[rule] == (("NotEvaluated", expected[rule]) if rule in expected else ("NoIssuesFound", None)), rule
    for rule in ("StepOutlier", "MaxInitializationTime"):
        assert actual[rule] == ("NotEvaluated", "no step annotations in this run")
    assert actual["Dataloader"] == ("NotEvaluated", "no data loader events in this run")


@pytest.mark.parametrize("samples", [100, 101])
def test_more_than_patience_is_needed(samples: int, tmp_path: Path) -> None:
    write_samples(tmp_path, "algo-1", dict.fromkeys(EVERY, [75.0] * samples))
    actual = reasons(tmp_path, SMALL)
    of_two = {"LoadBalancing": "samples of two GPUs", "CPUBottleneck": "snapshots", "IOBottleneck": "snapshots"}
    for rule in SAMPLE_RULES:
        what = of_two.get(rule, "samples")
        too_few = ("NotEvaluated", f"{samples} of more than 100 {what} needed")
        assert actual[rule] == (too_few if samples <= 100 else ("NoIssuesFound", None)), rule


def test_two_windows_are_enough_for_a_growth(tmp_path: Path) -> None:
    write_samples(tmp_path / "few", "algo-1", {MEMORY: [10.0] * 149 + [90.0] * 50})
    write_samples(tmp_path / "enough", "algo-1", {MEMORY: [10.0] * 100 + [90.0] * 100})
    settings = {"GPUMemoryIncrease_patience": 100, "GPUMemoryIncrease_window": 100}
    assert reasons(tmp_path / "few", settings)["GPUMemoryIncrease"] == ("NotEvaluated", "199 of 200 samples needed")
    assert reasons(tmp_path / "enough", settings)["GPUMemoryIncrease"] == ("IssuesFound", None)


def test_what_equals_a_threshold_is_neither_below_nor_above_it(tmp_path: Path) -> None:
    # p95 of 500 samples is at 474.05: 69 + 0.05 x (89 - 69) is 70, which floats miss by 1e-12; p5 is 69
    values = [69.0] * 475 + [89.0] * 25
    write_samples(tmp_path, "algo-1", {GPU: values, MEMORY: values, CORE: values, WAIT: [50.0] * 250 + [51.0] * 250})
    settings = {
        "LowGPUUtilization_patience": 499, "LowGPUUtilization_threshold_p5": 69, "BatchSize_window": 499, "BatchSize_patience": 499,
        "IOBottleneck_patience": 499, "IOBottleneck_gpu_threshold": 70, "CPUBottleneck_patience": 499, "CPUBottleneck_cpu_threshold": 69,
        "CPUBottleneck_gpu_threshold": 69, "GPUMemoryIncrease_window": 25, "GPUMemoryIncrease_increase": 20,
    }  # fmt: skip
    actual = reasons(tmp_path, settings)
    # Half of the snapshots are low (69 < 70) with I/O wait above 50%, less the 25 at 89%: 45%, not more than 50%.
    for rule in ("LowGPUUtilization", "IOBottleneck", "CPUBottleneck", "GPUMemoryIncrease"):
        assert actual[rule] == ("NoIssuesFound", None), rule
    assert actual["BatchSize"] == ("NoIssuesFound", None)
    below = {"LowGPUUtilization_threshold_p5": 69.001, "IOBottleneck_threshold": 44.9, "GPUMemoryIncrease_increase": 19.9}
    actual = reasons(tmp_path, settings | below)
    for rule in ("LowGPUUtilization", "IOBottleneck", "GPUMemoryIncrease"):
        assert actual[rule] == ("IssuesFound", None), rule
    assert reasons(tmp_path, settings | {"IOBottleneck_threshold": 45})["IOBottleneck"] == ("NoIssuesFound", None)


def write_steps(folder: Path, durations_us: list[int]) -> None:
    location = folder / "framework" / "pevents" / "2023111422"
    location.mkdir(parents=True)
    name, at = "Step:ModeKeys.TRAIN", 0
    records: list[dict[str, Any]] = [
        {"name": "process_name", "ph": "M", "pid": 0, "args": {"start_time_since_epoch_in_micros": 1_700_000_040_000_000}},
        {"name": "process_name", "ph": "M", "pid": 1, "args": {"name": name}},
    ]
    for number, duration in enumerate(durations_us):
        records.append({"name": name, "pid": 1, "ph": "X", "ts": at, "dur": duration, "args": {"pid": 27, "step_num": str(number)}})
        at += duration
    (location / f"{1_700_000_040_000_000 + at}_27-algo-1_pythontimeline.json").write_text(json.dumps(records), encoding="utf-8")


@pytest.mark.parametrize(("usual", "slow", "often"), [(569_286, 5_188_368, 20), (999_983, 77_777_777, 23)])
def test_a_step_as_long_as_the_threshold_is_no_outlier(usual: int, slow: int, often: int, tmp_path: Path) -> None:
    # m of 26 m steps are slow: mean + 5 × standard deviation is exactly the slow ones' length
    write_steps(tmp_path, ([usual] * 25 + [slow]) * often)
    assert reasons(tmp_path, {"StepOutlier_n_outliers": 1})["StepOutlier"] == ("NoIssuesFound", None)
    assert reasons(tmp_path, {"StepOutlier_n_outliers": 1, "StepOutlier_stddev": 4.9})["StepOutlier"] == ("IssuesFound", None)


@pytest.mark.parametrize(("steps", "verdict"), [(10, "NotEvaluated"), (11, "IssuesFound")])
def test_ten_steps_cannot_have_one_beyond_three_deviations(steps: int, verdict: str, tmp_path: Path) -> None:
    write_steps(tmp_path, [1_000] * (steps - 1) + [9_000])
    settings = {"StepOutlier_stddev": 3, "StepOutlier_n_outliers": 0.5}
    assert reasons(tmp_path, settings)["StepOutlier"][0] == verdict
