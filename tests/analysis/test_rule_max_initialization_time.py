"""Is the time before the first step that of worked examples, at, above and below the threshold?"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from postrun.analysis import Options, analyze
from postrun.analysis.report import Finding, RuleResult
from postrun.analysis.rules.selection import select
from postrun.ingest.store import Store

MakeStore = Callable[..., Store]
SECOND = 1_000_000_000
MINUTE = 60 * SECOND
T0 = 1_700_000_000 * SECOND


def judged(store: Store, **settings: Any) -> tuple[RuleResult, tuple[Finding, ...]]:
    given = {f"MaxInitializationTime_{name}": value for name, value in settings.items()}
    report = analyze(store, Options(selection=select(["MaxInitializationTime"], settings=given), generated_at_ns=0))
    [result] = report.rules
    assert result.verdict != "Error", result.reason
    return result, report.findings


def sampled(*times: int) -> list[dict[str, Any]]:
    return [{"node": 0, "metric": "cpu_utilization", "unit": 0, "time_ns": time, "value": 1.0} for time in times]


def step(index: int, start: int, duration: int = SECOND) -> dict[str, Any]:
    return {"node": 0, "process": 0, "index": index, "host_start_ns": start, "host_duration_ns": duration, "device_events": 0}


def source(first: int, last: int) -> list[dict[str, Any]]:
    return [{"id": 0, "path": "trace.json", "format": "kineto", "events": 1, "first_ns": first, "last_ns": last}]


def ranged(start: int, duration: int) -> list[dict[str, Any]]:
    return [{"name": "load", "side": "host", "start_ns": start, "duration_ns": duration, "complete": True}]


@pytest.mark.parametrize(("late", "verdict"), [(0, "NoIssuesFound"), (1, "IssuesFound")])
def test_twenty_minutes_exactly_are_no_issue(make_store: MakeStore, late: int, verdict: str) -> None:
    first = T0 + 20 * MINUTE + late
    result, _ = judged(make_store(sample=sampled(T0, T0 + 60 * MINUTE), step=[step(0, first), step(1, first + MINUTE)]))
    assert (result.verdict, result.details["initialization_ns"]) == (verdict, 20 * MINUTE + late)
    assert (result.datapoints, result.windows, result.triggered) == (1, 1, late)
    assert "after the start of the job" in (result.finding or "")


def test_parts_of_the_job_and_cost(make_store: MakeStore) -> None:
    # Samples from 0 to 60 min, steps from 30 min to 50 min: initialisation 30, loop 20, finalisation 10 minutes. Two of three GPUs used.
    steps = [step(0, T0 + 30 * MINUTE), step(1, T0 + 50 * MINUTE - SECOND)]
    samples = sampled(T0, T0 + 60 * MINUTE)
    samples += [{"node": 0, "metric": "gpu_utilization", "unit": unit, "time_ns": T0, "value": 5.0} for unit in (0, 1)]
    annotation = ranged(T0 + MINUTE, 25 * MINUTE)
    store = make_store(sample=samples, step=steps, annotation=annotation, device=[{"node": 0, "index": index} for index in range(3)])
    result, [finding] = judged(store)
    assert result.verdict == "IssuesFound"
    assert {name: result.details[f"{name}_ns"] // MINUTE for name in ("duration", "initialization", "loop", "finalization")} == {
        "duration": 60, "initialization": 30, "loop": 20, "finalization": 10,
    }  # fmt: skip
    percents = [result.details[f"{name}_percent"] for name in ("initialization", "loop", "finalization")]
    assert percents == pytest.approx([50, 100 / 3, 100 / 6])
    assert (result.first_ns, result.last_ns) == (T0 + 20 * MINUTE, T0 + 30 * MINUTE)
    assert result.finding == "The first step began 30 min 00 s after the start of the job, more than the threshold of 20 min 00 s."
    assert (finding.cost_ns, finding.cost_percent, finding.base) == (2 * 30 * MINUTE, 50.0, "GPU time of the run")
    assert "held 2 GPUs for 30 min 00 s, 50.0 % of the run, most of it in load" in (result.recommendation or "")
    assert result.details["active"]["annotations"] == [{"name": "load", "time_ns": 25 * MINUTE, "percent": 100.0}]


def test_without_gpus_the_duration_of_the_run_is_the_base(make_store: MakeStore) -> None:
    store = make_store(sample=sampled(T0, T0 + 60 * MINUTE), step=[step(0, T0 + 30 * MINUTE), step(1, T0 + 40 * MINUTE)])
    _, [finding] = judged(store)
    assert (finding.cost_ns, finding.cost_percent, finding.base) == (30 * MINUTE, 50.0, "duration of the run")


def test_one_step_is_enough(make_store: MakeStore) -> None:
    result, _ = judged(make_store(sample=sampled(T0, T0 + 60 * MINUTE), step=[step(0, T0 + 21 * MINUTE)]))
    assert (result.verdict, result.details["loop_ns"]) == ("IssuesFound", None)
    assert (result.details["initialization_ns"], result.details["initialization_percent"]) == (21 * MINUTE, 35.0)


def test_threshold_is_in_minutes(make_store: MakeStore) -> None:
    store = make_store(sample=sampled(T0, T0 + MINUTE), step=[step(0, T0 + 30 * SECOND), step(1, T0 + 40 * SECOND)])
    assert judged(store, threshold=0.5)[0].verdict == "NoIssuesFound"
    assert judged(store, threshold=0.49)[0].verdict == "IssuesFound"


@pytest.mark.parametrize(("length", "annotated", "verdict"), [
    (20 * MINUTE, True, "NotEvaluated"), (20 * MINUTE + 1, True, "IssuesFound"), (60 * MINUTE, False, "NotEvaluated"),
])  # fmt: skip
def test_without_a_step(make_store: MakeStore, length: int, *, annotated: bool, verdict: str) -> None:
    store = make_store(sample=sampled(T0, T0 + length), annotation=ranged(T0, SECOND) if annotated else [])
    result, findings = judged(store)
    assert result.verdict == verdict
    assert result.details["steps"] is False
    if verdict == "NotEvaluated":
        assert (result.reason or "").startswith("no step annotations in this run")
        assert result.capture
    else:
        assert (result.first_ns, result.last_ns) == (T0 + 20 * MINUTE, T0 + length)
        assert [finding.cost_ns for finding in findings] == [length]


def test_an_empty_run_is_not_evaluated(make_store: MakeStore) -> None:
    assert judged(make_store())[0].verdict == "NotEvaluated"


@pytest.mark.parametrize(("number", "verdict"), [(0, "NoIssuesFound"), (1, "NoIssuesFound"), (2, "NotEvaluated"), (101, "NotEvaluated")])
def test_a_captured_window_says_nothing_of_what_came_before_it(make_store: MakeStore, number: int, verdict: str) -> None:
    steps = [step(number, T0 + 5 * SECOND), step(number + 1, T0 + 7 * SECOND)]
    result, _ = judged(make_store(source=source(T0, T0 + 10 * SECOND), step=steps))
    assert (result.verdict, result.details["initialization_ns"]) == (verdict, 5 * SECOND)
    assert result.details["measured_from"] == "start of the capture"
    if verdict == "NoIssuesFound":
        assert result.finding == (
            "The first step began 5.00 s after the start of the capture, within the threshold of 20 min 00 s; what the job did before the"
            " capture is not known."
        )
    else:
        assert f"from step {number} on" in (result.reason or "")


def test_a_capture_that_begins_with_the_first_step_is_not_evaluated(make_store: MakeStore) -> None:
    result, _ = judged(make_store(source=source(T0, T0 + 10 * SECOND), step=[step(0, T0), step(1, T0 + SECOND)]))
    assert (result.verdict, result.reason) == ("NotEvaluated", "nothing before the first step was captured")


def test_a_long_wait_inside_of_a_capture_is_an_issue_whatever_came_before(make_store: MakeStore) -> None:
    steps = [step(50, T0 + 21 * MINUTE), step(51, T0 + 22 * MINUTE)]
    result, _ = judged(make_store(source=source(T0, T0 + 23 * MINUTE), step=steps))
    assert result.verdict == "IssuesFound"
    assert "after the start of the capture, more than the threshold" in (result.finding or "")


def test_steps_that_count_from_an_anchor_are_not_set_against_samples(make_store: MakeStore) -> None:
    result, _ = judged(make_store(sample=sampled(T0, T0 + 60 * MINUTE), step=[step(0, 5 * SECOND), step(1, 6 * SECOND)]))
    assert result.verdict == "NotEvaluated"
    assert "anchor" in (result.reason or "")
