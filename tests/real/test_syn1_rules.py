"""Tests of the rules over samples on the synthetic 2 x 2 GPU run, and on runs with other numbers, against plain Python."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from postrun.analysis import analyze
from postrun.analysis.options import Options
from postrun.analysis.report import RuleResult
from postrun.analysis.rules.engine.selection import select
from postrun.ingest import ingest
from postrun.ingest.store import Store
from rule_details import plain_details
from sample_rules import (
    CONTROLLER,
    CORE,
    GPU,
    IOWAIT,
    SECOND,
    AmbiguousError,
    Sample,
    batch_size,
    bottleneck,
    line,
    low_gpu,
    sampled,
)

pytestmark = pytest.mark.slow

NAMES = ["CPUBottleneck", "IOBottleneck", "LowGPUUtilization", "BatchSize", "OverallSystemUsage"]
FIRST = 1_700_000_040_001_000_000  # of the generator: T0 + 1 ms
STEP = SECOND // 2
Results = dict[str, RuleResult]


def results(store: Store, preset: str, **settings: Any) -> Results:
    selection = select(NAMES, preset=preset, settings=settings)  # type: ignore[arg-type]
    return {result.rule: result for result in analyze(store, Options(selection=selection)).rules}


@pytest.fixture(scope="module")
def run(syn1: Path) -> Iterator[Store]:
    with ingest([syn1]) as store:
        yield store


@pytest.fixture(scope="module")
def presets(run: Store) -> dict[str, Results]:
    return {preset: results(run, preset) for preset in ("documented", "service")}


def gpus(result: RuleResult) -> dict[str, dict[str, Any]]:
    return {f"{row['node']}/gpu{row['device']}": row for row in plain_details(result)["devices"]}


@pytest.mark.parametrize("preset", ["documented", "service"])
def test_low_gpu_utilization(presets: dict[str, Results], syn1_figures: dict[str, Any], preset: str) -> None:
    actual, want = presets[preset]["LowGPUUtilization"], syn1_figures["LowGPUUtilization(patience=1000)"]
    assert sum(entry["triggered"] for entry in want.values()) == 24
    assert (actual.verdict, actual.triggered, actual.windows, actual.windows_triggered, actual.datapoints) == (
        "IssuesFound",
        24,
        12,
        12,
        9600,
    )
    rows = gpus(actual)
    assert {name: row["triggered"] for name, row in rows.items() if row["triggered"]} == {
        name: entry["triggered"] for name, entry in want.items()
    }
    kinds = {"low": ("under-utilized", "under_utilised"), "fluct": ("fluctuating", "fluctuating")}
    for name, entry in want.items():
        row = rows[name]
        (first, kind, *_), (last, _, p95, p5) = entry["first"], entry["last"]
        state, counted = kinds[kind]
        assert (row["state"], row[counted], row["windows"]) == (state, entry["triggered"], 12)
        assert (row["p95"], row["p5"]) == pytest.approx((p95, p5))
        # window w of the generator is its samples up to number 120 w
        assert (row["first_ns"], row["last_ns"]) == (FIRST + (120 * first - 1) * STEP, FIRST + (120 * last - 1) * STEP)
        assert (row["pattern"], row["triggered_percent"], row["derived"]) == ("whole run", 100.0, False)
    assert {row["state"] for name, row in rows.items() if name not in want} == {"fine"}
    # mean 77% and 39.5% of 1200 s unused, of 4 GPUs
    mean = {name: rows[name]["box"]["mean"] for name in want}
    assert mean == pytest.approx({"algo-1/gpu0": 77.0, "algo-1/gpu1": 39.5})


@pytest.mark.parametrize(("preset", "patience", "triggered"), [("documented", 100, 16), ("service", 1000, 12)])
def test_batch_size(presets: dict[str, Results], syn1_figures: dict[str, Any], preset: str, patience: int, triggered: int) -> None:
    actual = presets[preset]["BatchSize"]
    rows = gpus(actual)
    assert {name: row["violations"] for name, row in rows.items() if row["violations"]} == syn1_figures[f"BatchSize(patience={patience})"]
    assert (actual.verdict, actual.triggered, actual.violations, actual.windows) == ("IssuesFound", triggered, triggered, triggered)
    boxes, want = rows["algo-1/gpu1"]["boxes"], syn1_figures["BatchSize.box algo-1"]
    for figure, name in (("cpu", "cpu"), ("gpu", "gpu1"), ("gpu_memory", "gpu1_memory")):
        box = {("p05" if key == "p5" else key): value for key, value in boxes[figure].items()}
        assert {key: box[key] for key in want[name]} == pytest.approx(want[name])
        assert box["samples"] == 2400
    assert {row["memory_figure"] for row in rows.values()} == {"memory controller"}


@pytest.mark.parametrize(
    ("rule", "preset", "key"),
    [
        ("CPUBottleneck", "documented", "CPUBottleneck(cpu 90,gpu 10)"),
        ("CPUBottleneck", "service", "CPUBottleneck(cpu 90,gpu 10)"),
        ("IOBottleneck", "documented", "IOBottleneck(io 50,gpu 70 = documented)"),
        ("IOBottleneck", "service", "IOBottleneck(io 50,gpu 10)"),
    ],
)
def test_bottlenecks(presets: dict[str, Results], syn1_figures: dict[str, Any], rule: str, preset: str, key: str) -> None:
    actual, want = presets[preset][rule], syn1_figures[key]
    rows = {row["node"]: row for row in plain_details(actual)["nodes"]}
    assert rows.keys() == want.keys()
    for node, entry in want.items():
        row = rows[node]
        assert (row["snapshots"], row["low"], row["bottlenecks"]) == (entry["datapoints"], entry["low_gpu"], entry["bottlenecks"])
        assert round(row["bottleneck_percent"], 4) == entry["pct_of_total"]
        assert round(row["of_low_percent"] or 0.0, 4) == entry["pct_of_low"]
        assert (row["issue"], row["unused"], row["windows"], row["windows_exceeded"]) == (False, [], 20, 0)
    bottlenecks = sum(entry["bottlenecks"] for entry in want.values())
    assert (actual.verdict, actual.triggered, actual.violations, actual.datapoints) == ("NoIssuesFound", 0, bottlenecks, 4800)
    assert plain_details(actual)["bottleneck_ns"] == bottlenecks * STEP


def test_a_lower_threshold_is_an_issue(run: Store) -> None:
    strict = results(run, "service", CPUBottleneck_threshold=5, IOBottleneck_threshold=5)
    assert (strict["CPUBottleneck"].verdict, strict["IOBottleneck"].verdict) == ("NoIssuesFound", "IssuesFound")  # 5% is not over 5%
    actual = results(run, "service", CPUBottleneck_threshold=4.99)["CPUBottleneck"]
    assert (actual.verdict, actual.triggered, actual.windows_triggered) == ("IssuesFound", 20, 20)
    assert [row["issue"] for row in plain_details(actual)["nodes"]] == [True, False]
    assert actual.changed_parameters == {"threshold": 4.99}


def test_what_was_active_in_the_io_bottleneck(run: Store) -> None:
    """By hand from the generator: bottleneck snapshots of algo-1, 0.5 s each."""
    actual = results(run, "documented")["IOBottleneck"]
    spans = [(1000 * k // 2 + 1, 1000 * k // 2 + 501) for k in range(0, 2400, 3)]  # ms after T0
    inside = {ms for start, end in spans for ms in range(start, end)}

    def covered(start: int, length: int) -> int:
        return sum(ms in inside for ms in range(start, start + length)) * 1_000_000

    steps = [(120_000 + 3000 * i, 2000 if i % 25 == 0 else 200) for i in range(300)]
    evaluation = [(120_000 + 900_000 + 1000 * i, 400) for i in range(20)]
    phases = {row["name"]: row["time_ns"] for row in plain_details(actual)["active"]["phases"]}
    train, evaluated = sum(covered(*step) for step in steps), sum(covered(*step) for step in evaluation)
    assert phases == {"TRAIN": train, "EVAL": evaluated, "outside of steps": 800 * STEP - train - evaluated}
    annotations = {row["name"]: row["time_ns"] for row in plain_details(actual)["active"]["annotations"]}
    assert "DataLoaderIter::GetNext" not in annotations  # the loader is active between these snapshots only
    assert sum(covered(start - 500, 450) for start, _ in steps) == 0
    assert annotations["net_conv"] == sum(covered(start + 1, 60) + covered(start + 70, 120) for start, _ in steps)
    assert plain_details(actual)["active"]["operators"] == []


@pytest.mark.parametrize("preset", ["documented", "service"])
def test_overall_system_usage(presets: dict[str, Results], syn1_figures: dict[str, Any], preset: str) -> None:
    figures = {"CPU": "cpu", "GPU": "gpu", "GPUmemory": "gpu_memory", "IO": "io_wait", "CPUmemory": "cpu_memory", "Network": "network"}
    actual = presets[preset]["OverallSystemUsage"]
    assert (actual.verdict, actual.triggered, actual.datapoints) == ("NoIssuesFound", 0, 2 * 6 * 2400)
    rows = {(node["node"], row["metric"]): row for node in plain_details(actual)["nodes"] for row in node["metrics"]}
    want = syn1_figures["OverallSystemUsage"]
    assert rows.keys() == {(node, figures[name]) for node in want for name in want[node]}
    for node, of_node in want.items():
        for name, quantiles in of_node.items():
            row = rows[node, figures[name]]
            assert {key: row[key] for key in quantiles} == pytest.approx(quantiles, abs=0.0051), (node, name)  # rounded to two decimals


# -- runs with other numbers -----------------------------------------------------------------------------------------------


def variant(rng: random.Random) -> list[Sample]:
    """Return a run of the same kind: two to four nodes and other constants."""

    def wave() -> Callable[[int], float]:
        high, low, period = rng.choice([40, 69, 71, 95, 100]), rng.choice([0, 5, 9, 30]), rng.randint(2, 25)
        busy, until = rng.randint(0, period), rng.choice([10_000, 10_000, 900, 1100])
        if rng.random() < 0.3:
            return lambda k: float(high - 5 + k % 5 if k < until else low % 6)
        return lambda k: float(high if k % period < busy else low) if k < until else float(low % 6)

    samples: list[Sample] = []
    start = 1_700_000_040 * SECOND + rng.randint(0, 59) * SECOND
    count = rng.choice([1000, 1001, 1200, 1440])
    for node in range(rng.randint(2, 4)):
        for metric, units in ((GPU, 2), (CONTROLLER, 2), (CORE, 3), (IOWAIT, 2)):
            for unit in range(units):
                values = map(wave(), range(count)) if rng.random() < 0.85 else iter([0.0] * count)
                samples += line(node, metric, unit, values, start=start + node * 30 * SECOND)
    return samples


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("preset", ["documented", "service"])
def test_variants_against_plain_python(seed: int, preset: str) -> None:
    samples = variant(random.Random(seed))
    with sampled(samples) as store:
        actual = results(store, preset)
    parameters = {name: actual[name].parameters for name in NAMES}
    counts = {name: (result.verdict, result.triggered, result.violations) for name, result in actual.items()}
    try:
        low = low_gpu(samples, parameters["LowGPUUtilization"])
        batch = batch_size(samples, parameters["BatchSize"])
    except AmbiguousError:
        pytest.skip("a quantile is as good as equal to its threshold")
    triggered = sum(len(want["triggered"]) for want in low.values())
    able = any(want["windows"] for want in low.values())
    assert counts["LowGPUUtilization"] == (verdict(able, triggered), triggered, triggered)
    rows = gpus(actual["LowGPUUtilization"])
    assert {name: (row["triggered"], row["under_utilised"], row["pattern"]) for name, row in rows.items()} == {
        f"m{node}/gpu{unit}": (len(want["triggered"]), want["under_utilised"], want["pattern"]) for (node, unit), want in low.items()
    }
    violations = sum(len(want["violations"]) for want in batch.values())
    able = any(want["windows"] for want in batch.values())
    assert counts["BatchSize"] == (verdict(able, violations), violations, violations)
    for name, metric, limit in (("CPUBottleneck", CORE, "cpu_threshold"), ("IOBottleneck", IOWAIT, "io_threshold")):
        want = bottleneck(samples, parameters[name], metric, parameters[name][limit])
        judged = [one for one in want.values() if one["judged"]]
        issues = [one for one in judged if len(one["bottlenecks"]) * 100 > parameters[name]["threshold"] * one["snapshots"]]
        assert counts[name] == (
            verdict(bool(judged), len(issues)), sum(len(one["exceeded"]) for one in judged), sum(len(one["bottlenecks"]) for one in judged)
        )  # fmt: skip


def verdict(able: bool, issues: int) -> str:
    return "IssuesFound" if issues else "NoIssuesFound" if able else "NotEvaluated"
