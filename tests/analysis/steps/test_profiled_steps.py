"""Reports of a recording with profilers for a few steps: they describe the job, not the profilers."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from postrun.analysis import Options, analyze
from postrun.analysis.report import Report
from postrun.analysis.rules.checks.step_outlier import StepOutlier
from postrun.analysis.steps.profiled import ENOUGH
from postrun.analysis.steps.slow import slow_steps
from postrun.analysis.toolkit.wording import numbered, step, whole_percent
from postrun.ingest.derive.steps import derive_steps
from postrun.ingest.store import Store
from postrun.report_templates.sections.framework import framework
from postrun.report_templates.sections.steps import steps as section

MakeStore = Callable[..., Store]
Row = dict[str, Any]
MS = 10**6


def ranged(name: str, start: float, length: float, value: int | None = None) -> Row:
    return {
        "name": name,
        "side": "host",
        "value": value,
        "start_ns": round(start * MS),
        "duration_ns": round(length * MS),
        "complete": True,
    }


def job(lengths: list[float], *, parts: bool = False, numbers: list[int] | None = None) -> list[Row]:
    """Make steps without a gap; ``parts`` divides each into DataLoader and Forward."""
    rows, at = [], 0.0
    for i, length in enumerate(lengths):
        rows.append(ranged("step", at, length, i if numbers is None else numbers[i]))
        if parts:
            rows += [ranged("DataLoader", at, length / 2), ranged("Forward", at + length / 2, length / 2)]
        at += length
    return rows


def python(first_ms: float, length_ms: float, at: int) -> Row:
    return {
        "id": at, "source": 0, "node": 0, "process": 0, "profiler": "cprofile", "start_ns": round(first_ms * MS),
        "duration_ns": round(length_ms * MS), "functions": 1, "total_s": 0.0,
    }  # fmt: skip


def trace(first_ms: float, last_ms: float, on: tuple[float, float] | None = None) -> dict[str, list[Row]]:
    """Make a detailed profile with an operator and a loader wait over all of it.

    ``on``: the recorded time of the profiler, in milliseconds.
    """
    start, length = round(first_ms * MS), round((last_ms - first_ms) * MS)
    switched = {} if on is None else {"on_ns": round(on[0] * MS), "off_ns": round(on[1] * MS)}
    return {
        "source": [{"id": 0, "path": "t.pt.trace.json", "format": "PyTorch profiler trace"}],
        "profile_window": [{"process": 0, "source": 0, "first_ns": start, "last_ns": start + length, **switched}],
        "host_event": [
            {"kind": kind, "name": kind, "start_ns": start, "duration_ns": length} for kind in ("operator", "loader")
        ],
        "run": [{"metadata": json.dumps({"profiling.detailed.recorded": "step 5"})}],
    }  # fmt: skip


RECORDED: list[Row] = [{"process": 0, "first_ns": 0, "last_ns": 10**12, "process_started_ns": 0, "stopped": False}]


def reported(make_store: MakeStore, annotation: list[Row], **tables: list[Row]) -> Report:
    store = make_store(annotation=annotation, **{"recorded_window": RECORDED, **tables})
    derive_steps(store)
    return analyze(store, Options(generated_at_ns=0))


def lead(report: Report) -> str:
    """Return the lead of the section on steps, with plain spaces."""
    return str(section(report).lead).replace("\xa0", " ")


def tile(report: Report, key: str) -> tuple[str, str]:
    return next((one.value, one.detail) for one in report.summary.figures if one.key == key)


def test_a_trace_of_one_step_does_not_replace_the_ranges_of_all(make_store: MakeStore) -> None:
    for first, last in ((50.1, 60), (55, 60)):  # nearly all of step 5, and a part of it
        report = reported(make_store, job([10.0] * 20, parts=True), **trace(first, last))
        [parts] = report.steps.parts
        assert (parts.steps, parts.annotated, parts.typical) == (20, True, True)
        assert parts.mean_ns == {"data_loader": 5 * MS, "Forward": 5 * MS, "other": 0}
        assert tile(report, "data_loading") == (whole_percent(50), "of the mean step, 5.00 ms")
        assert f"Data loading takes {whole_percent(50)} of the mean step." in report.summary.headline


def test_names_that_only_the_trace_has_are_no_parts(make_store: MakeStore) -> None:
    rows = [row for row in job([10.0] * 20, parts=True) if row["name"] != "DataLoader"]
    rows += [ranged("enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__", 50.5, 4)]
    [parts] = reported(make_store, rows, **trace(50.1, 60)).steps.parts
    assert parts.mean_ns == {"Forward": 5 * MS, "other": 5 * MS}


def test_one_traced_step_of_many_is_not_the_average(make_store: MakeStore) -> None:
    report = reported(make_store, job([10.0] * 20), **trace(50.1, 60))
    [parts] = report.steps.parts
    assert (parts.steps, parts.numbers, parts.of, parts.typical) == (1, (5,), 20, False)
    assert "data loading" not in report.summary.headline
    assert tile(report, "data_loading") == ("—", "only step 5 was traced, which is not typical")
    assert report.steps.traced == "in 1 of 20 steps (step 5)"
    cut = reported(make_store, job([10.0] * 20), **trace(45, 60))
    assert tile(cut, "data_loading") == ("—", "only step 5 was traced (and a part of step 4), which is not typical")
    assert (cut.steps.parts[0].numbers, cut.steps.parts[0].partly) == ((5,), (4,))
    figure = section(report).figures["parts"]
    assert "the average of the steps that were traced" in str(figure.caption)
    assert "Step 5, of 20 the only one traced" in str(figure.caption)


def test_three_traced_steps_of_usual_length_stand_for_all_and_say_so(make_store: MakeStore) -> None:
    report = reported(make_store, job([10.0] * 20), **trace(50.1, 80))
    [parts] = report.steps.parts
    assert (parts.numbers, parts.typical) == ((5, 6, 7), True)
    assert "of the mean step in the 3 steps that were traced." in report.summary.headline
    longer = reported(make_store, job([10.0] * 5 + [30.0] * 3 + [10.0] * 12), **trace(50.1, 140))
    assert (longer.steps.parts[0].numbers, longer.steps.parts[0].typical) == ((5, 6, 7), False)


def test_what_another_tracer_recorded_of_all_steps_is_not_the_trace(make_store: MakeStore) -> None:
    # An export of Nsight Systems has the device's work of every step, and no operators or loads: 4 of 10 ms in each of three steps.
    tables = trace(50, 80)
    tables["source"].append({"id": 1, "path": "r.sqlite", "format": "Nsight Systems export"})
    tables["profile_window"].append({"process": 0, "source": 1, "first_ns": 0, "last_ns": 200 * MS})
    tables["host_event"] = [
        {"kind": kind, "name": kind, "start_ns": (50 + 10 * i) * MS, "duration_ns": 4 * MS}
        for kind in ("operator", "loader")
        for i in range(3)
    ]
    report = reported(make_store, job([10.0] * 20), **{**tables, "recorded_window": []})
    [parts] = report.steps.parts
    assert (parts.steps, parts.numbers, parts.of, parts.typical) == (3, (5, 6, 7), 20, True)
    assert tile(report, "data_loading") == (whole_percent(40), "of the mean step, 4.00 ms in the 3 steps that were traced")
    assert report.steps.traced == "in 3 of 20 steps (steps 5–7)"


def test_a_step_without_events_at_its_end_was_traced_where_the_profiler_was_on(make_store: MakeStore) -> None:
    # Operators and a wait in the first 0.4 of 10 ms; the profiler was on from shortly before the step to shortly after it.
    report = reported(make_store, job([10.0] * 20), **trace(50.1, 50.5, (49.8, 60.2)))
    [parts] = report.steps.parts
    assert (parts.numbers, parts.partly, parts.of, report.steps.parts_absent) == ((5,), (), 20, None)
    # The wait counts first, then the operator, which is at the same time; nothing is known of the rest.
    assert parts.mean_ns["data_loader"] == 0.4 * MS
    assert (parts.mean_ns["cpu_op"], parts.mean_ns["other"]) == (0, 9.6 * MS)
    assert report.steps.traced == "in 1 of 20 steps (step 5)"
    assert "step 5 (torch.profiler)" in str(report.steps.profiled)
    assert tile(report, "data_loading") == ("—", "only step 5 was traced, which is not typical")
    # Step 6 has no events at all.
    longer = reported(make_store, job([10.0] * 20), **trace(50.1, 50.5, (49.8, 70.2)))
    assert (longer.steps.parts[0].numbers, longer.steps.parts[0].partly) == ((5, 6), ())
    assert longer.steps.traced == "in 2 of 20 steps (steps 5 and 6)"
    # It was switched off in the middle of the step.
    cut = reported(make_store, job([10.0] * 20), **trace(50.1, 50.5, (49.8, 55)))
    assert tile(cut, "data_loading") == ("—", "only a part of step 5 was traced")


def test_names_that_only_a_step_without_events_has_are_of_the_trace(make_store: MakeStore) -> None:
    rows = [row for row in job([10.0] * 20, parts=True) if row["name"] != "DataLoader"]
    rows += [ranged("enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__", 60.5, 4)]
    [parts] = reported(make_store, rows, **trace(50.1, 50.5, (49.8, 70.2))).steps.parts
    assert parts.mean_ns == {"Forward": 5 * MS, "other": 5 * MS}


def test_a_part_of_a_step_is_said_to_be_one(make_store: MakeStore) -> None:
    report = reported(make_store, job([10.0] * 20), **trace(55, 60))
    assert report.steps.parts == ()
    assert tile(report, "data_loading") == ("—", "only a part of step 5 was traced")


def test_steps_with_a_profiler_are_not_the_longest(make_store: MakeStore) -> None:
    lengths = [10.0] * 40
    lengths[9:12] = [50.0, 60.0, 50.0]
    plain = reported(make_store, job(lengths), python_window=[])
    assert "The longest, step 10, took 60.0 ms" in plain.summary.headline
    assert plain.steps.profiled is None
    report = reported(make_store, job(lengths), python_window=[python(90, 49, 0), python(140, 59, 1), python(200, 50.2, 2)])
    assert "longest" not in report.summary.headline
    assert tile(report, "longest_step") == ("10.0 ms", "step 0, 1.00 times the median, without profiled steps")
    assert [one.index for one in report.steps.steps if one.profiled == "cProfile"] == [9, 10, 11]
    assert report.steps.profiled == (
        "With a profiler on: steps 9–11 (cProfile). That makes them longer; they are left out of the longest step, of slow steps and of"
        " outliers."
    )
    assert report.steps.profiled in str(section(report).lead)
    assert "95th percentile 50.0 ms, slowest without a profiler 10.0 ms." in lead(report)
    assert "slowest 60.0 ms." in lead(plain)
    outliers = next(one for one in report.rules if one.rule == StepOutlier.name)
    assert outliers.datapoints == 37


def test_without_enough_other_steps_the_longest_is_said_to_be_profiled(make_store: MakeStore) -> None:
    windows = [python(40, 200, 0)]
    report = reported(make_store, job([10.0] * (ENOUGH - 1) + [11.0] * 10 + [60.0]), python_window=windows)
    assert "The longest, step 14, in which cProfile was on, took 60.0 ms" in report.summary.headline
    assert "too few other steps remain" in (report.steps.profiled or "")
    assert "slowest 60.0 ms." in lead(report)


def test_the_slowest_of_many_profiled_steps_is_of_the_others(make_store: MakeStore) -> None:
    """Twelve profiled steps, more than are listed as the slowest, of 20 in all."""
    report = reported(make_store, job([10.0] * 7 + [20.0] + [60.0] * 12), python_window=[python(90, 720, 0)])
    assert [one.profiled for one in report.steps.groups[0].slowest] == ["cProfile"] * 10
    assert "slowest without a profiler 20.0 ms." in lead(report)


def test_windows_of_the_programs_own_profiler_change_nothing(make_store: MakeStore) -> None:
    values = {**trace(50.1, 60), "run": [{"metadata": "{}"}]}
    assert all(one.profiled is None for one in reported(make_store, job([10.0] * 20), **values).steps.steps)
    hosted = reported(make_store, job([10.0] * 20), python_window=[python(50, 10, 0)], recorded_window=[])
    assert hosted.steps.profiled is None


def test_slow_steps_leave_profiled_ones_out(make_store: MakeStore) -> None:
    rows = [
        {"node": 0, "process": 0, "index": i, "host_start_ns": i * 100, "host_duration_ns": 90, "device_start_ns": i * 100,
         "device_duration_ns": 80 if i == 9 else 50, "device_events": 1}
        for i in range(20)
    ]  # fmt: skip
    events = [{"kind": "kernel", "name": "k", "start_ns": r["device_start_ns"], "duration_ns": r["device_duration_ns"]} for r in rows]
    window = {**python(0, 0, 0), "start_ns": 900, "duration_ns": 90}
    tables: dict[str, Any] = {"step": rows, "device_event": events, "recorded_window": RECORDED}
    assert slow_steps(make_store(**tables)).slow == (9,)
    result = slow_steps(make_store(**tables, python_window=[window]))
    assert (result.slow, result.steps) == ((), 19)


def test_numbers_that_begin_anew_are_told_apart(make_store: MakeStore) -> None:
    lengths = [10.0] * 24
    lengths[9] = 50.0
    report = reported(make_store, job(lengths, numbers=[*range(8)] * 3))
    assert [one.again for one in report.steps.steps] == [0] * 8 + [1] * 8 + [2] * 8
    assert "The longest, step 1 (2nd time), took" in report.summary.headline
    page = section(report)
    figure = page.figures["over-index"]
    assert "the axis counts the steps before each" in str(figure.caption)
    slowest = page.tables["slowest"]
    assert "step 1 (2nd time)" in str(slowest.rows[0][0])


def test_words() -> None:
    assert numbered([11, 9, 5, 10, 7, 7]) == "5, 7 and 9–11"
    assert (numbered([4]), numbered([1, 2])) == ("4", "1 and 2")
    assert [step(3, again) for again in (0, 1, 2, 3, 10, 20)] == [
        "step 3", "step 3 (2nd time)", "step 3 (3rd time)", "step 3 (4th time)", "step 3 (11th time)", "step 3 (21st time)",
    ]  # fmt: skip


def test_operators_of_a_trace_say_in_how_many_steps_they_were_traced(make_store: MakeStore) -> None:
    report = reported(make_store, job([10.0] * 20), **trace(50.1, 60))
    assert "Operators were recorded in 1 of 20 steps (step 5) only." in str(framework(report).lead)
    total = reported(make_store, job([10.0] * 20), **trace(0, 200))
    assert "Operators were recorded" not in str(framework(total).lead)
