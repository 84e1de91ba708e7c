"""BatchSize finds the windows in which CPU, GPU and GPU memory are all low, and only those."""

from __future__ import annotations

import json
import random
from typing import Any

import pytest
from postrun.analysis.report import FINE, ISSUES, NOT_EVALUATED
from postrun.analysis.rules.evidence.base import Outcome
from rule_details import plain_details
from sample_rules import (
    CONTROLLER,
    CORE,
    FOOTPRINT,
    GPU,
    MINUTE,
    SECOND,
    AmbiguousError,
    Sample,
    batch_size,
    defaults,
    judged,
    line,
    random_run,
    sampled,
)

RULE = "BatchSize"
START = 1_700_000_040 * SECOND


def judge(samples: list[Sample], **parameters: Any) -> Outcome:
    with sampled(samples) as store:
        return judged(store, RULE, **parameters)


def machine(node: int = 0, *, gpu: float = 30.0, memory: float = 40.0, cores: tuple[float, ...] = (20.0, 40.0), count: int = 600,
            metric: str = FOOTPRINT, start: int = START) -> list[Sample]:  # fmt: skip
    """A machine with one GPU and steady values."""
    rows = line(node, GPU, 0, [gpu] * count, start=start) + line(node, metric, 0, [memory] * count, start=start)
    return rows + [row for core, value in enumerate(cores) for row in line(node, CORE, core, [value] * count, start=start)]


@pytest.mark.parametrize(("counts", "words"), [((600, 600), "2 GPUs × 1 window"), ((600, 720), "3 windows of 2 GPUs")])
def test_windows_are_counted_by_gpu(counts: tuple[int, int], words: str) -> None:
    """A GPU with 600 samples has one window after more than 500, one with 720 has two."""
    outcome = judge([row for node, count in enumerate(counts) for row in machine(node, count=count, gpu=90.0)])
    assert f"were never all below their threshold 70% of p95 ({words}): at the end" in str(outcome.finding)


