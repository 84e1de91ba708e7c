"""The rule shows the framework's times as they are, with its notes, and never as an issue."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable
from typing import Any

import pytest
from postrun.analysis import Options, analyze
from postrun.analysis.report import Report, RuleResult
from postrun.analysis.rules.engine.selection import select
from postrun.ingest.store import Store
from rule_details import plain_details

MakeStore = Callable[..., Store]
TABLES = ("phases", "step_parts", "operator_time", "cpu_operators", "gpu_operators", "collectives")


def judged(store: Store) -> tuple[RuleResult, Report]:
    report = analyze(store, Options(selection=select(["OverallFrameworkMetrics"]), generated_at_ns=0))
    [result] = report.rules
    assert result.verdict != "Error", result.reason
    assert report.findings == ()
    return result, report


def step(index: int, start: int, duration: int, phase: str | None) -> dict[str, Any]:
    return {
        "node": 0, "process": 0, "index": index, "phase": phase, "host_start_ns": start, "host_duration_ns": duration, "device_events": 0,
    }  # fmt: skip


def ranged(name: str, start: int, duration: int) -> dict[str, Any]:
    return {"name": name, "side": "host", "start_ns": start, "duration_ns": duration, "complete": True}


def test_an_empty_run_is_not_evaluated(make_store: MakeStore) -> None:
    result, _ = judged(make_store())
    assert (result.verdict, result.reason) == ("NotEvaluated", "no steps, phases, operators or collectives in this run")
    assert "torch.profiler" in (result.capture or "")


def test_phases_of_a_run(make_store: MakeStore) -> None:
    # From 0 to 1000: 300 in three steps TRAIN, 100 in one step EVAL, the other 600 outside.
    steps = [step(i, i * 200, 100, "TRAIN") for i in range(3)] + [step(0, 900, 100, "EVAL")]
    result, report = judged(make_store(step=steps))
    assert (result.verdict, result.triggered, result.violations, result.datapoints) == ("NoIssuesFound", 0, 0, 4)
    assert [(row["name"], row["total_ns"], row["count"], row["percent"]) for row in plain_details(result)["phases"]] == [
        ("TRAIN", 300, 3, 30.0), ("EVAL", 100, 1, 10.0), ("other", 600, 0, 60.0),
    ]  # fmt: skip
    assert result.finding == (
        "From the first step's start to the last one's end, TRAIN took 30%, EVAL took 10%; 60% lies outside of the steps."
    )
    assert "600 ns of the loop, 60%" in (result.recommendation or "")
    assert plain_details(result)["notes"] == list(report.framework.notes) == [
        "60% of the time from the first to the last step was spent outside of the steps."
    ]  # fmt: skip


@pytest.mark.parametrize(("gap", "noted"), [(25, False), (26, True)])
def test_more_than_a_quarter_outside_of_the_steps_is_noted(make_store: MakeStore, gap: int, *, noted: bool) -> None:
    # Two steps and a gap of 25 or 26 percent of the whole.
    rest = 100 - gap
    result, _ = judged(make_store(step=[step(0, 0, rest - 10, None), step(1, 90, 10, None)]))
    assert plain_details(result)["phases"][-1]["percent"] == gap
    assert bool(plain_details(result)["notes"]) is bool(result.recommendation) is noted


@pytest.mark.parametrize(("backward", "noted"), [(70, False), (71, True)])
def test_a_one_sided_step_is_noted(make_store: MakeStore, backward: int, *, noted: bool) -> None:
    result, _ = judged(make_store(annotation=[ranged("forward", 0, 100 - backward), ranged("backward", 200, backward)]))
    assert any("backward pass" in note for note in plain_details(result)["notes"]) is noted
    assert result.finding == (
        f"Of the time in forward, backward, optimizer and data loading, backward took {backward}%, forward took {100 - backward}%."
    )
    assert result.datapoints == 2


def test_operators_alone(make_store: MakeStore) -> None:
    host = [{"kind": "operator", "name": "aten::mm", "start_ns": i * 10, "duration_ns": 5} for i in range(4)]
    result, _ = judged(make_store(host_event=host))
    assert (result.datapoints, result.finding) == (4, "Of the summed times of operators, CPU operators took 100%.")
    assert [(row["name"], row["count"], row["total_ns"]) for row in plain_details(result)["cpu_operators"]] == [("aten::mm", 4, 20)]


def test_collectives_alone(make_store: MakeStore) -> None:
    device = [{"kind": "kernel", "name": "ncclAllReduce", "start_ns": 0, "duration_ns": 9}]
    result, _ = judged(make_store(device_event=device, names={"ncclAllReduce": ("AllReduce", "unknown", "communication")}))
    assert [row["name"] for row in plain_details(result)["collectives"]] == ["AllReduce"]
    assert result.verdict == "NoIssuesFound"


def test_every_table_is_the_reports(make_store: MakeStore) -> None:
    host = [{"kind": "operator", "name": f"aten::op{i}", "start_ns": i * 10, "duration_ns": i} for i in range(90)]
    steps = [step(i, i * 200, 100, "TRAIN") for i in range(3)]
    result, report = judged(make_store(host_event=host, step=steps, annotation=[ranged("forward", 0, 50)]))
    for table in TABLES:
        assert plain_details(result)[table] == [dataclasses.asdict(row) for row in getattr(report.framework, table)]
    assert json.loads(json.dumps(plain_details(result))) == plain_details(result)
