"""Outliers, thresholds, windows, slowest steps and cost are those worked out on paper and by a plain loop."""

from __future__ import annotations

import math
import random
import statistics
from collections.abc import Callable
from typing import Any

import pytest
from judging import rules_of
from postrun.analysis import Options
from postrun.analysis.report import Finding, RuleResult
from postrun.analysis.rules.checks.step_outlier import fewest_steps
from postrun.analysis.rules.engine.selection import select
from postrun.ingest.store import Store
from rule_details import plain_details

MakeStore = Callable[..., Store]
MS = 1_000_000
MINUTE = 60_000 * MS


def judged(store: Store, **settings: Any) -> tuple[RuleResult, tuple[Finding, ...]]:
    values = {f"StepOutlier_{name}": value for name, value in settings.items()}
    report = rules_of(store, Options(selection=select(["StepOutlier"], settings=values), generated_at_ns=0))
    [result] = report.rules
    assert result.verdict != "Error", result.reason
    return result, report.findings


def step(index: int, start: int, duration: int, **more: Any) -> dict[str, Any]:
    return {
        "node": 0, "process": 0, "index": index, "host_start_ns": start, "host_duration_ns": duration, "device_events": 0, **more,
    }  # fmt: skip


def series(durations: list[int], *, every: int = 1000, first: int = 0, **more: Any) -> list[dict[str, Any]]:
    return [step(i, first + i * every, duration, **more) for i, duration in enumerate(durations)]


def test_without_steps(make_store: MakeStore) -> None:
    result, _ = judged(make_store())
    assert (result.verdict, result.reason, result.datapoints) == ("NotEvaluated", "no step annotations in this run", 0)
    assert "step()" in (result.capture or "")


def test_a_step_of_exactly_the_threshold_is_no_outlier(make_store: MakeStore) -> None:
    # 18 steps of 10 and 2 of 20: mean 11, variance (18 x 1 + 2 x 81) / 20 = 9, standard deviation 3, threshold 11 + 3 x 3 = 20.
    result, _ = judged(make_store(step=series([10] * 18 + [20] * 2)), stddev=3, n_outliers=0.5)
    [group] = plain_details(result)["groups"]
    assert (group["mean_ns"], group["std_ns"], group["threshold_ns"]) == (11, 3, 20)
    assert (result.verdict, group["outliers"], result.violations, result.triggered, result.first_ns) == ("NoIssuesFound", 0, 0, 0, None)
    # At 2.9 the threshold is 19.7 and both are outliers.
    result, _ = judged(make_store(step=series([10] * 18 + [20] * 2)), stddev=2.9, n_outliers=1)
    [group] = plain_details(result)["groups"]
    assert group["threshold_ns"] == pytest.approx(19.7)
    assert (result.verdict, group["outliers"], result.violations) == ("IssuesFound", 2, 2)
    assert (result.triggered, result.windows, result.windows_triggered, result.datapoints) == (1, 1, 1, 20)
    assert (result.first_ns, result.last_ns) == (18_000, 19_000)


def test_exactly_n_outliers_is_no_issue(make_store: MakeStore) -> None:
    store = make_store(step=series([10] * 36 + [20] * 2))
    assert judged(store, stddev=2.9, n_outliers=2)[0].verdict == "NoIssuesFound"
    assert judged(store, stddev=2.9, n_outliers=1)[0].verdict == "IssuesFound"


@pytest.mark.parametrize(("factor", "needed"), [(3, 10), (5, 26), (1, 2), (2.5, 7), (0.5, 1)])
def test_fewest_steps(factor: float, needed: int) -> None:
    # If n - 1 of n steps are equal, the longest is sqrt(n - 1) standard deviations above the mean.
    assert fewest_steps(factor) == needed
    assert math.sqrt(needed - 1) <= factor < math.sqrt(needed)


def test_k_squared_plus_one_steps_are_not_evaluated_and_one_more_are(make_store: MakeStore) -> None:
    result, _ = judged(make_store(step=series([10] * 9 + [1000])), stddev=3, n_outliers=0.5)
    assert result.verdict == "NotEvaluated"
    assert (result.reason or "").startswith("10 of more than 10 steps needed")
    [group] = plain_details(result)["groups"]
    assert (group["evaluable"], group["outliers"], group["issue"], group["most_outliers"]) == (False, None, None, 0)
    assert result.datapoints == 10
    result, _ = judged(make_store(step=series([10] * 10 + [1000])), stddev=3, n_outliers=0.5)
    assert result.verdict == "IssuesFound"
    assert plain_details(result)["groups"][0]["outliers"] == plain_details(result)["groups"][0]["most_outliers"] == 1


