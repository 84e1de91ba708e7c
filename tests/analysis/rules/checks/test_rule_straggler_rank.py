"""Which rank do the others wait for: figures on paper, and the rank that a simulated run has planted."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest
from judging import Judged, rules_of
from postrun.analysis import Options
from postrun.analysis.report import Finding, RuleResult
from postrun.analysis.rules.engine.selection import select
from postrun.ingest import ingest
from postrun.ingest.store import Store
from postrun.simulate import DemoTruth, Problems, write_demo
from rule_details import plain_details

NAMES = {
    "gemm": ("gemm", "BF16", "GEMM"),
    "norm": ("norm", "FP32", "normalisation"),
    "AllReduce": ("ncclAllReduce", "unknown", "communication"),
}
STEP = 1000


def job(*ranks: Sequence[tuple[int, int]], first: Sequence[int] | None = None) -> dict[str, Any]:
    """Return ranks whose steps are a gemm and then an all-reduce of given lengths.

    Steps start every 1000 ns. ``first``: number of the first step of each rank. Two ranks per node."""
    tables: dict[str, Any] = {"nodes": [], "processes": [], "device_event": [], "step": []}
    for rank, lengths in enumerate(ranks):
        if rank % 2 == 0:
            tables["nodes"].append({"id": rank // 2, "hostname": f"node-{rank // 2}"})
        tables["processes"].append({"id": rank, "node": rank // 2, "pid": 50 + rank, "rank": rank})
        keys = {"node": rank // 2, "process": rank, "device": rank % 2}
        for index, (computes, waits) in enumerate(lengths):
            start = STEP * index
            kernels = [("gemm", start, computes, 7), ("AllReduce", start + computes, waits, 20)]
            tables["device_event"] += [
                {**keys, "kind": "kernel", "name": name, "start_ns": at, "duration_ns": length, "stream": stream}
                for name, at, length, stream in kernels
                if length
            ]
            tables["step"].append({
                "node": rank // 2, "process": rank, "index": index + (first[rank] if first else 0), "host_start_ns": start,
                "host_duration_ns": STEP, "device_start_ns": start, "device_duration_ns": computes + waits, "device_events": 2,
            })  # fmt: skip
    return tables


def judged(store: Store, **settings: float) -> tuple[RuleResult, Finding | None]:
    chosen = {f"StragglerRank_{name}": value for name, value in settings.items()}
    report = rules_of(store, Options(generated_at_ns=0, selection=select(["StragglerRank"], settings=chosen)))
    return report.rules[0], report.findings[0] if report.findings else None


def test_a_straggler_is_named(make_store: Callable[..., Store]) -> None:
    # Four ranks, four steps of 100 + 50; rank 2 computes 130 and waits 20. Median of 100, 100, 100, 130 is 100: 30% over.
    even, slow = [(100, 50)] * 4, [(130, 20)] * 4
    result, finding = judged(make_store(names=NAMES, **job(even, even, slow, even)))
    assert (result.verdict, result.triggered, result.violations, result.datapoints) == ("IssuesFound", 1, 4, 4)
    assert (result.windows, result.windows_triggered, result.first_ns, result.last_ns) == (1, 1, 0, 3 * STEP + 150)
    assert (plain_details(result)["steps"], plain_details(result)["median_ns"]) == (4, 100.0)
    assert plain_details(result)["ranks"][2] == {
        "node": "node-1", "rank": 2, "pid": 52, "device": 0, "steps": 4, "computation_per_step_ns": 130.0, "excess_ns": 30.0,
        "excess_percent": 30.0, "steps_over": 4, "steps_over_percent": 100.0, "waiting_per_step_ns": 20.0, "others_wait_ns": 30.0,
        "straggler": True, "confirmed": True,
    }  # fmt: skip
    assert [rank["straggler"] for rank in plain_details(result)["ranks"]] == [False, False, True, False]
    assert [rank["confirmed"] for rank in plain_details(result)["ranks"]] == [None, None, True, None]
    assert result.finding == (
        "Rank 2, node-1 GPU 0 computes 30 ns per step (30.0%) longer than the median of 4 ranks (threshold 10%) and exceeds the"
        " threshold in 4 of 4 steps. The others spend 30 ns more per step in collectives."
    )
    assert finding is not None
    # 30 ns x 4 steps x 3 other ranks (each has 200 ns exposed); span of each device 3 x 1000 + 150
    assert (finding.title, finding.where) == ("Inspect rank 2 (node-1 GPU 0)", "rank 2, node-1 GPU 0")
    # Per step of each of the four ranks: 360 / (4 ranks x 4 steps)
    assert (finding.cost_ns, finding.saving_ns, finding.cost_per_step_ns) == (360, 360, 22.5)
    assert finding.cost_percent == pytest.approx(100 * 360 / (4 * 3150))
    assert result.recommendation is not None
    assert result.recommendation.startswith("Check the clock, temperature and power of node-1 GPU 0")
    assert "30.0% longer than the same kernels" in result.recommendation


def test_a_longer_wait_than_its_computation_is_explained(make_store: Callable[..., Store]) -> None:
    # It computes 30 longer, and the others are in collectives for 80 - 20 = 60 longer.
    even = [(100, 80)] * 4
    result, _ = judged(make_store(names=NAMES, **job(even, even, [(130, 20)] * 4, even)))
    assert "The others spend 60 ns more per step in collectives, including time in which they also compute." in str(result.finding)


@pytest.mark.parametrize(("computes", "verdict"), [(110, "NoIssuesFound"), (111, "IssuesFound")])
def test_the_threshold_itself_is_no_issue(make_store: Callable[..., Store], computes: int, verdict: str) -> None:
    even = [(100, 50)] * 4
    result, _ = judged(make_store(names=NAMES, **job(even, even, [(computes, 150 - computes)] * 4)))
    assert result.verdict == verdict


@pytest.mark.parametrize(("slow_steps", "verdict"), [(2, "NoIssuesFound"), (3, "IssuesFound")])
def test_more_than_half_of_the_steps(make_store: Callable[..., Store], slow_steps: int, verdict: str) -> None:
    even = [(100, 50)] * 4
    result, _ = judged(make_store(names=NAMES, **job(even, even, [(130, 20)] * slow_steps + [(100, 50)] * (4 - slow_steps))))
    assert result.verdict == verdict
    assert plain_details(result)["ranks"][2]["steps_over"] == slow_steps


@pytest.mark.parametrize(("waits", "confirmed"), [(35, True), (36, False)])
def test_the_others_must_wait_for_it(make_store: Callable[..., Store], waits: int, confirmed: bool) -> None:
    # It computes 30 longer; the others are in the collective for 50 - 35 = 15 longer, half of it, or 14, less than half
    even = [(100, 50)] * 4
    result, _ = judged(make_store(names=NAMES, **job(even, even, [(130, waits)] * 4)))
    assert plain_details(result)["ranks"][2]["confirmed"] is confirmed
    assert result.verdict == ("IssuesFound" if confirmed else "NoIssuesFound")
    if not confirmed:
        assert result.finding is not None
        assert result.finding.endswith("but the others spend only 14 ns more per step in collectives: they do not wait for it.")


def test_the_wait_is_bounded_by_what_is_exposed(make_store: Callable[..., Store]) -> None:
    # 50 longer in 4 steps; rank 0 has 4 x 60 exposed, rank 1 only 4 x 30
    result, finding = judged(make_store(names=NAMES, **job([(100, 60)] * 4, [(100, 30)] * 4, [(150, 10)] * 4)))
    assert result.verdict == "IssuesFound"
    assert finding is not None
    assert (finding.cost_ns, finding.cost_per_step_ns) == (200 + 120, 320 / 12)  # 3 ranks x 4 steps


def test_two_stragglers(make_store: Callable[..., Store]) -> None:
    even = [(100, 80)] * 4
    result, finding = judged(make_store(names=NAMES, **job(even, [(150, 30)] * 4, even, [(140, 40)] * 4, even)))
    assert result.triggered == 2
    assert finding is not None
    # The slower of the two counts: 50 x 4 steps x 3 ranks
    assert (finding.cost_ns, finding.title) == (600, "Inspect rank 1 (node-0 GPU 1) and 1 more rank")
    assert finding.where == "rank 1, node-0 GPU 1; rank 3, node-1 GPU 1"


def test_steps_are_matched_by_number(make_store: Callable[..., Store]) -> None:
    # Rank 1 recorded steps 1–3 only: step 0 and step 3 have one rank, so steps 1 and 2 are compared
    slow = [(100, 50), (100, 50), (400, 10)]
    result, _ = judged(make_store(names=NAMES, **job([(100, 50)] * 3, slow, first=[0, 1])))
    assert plain_details(result)["steps"] == 2
    assert [rank["steps"] for rank in plain_details(result)["ranks"]] == [2, 2]
    result, _ = judged(make_store(names=NAMES, **job([(100, 50)] * 3, slow, first=[0, 3])))
    assert (result.verdict, result.reason) == ("NotEvaluated", "no step was recorded on two ranks")


def test_more_work_in_some_kernels_is_not_a_slow_device(make_store: Callable[..., Store]) -> None:
    tables = job(*[[(100, 80)] * 4] * 2, [(100, 20)] * 4)
    for step in range(4):  # 60 ns of another kernel on rank 2 only
        tables["device_event"].append(
            {"kind": "kernel", "name": "norm", "node": 1, "process": 2, "device": 0, "start_ns": STEP * step + 120, "duration_ns": 60}
        )
        tables["step"][-1 - step]["device_duration_ns"] = 180
    result, _ = judged(make_store(names=NAMES, **tables))
    assert result.verdict == "IssuesFound"
    assert result.recommendation is not None
    assert result.recommendation.startswith("Give rank 2, node-1 GPU 0 as much work as the others")
    assert "most of all norm" in result.recommendation


def test_without_collectives_nothing_is_confirmed(make_store: Callable[..., Store]) -> None:
    even = [(100, 0)] * 2
    result, _ = judged(make_store(names=NAMES, **job(even, even, [(130, 0)] * 2)))
    assert result.verdict == "NotEvaluated"
    assert result.reason is not None
    assert result.reason.startswith("rank 2, node-1 GPU 0 computes 30.0% longer than the median of the ranks, but")
    assert plain_details(result)["ranks"][2]["confirmed"] is None
    assert judged(make_store(names=NAMES, **job(even, even, even)))[0].verdict == "NoIssuesFound"


def test_few_steps_accuse_no_rank(make_store: Callable[..., Store]) -> None:
    even, slow = [(100, 50)] * 3, [(130, 20)] * 3
    result, finding = judged(make_store(names=NAMES, **job(even, even, slow, even)))
    assert (result.verdict, finding) == ("NotEvaluated", None)
    assert result.reason == (
        "3 of at least 4 steps needed: rank 2, node-1 GPU 0 computes 30.0% longer than the median of its peers, which can be chance in"
        " fewer steps"
    )
    assert judged(make_store(names=NAMES, **job(even, even, even, even)))[0].verdict == "NoIssuesFound"


def test_nothing_to_compare(make_store: Callable[..., Store]) -> None:
    even = [(100, 50)] * 2
    result, _ = judged(make_store(names=NAMES, **job(even)))
    assert (result.verdict, result.reason, result.capture) == ("NotEvaluated", "one rank in this run", "Give the traces of all ranks.")
    tables = job(even, even)
    result, _ = judged(make_store(names=NAMES, **{**tables, "processes": [{**row, "rank": None} for row in tables["processes"]]}))
    assert result.reason == "no trace of this run names its rank"
    result, _ = judged(make_store(names=NAMES, **{**tables, "step": []}))
    assert result.reason == "no steps with device work"
    result, _ = judged(make_store(names=NAMES, **{**tables, "step": tables["step"][:2]}))
    assert result.reason == "only one rank has steps with device work"
    assert judged(make_store())[0].reason == "no device activity in this run"


# -- the simulated run -----------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[DemoTruth, Judged]]:
    folder = tmp_path_factory.mktemp("run")
    truth = write_demo(folder, steps=6)
    with ingest([folder]) as store:
        rules = ["ExposedCommunication", "LowPrecision", "PageableCopies", "StragglerRank"]
        yield truth, rules_of(store, Options(generated_at_ns=0, selection=select(rules)))


def named(report: Judged, rule: str) -> RuleResult:
    return next(result for result in report.rules if result.rule == rule)


def test_the_planted_rank_is_found(demo: tuple[DemoTruth, Judged]) -> None:
    truth, report = demo
    assert truth.problems.straggler_rank == 5
    planted = truth.ranks[5]
    result = named(report, "StragglerRank")
    assert (result.verdict, result.triggered) == ("IssuesFound", 1)
    assert [rank["rank"] for rank in plain_details(result)["ranks"] if rank["straggler"]] == [5]
    assert result.finding is not None
    assert result.finding.startswith(f"Rank 5, {planted.node} GPU {planted.device} computes ")
    assert plain_details(result)["steps"] == 6
    others = statistics.median(rank.computation_ns for rank in truth.ranks)
    assert plain_details(result)["ranks"][5]["excess_percent"] == pytest.approx(100 * (planted.computation_ns / others - 1), abs=0.5)
    assert result.recommendation is not None
    assert result.recommendation.startswith(f"Check the clock, temperature and power of {planted.node} GPU {planted.device}")
    exposed = named(report, "ExposedCommunication").recommendation
    assert exposed is not None
    assert f"of it is for rank 5, {planted.node} GPU {planted.device}" in exposed


def test_exposed_communication_of_the_simulated_run(demo: tuple[DemoTruth, Judged]) -> None:
    truth, report = demo
    result = named(report, "ExposedCommunication")
    assert result.verdict == "IssuesFound"
    by_rank = {device["rank"]: device for device in plain_details(result)["devices"]}
    assert {rank: device["exposed_ns"] for rank, device in by_rank.items()} == {r.rank: r.exposed_communication_ns for r in truth.ranks}
    assert sum(kernel["exposed_ns"] for kernel in plain_details(result)["kernels"]) == sum(r.exposed_communication_ns for r in truth.ranks)
    actual = next(finding for finding in report.findings if finding.rule == "ExposedCommunication")
    exposed = sum(r.exposed_communication_ns for r in truth.ranks)
    assert actual.cost_ns == exposed
    assert actual.cost_percent == pytest.approx(100 * exposed / sum(r.span_ns for r in truth.ranks))


def test_pageable_copies_of_the_simulated_run(demo: tuple[DemoTruth, Judged]) -> None:
    truth, report = demo
    result = named(report, "PageableCopies")
    assert result.verdict == "IssuesFound"
    assert {device["rank"]: device["pageable_ns"] for device in plain_details(result)["devices"]} == {
        r.rank: r.pageable_copy_ns for r in truth.ranks
    }
    assert named(report, "LowPrecision").verdict == "NoIssuesFound"


@pytest.mark.slow
def test_without_the_planted_problems_nothing_is_found(tmp_path_factory: pytest.TempPathFactory) -> None:
    folder = tmp_path_factory.mktemp("healthy")
    write_demo(folder, steps=4, problems=Problems(None, exposed_communication=False, idle_tail=False, data_stall=False))
    with ingest([folder]) as store:
        rules = ["ExposedCommunication", "PageableCopies", "StragglerRank"]
        report = rules_of(store, Options(generated_at_ns=0, selection=select(rules)))
    assert {result.rule: result.verdict for result in report.rules} == dict.fromkeys(rules, "NoIssuesFound")


def test_of_two_ranks_the_difference_is_told(make_store: Callable[..., Store]) -> None:
    # 100 and 130: the median is 115, 15 below the slow one, which is 30 longer than the other.
    result, _ = judged(make_store(names=NAMES, **job([(100, 50)] * 4, [(130, 20)] * 4)))
    assert "computes 15 ns per step (13.0%) longer than the median of 2 ranks (30 ns longer than the other; threshold 10%)" in str(
        result.finding
    )


def test_the_clock_of_a_slow_device_is_evidence(make_store: Callable[..., Store]) -> None:
    even, slow = [(100, 50)] * 4, [(130, 20)] * 4
    clocks = [
        {"node": rank // 2, "metric": "gpu_sm_clock", "unit": rank % 2, "time_ns": time, "value": 1200.0 if rank == 2 else 1980.0}
        for rank in range(4)
        for time in range(0, 4000, 500)
    ]
    result, _ = judged(make_store(names=NAMES, sample=clocks, **job(even, even, slow, even)))
    assert str(result.recommendation).endswith(" Its median SM clock is 1,200 MHz, that of the others 1,980 MHz.")
    for row in clocks:
        row["value"] = 1980.0
    result, _ = judged(make_store(names=NAMES, sample=clocks, **job(even, even, slow, even)))
    assert str(result.recommendation).endswith("than the same kernels of the other ranks.")


def test_heat_that_slows_a_device_is_evidence(make_store: Callable[..., Store]) -> None:
    # Samples of throttle reasons every 500 ns from 0 to 3500; the bit of heat (32) is set from 1000 to 2500: 3 of 8 intervals.
    even, slow = [(100, 50)] * 4, [(130, 20)] * 4
    reasons = [
        {"node": 1, "metric": "gpu_throttle_reasons", "unit": 0, "time_ns": time, "value": 32.0 if 1000 <= time < 2500 else 0.0}
        for time in range(0, 4000, 500)
    ]
    result, _ = judged(make_store(names=NAMES, sample=reasons, **job(even, even, slow, even)))
    assert str(result.recommendation).endswith(" Heat slowed it down in 37.5% of the sampled time.")


@pytest.mark.parametrize(
    ("vendor", "model", "tools"),
    [
        ("NVIDIA", "NVIDIA H100 80GB HBM3", " with `nvidia-smi -q -d CLOCK,TEMPERATURE,POWER,PERFORMANCE` and `dcgmi diag -r 3`"),
        ("AMD", "AMD Instinct MI300X", " with `amd-smi metric --clock --temperature --power`"),
        ("Intel", "Intel(R) Data Center GPU Max 1550", ""),
    ],
)
def test_the_tools_are_those_of_the_vendor(make_store: Callable[..., Store], vendor: str, model: str, tools: str) -> None:
    even, slow = [(100, 50)] * 4, [(130, 20)] * 4
    devices = [{"node": rank // 2, "index": rank % 2, "name": model, "vendor": vendor} for rank in range(4)]
    result, _ = judged(make_store(names=NAMES, device=devices, **job(even, even, slow, even)))
    expected = f"Check the clock, temperature and power of node-1 GPU 0{tools}"
    assert str(result.recommendation).startswith(expected if tools else f"{expected}, because")


def test_one_step_shows_no_straggler(make_store: Callable[..., Store]) -> None:
    result, _ = judged(make_store(names=NAMES, **job([(100, 50)], [(100, 50)], [(130, 20)])))
    assert (result.verdict, result.reason) == ("NotEvaluated", "one step does not show whether a rank is slow in most steps")
