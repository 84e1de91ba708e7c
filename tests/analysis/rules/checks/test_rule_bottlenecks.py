"""CPUBottleneck and IOBottleneck count the snapshots with a low GPU and a core of its node at the limit."""

from __future__ import annotations

import json
import random
from typing import Any

import pytest
from postrun.analysis.report import FINE, ISSUES, NOT_EVALUATED
from postrun.analysis.rules.evidence.base import Outcome
from rule_details import plain_details
from sample_rules import CORE, GPU, IOWAIT, MINUTE, SECOND, Sample, bottleneck, defaults, judged, line, random_run, sampled, series_of

CPU_RULE, IO_RULE = "CPUBottleneck", "IOBottleneck"
START = 1_700_000_040 * SECOND
STEP = SECOND // 2


def judge(samples: list[Sample], rule: str = CPU_RULE, tables: dict[str, Any] | None = None, **parameters: Any) -> Outcome:
    with sampled(samples, **(tables or {})) as store:
        return judged(store, rule, **parameters)


def machine(low: int, count: int, *, node: int = 0, core: float = 95.0, metric: str = CORE, gpu: float = 5.0, start: int = START,
            ) -> list[Sample]:  # fmt: skip
    """Return ``count`` snapshots; GPU 1 and core 2 vary in the first ``low`` of them.

    They are then at ``gpu`` and ``core``; GPU 0 is at 90, core 0 at 20."""
    return [
        *line(node, GPU, 0, [90.0] * count, start=start),
        *line(node, GPU, 1, [gpu] * low + [90.0] * (count - low), start=start + 1_000_000),
        *line(node, metric, 0, [20.0] * count, start=start + 2_000_000),
        *line(node, metric, 2, [core] * low + [20.0] * (count - low), start=start + 3_000_000),
    ]


def test_an_issue_with_its_figures() -> None:
    # 240 of 400 snapshots: 60%; the first two windows of 120 are full of them, the others have none.
    outcome = judge(machine(240, 400))
    assert (outcome.verdict, outcome.triggered, outcome.violations, outcome.datapoints) == (ISSUES, 2, 240, 400)
    assert (outcome.windows, outcome.windows_triggered) == (4, 2)
    assert (outcome.first_ns, outcome.last_ns) == (START + 119 * STEP, START + 239 * STEP)
    slices = {"above_percent": 40.0, "other_percent": 0.0, "bottleneck_percent": 60.0, "of_low_percent": 100.0}
    counts = {"snapshots": 400, "low": 240, "bottlenecks": 240, "windows": 4, "windows_exceeded": 2}
    assert plain_details(outcome)["total"] == {**counts, **slices}
    (row,) = plain_details(outcome)["nodes"]
    assert {key: row[key] for key in (*counts, *slices)} == {**counts, **slices}
    assert (row["node"], row["issue"], row["unused"]) == ("m0", True, [])
    assert plain_details(outcome)["bottleneck_ns"] == 120 * SECOND
    # two used GPUs wait 120 s for one that is 95% idle, of two GPUs x 200 s
    assert outcome.cost is not None
    assert (outcome.cost.ns, outcome.cost.of_ns, outcome.cost.where) == (228 * SECOND, 400 * SECOND, "m0")
    assert outcome.finding == (
        "A GPU was below 10% while a core was above 90% in 60.0% of 400 snapshots of m0 (threshold 50%)."
    )  # fmt: skip
    assert "if it is data loading, set `num_workers=4` and `pin_memory=True`" in str(outcome.recommendation)


def test_three_slices_sum_to_all() -> None:
    # 100 bottlenecks, 100 low with the core at 20%, 200 above
    fields = machine(100, 400)
    fields = [(n, m, u, t, 5.0 if m == GPU and u == 1 and t < START + 200 * STEP else v) for n, m, u, t, v in fields]
    total = plain_details(judge(fields))["total"]
    assert (total["snapshots"], total["low"], total["bottlenecks"]) == (400, 200, 100)
    slices = [total[f"{name}_percent"] for name in ("above", "other", "bottleneck", "of_low")]
    assert slices == [50.0, 25.0, 25.0, 50.0]


@pytest.mark.parametrize(
    ("low", "count", "verdict"), [(100, 200, FINE), (101, 200, ISSUES), (0, 200, FINE), (200, 200, ISSUES), (67, 134, FINE)]
)
def test_the_share_is_strict(low: int, count: int, verdict: str) -> None:
    outcome = judge(machine(low, count))
    assert (outcome.verdict, outcome.violations) == (verdict, low)
    assert (outcome.recommendation is not None) == (outcome.cost is not None) == (verdict == ISSUES)


