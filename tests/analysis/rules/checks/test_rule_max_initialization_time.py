"""The time before the first step is that of worked examples, at, above and below the threshold."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from judging import rules_of
from postrun.analysis import Options
from postrun.analysis.report import Finding, RuleResult
from postrun.analysis.rules.engine.selection import select
from postrun.ingest import ingest
from postrun.ingest.store import Store
from rule_details import plain_details

MakeStore = Callable[..., Store]
SECOND = 1_000_000_000
MINUTE = 60 * SECOND
T0 = 1_700_000_000 * SECOND


def judged(store: Store, **settings: Any) -> tuple[RuleResult, tuple[Finding, ...]]:
    values = {f"MaxInitializationTime_{name}": value for name, value in settings.items()}
    report = rules_of(store, Options(selection=select(["MaxInitializationTime"], settings=values), generated_at_ns=0))
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
    assert (result.verdict, plain_details(result)["initialization_ns"]) == (verdict, 20 * MINUTE + late)
    assert (result.datapoints, result.windows, result.triggered) == (1, 1, late)
    assert "after the start of the job" in (result.finding or "")


def test_hours_between_files_of_what_may_be_two_runs_are_no_initialization(make_store: MakeStore) -> None:
    tables = {"sample": sampled(T0, T0 + 600 * MINUTE), "step": [step(0, T0 + 500 * MINUTE), step(1, T0 + 501 * MINUTE)]}
    note = {"id": 0, "severity": "warning", "code": "several_runs", "message": "The files may not be of one run: 8 hours lie between"}
    assert judged(make_store(**tables))[0].verdict == "IssuesFound"
    result, findings = judged(make_store(**tables, ingest_note=[note]))
    assert (result.verdict, findings) == ("NotEvaluated", ())
    assert result.reason == "the files may not be of one run: 8 h 20 min before the first step may lie between two"


def test_files_of_different_days_have_no_start_of_a_job(make_store: MakeStore) -> None:
    tables = {"step": [step(0, T0 + 3000 * MINUTE), step(1, T0 + 3001 * MINUTE)]}
    note = {"id": 0, "severity": "warning", "code": "several_runs", "message": "The files cannot all be of one run"}
    ends = [(T0, T0 + MINUTE), (T0 + 3000 * MINUTE, T0 + 3002 * MINUTE)]
    source = [{"id": i, "path": f"{i}", "format": "f", "first_ns": first, "last_ns": last} for i, (first, last) in enumerate(ends)]
    result, findings = judged(make_store(**tables, ingest_note=[note], source=source))
    assert (result.verdict, findings) == ("NotEvaluated", ())
    assert result.reason == "the files are from different times, so the start of the job is not known"


def test_parts_of_the_job_and_cost(make_store: MakeStore) -> None:
    # Samples from 0 to 60 min, steps from 30 min to 50 min: initialization 30, loop 20, finalization 10 minutes. Two of three GPUs used.
    steps = [step(0, T0 + 30 * MINUTE), step(1, T0 + 50 * MINUTE - SECOND)]
    samples = sampled(T0, T0 + 60 * MINUTE)
    samples += [{"node": 0, "metric": "gpu_utilization", "unit": unit, "time_ns": T0, "value": 5.0} for unit in (0, 1)]
    annotation = ranged(T0 + MINUTE, 25 * MINUTE)
    store = make_store(sample=samples, step=steps, annotation=annotation, device=[{"node": 0, "index": index} for index in range(3)])
    result, [finding] = judged(store)
    assert result.verdict == "IssuesFound"
    assert {name: plain_details(result)[f"{name}_ns"] // MINUTE for name in ("duration", "initialization", "loop", "finalization")} == {
        "duration": 60, "initialization": 30, "loop": 20, "finalization": 10,
    }  # fmt: skip
    percents = [plain_details(result)[f"{name}_percent"] for name in ("initialization", "loop", "finalization")]
    assert percents == pytest.approx([50, 100 / 3, 100 / 6])
    assert (result.first_ns, result.last_ns) == (T0 + 20 * MINUTE, T0 + 30 * MINUTE)
    assert result.finding == "The first step began 30 min after the start of the job, more than the threshold of 20 min."
    assert (finding.cost_ns, finding.cost_percent, finding.base) == (2 * 30 * MINUTE, 50.0, "GPU time of the run")
    assert "held 2 GPUs for 30 min, 50.0% of the run, most of it in load" in (result.recommendation or "")
    assert plain_details(result)["active"]["annotations"] == [{"name": "load", "time_ns": 25 * MINUTE, "percent": 100.0}]


def test_without_gpus_the_duration_of_the_run_is_the_base(make_store: MakeStore) -> None:
    store = make_store(sample=sampled(T0, T0 + 60 * MINUTE), step=[step(0, T0 + 30 * MINUTE), step(1, T0 + 40 * MINUTE)])
    _, [finding] = judged(store)
    assert (finding.cost_ns, finding.cost_percent, finding.base) == (30 * MINUTE, 50.0, "duration of the run")


def test_one_step_is_enough(make_store: MakeStore) -> None:
    result, _ = judged(make_store(sample=sampled(T0, T0 + 60 * MINUTE), step=[step(0, T0 + 21 * MINUTE)]))
    assert (result.verdict, plain_details(result)["loop_ns"]) == ("IssuesFound", None)
    assert (plain_details(result)["initialization_ns"], plain_details(result)["initialization_percent"]) == (21 * MINUTE, 35.0)


def test_threshold_is_in_minutes(make_store: MakeStore) -> None:
    store = make_store(sample=sampled(T0, T0 + MINUTE), step=[step(0, T0 + 30 * SECOND), step(1, T0 + 40 * SECOND)])
    assert judged(store, threshold=0.5)[0].verdict == "NoIssuesFound"
    assert judged(store, threshold=0.49)[0].verdict == "IssuesFound"


@pytest.mark.parametrize(("length", "annotated", "verdict"), [
    (20 * MINUTE, True, "NotEvaluated"), (20 * MINUTE + 1, True, "IssuesFound"), (60 * MINUTE, False, "NotEvaluated"),
])  # fmt: skip
def test_without_a_step(make_store: MakeStore, length: int, *, annotated: bool, verdict: str) -> None:
    store = make_store(sample=sampled(T0, T0 + 40 * MINUTE), annotation=ranged(T0, length) if annotated else [])
    result, findings = judged(store)
    assert result.verdict == verdict
    assert plain_details(result)["steps"] is False
    if verdict == "NotEvaluated":
        assert (result.reason or "").startswith("no step annotations in this run")
        assert result.capture
    else:
        assert (result.first_ns, result.last_ns) == (T0 + 20 * MINUTE, T0 + length)
        assert [finding.cost_ns for finding in findings] == [length]
        assert "the time without a step took 20 min, 50.0% of the run." in (result.recommendation or "")


def profiled(first: int, last: int, **fields: Any) -> dict[str, Any]:
    return {"process": 0, "source": 0, "first_ns": first, "last_ns": last, **fields}


def test_without_a_step_the_time_of_the_profile_counts_and_not_that_of_a_log_beside_it(make_store: MakeStore) -> None:
    # Thirty minutes of samples; ranges in a profile of 0.97 s.
    log, short = sampled(T0, T0 + 30 * MINUTE), profiled(T0, T0 + 970_000_000)
    result, _ = judged(make_store(sample=log, annotation=ranged(T0, 5), profile_window=[short]))
    assert (result.verdict, result.reason) == (
        "NotEvaluated", "no step annotations in this run, whose ranges were recorded for 970 ms, not longer than 20 min",
    )  # fmt: skip
    # The time of other processes, and of several profiles together, does not count either.
    windows = [short, profiled(T0 + 5 * MINUTE, T0 + 20 * MINUTE), profiled(T0, T0 + 30 * MINUTE, process=1)]
    assert judged(make_store(sample=log, annotation=ranged(T0, 5), profile_window=windows))[0].verdict == "NotEvaluated"
    windows.append(profiled(T0 + 20 * MINUTE, T0 + 26 * MINUTE))
    result, [finding] = judged(make_store(sample=log, annotation=ranged(T0, 5), profile_window=windows))
    assert (result.verdict, finding.cost_ns, result.first_ns) == ("IssuesFound", 21 * MINUTE, T0 + 25 * MINUTE)


def test_without_a_step_the_time_of_the_recording_counts(make_store: MakeStore) -> None:
    recorded = profiled(T0, T0 + 21 * MINUTE)
    del recorded["source"]
    result, [finding] = judged(make_store(annotation=ranged(T0, 5), recorded_window=[recorded]))
    assert (result.verdict, finding.cost_ns) == ("IssuesFound", 21 * MINUTE)


@pytest.mark.parametrize(("name", "phase"), [
    ("kAllReduce", "NcclManager"), ("dataset::GetNext", "DataIterator"), ("__init__", "DataLoaderIterInitialize"), ("4", "Unknown"),
    ("NEGOTIATE_ALLREDUCE", "conv1.weight"), ("WAIT_FOR_DATA", "allreduce.a"), ("ncclAllReduce", None), ("enumerate(DataLoader)#1", None),
])  # fmt: skip
def test_collectives_and_data_loading_alone_say_nothing_of_steps(make_store: MakeStore, name: str, phase: str | None) -> None:
    alone = ranged(T0, 60 * MINUTE)[0] | {"name": name, "phase": phase}
    result, _ = judged(make_store(annotation=[alone]))
    assert (result.verdict, result.reason) == (
        "NotEvaluated", "no step annotations in this run, whose ranges are of collectives and data loading alone",
    )  # fmt: skip
    # A range of the program next to them counts, for its own time.
    assert judged(make_store(annotation=[alone, *ranged(T0, MINUTE)]))[0].verdict == "NotEvaluated"
    assert judged(make_store(annotation=[alone, *ranged(T0, 21 * MINUTE)]))[0].verdict == "IssuesFound"


def test_a_phase_of_horovod_is_a_tensor_whatever_its_ranges_are_named(make_store: MakeStore) -> None:
    tensor = [{**ranged(T0 + at, 30 * MINUTE)[0], "name": name, "phase": "conv1.weight"} for at, name in enumerate(("ALLREDUCE", "memcpy"))]
    assert judged(make_store(annotation=tensor))[0].verdict == "NotEvaluated"


def test_a_raw_timeline_of_horovod_of_an_hour_is_no_late_first_step(tmp_path: Path) -> None:
    file = tmp_path / "horovod_timeline.json"
    events: list[dict[str, Any]] = [{"name": "process_name", "ph": "M", "pid": 1, "args": {"name": "grad.fc.weight"}}]
    for minute in range(0, 60, 5):
        start = minute * 60_000_000
        events += [
            {"ph": "B", "name": "NEGOTIATE_ALLREDUCE", "ts": start, "pid": 1},
            {"ph": "X", "name": "0", "ts": start + 5, "pid": 1, "dur": 0},
            {"ph": "E", "ts": start + 10, "pid": 1},
            {"ph": "B", "name": "ALLREDUCE", "ts": start + 10, "pid": 1},
            {"ph": "B", "name": "MEMCPY_IN_FUSION_BUFFER", "ts": start + 11, "pid": 1},
            {"ph": "E", "ts": start + 12, "pid": 1},
            {"ph": "E", "ts": start + 20, "pid": 1},
        ]
    file.write_text(json.dumps(events))
    with ingest([file]) as store:
        result, _ = judged(store)
    assert plain_details(result)["duration_ns"] > 50 * MINUTE
    assert (result.verdict, (result.reason or "").endswith("collectives and data loading alone")) == ("NotEvaluated", True)


@pytest.mark.parametrize(("framework", "keeps"), [(None, True), ("PyTorch", True), ("TensorFlow", False)])
def test_only_what_covers_most_of_the_time_is_named_and_only_for_pytorch_its_cache(
    make_store: MakeStore, framework: str | None, *, keeps: bool
) -> None:
    # Thirty minutes before the first step; ten of them, and ten after it, in a range that is nested in itself.
    late = {"sample": sampled(T0, T0 + 60 * MINUTE), "step": [step(0, T0 + 30 * MINUTE)], "run": [{"name": "r", "framework": framework}]}
    nested = [*ranged(T0 + 20 * MINUTE, 20 * MINUTE), *ranged(T0 + 20 * MINUTE, 20 * MINUTE)]
    advice = judged(make_store(annotation=nested, **late))[0].recommendation or ""
    assert advice.endswith("the time before the first step took 30 min, 50.0% of the run.")
    assert ("`TORCHINDUCTOR_CACHE_DIR` with torch.compile" in advice) == ("torch.compile" in advice) == keeps
    # Exactly half is not most; a nanosecond more is.
    half = judged(make_store(annotation=ranged(T0 + 15 * MINUTE, 20 * MINUTE), **late))[0].recommendation or ""
    assert "most of it" not in half
    most = judged(make_store(annotation=ranged(T0 + 15 * MINUTE - 1, 20 * MINUTE), **late))[0].recommendation or ""
    assert most.endswith("50.0% of the run, most of it in load.")


def test_an_empty_run_is_not_evaluated(make_store: MakeStore) -> None:
    assert judged(make_store())[0].verdict == "NotEvaluated"


@pytest.mark.parametrize(("number", "verdict"), [(0, "NoIssuesFound"), (1, "NoIssuesFound"), (2, "NotEvaluated"), (101, "NotEvaluated")])
def test_a_captured_window_says_nothing_of_what_came_before_it(make_store: MakeStore, number: int, verdict: str) -> None:
    steps = [step(number, T0 + 5 * SECOND), step(number + 1, T0 + 7 * SECOND)]
    result, _ = judged(make_store(source=source(T0, T0 + 10 * SECOND), step=steps))
    assert (result.verdict, plain_details(result)["initialization_ns"]) == (verdict, 5 * SECOND)
    assert plain_details(result)["measured_from"] == "start of the capture"
    if verdict == "NoIssuesFound":
        assert result.finding == (
            "The first step began 5.00 s after the start of the capture, within the threshold of 20 min; what the job did before the"
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