def test_equal_steps_have_no_outliers(make_store: MakeStore) -> None:
    for duration in (7, 123_456_789_123):
        result, _ = judged(make_store(step=series([duration] * 40)), stddev=3, n_outliers=0.5)
        assert (result.verdict, result.violations) == ("NoIssuesFound", 0)


def test_more_outliers_than_can_be_are_said_to_be_impossible(make_store: MakeStore) -> None:
    # Of 27 steps at most one is beyond factor 5: an issue with more than ten cannot be found.
    result, _ = judged(make_store(step=series([10] * 27)))
    assert (result.verdict, result.reason) == (
        "NotEvaluated",
        "27 of more than 286 steps needed: in this many steps at most 1 can exceed mean + 5σ; the limit is 10",
    )
    assert "factor 3" not in (judged(make_store(step=series([10] * 300)), stddev=3)[0].finding or "")
    for factor, percent in ((5, 3.846), (3, 10.0)):
        assert plain_details(judged(make_store(step=series([10] * 27)), stddev=factor)[0])["limit_percent"] == pytest.approx(
            percent, abs=1e-3
        )


@pytest.mark.parametrize(("factor", "allowed"), [(5, 10), (3, 10), (3, 0.5), (2.5, 1), (1, 2)])
def test_from_how_many_steps_on_an_issue_can_be(make_store: MakeStore, factor: float, allowed: float) -> None:
    """The fewest outliers of an issue are equally long among equal steps.

    They are sqrt((n - m) / m) standard deviations above the mean."""
    outliers = math.floor(allowed) + 1
    steps = next(n for n in range(outliers + 1, 1000) if math.sqrt((n - outliers) / outliers) > factor)
    for number, verdict in ((steps - 1, "NotEvaluated"), (steps, "IssuesFound")):
        durations = [10] * (number - outliers) + [1000] * outliers
        assert judged(make_store(step=series(durations)), stddev=factor, n_outliers=allowed)[0].verdict == verdict
    if (factor, allowed) in ((5, 10), (3, 10)):
        assert steps == {5: 287, 3: 111}[int(factor)]


@pytest.mark.parametrize("mode", ["TRAIN", "train", "ModeKeys.TRAIN", "modekeys.train"])
def test_mode_restricts_to_a_phase(make_store: MakeStore, mode: str) -> None:
    rows = series([10] * 11 + [1000], phase="TRAIN") + series([5] * 20, phase="EVAL", first=50_000) + series([4] * 30, first=90_000)
    result, _ = judged(make_store(step=rows), mode=mode, stddev=3, n_outliers=0.5)
    assert [(group["phase"], group["outliers"]) for group in plain_details(result)["groups"]] == [("TRAIN", 1)]
    assert result.datapoints == 12
    assert result.changed_parameters["mode"] == mode


def test_steps_without_a_phase_are_global_and_groups_stay_apart(make_store: MakeStore) -> None:
    rows = series([10] * 12, phase="TRAIN") + series([4] * 30, first=90_000)
    assert [group["phase"] for group in plain_details(judged(make_store(step=rows), stddev=3)[0])["groups"]] == [None, "TRAIN"]
    result, _ = judged(make_store(step=rows), mode="GLOBAL", stddev=3)
    assert [(group["phase"], group["steps"]) for group in plain_details(result)["groups"]] == [(None, 30)]
    result, _ = judged(make_store(step=rows), mode="PREDICT", stddev=3)
    assert (result.verdict, result.reason) == ("NotEvaluated", "no steps of phase PREDICT in this run (its phases: TRAIN, none)")


def test_device_durations_count_where_there_are_some(make_store: MakeStore) -> None:
    rows = [
        step(i, i * 1000, 500, device_start_ns=i * 1000 + 100, device_duration_ns=90 if i == 11 else 30, device_events=1) for i in range(12)
    ]
    result, _ = judged(make_store(step=rows), stddev=3, n_outliers=0.5)
    [group] = plain_details(result)["groups"]
    assert (group["on_device"], group["mean_ns"], group["outliers"], group["max_ns"]) == (True, 35, 1, 90)
    assert (result.first_ns, plain_details(result)["slowest"][0]["start_ns"]) == (11_100, 11_100)


