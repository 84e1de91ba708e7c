"""GPUMemoryIncrease finds the samples at which the mean of a window is too far above that of the window before."""

from __future__ import annotations

import itertools
import json
import random
import statistics
from fractions import Fraction
from typing import Any

import polars as pl
import pytest
from postrun.analysis.machine.series import MetricSeries
from postrun.analysis.report import FINE, ISSUES, NOT_EVALUATED
from postrun.analysis.rules.checks.gpu_memory_increase import SLOPE_POINTS, slopes
from postrun.analysis.rules.evidence.base import Outcome
from rule_details import plain_details
from sample_rules import CONTROLLER, FOOTPRINT, GPU, MINUTE, SECOND, Sample, judged, line, sampled

START = 1_700_000_040 * SECOND  # a full minute
HALF = SECOND // 2


def judge(samples: list[Sample], **parameters: Any) -> Outcome:
    with sampled(samples) as store:
        outcome = judged(store, "GPUMemoryIncrease", **parameters)
    json.dumps(plain_details(outcome), allow_nan=False)
    return outcome


def memory(values: list[float], *, node: int = 0, unit: int = 0, metric: str = FOOTPRINT) -> list[Sample]:
    return line(node, metric, unit, values, start=START)


def device(outcome: Outcome, at: int = 0) -> dict[str, Any]:
    row: dict[str, Any] = plain_details(outcome)["devices"][at]
    return row


def test_a_jump_on_paper() -> None:
    # Windows of 4 samples, 10 to 30% at sample 20. The mean of the last 4 minus that of the 4 before, starting at sample 20:
    # 5, 10, 15, 20, 15, 10, 5, 0: above 10 are the samples 22, 23 and 24.
    outcome = judge(memory([10.0] * 20 + [30.0] * 20), window=4, patience=8, increase=10)
    assert (outcome.verdict, outcome.triggered, outcome.violations, outcome.windows, outcome.windows_triggered) == (ISSUES, 3, 3, 1, 1)
    assert (outcome.first_ns, outcome.last_ns, outcome.datapoints) == (START + 22 * HALF, START + 24 * HALF, 40)
    row = device(outcome)
    assert (row["node"], row["device"], row["memory_figure"], row["samples"]) == ("m0", 0, "footprint", 40)
    assert (row["violations"], row["largest_increase"], row["evaluated"], row["episodes_left_out"]) == (3, 20.0, True, 0)
    assert row["episodes"] == [{"start_ns": START + 22 * HALF, "end_ns": START + 24 * HALF, "largest": 20.0, "samples": 3}]
    assert (row["box"]["p25"], row["box"]["p75"], row["box"]["samples"]) == (10.0, 30.0, 40)
    assert outcome.finding == (
        "GPU memory in use grew on m0 GPU 0 by up to 20.0 percentage points from one window of 4 samples to the next,"
        " more than the threshold of 10; it grew so in 1 episode."
    )
    assert "_record_memory_history()" in str(outcome.recommendation)
    assert "m0 GPU 0 allocates from 2023-11-14 22:14:11 UTC on: its memory rises once, to 30%" in str(outcome.recommendation)
    assert outcome.cost is None


@pytest.mark.parametrize(("increase", "verdict"), [(20, FINE), (19.999, ISSUES)])
def test_the_threshold_itself_is_no_violation(increase: float, verdict: str) -> None:
    assert judge(memory([10.0] * 20 + [30.0] * 20), window=4, patience=8, increase=increase).verdict == verdict


@pytest.mark.parametrize("low", [0.1, 20.1, 33.3, 57.7])
def test_rounding_decides_nothing(low: float) -> None:
    # In binary 20.1 + 10 - 20.1 is more than 10, and the sum of thirty times 0.1 is not 3.
    assert judge(memory([low] * 3000), window=7, patience=1, increase=1e-9).verdict == FINE
    assert device(judge(memory([low] * 3000), window=7, patience=1, increase=1e-9))["largest_increase"] == 0.0
    high = float(f"{low + 10:.1f}")
    rise = memory([low] * 700 + [high] * 700)
    assert (judge(rise, window=7, patience=1, increase=10).verdict, judge(rise, window=7, patience=1, increase=9.99).verdict) == (
        FINE,
        ISSUES,
    )