def test_all_low_is_a_violation_in_every_judged_window() -> None:
    # 600 samples at 0.5 s; more than 500 are there at the end of the fifth window only.
    outcome = judge(machine())
    assert (outcome.verdict, outcome.triggered, outcome.violations, outcome.windows, outcome.windows_triggered) == (ISSUES, 1, 1, 1, 1)
    assert (outcome.datapoints, outcome.first_ns, outcome.last_ns) == (600, START + 599 * SECOND // 2, START + 599 * SECOND // 2)
    (row,) = plain_details(outcome)["devices"]
    assert (row["node"], row["device"], row["memory_figure"], row["samples"]) == ("m0", 0, "footprint", 600)
    assert (row["cpu_p95"], row["gpu_p95"], row["gpu_memory_p95"]) == (30.0, 30.0, 40.0)
    assert {figure: (box["samples"], box["mean"]) for figure, box in row["boxes"].items()} == {
        "cpu": (600, 30.0), "gpu": (600, 30.0), "gpu_memory": (600, 40.0)
    }  # fmt: skip
    assert outcome.cost is not None
    assert (outcome.cost.ns, outcome.cost.of_ns) == (210 * SECOND, 300 * SECOND)  # 70% of 300 s unused, in all evaluated windows
    assert outcome.finding == (
        "CPU, GPU and GPU memory were all low (threshold 70% of p95) in the only window of m0 GPU 0:"
        " in the last of them p95 of the CPU is 30.0%, of the GPU 30.0% and of GPU memory 40.0%."
    )
    assert str(outcome.recommendation).startswith("Double `batch_size`")
    assert "move the bottleneck to data loading" in str(outcome.recommendation)
    assert "GPU memory is the used share of the device's memory." in plain_details(outcome)["caveats"]


@pytest.mark.parametrize(
    ("parts", "verdict"),
    [
        ({"gpu": 69.9, "memory": 69.9, "cores": (69.9,)}, ISSUES),
        ({"gpu": 70.0}, FINE),
        ({"memory": 70.0}, FINE),
        ({"cores": (70.0,)}, FINE),
        ({"cores": (100.0, 39.0)}, ISSUES),  # the mean of the cores counts
        ({"cores": (100.0, 40.0)}, FINE),
    ],
)
def test_thresholds_are_strict(parts: dict[str, Any], verdict: str) -> None:
    assert judge(machine(**parts)).verdict == verdict


def test_own_thresholds() -> None:
    assert judge(machine(gpu=80.0), gpu_threshold_p95=80.1).verdict == ISSUES
    outcome = judge(machine(), cpu_threshold_p95=30)
    assert outcome.verdict == FINE
    assert "below their thresholds 30%, 70% and 70% of p95" in str(outcome.finding)


@pytest.mark.parametrize(
    ("count", "patience", "window", "windows", "reason"),
    [
        (500, 100, 500, 0, "500 of more than 500 samples needed"),
        (501, 100, 500, 1, None),
        (300, 300, 100, 0, "300 of more than 300 samples needed"),
        (301, 300, 100, 1, None),
        (360, 100, 100, 3, None),
    ],
)
def test_more_than_patience_and_window(count: int, patience: int, window: int, windows: int, reason: str | None) -> None:
    outcome = judge(machine(count=count), patience=patience, window=window)
    assert (outcome.windows, outcome.triggered, outcome.reason) == (windows, windows, reason)
    assert (outcome.verdict == NOT_EVALUATED) == (reason is not None)


def test_every_series_needs_enough_samples() -> None:
    short = machine()[:600] + line(0, FOOTPRINT, 0, [40.0] * 499, start=START) + line(0, CORE, 0, [40.0] * 600, start=START)
    assert judge(short).reason == "499 of more than 500 samples needed"
    # memory ends before the only window in which the GPU has enough samples
    apart = line(0, GPU, 0, [30.0] * 600, start=START) + line(0, CORE, 0, [40.0] * 600, start=START)
    apart += line(0, FOOTPRINT, 0, [40.0] * 600, start=START - 300 * SECOND)
    assert judge(apart).reason == "no evaluation window has enough samples of a GPU, of its memory and of the CPU"


def test_what_is_missing_is_said() -> None:
    complete = machine()
    for metric, reason in ((GPU, "no GPU utilization in this run"), (CORE, "no CPU samples in this run"),
                           (FOOTPRINT, "no GPU memory samples in this run")):  # fmt: skip
        outcome = judge([row for row in complete if row[1] != metric])
        assert (outcome.verdict, outcome.reason) == (NOT_EVALUATED, reason)
        assert outcome.capture
    in_bytes = judge([(node, "gpu_memory_used_bytes" if metric == FOOTPRINT else metric, *rest) for node, metric, *rest in complete])
    assert in_bytes.reason == "GPU memory was sampled in bytes only, without the total of the GPU"
    assert "memory.total" in str(in_bytes.capture)
    # each machine lacks something else
    split = [row for row in machine(0) if row[1] != CORE] + [row for row in machine(1) if row[1] != GPU]
    assert judge(split).reason == "no node has samples of its GPUs, of their memory and of its CPU"


def test_a_machine_that_lacks_something_does_not_stop_the_others() -> None:
    outcome = judge(machine(0) + [row for row in machine(1) if row[1] != FOOTPRINT])
    assert (outcome.verdict, outcome.triggered, outcome.datapoints) == (ISSUES, 1, 600)
    lacking = plain_details(outcome)["devices"][1]
    assert (lacking["memory_figure"], lacking["windows"], lacking["boxes"]["gpu_memory"]) == (None, 0, None)
    assert "1 GPU has too few samples to be evaluated" in str(outcome.finding)


def test_the_memory_controller_is_named() -> None:
    outcome = judge(machine(metric=CONTROLLER))
    assert plain_details(outcome)["devices"][0]["memory_figure"] == "memory controller"
    assert any("utilization of the memory controller" in note for note in plain_details(outcome)["caveats"])
    assert "of the GPU's memory controller 40.0%" in str(outcome.finding)
    combined = judge(machine() + line(0, CONTROLLER, 0, [99.0] * 600, start=START))
    assert (plain_details(combined)["devices"][0]["memory_figure"], combined.verdict) == ("footprint", ISSUES)


def test_violations_before_the_end() -> None:
    # Five windows of 120 samples at 30%, then five at 90%: evaluated from sample 481 with window 480; p95 of the last 480 is
    # 90 as soon as 24 of them are.
    values = [30.0] * 600 + [90.0] * 600
    rows = line(0, GPU, 0, values, start=START) + line(0, FOOTPRINT, 0, [80.0, 20.0] + [20.0] * 1198, start=START)
    outcome = judge(rows + line(0, CORE, 0, [10.0] * 1200, start=START), window=480)
    (row,) = plain_details(outcome)["devices"]
    assert (row["windows"], row["violations"], row["gpu_p95"]) == (6, 1, 90.0)
    assert row["first_ns"] == row["last_ns"] == START + 599 * SECOND // 2
    assert "in the last of them p95 of the CPU is 10.0%, of the GPU 30.0%" in str(outcome.finding)
    assert outcome.cost is not None
    assert outcome.cost.ns == round(600 * 0.4 / 6 * SECOND)  # 40% of 600 s unused, one of six windows
    assert str(outcome.recommendation).startswith("Raise `batch_size` in small steps")


@pytest.mark.slow
def test_many_random_runs_against_plain_python() -> None:
    compared = issues = 0
    for seed in range(40):
        rng = random.Random(seed)
        samples = random_run(rng, start=START + rng.randint(0, 2 * MINUTE))
        changed = {"patience": rng.choice([1, 20, 40]), "window": rng.choice([10, 21, 60]), "scan_interval_us": rng.choice([5e6, 20e6])}
        changed |= {f"{figure}_threshold_p95": rng.choice([60, 70, 96, 100]) for figure in ("cpu", "gpu", "gpu_memory")}
        try:
            expected = batch_size(samples, defaults(RULE, **changed))
        except AmbiguousError:
            continue
        outcome = judge(samples, **changed)
        json.dumps(plain_details(outcome), allow_nan=False)
        compared += 1
        issues += outcome.verdict == ISSUES
        check(outcome, expected, seed)
    assert compared > 25
    assert issues > 5


def check(outcome: Outcome, expected: dict[tuple[int, int], dict[str, Any]], keys: object) -> None:
    """Every figure of the rule against the recomputed ones."""
    if not any(want["windows"] for want in expected.values()):
        assert outcome.verdict == NOT_EVALUATED, keys
        return
    rows = {(int(row["node"][1:]), row["device"]): row for row in plain_details(outcome)["devices"]}
    assert rows.keys() == expected.keys(), keys
    for key, want in expected.items():
        row = rows[key]
        assert (row["samples"], row["windows"], row["violations"]) == (want["samples"], len(want["windows"]), len(want["violations"])), keys
        assert (row["first_ns"], row["last_ns"]) == ((want["times"][0], want["times"][-1]) if want["times"] else (None, None)), keys
        figures = {figure: row[f"{figure}_p95"] for figure in ("cpu", "gpu", "gpu_memory")}
        assert figures == (dict.fromkeys(figures) if want["p95"] is None else pytest.approx(want["p95"])), keys
    violations = sum(len(want["violations"]) for want in expected.values())
    assert (outcome.verdict, outcome.triggered, outcome.violations) == (ISSUES if violations else FINE, violations, violations), keys
    assert outcome.windows == len({window for want in expected.values() for window in want["windows"]}), keys
    assert outcome.windows_triggered == len({window for want in expected.values() for window in want["violations"]}), keys