@pytest.mark.parametrize(
    ("gpu", "core", "low", "bottlenecks"), [(9.99, 90.01, 150, 150), (10.0, 95.0, 0, 0), (5.0, 90.0, 150, 0), (0.0, 100.0, 150, 150)]
)
def test_limits_of_gpu_and_core_are_strict(gpu: float, core: float, low: int, bottlenecks: int) -> None:
    total = plain_details(judge(machine(150, 200, gpu=gpu, core=core)))["total"]
    assert (total["low"], total["bottlenecks"]) == (low, bottlenecks)


@pytest.mark.parametrize(("low_at", "documented", "service"), [(69.9, 1500, 0), (70.0, 0, 0), (9.9, 1500, 1500), (10.0, 1500, 0)])
def test_io_thresholds_of_both_presets(low_at: float, documented: int, service: int) -> None:
    samples = machine(1500, 2000, metric=IOWAIT, core=50.1, gpu=low_at)
    for preset, violations in (("documented", documented), ("service", service)):
        outcome = judge(samples, IO_RULE, preset=preset)
        assert (outcome.violations, outcome.verdict) == (violations, ISSUES if violations else FINE)
    assert judge(machine(1500, 2000, metric=IOWAIT, core=50.0, gpu=low_at), IO_RULE).violations == 0


def test_io_in_words() -> None:
    outcome = judge(machine(60, 100, metric=IOWAIT, core=80.0, gpu=60.0), IO_RULE, patience=50)
    assert outcome.finding == (
        "A GPU was below 70% while a core waited for I/O more than 50% of the time in 60.0% of 100 snapshots of m0 (threshold 50%)."
    )
    assert "`prefetch_factor=4`" in str(outcome.recommendation)


@pytest.mark.parametrize(("count", "preset", "judged_"), [(100, "documented", False), (101, "documented", True), (1000, "service", False),
                                                           (1001, "service", True)])  # fmt: skip
def test_more_than_patience_snapshots(count: int, preset: str, judged_: bool) -> None:
    outcome = judge(machine(count, count), preset=preset)
    assert outcome.verdict == (ISSUES if judged_ else NOT_EVALUATED)
    if not judged_:
        needed = {"documented": "100", "service": "1,000"}[preset]
        assert outcome.reason == f"{needed} of more than {needed} snapshots needed"
        assert (outcome.datapoints, outcome.windows, outcome.finding) == (0, 0, None)
        assert plain_details(outcome)["nodes"][0]["issue"] is None
        assert plain_details(outcome)["total"]["bottleneck_percent"] is None


def test_unused_gpus_do_not_count() -> None:
    unused = [*machine(0, 200, core=95.0), *line(0, GPU, 7, [0.0] * 200, start=START), *line(0, CORE, 5, [99.0] * 200, start=START)]
    outcome = judge(unused)
    assert (outcome.verdict, plain_details(outcome)["total"]["low"], plain_details(outcome)["nodes"][0]["unused"]) == (FINE, 0, [7])
    all_unused = line(0, GPU, 0, [0.0] * 200, start=START) + line(0, CORE, 0, [99.0] * 200, start=START)
    nothing = judge(all_unused)
    assert (nothing.verdict, nothing.reason) == (NOT_EVALUATED, "every GPU is at 0% for the whole run")
    assert plain_details(nothing)["nodes"][0]["unused"] == [0]
    # used once: used
    assert judge([*unused, (0, GPU, 7, START + 200 * STEP, 0.5), (0, CORE, 5, START + 200 * STEP, 99.0)]).violations == 201


def test_what_is_missing_is_said() -> None:
    complete = machine(100, 200)
    cases = [
        (CPU_RULE, [row for row in complete if row[1] != CORE], "no CPU samples in this run"),
        (CPU_RULE, [row for row in complete if row[1] != GPU], "no GPU utilization in this run"),
        (IO_RULE, complete, "no I/O wait samples in this run"),
        (CPU_RULE, [], "no GPU utilization in this run"),
        (CPU_RULE, line(0, GPU, 0, [float("nan")] * 200, start=START) + line(0, CORE, 0, [1.0] * 200, start=START),
         "no GPU utilization in this run"),
        (CPU_RULE, [row for row in complete if row[1] == GPU] + line(1, CORE, 0, [1.0] * 200, start=START),
         "no node has samples of its GPUs and of its processor at the same times"),
    ]  # fmt: skip
    for rule, samples, reason in cases:
        outcome = judge(samples, rule)
        assert (outcome.verdict, outcome.reason) == (NOT_EVALUATED, reason)
        assert outcome.capture


