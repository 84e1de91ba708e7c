"""LowGPUUtilization evaluates every GPU at the end of every window as defined, including at the thresholds."""

from __future__ import annotations

import json
import random
from types import SimpleNamespace
from typing import Any

import pytest
from postrun.analysis.report import FINE, ISSUES, NOT_EVALUATED
from postrun.analysis.report.causes import Gap
from postrun.analysis.rules.evidence.base import Outcome
from postrun.analysis.rules.evidence.gpus import gpu_time
from rule_details import plain_details
from sample_rules import GPU, MINUTE, SECOND, AmbiguousError, Sample, defaults, judged, line, low_gpu, origin, random_run, sampled

RULE = "LowGPUUtilization"
START = 1_700_000_040 * SECOND  # a full minute


def judge(samples: list[Sample], **parameters: Any) -> Outcome:
    with sampled(samples) as store:
        return judged(store, RULE, **parameters)


def only_gpu(values: list[float], **parameters: Any) -> dict[str, Any]:
    """The details of the only GPU of a run."""
    rows = plain_details(judge(line(0, GPU, 0, values, start=START), **parameters))["devices"]
    assert len(rows) == 1
    return dict(rows[0])


def test_a_steady_low_gpu_is_under_utilized_in_every_window() -> None:
    # 600 samples at 0.5 s: five windows of 120; with patience 240 those that end at 360, 480 and 600 are evaluated.
    outcome = judge(line(0, GPU, 2, [40.0] * 600, start=START), patience=240)
    assert (outcome.verdict, outcome.triggered, outcome.violations, outcome.datapoints) == (ISSUES, 3, 3, 600)
    assert (outcome.windows, outcome.windows_triggered) == (3, 3)
    assert (outcome.first_ns, outcome.last_ns) == (START + 359 * SECOND // 2, START + 599 * SECOND // 2)
    (row,) = plain_details(outcome)["devices"]
    assert (row["node"], row["device"], row["state"], row["pattern"]) == ("m0", 2, "under-utilized", "whole run")
    assert (row["windows"], row["triggered"], row["under_utilised"], row["fluctuating"]) == (3, 3, 3, 0)
    assert (row["triggered_percent"], row["p95"], row["p5"]) == (100.0, 40.0, 40.0)
    assert row["box"]["samples"] == 600
    assert row["box"]["p50"] == row["box"]["max"] == 40.0
    # 60% of 300 s unused
    assert outcome.cost is not None
    assert (outcome.cost.ns, outcome.cost.saving_ns, outcome.cost.of_ns) == (180 * SECOND, 180 * SECOND, 300 * SECOND)
    assert outcome.cost.base == "GPU time of the run"
    assert outcome.finding == (
        "The GPU is underused in all of its 3 evaluated windows, low for the whole run: 1 under-utilized (p95 below 70%, lowest 40.0% on m0"
        " GPU 2)."
    )


def test_the_histogram_has_the_shares_of_all_samples() -> None:
    values = [0.0] * 300 + [19.9, 20.0] * 50 + [91.0] * 190 + [100.0] * 10
    expected = [0.0] * 50
    expected[0], expected[9], expected[10], expected[45], expected[49] = 0.5, 50 / 600, 50 / 600, 190 / 600, 10 / 600
    assert only_gpu(values, patience=240)["histogram"] == pytest.approx(expected)


@pytest.mark.parametrize(("every", "base"), [(5, "sampled GPU time of the run"), (50, "GPU time of the run")])
def test_the_cost_is_of_the_time_that_was_sampled(every: int, base: str) -> None:
    # One sample of five, or of fifty, has no value ([N/A] in a log).
    samples = [one for number, one in enumerate(line(0, GPU, 0, [40.0] * 1000, start=START)) if number % every]
    cost = judge(samples, patience=240).cost
    assert cost is not None
    assert (cost.ns, cost.of_ns, cost.base) == (len(samples) * SECOND * 3 // 10, len(samples) * SECOND // 2, base)


def test_thresholds_are_strict() -> None:
    assert only_gpu([70.0] * 200, patience=100)["state"] == "fine"
    assert only_gpu([69.99] * 200, patience=100)["state"] == "under-utilized"
    # one of nine at 10: p5 of the last 500 is 10
    steady = [10.0 if number % 9 == 0 else 90.0 for number in range(1200)]
    assert only_gpu(steady)["state"] == "fine"
    lower = [9.99 if number % 9 == 0 else 90.0 for number in range(1200)]
    row = only_gpu(lower)
    assert (row["state"], row["p5"], row["p95"], row["under_utilised"]) == ("fluctuating", 9.99, 90.0, 0)
    # p95 exactly 70 and p5 below: fluctuating, not under-utilized
    assert only_gpu([0.0 if number % 9 == 0 else 70.0 for number in range(1200)])["state"] == "fluctuating"
    # both low: under-utilized only
    assert only_gpu([0.0 if number % 9 == 0 else 60.0 for number in range(1200)])["fluctuating"] == 0


@pytest.mark.parametrize(("samples", "windows"), [(100, 0), (101, 1), (121, 2)])
def test_more_than_patience_samples(samples: int, windows: int) -> None:
    outcome = judge(line(0, GPU, 0, [0.5] * samples, start=START), patience=100)
    assert outcome.windows == outcome.triggered == windows
    assert plain_details(outcome)["devices"][0]["state"] == ("under-utilized" if windows else "too few samples")
    if not windows:
        assert (outcome.verdict, outcome.reason) == (NOT_EVALUATED, "100 of more than 100 samples needed")
        assert outcome.capture
        assert (outcome.datapoints, outcome.finding, outcome.cost) == (0, None, None)


def test_the_first_samples_stay_in_the_statistics() -> None:
    # Of 101 samples the first 50 are 0: more than 5% of the last 500, so p5 is 0.
    row = only_gpu([0.0] * 50 + [90.0] * 51, patience=100)
    assert (row["state"], row["p5"], row["p95"]) == ("fluctuating", 0.0, 90.0)


def test_window_is_the_last_samples_only() -> None:
    values = [0.0] * 240 + [100.0] * 240
    assert only_gpu(values, patience=100, window=120)["triggered"] == 2  # ends at 120 (samples 1..120) and 240; then all at 100
    assert only_gpu(values, patience=100, window=500)["triggered"] == 4
    assert only_gpu(values, patience=100, window=500)["p5"] == 0.0


def test_unused_gpu() -> None:
    outcome = judge(line(0, GPU, 0, [0.0] * 200, start=START) + line(0, GPU, 1, [95.0] * 200, start=START), patience=100)
    unused, fine = plain_details(outcome)["devices"]
    assert (unused["state"], unused["under_utilised"], unused["pattern"], fine["state"]) == ("unused", 2, "whole run", "fine")
    assert outcome.triggered == 2
    assert "1 unused, at 0% for the whole run (m0 GPU 0)" in str(outcome.finding)
    assert str(outcome.recommendation).startswith("Start a worker on every GPU (`torchrun --nproc-per-node=4`, in TensorFlow")


@pytest.mark.parametrize(
    ("values", "pattern", "tail"),
    [
        ([90.0] * 900 + [0.0] * 300, "idle tail", 150),
        ([90.0] * 900 + [9.0] * 300, "idle tail", 150),
        ([90.0] * 900 + [10.0] + [0.0] * 299, "idle tail", 149.5),  # the longest stretch begins after the last sample that is not low
        ([90.0] * 900 + [0.0] * 299 + [90.0], "parts of the run", None),  # no tail: the last sample is not low
        ([40.0] * 1200, "whole run", None),
        ([0.0] * 1200, "whole run", None),
        ([40.0] * 900 + [0.0] * 300, "whole run", 150),  # also low before the tail
        ([0.0] * 120 + [90.0] * 780 + [0.0] * 300, "idle head and tail", 150),  # windows that end at 120, 240 and 360 reach into the head
        ([0.0] * 120 + [90.0] * 1080, "idle head", None),
        ([0.0] * 120 + [40.0] * 1080, "whole run", None),  # also low after the head
        ([0.0] * 120 + [90.0] * 360 + [0.0] * 120 + [90.0] * 600, "parts of the run", None),
        ([90.0] * 300 + [0.0] * 300 + [90.0] * 600, "parts of the run", None),
        # 5% of the part before the tail at 0: as a whole it fluctuates
        ([90.0] * 400 + [0.0] * 100 + [90.0] * 400 + [0.0] * 300, "parts of the run", 150),
        ([90.0] * 1200, None, None),
    ],
)
def test_whole_run_tail_or_parts(values: list[float], pattern: str | None, tail: float | None) -> None:
    row = only_gpu(values, patience=100, window=240)
    assert row["pattern"] == pattern
    assert row["idle_tail_ns"] == (None if tail is None else tail * SECOND)


@pytest.mark.parametrize(("tail", "pattern"), [(49, "parts of the run"), (50, "idle tail")])
def test_a_tail_is_at_least_five_percent(tail: int, pattern: str) -> None:
    assert only_gpu([90.0] * (1000 - tail) + [0.0] * tail, patience=100, window=120)["pattern"] == pattern


def test_a_low_window_before_the_tail_is_no_tail_only() -> None:
    # 30 of 1200 samples before the tail are 0: p5 of all of them is 90, p5 of the window that they end in is 0.
    values = [90.0] * 570 + [0.0] * 30 + [90.0] * 600 + [0.0] * 300
    row = only_gpu(values, patience=100, window=240)
    assert (row["pattern"], row["idle_tail_ns"]) == ("parts of the run", 150 * SECOND)


def test_idle_tail_in_the_words() -> None:
    outcome = judge(line(0, GPU, 0, [90.0] * 900 + [0.0] * 300, start=START), patience=100, window=240)
    assert str(outcome.finding) == (
        "The GPU is underused in 3 of its 10 evaluated windows, only because of an idle tail of 2 min 30 s: 1 fluctuating (p5 below 10%,"
        " lowest 0% on m0 GPU 0)."
    )
    assert str(outcome.recommendation).startswith("End the job when training ends")
    assert outcome.cost is not None
    assert outcome.cost.title == "End the job when training ends"


def test_the_windows_of_several_gpus_are_counted_by_gpu() -> None:
    """600 samples at 0.5 s have 5 windows of 120, 480 samples have 4."""
    equal = line(0, GPU, 0, [40.0] * 600, start=START) + line(0, GPU, 1, [40.0] * 600, start=START)
    words = "Both GPUs are underused in 10 of 10 evaluated windows (2 GPUs × 5 windows), low for the whole run: 2 under-utilized"
    assert str(judge(equal, patience=100).finding).startswith(words)
    unequal = line(0, GPU, 0, [40.0] * 600, start=START) + line(0, GPU, 1, [40.0] * 480, start=START)
    assert str(judge(unequal, patience=100).finding).startswith("Both GPUs are underused in 9 of 9 evaluated windows, low for")


def test_the_cost_is_what_the_pattern_is_about() -> None:
    # 150 s of a tail at 4%, after 60 s of start-up at 0 and 390 s at 90%: 96% of 150 s. Evaluated after 600 s: the tail's windows only.
    tail = judge(line(0, GPU, 0, [0.0] * 120 + [90.0] * 780 + [4.0] * 300, start=START), patience=900, window=240)
    assert [row["pattern"] for row in plain_details(tail)["devices"]] == ["idle tail"]
    assert tail.cost is not None
    assert (tail.cost.ns, tail.cost.saving_ns, tail.cost.of_ns) == (144 * SECOND, 144 * SECOND, 600 * SECOND)
    # Also the start-up if its windows are evaluated: 60 s more.
    combined = judge(line(0, GPU, 0, [0.0] * 120 + [90.0] * 780 + [4.0] * 300, start=START), patience=100, window=240)
    assert combined.cost is not None
    assert (combined.cost.ns, plain_details(combined)["devices"][0]["idle_head_ns"]) == (204 * SECOND, 60 * SECOND)
    assert ", only because of an idle start of 1 min and an idle tail of 2 min 30 s: 1 fluctuating" in str(combined.finding)
    # Low between the two: 60% of the 390 s between them, and the sentence says so.
    between = judge(line(0, GPU, 0, [0.0] * 120 + [40.0] * 780 + [4.0] * 300, start=START), patience=100, window=240)
    assert between.cost is not None
    assert between.cost.ns == 234 * SECOND
    assert ", low for the whole run (the idle first 1 min and last 2 min 30 s of the run not counted): 1 " in str(between.finding)
    assert "m0 GPU 0 is at 40.0% on average" in str(between.recommendation)


def test_a_gpu_that_fluctuates_is_not_low_for_the_whole_run() -> None:
    outcome = judge(line(0, GPU, 0, [0.0 if number % 9 == 0 else 95.0 for number in range(1200)], start=START))
    assert ", fluctuating throughout: 1 fluctuating" in str(outcome.finding)


def test_an_idle_tail_after_the_last_step() -> None:
    steps = [
        {"node": 0, "process": 0, "index": number, "host_start_ns": START + at * SECOND, "host_duration_ns": SECOND}
        for number, at in enumerate((60, 449))
    ]
    with sampled(line(0, GPU, 0, [90.0] * 900 + [0.0] * 300, start=START), step=steps) as store:
        outcome = judged(store, RULE, patience=100, window=240)
    assert ", only because of an idle tail of 2 min 30 s after the last step: 1 fluctuating" in str(outcome.finding)
    # The job ends with its last sample, at 599.5 s, its last step at 450 s.
    assert "stood idle for the last 2 min 30 s after the last step (finalization)." in str(outcome.recommendation)


@pytest.mark.parametrize(
    ("last_step_ends", "tail"),
    [(449.75, (449.75, 149.75)), (450.5, (450.5, 149.0)), (449.25, (450.0, 150.0)), (440.0, (450.0, 150.0))],
)
def test_an_idle_tail_is_the_finalization_within_a_sampling_interval(last_step_ends: float, tail: tuple[float, float]) -> None:
    """Samples are 0.5 s apart and idle from 450 s; the last ends the job.

    The first step begins at 60 s."""
    steps = [
        {"node": 0, "process": 0, "index": number, "host_start_ns": START + round(at * SECOND), "host_duration_ns": SECOND}
        for number, at in enumerate((60, last_step_ends - 1))
    ]
    values = [0.0] * 121 + [90.0] * 779 + [0.0] * 300
    with sampled(line(0, GPU, 0, values, start=START), step=steps) as store:
        (row,) = plain_details(judged(store, RULE, patience=100, window=240))["devices"]
    assert (row["idle_tail_starts_ns"], row["idle_tail_ns"]) == (START + round(tail[0] * SECOND), tail[1] * SECOND)
    assert (row["idle_head_ends_ns"], row["idle_head_ns"]) == (START + 60 * SECOND, 60 * SECOND)  # the first used sample is at 60.5 s


@pytest.mark.parametrize(("samples", "advice"), [(4, "record for longer"), (99, "record for longer"), (100, None), (101, None)])
def test_too_few_derived_samples_are_no_reason_to_judge_them(samples: int, advice: str | None) -> None:
    kernel = {"node": 0, "process": 0, "device": 1, "stream": 7, "kind": "kernel", "name": "k"}
    events = [{**kernel, "start_ns": START + at * 1_000_000, "duration_ns": 1_000_000} for at in (0, samples - 1)]
    with sampled([], device_event=events) as store:
        reason = str(judged(store, RULE).reason)
    lower = "--set LowGPUUtilization_patience=" + ("100" if samples > 100 else "50") + " needs fewer"
    assert reason == (f"{samples} of more than 1,000 samples needed, derived from kernel activity in 1.00 ms buckets; {advice or lower}")


def test_windows_are_half_open_and_of_the_run() -> None:
    # The second machine's clock is 30 s ahead; windows begin at the full minute of the run's first sample.
    samples = line(0, GPU, 0, [10.0] * 120, start=START, step=SECOND) + line(
        1, GPU, 0, [10.0] * 120, start=START + 30 * SECOND, step=SECOND
    )
    outcome = judge(samples, patience=1)
    # machine 0 ends two windows (at 59 s and 119 s), machine 1 three (at 59 s, 119 s, 149 s)
    assert [row["windows"] for row in plain_details(outcome)["devices"]] == [2, 3]
    assert (outcome.windows, outcome.triggered, outcome.windows_triggered) == (3, 5, 3)
    assert (outcome.first_ns, outcome.last_ns) == (START + 59 * SECOND, START + 149 * SECOND)


def test_scan_interval() -> None:
    outcome = judge(line(0, GPU, 0, [10.0] * 120, start=START + 7 * SECOND), patience=1, scan_interval_us=10_000_000)
    assert outcome.windows == 7  # 7 s to 66.5 s after the minute


def test_few_samples_of_one_gpu_are_said() -> None:
    outcome = judge(line(0, GPU, 0, [95.0] * 200, start=START) + line(0, GPU, 1, [5.0] * 50, start=START), patience=100)
    assert (outcome.verdict, outcome.datapoints) == (FINE, 200)
    assert [row["state"] for row in plain_details(outcome)["devices"]] == ["fine", "too few samples"]
    assert str(outcome.finding).endswith("; 1 GPU has too few samples to be evaluated.")


def test_not_a_number_and_nothing() -> None:
    nothing = judge(line(0, "cpu_utilization", 0, [5.0] * 10, start=START))
    assert (nothing.verdict, nothing.reason) == (NOT_EVALUATED, "no GPU utilization in this run")
    bad = judge(line(0, GPU, 0, [float("nan")] * 2000, start=START))
    assert (bad.verdict, bad.reason) == (NOT_EVALUATED, "no GPU utilization in this run")
    assert judge([]).reason == "no GPU utilization in this run"
    mixed = [float("nan"), 90.0] * 200
    assert only_gpu(mixed, patience=100)["samples"] == 200


def test_derived_utilization_is_named() -> None:
    kernels = [
        {"node": 0, "process": 0, "device": 1, "stream": 7, "kind": "kernel", "name": "k", "start_ns": START + at, "duration_ns": 400_000}
        for at in range(0, 2_000_000_000, 2_000_000)
    ]
    with sampled([], device_event=kernels) as store:
        too_few = judged(store, RULE, patience=5000)
        outcome = judged(store, RULE, patience=100)
    # 1.9984 s in buckets of 1 ms
    assert too_few.reason == (
        "1,999 of more than 5,000 samples needed, derived from kernel activity in 1.00 ms buckets;"
        " --set LowGPUUtilization_patience=100 needs fewer"
    )
    assert plain_details(outcome)["devices"][0]["derived"]
    assert outcome.verdict == ISSUES
    assert "derived from kernel activity" in str(outcome.finding)
    # Derived utilization ends with the profile: it does not cover the rest of the run.
    assert outcome.cost is not None
    assert (outcome.cost.of_ns, outcome.cost.base) == (1_999_000_000, "GPU time in the profile window")
    assert "low for the whole profile:" in str(outcome.finding)
    assert "of the run" not in str(outcome.finding)


def worked(kernel_ns: int, copy_ns: int) -> list[dict[str, Any]]:
    """2 s of one GPU: every 2 ms a kernel, and a copy right behind it."""
    every: dict[str, Any] = {"node": 0, "process": 0, "device": 1, "stream": 7}
    return [
        {**every, "kind": kind, "name": kind, "start_ns": START + at + after, "duration_ns": length}
        for at in range(0, 2_000_000_000, 2_000_000)
        for kind, after, length in (("kernel", 0, kernel_ns), ("memcpy", kernel_ns, copy_ns))
        if length
    ]


@pytest.mark.parametrize(
    ("kernel_ns", "copy_ns", "how", "end"),
    [
        (500_000, 1_500_000, "busy", "; for 75% of the profile it only copied or set memory."),
        (1_960_000, 40_000, "well used", "(threshold 10%)."),  # 2%
        (2_000_000, 0, "well used", "(threshold 10%)."),
    ],
)
def test_who_mostly_copied_was_not_well_used(kernel_ns: int, copy_ns: int, how: str, end: str) -> None:
    with sampled([], device_event=worked(kernel_ns, copy_ns)) as store:
        outcome = judged(store, RULE, patience=100)
    assert outcome.verdict == FINE
    assert str(outcome.finding).startswith(f"The GPU was {how} in every window, derived from kernel activity: the lowest p95 is 100%")
    assert str(outcome.finding).endswith(end)


def test_copies_say_nothing_of_a_gpu_that_was_sampled() -> None:
    with sampled(line(0, GPU, 1, [95.0] * 600, start=START), device_event=worked(500_000, 1_500_000)) as store:
        outcome = judged(store, RULE, patience=240)
    assert str(outcome.finding).startswith("The GPU was well used in every window: the lowest p95 is 95.0%")


@pytest.mark.parametrize(
    ("share", "end"),
    [
        (None, "Profile some steps to see what the host does meanwhile."),
        (1.9, "Profile some steps to see what the host does meanwhile."),
        (25.0, "Waits for data take 25.0% of the steps: load further ahead"),
    ],
)
def test_pauses_are_loading_only_where_loading_was_seen(share: float | None, end: str) -> None:
    values = [0.0 if number % 9 == 0 else 95.0 for number in range(1200)]
    advice = str(judge(line(0, GPU, 0, values, start=START), loading_percent=share).recommendation)
    assert advice.startswith(f"Shorten the pauses of the GPUs: m0 GPU 0 reaches 95.0% but falls to 0% in between. {end}")


def test_pauses_have_the_cause_with_most_of_their_time() -> None:
    gaps = [Gap("m0", 0, 0, 0, time, "", None, None, None, kind) for time, kind in ((30, "operator"), (25, "waiting"), (20, "waiting"))]
    values = [0.0 if number % 9 == 0 else 95.0 for number in range(1200)]
    advice = str(judge(line(0, GPU, 0, values, start=START), gaps=gaps).recommendation)
    assert advice.endswith('Of the time of the longest pauses, 60.0% has the cause "waiting": the section on idle time lists them.')


def test_the_base_of_sampled_and_derived_utilization() -> None:
    sampled_gpu, derived_gpu = SimpleNamespace(derived=False), SimpleNamespace(derived=True)
    assert gpu_time([sampled_gpu, sampled_gpu]) == "GPU time of the run"
    assert gpu_time([derived_gpu]) == "GPU time in the profile window"
    assert gpu_time([sampled_gpu, derived_gpu]) == "GPU time of the run, where some GPUs were only profiled"


def test_more_than_2000_gpus() -> None:
    samples = [sample for node in range(251) for unit in range(8) for sample in line(node, GPU, unit, [90.0] * 3, start=START)]
    samples += line(251, GPU, 0, [5.0] * 3, start=START)
    outcome = judge(samples, patience=2)
    assert (len(plain_details(outcome)["devices"]), plain_details(outcome)["left_out"]) == (2000, 9)
    assert [row["node"] for row in plain_details(outcome)["devices"] if row["state"] == "under-utilized"] == ["m251"]
    assert (outcome.triggered, outcome.datapoints) == (1, 2009 * 3)


@pytest.mark.slow
def test_many_random_runs_against_plain_python() -> None:
    compared = 0
    for seed in range(40):
        rng = random.Random(seed)
        samples = random_run(rng, start=START + rng.randint(0, 2 * MINUTE))
        changed = {"patience": rng.choice([1, 20, 40]), "window": rng.choice([10, 21, 60]), "scan_interval_us": rng.choice([5e6, 20e6])}
        if rng.random() < 0.5:
            changed |= {"threshold_p95": rng.choice([50, 90]), "threshold_p5": rng.choice([5, 60])}
        try:
            expected = low_gpu(samples, defaults(RULE, **changed))
        except AmbiguousError:
            continue
        outcome = judge(samples, **changed)
        json.dumps(plain_details(outcome), allow_nan=False)
        compared += 1
        check(outcome, expected, seed)
        assert origin(samples) % MINUTE == 0
    assert compared > 30


def check(outcome: Outcome, expected: dict[tuple[int, int], dict[str, Any]], keys: object) -> None:
    """Every figure of the rule against the recomputed ones."""
    rows = {(int(row["node"][1:]), row["device"]): row for row in plain_details(outcome)["devices"]}
    assert rows.keys() == expected.keys(), keys
    for key, want in expected.items():
        row = rows[key]
        assert (row["samples"], row["windows"], row["triggered"]) == (want["samples"], len(want["windows"]), len(want["triggered"])), keys
        assert (row["under_utilised"], row["fluctuating"]) == (want["under_utilised"], want["fluctuating"]), keys
        assert (row["state"] == "unused") == want["unused"], keys
        assert row["pattern"] == want["pattern"], (keys, key)
        assert [row["p95"], row["p5"]] == ([None, None] if want["p95"] is None else pytest.approx([want["p95"], want["p5"]])), keys
        assert (row["first_ns"], row["last_ns"]) == ((want["times"][0], want["times"][-1]) if want["times"] else (None, None)), keys
        assert (row["idle_tail_starts_ns"], row["idle_head_ends_ns"]) == (want["tail_starts"], want["head_ends"]), keys
    any_judged = any(want["windows"] for want in expected.values())
    triggered = sum(len(want["triggered"]) for want in expected.values())
    assert outcome.verdict == (ISSUES if triggered else FINE if any_judged else NOT_EVALUATED), keys
    assert outcome.triggered == triggered, keys
    assert outcome.windows == len({window for want in expected.values() for window in want["windows"]}), keys
    assert outcome.windows_triggered == len({window for want in expected.values() for window in want["triggered"]}), keys
    assert outcome.datapoints == sum(want["samples"] for want in expected.values() if want["windows"]), keys
    if triggered:
        low = [want for want in expected.values() if want["triggered"]]
        unused = 100 * sum(want["unused_samples"] for want in low)
        assert outcome.cost is not None
        total = sum(want["samples"] for want in expected.values())
        assert outcome.cost.ns / outcome.cost.of_ns == pytest.approx(unused / 100 / total, rel=1e-6), keys
