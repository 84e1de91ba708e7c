"""LoadBalancing finds how far the utilization of GPUs differs, and which of them are less busy than the others."""

from __future__ import annotations

import itertools
import json
import math
import random
from typing import Any

import numpy as np
import pytest
from postrun.analysis.report import FINE, ISSUES, NOT_EVALUATED
from postrun.analysis.rules.checks import load_balancing
from postrun.analysis.rules.checks.load_balancing import distance
from postrun.analysis.rules.evidence.base import Outcome
from rule_details import plain_details
from sample_rules import CORE, GPU, SECOND, Sample, judged, line, sampled

START = 1_700_000_040 * SECOND


@pytest.fixture(autouse=True)
def any_number(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> None:
    """Lift the least number of samples, so that the examples on paper stay small."""
    if "bounded" not in request.fixturenames:
        monkeypatch.setattr(load_balancing, "samples_for_distance", lambda *_: 0)


def judge(samples: list[Sample], *, events: list[dict[str, Any]] | None = None, **parameters: Any) -> Outcome:
    with sampled(samples, **({"device_event": events} if events else {})) as store:
        outcome = judged(store, "LoadBalancing", **parameters)
    json.dumps(plain_details(outcome), allow_nan=False)
    return outcome


def gpus(*values: list[float], node: int = 0) -> list[Sample]:
    return [row for unit, own in enumerate(values) for row in line(node, GPU, unit, own, start=START)]


def reference(a: list[float], b: list[float]) -> float:
    """The distance by numpy, from entropies: H(mean) - mean of H."""
    edges = np.arange(0, 102, 2)
    p, q = (np.histogram(np.clip(values, 0, 100), bins=edges)[0] / len(values) for values in (a, b))

    def entropy(shares: Any) -> float:
        kept = shares[shares > 0]
        return float(-(kept * np.log2(kept)).sum())

    return math.sqrt(max(entropy((p + q) / 2) - (entropy(p) + entropy(q)) / 2, 0))


def test_disjoint_and_equal_on_paper() -> None:
    outcome = judge(gpus([10.0] * 20, [90.0] * 20, [90.0] * 20))
    assert (outcome.verdict, outcome.triggered, outcome.violations, outcome.datapoints) == (ISSUES, 2, 2, 60)
    assert (outcome.first_ns, outcome.last_ns) == (START, START + 19 * SECOND // 2)
    details = plain_details(outcome)
    assert (details["compared"], details["left_out"], details["pairs_left_out"]) == ("pairs", 0, 0)
    assert details["matrix"] == [[0.0, 1.0, 1.0], [1.0, 0.0, 0.0], [1.0, 0.0, 0.0]]
    assert details["pairs"][0] == {
        "a": {"node": "m0", "device": 0}, "b": {"node": "m0", "device": 1}, "distance": 1.0, "mean_difference": -80.0, "violation": True,
    }  # fmt: skip
    assert [pair["violation"] for pair in details["pairs"]] == [True, True, False]
    first = details["devices"][0]
    assert (first["node"], first["device"], first["derived"], first["samples"], first["mean"], first["evaluated"]) == (
        "m0", 0, False, 20, 10.0, True,
    )  # fmt: skip
    assert [(n, share) for n, share in enumerate(first["histogram"]) if share] == [(5, 1.0)]
    assert len(first["histogram"]) == 50
    assert outcome.finding == (
        "Utilization histograms of m0 GPU 0 (mean 10.0%) and m0 GPU 1 (mean 90.0%) lie 1.00 apart (Jensen-Shannon distance),"
        " above the threshold of 0.5; so do 2 of 3 pairs."
    )
    assert outcome.cost is not None
    assert (outcome.cost.ns, outcome.cost.of_ns, outcome.cost.where) == (8 * SECOND, 30 * SECOND, "m0 GPU 0")  # 80% of 20 x 0.5 s
    assert outcome.cost.base == "GPU time of the run"
    assert "m0 GPU 0 is used 10.0% of the time and m0 GPU 1 90.0%" in str(outcome.recommendation)


def test_one_of_four_gpus_used() -> None:
    # The same utilization in half of the samples on one GPU, and nothing on the others: 0.5 at 0 and 0.5 elsewhere against 1 at 0.
    # Mean of both 0.75 and 0.25: (1 x log2(1 / 0.75) + 0.5 x log2(0.5 / 0.75) + 0.5 x log2(0.5 / 0.25)) / 2 = 0.3113; root 0.558.
    outcome = judge(gpus([0.0, 80.0] * 10, *([[0.0] * 20] * 3)))
    apart = math.sqrt((math.log2(4 / 3) + 0.5 * math.log2(2 / 3) + 0.5) / 2)
    assert apart == pytest.approx(0.558, abs=1e-3)
    assert outcome.triggered == 3
    assert plain_details(outcome)["matrix"][0] == [0.0, *[pytest.approx(apart)] * 3]
    assert outcome.cost is not None
    assert outcome.cost.ns == 12 * SECOND  # three GPUs at 0% where the busiest is at 40% for 10 s
    assert "3 GPUs of 4 did nothing, m0 GPU 1 among them" in str(outcome.recommendation)
    assert "`torchrun --nproc-per-node=4`, in TensorFlow `tf.distribute.MirroredStrategy()`" in str(outcome.recommendation)


@pytest.mark.parametrize(
    ("threshold", "values", "verdict"), [(1, (10.0, 90.0), FINE), (0.999, (10.0, 90.0), ISSUES), (0, (10.0, 10.0), FINE)]
)
def test_the_threshold_itself_is_no_violation(threshold: float, values: tuple[float, float], verdict: str) -> None:
    assert judge(gpus(*([value] * 30 for value in values)), threshold=threshold).verdict == verdict


def test_bins() -> None:
    # Bins are half open, the last one closed; a value outside 0..100 is in the outer bin.
    values = [0.0, 1.999, 2.0, 97.999, 98.0, 100.0, 100.5, -1.0, 49.999, 50.0, 3.999]
    outcome = judge(gpus(values, values), patience=5)
    shares = plain_details(outcome)["devices"][0]["histogram"]
    counts = {number: round(share * 11) for number, share in enumerate(shares) if share}
    assert counts == {0: 3, 1: 2, 48: 1, 49: 3, 24: 1, 25: 1}
    assert sum(shares) == pytest.approx(1)
    assert (outcome.verdict, plain_details(outcome)["pairs"][0]["distance"]) == (FINE, 0.0)


def test_chance_makes_no_issue(bounded: None) -> None:
    """128 samples of each GPU are enough for a distance of 0.5."""
    short = judge(gpus([10.0] * 127, [90.0] * 500))
    assert (short.verdict, [row["evaluated"] for row in plain_details(short)["devices"]]) == (NOT_EVALUATED, [False, True])
    assert short.reason == (
        "127 of 128 samples of two GPUs needed: histograms of fewer samples differ by chance, more than the threshold in 1% of the runs"
    )
    assert judge(gpus([10.0] * 128, [90.0] * 500)).verdict == ISSUES
    assert judge(gpus([10.0] * 10, [90.0] * 500)).reason == "10 of more than 10 samples of two GPUs needed"
    assert "threshold is 0" in str(judge(gpus([10.0] * 600, [90.0] * 600), threshold=0).reason)


def test_more_gpus_need_more_samples(bounded: None) -> None:
    """28 pairs of 8 GPUs need 151 samples: each pair can be a false alarm."""
    short = judge(gpus(*([[10.0] * 150] * 7), [90.0] * 150))
    assert str(short.reason).startswith("150 of 151 samples")
    assert judge(gpus(*([[10.0] * 151] * 7), [90.0] * 151)).verdict == ISSUES


def test_draws_of_one_distribution_are_no_issue(bounded: None) -> None:
    """Two draws of 11 to 19 samples differ by 0.87 on average."""
    rng = random.Random(5)
    for count in (11, 15, 19, 64, 128, 256):
        for _ in range(20):
            drawn = [[rng.uniform(0, 100) for _ in range(count)] for _ in range(2)]
            assert judge(gpus(*drawn)).verdict == (NOT_EVALUATED if count < 128 else FINE)


@pytest.fixture
def bounded() -> None:
    """Mark a test that keeps the least number of samples."""


@pytest.mark.parametrize(("count", "verdict"), [(10, NOT_EVALUATED), (11, ISSUES)])
def test_more_than_patience_samples(count: int, verdict: str) -> None:
    outcome = judge(gpus([10.0] * count, [90.0] * 20), patience=10)
    assert outcome.verdict == verdict
    if verdict == NOT_EVALUATED:
        assert outcome.reason == "10 of more than 10 samples of two GPUs needed"
        assert plain_details(outcome)["matrix"] == [[None, None], [None, 0.0]]
        assert [row["evaluated"] for row in plain_details(outcome)["devices"]] == [False, True]


def test_a_gpu_with_too_few_samples_is_left_out() -> None:
    outcome = judge(gpus([50.0] * 20, [50.0] * 20, [99.0] * 3))
    assert (outcome.verdict, outcome.datapoints) == (FINE, 40)
    assert plain_details(outcome)["matrix"] == [[0.0, 0.0, None], [0.0, 0.0, None], [None, None, None]]
    assert outcome.finding == (
        "Utilization histograms of m0 GPU 0 (mean 50.0%) and m0 GPU 1 (mean 50.0%) lie 0.00 apart at most (Jensen-Shannon distance),"
        " not above the threshold of 0.5."
    )
    assert (outcome.cost, outcome.recommendation) == (None, None)


def test_one_gpu_or_none() -> None:
    outcome = judge(gpus([50.0] * 20))
    assert (outcome.verdict, outcome.reason, outcome.datapoints) == (NOT_EVALUATED, "one GPU in this run, nothing to compare it with", 20)
    nothing = judge(line(0, CORE, 0, [50.0] * 20, start=START))
    assert (nothing.verdict, nothing.reason) == (NOT_EVALUATED, "no GPU utilization in this run")
    assert nothing.capture


def test_pairs_across_machines() -> None:
    outcome = judge(gpus([10.0] * 20) + gpus([90.0] * 20, node=1))
    (pair,) = plain_details(outcome)["pairs"]
    assert (pair["a"], pair["b"], pair["violation"]) == ({"node": "m0", "device": 0}, {"node": "m1", "device": 0}, True)


def test_similar_means_are_said() -> None:
    outcome = judge(gpus([90.0] * 20, [97.0] * 20))
    assert outcome.verdict == ISSUES
    assert "their means differ by only 7.0 percentage points" in str(outcome.recommendation)


def test_series_of_different_lengths_against_numpy() -> None:
    rng = random.Random(1)
    values = [[rng.choice([0.0, 100.0, rng.uniform(0, 100)]) for _ in range(rng.randint(11, 90))] for _ in range(6)]
    outcome = judge(gpus(*values), threshold=0.3)
    for (i, a), (j, b) in itertools.combinations(enumerate(values), 2):
        assert plain_details(outcome)["matrix"][i][j] == pytest.approx(reference(a, b), abs=1e-9)
    apart = [pair["distance"] for pair in plain_details(outcome)["pairs"]]
    assert apart == sorted(apart, reverse=True)
    assert outcome.violations == sum(reference(a, b) > 0.3 for a, b in itertools.combinations(values, 2))


def test_a_monitor_that_died_does_not_hide_what_the_other_machines_show() -> None:
    samples = gpus([90.0] * 100) + line(1, GPU, 0, [20.0] * 100, start=START) + line(2, GPU, 0, [90.0] * 100, start=START)
    outcome = judge(samples + line(3, GPU, 0, [90.0] * 12, start=START))
    assert (outcome.verdict, outcome.datapoints, len(plain_details(outcome)["devices"])) == (ISSUES, 300, 3)
    assert str(outcome.finding).startswith(
        "Utilization histograms in the 49.5 s in which all but m3 were recorded, of m0 GPU 0 (mean 90.0%) and m1 GPU 0 (mean 20.0%)"
    )


def test_machines_are_compared_while_all_of_them_were_recorded() -> None:
    """The longer record of m1 without load is not an imbalance.

    It began 20 s before m0 and ended 10 s after it."""
    samples = gpus([90.0] * 100)
    outcome = judge(samples + line(1, GPU, 0, [0.0] * 40 + [90.0] * 100 + [0.0] * 20, start=START - 20 * SECOND))
    assert (outcome.verdict, outcome.datapoints) == (FINE, 200)
    assert [row["mean"] for row in plain_details(outcome)["devices"]] == [90.0, 90.0]
    assert outcome.finding == (
        "Utilization histograms in the 49.5 s in which all were recorded, of m0 GPU 0 (mean 90.0%) and m1 GPU 0 (mean 90.0%) lie 0.00"
        " apart at most (Jensen-Shannon distance), not above the threshold of 0.5."
    )
    outcome = judge(samples + line(1, GPU, 0, [0.0] * 40 + [30.0] * 100, start=START - 20 * SECOND))
    assert (outcome.verdict, outcome.datapoints) == (ISSUES, 200)
    assert outcome.cost is not None
    assert (outcome.cost.ns, outcome.cost.base) == (30 * SECOND, "GPU time while all were recorded")  # 60 points of 50 s
    assert outcome.cost.of_ns == 100 * SECOND


def test_a_second_more_of_one_machine_leaves_all_samples_in() -> None:
    outcome = judge(gpus([90.0] * 100) + line(1, GPU, 0, [90.0] * 104, start=START - SECOND))
    assert outcome.datapoints == 204


def test_machines_that_were_never_recorded_at_once_are_not_compared() -> None:
    outcome = judge(gpus([90.0] * 100) + line(1, GPU, 0, [0.0] * 100, start=START + 60 * SECOND))
    assert (outcome.verdict, outcome.reason) == (NOT_EVALUATED, "no time at which all GPUs were recorded")
    assert "same time" in outcome.capture


def kernels(unit: int, *, every_ns: int = 10_000_000, busy_ns: int = 5_000_000, node: int = 1) -> list[dict[str, Any]]:
    """Half of each 10 ms, for 2 s."""
    return [
        {"node": node, "process": unit, "device": unit, "kind": "kernel", "name": "k", "start_ns": START + at, "duration_ns": busy_ns}
        for at in range(0, 2 * SECOND, every_ns)
    ]


def test_sampled_and_derived_utilization_are_not_compared() -> None:
    """Sampled and derived utilization of equally busy GPUs share no bins.

    m0 was sampled at 45 and 55% in turn, m1 is derived."""
    named = line(1, CORE, 0, [1.0] * 5, start=START)
    outcome = judge(gpus(*([[45.0, 55.0, 45.0, 55.0, 45.0]] * 2)) + named, events=[*kernels(0), *kernels(1)], patience=2)
    assert outcome.verdict == FINE
    assert [(row["a"]["node"], row["b"]["node"]) for row in plain_details(outcome)["pairs"]] == [("m0", "m0"), ("m1", "m1")]
    assert plain_details(outcome)["matrix"][0] == [0.0, 0.0, None, None]
    alone = judge(gpus([45.0] * 5) + named, events=kernels(0), patience=2)
    assert alone.verdict == NOT_EVALUATED
    assert alone.reason == (
        "no two GPUs whose utilization was found in the same way: of one it was sampled, of the other derived from kernel activity"
    )
    # m1 GPU 1 is half as busy as GPU 0: by its own kind, 25 points of 2 s. The sampled GPUs, busier than both, take no part in it. The last
    # bucket of 500 ms ends with the profile, after 495 and 492.5 ms: 50, 50, 50, 50.5% and 25, 25, 25, 25.4%.
    uneven = judge(gpus([90.0] * 5, [90.0] * 5) + named, events=[*kernels(0), *kernels(1, busy_ns=2_500_000)], patience=2)
    assert (uneven.verdict, uneven.violations) == (ISSUES, 1)
    assert uneven.cost is not None
    assert uneven.cost.ns == pytest.approx(SECOND // 2, rel=0.02)
    assert "m1 GPU 0 (mean 50.1%) and m1 GPU 1 (mean 25.1%)" in str(uneven.finding)
    assert "m1 GPU 1 is used 25.1% of the time and m1 GPU 0 50.1%" in str(uneven.recommendation)


def test_what_uneven_gpus_cost_is_by_the_busiest_of_their_kind() -> None:
    """Sum the times of samples and buckets: 1.2 s and 0.5 s.

    90 and 30% of 2 s sampled, 50 and 25% of 2 s derived. The last sample comes after the last bucket began."""
    named = line(1, CORE, 0, [1.0] * 5, start=START)
    outcome = judge(gpus([90.0] * 5, [30.0] * 5) + named, events=[*kernels(0), *kernels(1, busy_ns=2_500_000)], patience=2)
    assert outcome.violations == 2
    assert outcome.cost is not None
    assert outcome.cost.ns == pytest.approx(1.7 * SECOND, rel=0.01)


def test_of_many_gpus_each_is_compared_with_the_mean_of_its_kind() -> None:
    outcome = judge(gpus(*([[90.0] * 5] * 33)), events=[row for unit in range(33) for row in kernels(unit)], patience=2)
    assert (plain_details(outcome)["compared"], outcome.verdict) == ("mean", FINE)
    assert max(row["distance"] for row in plain_details(outcome)["pairs"]) == pytest.approx(0, abs=1e-6)


def test_64_gpus_are_compared_in_pairs() -> None:
    outcome = judge([row for node in range(8) for row in gpus(*([[50.0] * 20] * 8), node=node)])
    assert (plain_details(outcome)["compared"], len(plain_details(outcome)["matrix"]), len(plain_details(outcome)["pairs"])) == (
        "pairs",
        64,
        64,
    )
    assert (plain_details(outcome)["left_out"], plain_details(outcome)["pairs_left_out"]) == (0, 64 * 63 // 2 - 64)


def test_more_gpus_are_compared_with_the_mean_of_all() -> None:
    # 69 GPUs at 50% and one at 10: its histogram against 69/70 and 1/70.
    rows = [row for node in range(7) for row in gpus(*([[50.0] * 20] * 10), node=node) if (row[0], row[2]) != (3, 4)]
    outcome = judge(rows + line(3, GPU, 4, [10.0] * 20, start=START))
    mean = [69 / 70, 1 / 70]
    furthest, near = (
        math.sqrt(
            (math.log2(1 / ((1 + share) / 2)) + sum(s * math.log2(s / ((s + own) / 2)) for s, own in zip(mean, apart, strict=True))) / 2
        )
        for share, apart in ((1 / 70, (0, 1)), (69 / 70, (1, 0)))
    )
    details = plain_details(outcome)
    assert (details["compared"], "matrix" in details, details["left_out"], details["pairs_left_out"]) == ("mean", False, 6, 6)
    assert (len(details["devices"]), len(details["pairs"])) == (64, 64)
    assert details["pairs"][0]["a"] == {"node": "m3", "device": 4}
    assert details["pairs"][0]["b"] is None
    assert details["pairs"][0]["distance"] == pytest.approx(furthest)
    assert details["pairs"][1]["distance"] == pytest.approx(near)
    assert details["pairs"][0]["mean_difference"] == pytest.approx(10 - (69 * 50 + 10) / 70)
    assert (outcome.verdict, outcome.triggered) == (ISSUES, 1)
    assert {"node": "m3", "device": 4} in [{"node": row["node"], "device": row["device"]} for row in details["devices"]]
    assert outcome.finding == (
        f"The utilization histogram of m3 GPU 4 (mean 10.0%) lies {furthest:.2f} from the mean of 70 GPUs (mean 49.4%)"
        " (Jensen-Shannon distance), above the threshold of 0.5; so do 1 of 70 GPUs."
    )
    assert outcome.cost is not None
    assert (outcome.cost.ns, outcome.cost.of_ns) == (4 * SECOND, 700 * SECOND)  # 40% of 10 s


def test_derived_utilization_says_how_to_need_fewer() -> None:
    events = [
        {"node": node, "process": 0, "kind": "kernel", "name": "k", "device": 0, "start_ns": START + at * 10**6, "duration_ns": 10**6}
        for node in (0, 1) for at in (0, 4)
    ]  # fmt: skip
    outcome = judge([], events=events)
    assert outcome.reason == (
        "5 of more than 10 samples of two GPUs needed, derived from kernel activity in 1.00 ms buckets; record for longer"
    )
    lower = judge([], events=events, patience=2)
    assert (lower.verdict, [row["derived"] for row in plain_details(lower)["devices"]]) == (FINE, [True, True])
    assert "(derived from kernel activity)" in str(lower.finding)


@pytest.mark.parametrize("seed", range(20))
def test_the_distance_is_one(seed: int) -> None:
    rng = random.Random(seed)
    p, q = ([rng.choice([0, 0, rng.random()]) for _ in range(50)] for _ in range(2))
    p, q = ([value / (sum(own) or 1) for value in own] for own in (p, q))
    assert distance(p, p) == 0.0
    assert distance(p, q) == distance(q, p)
    assert 0 <= distance(p, q) <= 1


def test_gpus_of_different_pipeline_stages_are_not_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    """Stages differ by design; within each stage the loads are equal."""
    monkeypatch.setattr(load_balancing, "_stages", lambda _: {("m0", rank): rank // 2 for rank in range(4)})
    monkeypatch.setattr(load_balancing, "ranks", lambda _: {("m0", device): device for device in range(4)})
    loads = [10.0] * 20, [10.0] * 20, [90.0] * 20, [90.0] * 20
    outcome = judge(gpus(*loads))
    assert (outcome.verdict, len(plain_details(outcome)["pairs"])) == (FINE, 2)
    # Of unequal loads within a stage one pair remains; one GPU per stage leaves none.
    assert judge(gpus([90.0] * 20, *loads[1:])).triggered == 1
    alone = judge(gpus(loads[0], [], loads[2], []))
    assert (alone.verdict, alone.reason) == (NOT_EVALUATED, "each GPU is of another pipeline stage, whose work differs by design")