def test_snapshots_without_a_core_are_left_out() -> None:
    # Cores are sampled in every second snapshot only: the share is that of these.
    complete = machine(120, 200)
    halved = [row for row in complete if row[1] == GPU or (row[3] - START) // STEP % 2 == 0]
    total = plain_details(judge(halved, patience=50))["total"]
    assert (total["snapshots"], total["low"], total["bottlenecks"], total["bottleneck_percent"]) == (100, 60, 60, 60.0)


def test_each_machine_is_judged_by_its_own() -> None:
    # Clocks 30 s apart: windows of machine 1 begin 30 s later in its series, at the same full minutes.
    samples = machine(130, 200, node=0) + machine(20, 200, node=1, start=START + 30 * SECOND) + machine(50, 50, node=2)
    outcome = judge(samples)
    assert (outcome.verdict, outcome.violations, outcome.datapoints) == (ISSUES, 150, 400)
    rows = plain_details(outcome)["nodes"]
    assert [(row["issue"], row["windows"], row["windows_exceeded"]) for row in rows] == [(True, 2, 1), (False, 3, 0), (None, 0, 0)]
    assert [row["bottleneck_percent"] for row in rows] == [65.0, 10.0, 100.0]
    assert plain_details(outcome)["total"]["bottleneck_percent"] == 37.5  # of the two that are evaluated
    assert (outcome.triggered, outcome.windows, outcome.windows_triggered) == (1, 3, 1)
    assert str(outcome.finding).endswith(
        "in 65.0% of 200 snapshots of m0 (threshold 50%); 1 of 2 nodes exceeds it; 1 node could not be evaluated."
    )
    assert outcome.cost is not None
    assert (outcome.cost.ns, outcome.cost.where) == (round(130 * 2 * 0.95 * STEP), "m0")


def test_a_core_of_another_machine_is_no_bottleneck() -> None:
    lower = [(n, m, u, t, 20.0 if m == CORE else v) for n, m, u, t, v in machine(200, 200, node=0)]
    higher = [(n, m, u, t, 90.0 if m == GPU else v) for n, m, u, t, v in machine(200, 200, node=1)]
    assert judge(lower + higher).violations == 0


def test_what_was_active_in_the_bottleneck() -> None:
    # Bottleneck in snapshots 0..9 and 20..29 of 0.5 s, that is 0..5 s and 10..15 s.
    samples = machine(10, 200)
    samples = [(n, m, u, t, {GPU: 5.0, CORE: 95.0}[m] if u == (1 if m == GPU else 2) and 20 <= (t - START) // STEP < 30 else v)
               for n, m, u, t, v in samples]  # fmt: skip
    ids = {"node": 0, "process": 0, "tid": 1}
    operator = {**ids, "kind": "operator", "name": "aten::copy_"}
    tables = {
        "process": [{"id": 0, "node": 0, "pid": 5}, {"id": 1, "node": 1, "pid": 6}],
        "host_event": [
            {**operator, "start_ns": START + 3 * SECOND, "duration_ns": 9 * SECOND},  # 2 s and 2 s of it
            {**operator, "start_ns": START + 6 * SECOND, "duration_ns": 3 * SECOND},  # between
            {**operator, "node": 1, "process": 1, "start_ns": START, "duration_ns": 9 * SECOND},  # on another machine
        ],
        "annotation": [{**ids, "side": "host", "name": "load 1", "start_ns": START, "duration_ns": SECOND, "complete": True}],
        "step": [{"node": 0, "process": 0, "phase": "TRAIN", "index": 0, "host_start_ns": START, "host_duration_ns": 4 * SECOND}],
    }
    outcome = judge(samples, tables=tables)
    assert (outcome.violations, plain_details(outcome)["bottleneck_ns"]) == (20, 10 * SECOND)
    assert plain_details(outcome)["active"] == {
        "operators": [{"name": "aten::copy_", "time_ns": 4 * SECOND, "percent": 100.0}],
        "annotations": [{"name": "load", "time_ns": SECOND, "percent": 100.0}],
        "phases": [
            {"name": "outside of steps", "time_ns": 6 * SECOND, "percent": 60.0},
            {"name": "TRAIN", "time_ns": 4 * SECOND, "percent": 40.0},
        ],
    }
    issue = judge(samples, tables=tables, threshold=5)
    assert str(issue.recommendation).endswith("; during the bottleneck the longest active operator was aten::copy_ (4.00 s).")


def test_holes_in_the_sampling_are_not_bottleneck_time() -> None:
    # All snapshots are bottlenecks, but none was taken from 50 s to 150 s.
    samples = machine(100, 100) + machine(100, 100, start=START + 150 * SECOND)
    operator = {"node": 0, "process": 0, "tid": 1, "kind": "operator", "name": "op", "start_ns": START, "duration_ns": 300 * SECOND}
    outcome = judge(samples, tables={"process": [{"id": 0, "node": 0}], "host_event": [operator]})
    assert plain_details(outcome)["active"]["operators"][0]["time_ns"] == plain_details(outcome)["bottleneck_ns"] == 100 * SECOND


@pytest.mark.slow
@pytest.mark.parametrize(("rule", "metric", "limit"), [(CPU_RULE, CORE, "cpu_threshold"), (IO_RULE, IOWAIT, "io_threshold")])
def test_many_random_runs_against_plain_python(rule: str, metric: str, limit: str) -> None:
    verdicts = set()
    for seed in range(25):
        rng = random.Random(seed)
        samples = random_run(rng, start=START + rng.randint(0, 2 * MINUTE))
        changed = {"patience": rng.choice([1, 20, 60]), "scan_interval_us": rng.choice([5e6, 20e6]), "threshold": rng.choice([5, 20, 50]),
                   "gpu_threshold": rng.choice([10, 60, 95]), limit: rng.choice([50, 90])}  # fmt: skip
        expected = bottleneck(samples, defaults(rule, **changed), metric, changed[limit])
        outcome = judge(samples, rule, **changed)
        json.dumps(plain_details(outcome), allow_nan=False)
        check(outcome, expected, changed["threshold"], samples, seed)
        verdicts.add(outcome.verdict)
    assert verdicts == {ISSUES, FINE, NOT_EVALUATED}


def check(outcome: Outcome, expected: dict[int, dict[str, Any]], share: float, samples: list[Sample], keys: object) -> None:
    """Every figure of the rule against the recomputed ones."""
    able = {node: want for node, want in expected.items() if want["judged"]}
    if not able:
        assert outcome.verdict == NOT_EVALUATED, keys
        return
    rows = {int(row["node"][1:]): row for row in plain_details(outcome)["nodes"]}
    assert rows.keys() == expected.keys(), keys
    issues = {node for node, want in able.items() if len(want["bottlenecks"]) * 100 > share * want["snapshots"]}
    for node, want in expected.items():
        row = rows[node]
        assert (row["snapshots"], row["low"], row["bottlenecks"]) == (want["snapshots"], want["low"], len(want["bottlenecks"])), keys
        assert row["unused"] == want["unused"], keys
        assert row["issue"] == ((node in issues) if want["judged"] else None), keys
        assert row["windows"] == (len(want["windows"]) if want["judged"] else 0), keys
        assert row["windows_exceeded"] == len(want["exceeded"]), keys
        if row["snapshots"]:
            assert row["above_percent"] + row["other_percent"] + row["bottleneck_percent"] == pytest.approx(100), keys
    assert outcome.verdict == (ISSUES if issues else FINE), keys
    assert outcome.triggered == sum(len(want["exceeded"]) for want in able.values()), keys
    assert outcome.violations == sum(len(want["bottlenecks"]) for want in able.values()), keys
    assert outcome.datapoints == sum(want["snapshots"] for want in able.values()), keys
    assert outcome.windows == len({window for want in able.values() for window in want["windows"]}), keys
    assert outcome.windows_triggered == len({window for want in able.values() for window in want["exceeded"]}), keys
    if issues:
        waited = sum(able[node]["missing"] * able[node]["used"] for node in issues)
        every = sum(len(points) for points in series_of(samples, GPU).values())
        assert outcome.cost is not None
        assert outcome.cost.ns / outcome.cost.of_ns == pytest.approx(waited / every, rel=1e-6), keys


def without_gpu(busy: int, count: int, *, core: float = 95.0, metric: str = CORE) -> list[Sample]:
    """Return four cores at 20%; core 2 is at ``core`` in the first snapshots.

    ``metric``: the metric of core 2; ``busy``: the number of these snapshots."""
    high = [core] * busy + [20.0] * (count - busy)
    rows = [row for unit in range(4) for row in line(0, CORE, unit, high if (unit, metric) == (2, CORE) else [20.0] * count, start=START)]
    return rows if metric == CORE else [*rows, *line(0, metric, 2, high, start=START)]


def judge_without(samples: list[Sample], rule: str = CPU_RULE, *, cores: int = 4, gpus: int | None = 0, **parameters: Any) -> Outcome:
    with sampled(samples, cores=cores, gpus=gpus) as store:
        return judged(store, rule, **parameters)


@pytest.mark.parametrize(
    ("share", "begin"),
    [
        (None, "Find what keeps the core busy, and if it is data loading, set `num_workers="),
        (1.9, "Find what keeps the core busy, which is not data loading (waits for data take 1.9% of the steps): on m0"),
        (2.0, "Set `num_workers="),
    ],
)
def test_loading_is_advised_on_as_far_as_it_was_seen(share: float | None, begin: str) -> None:
    assert str(judge(machine(240, 400), loading_percent=share).recommendation).startswith(begin)


def test_without_a_gpu_one_busy_core_among_idle_ones_is_a_bottleneck() -> None:
    # 120 of 200 snapshots with the cores at 20, 20, 95, 20%: their mean is 38.75%, so that 61.25% of 60 s are idle.
    outcome = judge_without(without_gpu(120, 200))
    assert (outcome.verdict, outcome.violations, outcome.datapoints) == (ISSUES, 120, 200)
    total = plain_details(outcome)["total"]
    assert (total["snapshots"], total["low"], total["bottlenecks"]) == (200, 200, 120)
    assert [total[f"{name}_percent"] for name in ("above", "other", "bottleneck")] == [0.0, 40.0, 60.0]
    assert (
        outcome.finding == "A core was above 90% while the mean of the cores was below 50% in 60.0% of 200 snapshots of m0 (threshold 50%)."
    )
    assert outcome.cost is not None
    assert (outcome.cost.ns, outcome.cost.of_ns, outcome.cost.base) == (36_750_000_000, 100 * SECOND, "sampled time of the nodes")
    texts = " ".join(
        map(str, (outcome.finding, outcome.recommendation, outcome.condition, outcome.checks, outcome.cost.title, outcome.cost.base))
    )
    assert "GPU" not in texts
    assert judge_without(without_gpu(100, 200)).verdict == FINE


def test_without_a_gpu_the_mean_of_the_cores_is_below_50() -> None:
    # Two of four cores at 100 and two at 0%: a mean of 50 is not below 50. Of two cores one busy one is half of the machine.
    half = [row for unit in range(4) for row in line(0, CORE, unit, [100.0 * (unit < 2)] * 200, start=START)]
    two = [row for unit in range(2) for row in line(0, CORE, unit, [100.0 * unit] * 200, start=START)]
    below = [row for unit in range(2) for row in line(0, CORE, unit, [99.8 * unit] * 200, start=START)]
    for samples, cores, low in ((half, 4, 0), (two, 2, 0), (below, 2, 200)):
        outcome = judge_without(samples, cores=cores)
        assert (outcome.verdict, plain_details(outcome)["total"]["low"], outcome.violations) == (ISSUES if low else FINE, low, low)
    single = judge_without(line(0, CORE, 0, [100.0] * 200, start=START), cores=1)
    assert (single.verdict, single.reason) == (NOT_EVALUATED, "one core, whose utilization is the mean of the cores")


def test_without_a_gpu_io_waits_of_idle_cores_are_a_bottleneck() -> None:
    samples = without_gpu(60, 100, core=80.0, metric=IOWAIT)
    outcome = judge_without(samples, IO_RULE, patience=50)
    assert (outcome.verdict, outcome.violations) == (ISSUES, 60)
    assert outcome.finding == (
        "A core waited for I/O more than 50% of the time while the mean of the cores was below 50% in 60.0% of 100 snapshots of m0"
        " (threshold 50%)."
    )
    assert "GPU" not in f"{outcome.recommendation} {outcome.condition} {outcome.checks}"
    assert judge_without(samples, IO_RULE).reason == "100 of more than 1,000 snapshots needed"


def test_without_proof_that_there_is_no_gpu_nothing_is_evaluated() -> None:
    samples = without_gpu(200, 200)
    for gpus in (None, 1):
        outcome = judge_without(samples, gpus=gpus)
        assert (outcome.verdict, outcome.reason) == (NOT_EVALUATED, "no GPU utilization in this run")
    with sampled(samples, gpus=0, device=[{"node": 0, "index": 0}]) as store:
        assert judged(store, CPU_RULE).verdict == NOT_EVALUATED
    # 0% for the whole run: a GPU that is there
    assert judge_without([*samples, *line(0, GPU, 0, [0.0] * 200, start=START)]).reason == "every GPU is at 0% for the whole run"