@pytest.mark.parametrize(
    ("count", "patience", "window", "reason"),
    [
        (20, 20, 4, "20 of more than 20 samples needed"),
        (21, 20, 4, None),
        (39, 20, 20, "39 of 40 samples needed"),
        (40, 20, 20, None),
        (8, 7.5, 4.9, None),  # the interface takes fractions: more than 7.5, windows of 4
    ],
)
def test_patience_and_two_windows(count: int, patience: float, window: float, reason: str | None) -> None:
    outcome = judge(memory([5.0] * count), patience=patience, window=window)
    assert outcome.reason == reason
    assert outcome.verdict == (NOT_EVALUATED if reason else FINE)
    assert device(outcome)["evaluated"] is (reason is None)


def test_no_samples_of_memory() -> None:
    outcome = judge(line(0, GPU, 0, [50.0] * 200, start=START))
    assert (outcome.verdict, outcome.reason) == (NOT_EVALUATED, "no GPU memory samples in this run")
    assert outcome.capture == "Record GPU memory, too: the samples of this run are of other metrics."


def test_memory_in_bytes_without_a_total_is_said_to_be_that() -> None:
    outcome = judge(line(0, "gpu_memory_used_bytes", 0, [5e9] * 200, start=START))
    assert (outcome.verdict, outcome.reason) == (NOT_EVALUATED, "GPU memory was sampled in bytes only, without the total of the GPU")
    assert str(outcome.capture).startswith("Log the total, too: memory.total of nvidia-smi, or DCGM_FI_DEV_FB_FREE or ")