def test_windows_are_half_open_from_the_first_samples_minute(make_store: MakeStore) -> None:
    # Samples begin at 90 s: windows are [60 s, 120 s), [120 s, 180 s) ... Outliers at 119.999 999 999 s, 120 s and 179 s.
    sample = [{"node": 0, "metric": "cpu_utilization", "unit": 0, "time_ns": 90_000 * MS, "value": 1.0}]
    starts = {12: 2 * MINUTE - 1, 13: 2 * MINUTE, 30: 179_000 * MS}
    rows = [step(i, starts.get(i, 100_000 * MS + i), 500 if i in starts else 10) for i in range(31)]
    rows += [step(31, 500_000 * MS, 10)]
    result, _ = judged(make_store(step=rows, sample=sample), stddev=3, n_outliers=2)
    assert (result.violations, result.windows, result.triggered, result.windows_triggered) == (3, 3, 2, 2)
    assert (result.first_ns, result.last_ns) == (2 * MINUTE - 1, 179_000 * MS)
    result, _ = judged(make_store(step=rows, sample=sample), stddev=3, n_outliers=2, scan_interval_us=30_000_000)
    assert result.triggered == 3  # [90, 120), [120, 150), [150, 180)


def test_cost_is_what_outliers_take_beyond_the_median_of_the_loop(make_store: MakeStore) -> None:
    # Rank 0: 19 steps of 10 and one of 110, each 1000 after the one before: 100 beyond the median, span 19 x 1000 + 110. Rank 1 without.
    processes = [{"id": 0, "node": 0, "pid": 1, "rank": 0}, {"id": 1, "node": 0, "pid": 2, "rank": 1}]
    rows = series([10] * 19 + [110]) + series([10] * 20, process=1)
    result, [finding] = judged(make_store(step=rows, processes=processes), stddev=3, n_outliers=0.5)
    assert (finding.cost_ns, finding.saving_ns, finding.cost_per_step_ns) == (100, 100, 5)
    assert finding.cost_percent == pytest.approx(100 * 100 / (19_110 + 19_010))
    assert (finding.where, finding.base, finding.title) == (
        "rank 0, host-0",
        "process time in the training loop",
        "Remove the stall in 1 slow step",
    )
    assert result.finding == (
        "1 of 20 steps of rank 0, host-0 took longer than 80.4 ns (mean 15 ns + 3 × standard deviation 21.8 ns), more than the threshold of"
        " 0.5 outliers."
    )


def test_a_profile_window_of_another_rank_is_no_part_of_the_loop(make_store: MakeStore) -> None:
    # 100 beyond the median of the 19,110 of rank 0; of rank 1, only 20 steps without a phase were profiled.
    processes = [{"id": 0, "node": 0, "pid": 1, "rank": 0}, {"id": 1, "node": 0, "pid": 2, "rank": 1}]
    rows = series([10] * 19 + [110], phase="TRAIN") + series([10] * 20, process=1)
    _, [finding] = judged(make_store(step=rows, processes=processes), stddev=3, n_outliers=0.5)
    assert finding.cost_percent == pytest.approx(100 * 100 / 19_110)


def test_ranks_with_the_same_slow_steps_count_them_once(make_store: MakeStore) -> None:
    # Steps 18 and 19 are slow on rank 0, steps 19 and 20 on rank 1: three steps, four times.
    processes = [{"id": 0, "node": 0, "pid": 1, "rank": 0}, {"id": 1, "node": 0, "pid": 2, "rank": 1}]
    rows = series([10] * 18 + [110] * 2 + [10] * 8) + series([10] * 19 + [110] * 2 + [10] * 7, process=1)
    _, [finding] = judged(make_store(step=rows, processes=processes), stddev=3, n_outliers=1)
    assert (finding.cost_ns, finding.title) == (400, "Remove the stalls in 3 slow steps")


def test_the_same_steps_with_and_without_phase_cost_once(make_store: MakeStore) -> None:
    durations = [10] * 19 + [110]
    combined = series(durations, phase="TRAIN") + series(durations)
    result, [finding] = judged(make_store(step=combined), stddev=3, n_outliers=0.5)
    assert [group["outliers"] for group in plain_details(result)["groups"]] == [1, 1]
    assert finding.cost_ns == 100
    assert {row["phase"] for row in plain_details(result)["slowest"]} == {"TRAIN"}


