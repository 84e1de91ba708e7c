"""Causes across ranks in simulated pipelines: planted ones are named, and balanced jobs with noise accuse no rank and no stage."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import polars as pl
import pytest
from judging import rules_of
from pipeline_jobs import Shape, pipeline_job
from postrun.analysis import Options
from postrun.analysis.causes import operations, what_if
from postrun.analysis.report import Finding, RuleResult
from postrun.analysis.rules.engine.selection import select
from postrun.ingest.store import Store

MakeStore = Callable[..., Store]
RULES = ["StragglerRank", "StageImbalance", "WorkImbalance", "HostPauses"]


def judged(store: Store) -> tuple[dict[str, RuleResult], list[Finding]]:
    judged = rules_of(store, Options(generated_at_ns=0, selection=select(RULES)))
    return {result.rule: result for result in judged.rules}, list(judged.findings)


def balanced(seed: int) -> Shape:
    chance = random.Random(seed)
    return Shape(chance.randint(2, 4), chance.randint(2, 4), noise=chance.choice([0.005, 0.02, 0.05]))


@pytest.mark.parametrize("seed", range(6))
def test_a_balanced_job_has_no_cause(make_store: MakeStore, seed: int) -> None:
    results, findings = judged(make_store(**pipeline_job(balanced(seed), seed)))
    assert not findings
    assert {name: result.verdict for name, result in results.items() if name != "HostPauses"} == dict.fromkeys(RULES[:3], "NoIssuesFound")


@pytest.mark.slow
def test_no_balanced_job_has_a_cause(make_store: MakeStore) -> None:
    accused = {seed: [finding.rule for finding in judged(make_store(**pipeline_job(balanced(seed), seed)))[1]] for seed in range(6, 12)}
    assert not {seed: rules for seed, rules in accused.items() if rules}


def slow_rank(stage: int, replica: int, step: int) -> float:
    return 1.5 if (stage, replica) == (1, 2) else 1.0


def long_stage(stage: int, replica: int, step: int) -> float:
    return 1.6 if stage == 2 else 1.0


def uneven(stage: int, replica: int, step: int) -> float:
    return random.Random(1000 * replica + step).uniform(0.6, 1.4)


def test_a_slow_rank_is_named(make_store: MakeStore) -> None:
    results, findings = judged(make_store(**pipeline_job(Shape(3, 3, factor=slow_rank), 1)))
    assert [finding.rule for finding in findings] == ["StragglerRank"]
    assert findings[0].where == "rank 5, node-0 GPU 5"
    assert findings[0].saving_kind == "predicted"
    # Three stages, four micro-batches: the slow stage sets the pace. Its passes take 90 instead of 60 ms.
    without = judged_step(Shape(3, 3), 1) / judged_step(Shape(3, 3, factor=slow_rank), 1)
    assert findings[0].saving_percent == pytest.approx(100 * (1 - without), rel=0.1)
    assert results["StageImbalance"].verdict == "NoIssuesFound"


def test_a_long_stage_is_named_and_no_rank(make_store: MakeStore) -> None:
    results, findings = judged(make_store(**pipeline_job(Shape(4, 2, factor=long_stage), 1)))
    assert [finding.rule for finding in findings] == ["StageImbalance"]
    assert findings[0].where == "the stage of ranks 4 and 5"
    level = Shape(4, 2, factor=lambda stage, replica, step: 1.15)
    balanced = judged_step(level, 1) / judged_step(Shape(4, 2, factor=long_stage), 1)
    assert findings[0].saving_percent == pytest.approx(100 * (1 - balanced), abs=8)
    assert results["StragglerRank"].verdict == "NoIssuesFound"


def test_work_that_varies_from_step_to_step_is_named(make_store: MakeStore) -> None:
    results, findings = judged(make_store(**pipeline_job(Shape(2, 4, steps=16, factor=uneven), 1)))
    assert [finding.rule for finding in findings] == ["WorkImbalance"]
    assert findings[0].saving_percent is not None
    assert 10 < findings[0].saving_percent < 40
    assert results["StragglerRank"].verdict == "NoIssuesFound"


def test_numbers_of_streams_do_not_matter(make_store: MakeStore) -> None:
    shape = Shape(3, 2, factor=long_stage)
    chance = random.Random(5)
    streams = {rank: chance.sample(range(3, 99), 6) for rank in range(6)}
    same = Shape(3, 2, factor=long_stage, streams=streams)
    plain, permuted = (judged(make_store(**pipeline_job(job, 3))) for job in (shape, same))
    assert {name: result.finding for name, result in plain[0].items()} == {name: result.finding for name, result in permuted[0].items()}
    assert [finding.saving_percent for finding in plain[1]] == [finding.saving_percent for finding in permuted[1]]


def test_kernels_that_are_read_process_by_process_give_the_same(make_store: MakeStore, monkeypatch: pytest.MonkeyPatch) -> None:
    shape = Shape(3, 2, factor=long_stage, noise=0.02)
    counts: list[int] = []

    def counted(*arguments: Any) -> pl.DataFrame:
        rows = operations.operations(*arguments)
        counts.append(len(rows))
        return rows

    monkeypatch.setattr(what_if, "operations", counted)
    together = judged(make_store(**pipeline_job(shape, 3)))
    monkeypatch.setattr(operations, "AT_ONCE", 1)
    assert judged(make_store(**pipeline_job(shape, 3))) == together
    # With too many changes of the kernel, runs are only cut at communication.
    monkeypatch.setattr(operations, "OPERATIONS_MOST", 0)
    assert judged(make_store(**pipeline_job(shape, 3)))[1][0].rule == "StageImbalance"
    assert counts[0] == counts[1] > counts[2]


def test_a_missing_rank_leaves_out_the_simulation(make_store: MakeStore) -> None:
    tables = pipeline_job(Shape(3, 2, factor=long_stage), 1)
    for name in ("device_event", "step"):
        tables[name] = [row for row in tables[name] if row["process"] not in (2, 3)]
    tables["processes"] = [row for row in tables["processes"] if row["id"] not in (2, 3)]
    results, findings = judged(make_store(**tables))
    assert not findings
    assert results["StageImbalance"].verdict == "NotEvaluated"
    assert "the other ranks are unknown for" in str(results["StageImbalance"].reason)


@pytest.mark.parametrize(
    ("shape", "reason"),
    [
        (Shape(1, 1), "one rank in this run"),
        (Shape(2, 2, steps=1), "all ranks have 1 step in common, and a simulation requires 3"),
    ],
)
def test_a_job_with_too_little_is_not_simulated(make_store: MakeStore, shape: Shape, reason: str) -> None:
    results, findings = judged(make_store(**pipeline_job(shape, 1)))
    assert not findings
    assert (results["StageImbalance"].verdict, results["StageImbalance"].reason) == ("NotEvaluated", reason)


def test_ranks_with_other_steps_are_not_simulated(make_store: MakeStore) -> None:
    tables = pipeline_job(Shape(2, 2), 1)
    for row in tables["step"]:
        row["index"] += 100 * row["process"]
    results, findings = judged(make_store(**tables))
    assert not findings
    assert results["StageImbalance"].reason == "no step with device work that all ranks have"


def judged_step(shape: Shape, seed: int) -> float:
    """Return the time of a job by its last kernel."""
    events = pipeline_job(shape, seed)["device_event"]
    return max(event["start_ns"] + event["duration_ns"] for event in events)


def test_no_rank_is_accused_if_roles_are_unknown(make_store: MakeStore) -> None:
    # One rank for each stage and no process groups: a long stage and a slow device look the same.
    shape = Shape(3, 1, factor=lambda stage, replica, step: 1.5 if stage == 1 else 1.0)
    results, findings = judged(make_store(**pipeline_job(shape, 1)))
    assert not findings
    assert results["StragglerRank"].reason == "the roles of the ranks are unknown, so that no rank has peers to be compared with"
    assert results["StageImbalance"].reason == "the roles of the ranks are unknown"