def test_episodes_are_divided_by_samples_without_violation() -> None:
    # Up for 8 samples and down for 8, three times: one episode each, of 3 samples: differences 30, 40, 30.
    values = ([10.0] * 8 + [50.0] * 8) * 3 + [10.0] * 8
    outcome = judge(memory(values), window=4, patience=1, increase=29)
    episodes = device(outcome)["episodes"]
    assert [episode["samples"] for episode in episodes] == [3, 3, 3]  # 30, 40, 30
    assert [(episode["start_ns"] - START) // HALF for episode in episodes] == [10, 26, 42]
    assert (outcome.violations, outcome.windows_triggered) == (9, 1)
    assert "rose 3 times, first at 2023-11-14 22:14:05 UTC, up to 50%" in str(outcome.recommendation)
    assert "`loss.item()`" in str(outcome.recommendation)


def test_only_the_largest_episodes_are_listed() -> None:
    values = [level for number in range(25) for level in ([0.0] * 4 + [50.0 + number] * 4)]
    row = device(judge(memory(values), window=2, patience=1, increase=49))
    assert (len(row["episodes"]), row["episodes_left_out"]) == (20, 5)
    assert min(episode["largest"] for episode in row["episodes"]) == 55.0
    assert row["episodes"] == sorted(row["episodes"], key=lambda episode: episode["start_ns"])


def test_evaluation_windows() -> None:
    # 120 samples a minute; the rise is in the third; from 100 samples on windows are evaluated, one is without samples.
    values = [10.0] * 300 + [30.0] * 60
    rows = [row for row in memory([*values, *([30.0] * 240)]) if not START + 3 * MINUTE <= row[3] < START + 4 * MINUTE]
    outcome = judge(rows, window=10, patience=100)
    assert (outcome.windows, outcome.windows_triggered, outcome.violations) == (4, 1, 9)  # 12 .. 20 .. 12 are above 10


def test_devices_are_kept_apart() -> None:
    rows = memory([10.0] * 60, node=1) + memory([90.0] * 60, node=0, unit=1) + memory([10.0] * 5, node=0) + memory([50.0] * 60, unit=2)
    outcome = judge(rows, window=4, patience=10)
    assert (outcome.verdict, outcome.datapoints) == (FINE, 180)
    assert [(row["node"], row["device"], row["evaluated"]) for row in plain_details(outcome)["devices"]] == [
        ("m0", 0, False), ("m0", 1, True), ("m0", 2, True), ("m1", 0, True),
    ]  # fmt: skip
    assert outcome.finding == "GPU memory in use did not grow from one window of 4 samples to the next; the threshold is 10."
    assert outcome.recommendation is None


def test_the_memory_controller_is_named() -> None:
    outcome = judge(memory([10.0] * 20 + [30.0] * 20, metric=CONTROLLER), window=4, patience=8)
    assert device(outcome)["memory_figure"] == "memory controller"
    assert str(outcome.finding).startswith("The memory-controller utilization, recorded as GPU memory, grew on m0 GPU 0")
    assert "no proof of a leak" in str(outcome.recommendation)
    fine = judge(memory([10.0] * 40, metric=CONTROLLER), window=4, patience=8)
    assert (fine.verdict, fine.finding) == (
        FINE,
        "The memory-controller utilization, recorded as GPU memory, did not grow from one window of 4 samples to the next; the threshold is"
        " 10; memory in use was not recorded, so growth would not be detected.",
    )


def test_a_slow_leak_shows_in_the_slope() -> None:
    # 0.01 percentage points every half second are 72 an hour; windows of ten are 0.1 apart.
    outcome = judge(memory([20 + number / 100 for number in range(2000)]), window=10, patience=100)
    assert outcome.verdict == FINE
    assert device(outcome)["slope_percent_per_hour"] == pytest.approx(72)
    assert outcome.finding == (
        "GPU memory in use grew by at most 0.1 percentage points from one window of 10 samples to the next; the threshold is 10;"
        " on m0 GPU 0 it rises by 72.0 percentage points per hour (Theil-Sen slope)."
    )


def plain_slope(points: list[tuple[float, float]]) -> float:
    return statistics.median((b[1] - a[1]) / (b[0] - a[0]) for a, b in itertools.combinations(points, 2)) * 3.6e12


@pytest.mark.parametrize("count", [2, 17, SLOPE_POINTS, SLOPE_POINTS + 1, 1000])
def test_slopes_against_plain_python(count: int) -> None:
    rng = random.Random(count)
    frames, expected = [], []
    for unit in range(3):
        times = sorted(rng.sample(range(10**12), count))
        values = [rng.gauss(50, 10) + time / 10**11 * unit for time in times]
        groups = [[(t, v) for n, (t, v) in enumerate(zip(times, values, strict=True)) if n * min(count, SLOPE_POINTS) // count == group]
                  for group in range(min(count, SLOPE_POINTS))]  # fmt: skip
        expected.append(plain_slope([(statistics.fmean(t for t, _ in own), statistics.fmean(v for _, v in own)) for own in groups]))
        frames.append(pl.DataFrame({"time_ns": times, "value": values, "unit": [unit] * count}))
    series = pl.concat(frames).with_columns(node=pl.lit(0))
    assert slopes(MetricSeries.of(series))["slope"].to_list() == pytest.approx(expected)


def test_a_single_sample_has_no_slope() -> None:
    row = device(judge(memory([5.0])))
    assert (row["slope_percent_per_hour"], row["largest_increase"], row["violations"]) == (None, None, 0)


@pytest.mark.parametrize("seed", range(20))
def test_random_runs_against_exact_fractions(seed: int) -> None:
    rng = random.Random(seed)
    window, patience, increase = rng.choice([1, 3, 10]), rng.choice([1, 15, 40]), rng.choice([0.5, 5, 10])
    series = {
        (node, unit): [rng.choice([10.0, 10.5, 20.0, 35.25]) for _ in range(rng.randint(1, 80))] for node in range(2) for unit in range(2)
    }
    rows = [row for (node, unit), values in series.items() for row in memory(values, node=node, unit=unit)]
    rng.shuffle(rows)
    outcome = judge(rows, window=window, patience=patience, increase=increase)
    hits: dict[tuple[int, int], list[int]] = {}
    largest: dict[tuple[int, int], Fraction] = {}
    for key, values in series.items():
        exact = [Fraction(value) for value in values]
        for n in range(2 * window, len(exact) + 1):
            if n > patience:
                growth = (sum(exact[n - window : n]) - sum(exact[n - 2 * window : n - window])) / window
                largest[key] = max(largest.get(key, growth), growth)
                if growth > Fraction(increase):
                    hits.setdefault(key, []).append(n - 1)
    assert outcome.violations == sum(map(len, hits.values()))
    assert outcome.verdict == (NOT_EVALUATED if not largest else ISSUES if hits else FINE)
    for row in plain_details(outcome)["devices"]:
        key = (int(row["node"][1:]), row["device"])
        expected = hits.get(key, [])
        runs = [[n for _, n in run] for _, run in itertools.groupby(enumerate(expected), lambda pair: pair[1] - pair[0])]
        assert row["violations"] == len(expected)
        assert [(e["start_ns"], e["end_ns"], e["samples"]) for e in row["episodes"]] == [
            (START + run[0] * HALF, START + run[-1] * HALF, len(run)) for run in runs
        ]
        assert row["largest_increase"] == (pytest.approx(float(largest[key])) if key in largest else None)


def test_huge_values_stop_nothing() -> None:
    outcome = judge(memory([1e300] * 30 + [10.0] * 30), window=4, patience=8)
    assert outcome.verdict in (FINE, ISSUES)