def test_regular_outliers_are_recognized(make_store: MakeStore) -> None:
    durations = [100 if i % 25 == 0 else 10 for i in range(200)]
    result, _ = judged(make_store(step=series(durations)), stddev=2, n_outliers=5)
    assert plain_details(result)["groups"][0]["every_steps"] == 25
    assert "every 25 steps" in (result.recommendation or "")
    irregular = [100 if i in (3, 10, 50, 51, 99, 170) else 10 for i in range(200)]
    result, _ = judged(make_store(step=series(irregular)), stddev=2, n_outliers=5)
    assert (result.verdict, plain_details(result)["groups"][0]["every_steps"]) == ("IssuesFound", None)


def test_what_ran_in_the_slowest_steps_against_the_typical_one(make_store: MakeStore) -> None:
    # 20 steps of 100 every 1000 on the host; step 7 takes 700: a wait for data of 600 more. Device work: 40 in every step.
    rows = series([700 if i == 7 else 100 for i in range(20)])
    host = [{"kind": "loader", "name": "next", "start_ns": i * 1000, "duration_ns": 610 if i == 7 else 10} for i in range(20)]
    host += [{"kind": "operator", "name": "aten::mm", "start_ns": i * 1000 + 10, "duration_ns": 20} for i in range(20)]
    host += [{"kind": "python", "name": "main", "start_ns": i * 1000 + 10, "duration_ns": 20} for i in range(20)]
    host += [{"kind": "sync", "name": "cudaStreamSynchronize", "start_ns": 7650, "duration_ns": 500}]  # reaches 450 beyond the step
    device = [{"kind": "kernel", "name": "gemm", "start_ns": i * 1000 + 30, "duration_ns": 40} for i in range(20)]
    annotation = [
        {"name": f"ProfilerStep#{i}", "side": "host", "start_ns": i * 1000, "duration_ns": row["host_duration_ns"], "complete": True}
        for i, row in enumerate(rows)
    ]
    annotation += [{"name": "save_1", "side": "host", "start_ns": 7620, "duration_ns": 30, "complete": True}]
    store = make_store(step=rows, host_event=host, device_event=device, annotation=annotation, names={"gemm": ("gemm<>", "fp32", "gemm")})
    result, _ = judged(store, stddev=3, n_outliers=0.5)
    slowest = plain_details(result)["slowest"]
    assert len(slowest) == 10
    assert (slowest[0]["index"], slowest[0]["duration_ns"], slowest[0]["typical_ns"], slowest[0]["outlier"]) == (7, 700, 100, True)
    assert [tuple(row.values()) for row in slowest[0]["active"]] == [
        ("loader", "next", 610, 10, 600),
        ("sync", "cudaStreamSynchronize", 50, 0, 50),
        ("annotation", "save", 30, 0, 30),
        ("kernel", "gemm<>", 40, 40, 0),
        ("operator", "aten::mm", 20, 20, 0),
    ]
    assert [row["outlier"] for row in slowest[1:]] == [False] * 9
    assert "`num_workers`" in (result.recommendation or "")
    active = plain_details(result)["active"]  # of the only outlier, 7000 to 7700
    assert {row["name"]: row["time_ns"] for row in active["operators"]} == {"next": 610, "aten::mm": 20}
    assert {row["name"]: row["time_ns"] for row in active["phases"]} == {"step": 700}


def test_work_of_another_process_is_not_compared(make_store: MakeStore) -> None:
    processes = [{"id": 0, "node": 0, "pid": 1, "rank": 0}, {"id": 1, "node": 0, "pid": 2, "rank": 1}]
    host = [{"kind": "operator", "name": "aten::mm", "start_ns": 19_000, "duration_ns": 20, "process": 1}]
    store = make_store(step=series([10] * 19 + [110]), processes=processes, host_event=host)
    result, _ = judged(store, stddev=3, n_outliers=0.5)
    assert plain_details(result)["slowest"][0]["active"] == []
    assert "with_stack=True" in (result.recommendation or "")


