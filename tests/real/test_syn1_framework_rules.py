"""Tests of the rules over steps, initialization, framework time and loaders on the synthetic run, in both presets.

The figures of step durations are also those published for a recorded run.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from postrun.analysis import Options, analyze
from postrun.analysis.report import Finding, RuleResult
from postrun.analysis.rules.engine.selection import select
from postrun.analysis.rules.evidence.base import Preset
from postrun.ingest import ingest
from postrun.ingest.store import Store
from rule_details import plain_details

SECOND = 1_000_000_000
RULES = ("StepOutlier", "MaxInitializationTime", "OverallFrameworkMetrics", "Dataloader")
T0 = 1_700_000_040 * SECOND


@pytest.fixture(scope="module")
def run(syn1: Path) -> Iterator[Store]:
    with ingest([syn1]) as store:
        yield store


def judged(run: Store, preset: Preset, **settings: Any) -> tuple[dict[str, RuleResult], dict[str, Finding]]:
    report = analyze(run, Options(selection=select(RULES, preset=preset, settings=settings), generated_at_ns=0))
    assert not [(result.rule, result.reason) for result in report.rules if result.verdict == "Error"]
    return {result.rule: result for result in report.rules}, {finding.rule: finding for finding in report.findings}


@pytest.mark.parametrize(("preset", "factor"), [("documented", 5), ("service", 3)])
def test_step_outlier(run: Store, syn1_figures: dict[str, Any], preset: Preset, factor: int) -> None:
    results, _ = judged(run, preset)
    result = results["StepOutlier"]
    figures = syn1_figures[f"StepOutlier(stddev={factor})"]
    groups = {f"Step:ModeKeys.{group['phase']}": group for group in plain_details(result)["groups"]}
    assert set(groups) == set(figures)
    for phase, figure in figures.items():
        group = groups[phase]
        assert group["steps"] == figure["n"]
        for name in ("mean", "std", "threshold", "max", "p99", "p95", "p50", "min"):
            # The figure for 20 equal steps of 0.4 s has a standard deviation of 5.6e-17 s.
            assert group[f"{name}_ns"] / SECOND == pytest.approx(figure[name], rel=1e-9, abs=1e-12), (phase, name)
        assert group["evaluable"] is (figure["n"] > factor**2 + 1)
        if group["evaluable"]:
            assert group["outliers"] == figure["outliers"]
        else:
            assert (phase, figure["outliers"], group["outliers"]) == ("Step:ModeKeys.EVAL", 0, None)
    train = groups["Step:ModeKeys.TRAIN"]
    assert train["threshold_ns"] / SECOND == pytest.approx({3: 1.33018, 5: 2.03563}[factor], abs=1e-5)
    assert (result.verdict, result.violations) == (("IssuesFound", 12) if factor == 3 else ("NoIssuesFound", 0))
    assert (train["on_device"], result.datapoints) == (False, 320)


def test_step_outliers_of_the_service_preset(run: Store) -> None:
    # Steps 0, 25, 50 ... 275 take 2 s instead of 0.2 s. They begin 75 s apart, so each in another window of 60 s.
    results, findings = judged(run, "service")
    result, finding = results["StepOutlier"], findings["StepOutlier"]
    starts = [T0 + (120 + 3 * i) * SECOND for i in range(0, 300, 25)]
    assert (result.first_ns, result.last_ns) == (starts[0], starts[-1])
    assert result.triggered == result.windows_triggered == len({(start - T0) // (60 * SECOND) for start in starts}) == 12
    # Steps last from 120 s to 1039.4 s: windows 2 to 17, which all have steps.
    assert result.windows == 16
    assert plain_details(result)["groups"][1]["every_steps"] == 25
    # Ten slowest of twelve equal ones: the first ten, each against a step of 0.2 s. Forward and backward are the same in all.
    assert [(row["index"], row["start_ns"]) for row in plain_details(result)["slowest"]] == [(25 * i, starts[i]) for i in range(10)]
    for row in plain_details(result)["slowest"]:
        assert (row["duration_ns"], row["typical_ns"], row["outlier"]) == (2 * SECOND, SECOND // 5, True)
        assert row["active"] == [
            {"kind": "annotation", "name": "net_conv", "time_ns": 180_000_000, "typical_ns": 180_000_000, "extra_ns": 0}
        ]
    # 12 x 1.8 s beyond the median, of 919.4 s from the first step to the last one.
    assert (finding.cost_ns, finding.cost_percent) == (21_600_000_000, pytest.approx(100 * 21.6 / 919.4))
    assert finding.cost_per_step_ns == 72_000_000
    phases = {row["name"]: row["time_ns"] for row in plain_details(result)["active"]["phases"]}
    assert phases == {"TRAIN": 24 * SECOND}


def test_mode_and_limits(run: Store) -> None:
    results, _ = judged(run, "documented", StepOutlier_mode="EVAL")
    result = results["StepOutlier"]
    assert (result.verdict, result.datapoints) == ("NotEvaluated", 20)
    assert (result.reason or "").startswith("20 of more than 26 steps needed")
    results, _ = judged(run, "service", StepOutlier_mode="ModeKeys.TRAIN", StepOutlier_n_outliers=12)
    assert results["StepOutlier"].verdict == "NoIssuesFound"
    results, _ = judged(run, "service", StepOutlier_mode="ModeKeys.TRAIN", StepOutlier_n_outliers=11)
    assert results["StepOutlier"].verdict == "IssuesFound"


@pytest.mark.parametrize("preset", ["documented", "service"])
def test_max_initialization_time(run: Store, syn1_figures: dict[str, Any], preset: Preset) -> None:
    result = judged(run, preset)[0]["MaxInitializationTime"]
    job = syn1_figures["JobSummary"]
    actual = {name: plain_details(result)[f"{name}_ns"] // SECOND for name in ("duration", "initialization", "loop", "finalization")}
    assert actual == {
        "duration": job["duration"], "initialization": job["init"], "loop": job["loop_by_end"], "finalization": job["final_by_end"],
    }  # fmt: skip
    assert actual == {"duration": 1199, "initialization": 119, "loop": 919, "finalization": 160}
    assert (result.verdict, result.triggered, plain_details(result)["measured_from"]) == ("NoIssuesFound", 0, "start of the job")
    # 119.999 s are 1.99998 minutes.
    assert judged(run, preset, MaxInitializationTime_threshold=1.99998)[0]["MaxInitializationTime"].verdict == "IssuesFound"
    assert judged(run, preset, MaxInitializationTime_threshold=2)[0]["MaxInitializationTime"].verdict == "NoIssuesFound"


@pytest.mark.parametrize("preset", ["documented", "service"])
def test_overall_framework_metrics(run: Store, syn1_figures: dict[str, Any], preset: Preset) -> None:
    results, findings = judged(run, preset)
    result = results["OverallFrameworkMetrics"]
    split = syn1_figures["phase split (documented)"]
    assert {row["name"]: row["percent"] for row in plain_details(result)["phases"]} == pytest.approx(
        {"TRAIN": split["TRAIN"], "EVAL": split["EVAL"], "other": split["others"]}, rel=1e-9
    )
    assert [round(row["percent"], 4) for row in plain_details(result)["phases"]] == [8.8754, 0.8701, 90.2545]
    assert (result.verdict, result.datapoints) == ("NoIssuesFound", 320)
    assert plain_details(result)["notes"] == ["90% of the time from the first to the last step was spent outside of the steps."]
    assert "OverallFrameworkMetrics" not in findings


@pytest.mark.parametrize("preset", ["documented", "service"])
def test_dataloader(run: Store, preset: Preset) -> None:
    # One data loader with 2 workers on the 4 cores of algo-1; 300 waits of 450 ms, one in every third second, from 119.5 s to 1016.5 s.
    results, findings = judged(run, preset)
    result = results["Dataloader"]
    [row] = plain_details(result)["nodes"]
    assert (row["node"], row["cores"], row["loaders"], row["source"]) == ("algo-1", 4, 2, "num_workers")
    assert (row["percent_of_cores"], row["seconds"], row["issue"]) == (50.0, 300, True)
    assert plain_details(result)["configurations"] == [
        {"node": "algo-1", "pin_memory": False, "num_workers": 2, "prefetch_factor": None, "count": 1}
    ]
    loading = plain_details(result)["loading"]
    assert {loading[name] for name in ("p25_ns", "p50_ns", "p95_ns", "max_ns")} == {450_000_000}
    assert (loading["count"], loading["total_ns"]) == (300, 135 * SECOND)
    assert (result.first_ns, result.last_ns) == (T0 + 119 * SECOND + SECOND // 2, T0 + 1016 * SECOND + SECOND // 2)
    assert (result.verdict, result.violations, result.datapoints) == ("IssuesFound", 300, 300)
    assert "`num_workers=4`" in (result.recommendation or "")
    assert "`pin_memory=True`" in (result.recommendation or "")
    assert findings["Dataloader"].cost_ns is None
    results, _ = judged(run, preset, Dataloader_min_threshold=50)
    assert results["Dataloader"].verdict == "NoIssuesFound"
    results, _ = judged(run, preset, Dataloader_patience=300)
    assert (results["Dataloader"].verdict, results["Dataloader"].reason) == (
        "NotEvaluated", "300 of more than 300 seconds with data loading needed",
    )  # fmt: skip


def test_step_durations_of_a_recorded_run(shared_data: Path) -> None:
    folder = shared_data / "smdebug" / "merge_traces"
    if not folder.is_dir():
        pytest.skip(f"no recorded run: {folder} is no folder")
    with ingest([folder]) as store:
        results, _ = judged(store, "service", StepOutlier_mode="TRAIN")
    [group] = plain_details(results["StepOutlier"])["groups"]
    published = {
        "mean": 0.3821861, "std": 1.60413650, "max": 9.020725, "p99": 6.42998448, "p95": 0.08598545, "p50": 0.0842345,
    }  # fmt: skip
    assert {name: group[f"{name}_ns"] / SECOND for name in published} == pytest.approx(published, abs=1e-7)
    # 30 steps and factor 3: mean + 3 x 1.604 = 5.19 s, which only the step of 9.02 s exceeds; an issue needs more than ten,
    # which so few steps cannot have.
    assert (group["steps"], group["outliers"], results["StepOutlier"].verdict) == (30, 1, "NotEvaluated")
    # Its timelines begin with the first step, and do not state how many cores the node has.
    assert results["MaxInitializationTime"].verdict == results["Dataloader"].verdict == "NotEvaluated"