@pytest.mark.parametrize("seed", range(6))
def test_random_runs_against_a_plain_loop(make_store: MakeStore, seed: int) -> None:
    rng = random.Random(seed)
    factor, allowed = rng.choice([1, 2, 3, 5]), rng.choice([1, 3, 10])
    rows: list[dict[str, Any]] = []
    groups: dict[tuple[int, str], list[tuple[int, int]]] = {}
    for process in range(3):
        for phase in ("TRAIN", "EVAL"):
            at = rng.randrange(MINUTE)
            for index in range(rng.randrange(1, 150)):
                duration = rng.randrange(80, 120) * MS * (rng.randrange(5, 50) if rng.random() < 0.05 else 1)
                rows.append(step(index, at, duration, process=process, phase=phase))
                groups.setdefault((process, phase), []).append((at, duration))
                at += duration + rng.randrange(MINUTE)
    processes = [{"id": i, "node": 0, "pid": i, "rank": i} for i in range(3)]
    rng.shuffle(rows)
    result, findings = judged(make_store(step=rows, processes=processes), stddev=factor, n_outliers=allowed)
    windows: set[int] = set()
    starts: list[int] = []
    outliers_in_all, cost, expected = 0, 0.0, {}
    for key, steps in groups.items():
        durations = [duration for _, duration in steps]
        mean, median = statistics.fmean(durations), statistics.median(durations)
        threshold = mean + factor * statistics.pstdev(durations)
        mad = statistics.median(abs(duration - median) for duration in durations)
        robust = sum(duration > median + factor * 1.4826 * mad for duration in durations)
        evaluable = len(durations) > factor**2 + 1
        long = [(at, duration) for at, duration in steps if evaluable and duration > threshold]
        expected[key] = (len(durations), pytest.approx(mean), pytest.approx(threshold), len(long) if evaluable else None, robust)
        outliers_in_all += len(long)
        if len(long) > allowed:
            windows |= {at // MINUTE for at, _ in long}
            starts += [at for at, _ in long]
            cost += sum(duration - median for _, duration in long)
    actual = {
        (group["rank"], group["phase"]): (
            group["steps"], group["mean_ns"], group["threshold_ns"], group["outliers"], group["robust_outliers"],
        )
        for group in plain_details(result)["groups"]
    }  # fmt: skip
    assert actual == expected
    assert all(
        sum(group["histogram"]["counts"]) + group["histogram"]["beyond"] == group["steps"] for group in plain_details(result)["groups"]
    )
    assert all(
        sum(group["normal_histogram"]["counts"]) == group["steps"] - (group["outliers"] or 0)
        and len(group["normal_histogram"]["counts"]) <= 100
        for group in plain_details(result)["groups"]
    )
    assert (result.violations, result.datapoints) == (outliers_in_all, len(rows))
    assert result.windows == len({row["host_start_ns"] // MINUTE for row in rows})
    assert result.triggered == result.windows_triggered == len(windows)
    assert (result.first_ns, result.last_ns) == ((min(starts), max(starts)) if starts else (None, None))
    judgeable = any(len(steps) > factor**2 + 1 for steps in groups.values())
    assert result.verdict == ("IssuesFound" if starts else "NoIssuesFound" if judgeable else "NotEvaluated")
    assert [finding.cost_ns for finding in findings] == ([pytest.approx(cost, abs=6)] if starts else [])
    extra = sorted((d - statistics.median(d for _, d in steps) for steps in groups.values() for _, d in steps), reverse=True)[:10]
    medians = {key: statistics.median(d for _, d in steps) for key, steps in groups.items()}
    assert [row["duration_ns"] - medians[row["rank"], row["phase"]] for row in plain_details(result)["slowest"]] == extra


def test_a_slow_first_step_does_not_hide_what_makes_the_others_slow(make_store: MakeStore) -> None:
    # Six of 400 steps take 300 instead of 100 ms, with 210 instead of 10 ms of loading; nothing is recorded of the 3 s of the first.
    durations = [3000 * MS] + [300 * MS if i in (3, 10, 12, 31, 38, 50) else 100 * MS for i in range(1, 400)]
    steps = series(durations, every=4000 * MS)
    annotation = [
        {"name": "GetNext", "side": "host", "phase": "DataLoaderIter", "complete": True, "start_ns": row["host_start_ns"] + 1,
         "duration_ns": 210 * MS if row["host_duration_ns"] == 300 * MS else 10 * MS}
        for row in steps
    ]  # fmt: skip
    result, _ = judged(make_store(step=steps, annotation=annotation), stddev=1, n_outliers=1)
    assert result.verdict == "IssuesFound"
    assert (result.recommendation or "").startswith("Load further ahead")
    assert "GetNext took 200 ms longer than in a typical step" in (result.recommendation or "")
