"""The rules on stages, work and stragglers accuse no innocent rank in simulated pipelines, and their advice fits."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import polars as pl
import pytest
from judging import rules_of
from pipeline_jobs import COMPUTE, Shape, pipeline_job
from postrun.analysis import Options
from postrun.analysis.causes.collectives import collectives
from postrun.analysis.causes.what_if import Gain
from postrun.analysis.report import FINE, Finding, RuleResult
from postrun.analysis.rules.checks.work_imbalance import between_ranks
from postrun.analysis.rules.engine.selection import select
from postrun.analysis.rules.evidence.predicted import explained
from postrun.ingest.store import Store
from rule_details import plain_details

MakeStore = Callable[..., Store]
RULES = ["StragglerRank", "StageImbalance", "WorkImbalance"]


def judged(store: Store, rules: list[str] = RULES) -> tuple[dict[str, RuleResult], list[Finding]]:
    judged = rules_of(store, Options(generated_at_ns=0, selection=select(rules)))
    return {result.rule: result for result in judged.rules}, list(judged.findings)


def with_groups(shape: Shape, tables: dict[str, Any]) -> dict[str, Any]:
    """Add records of the process groups as Megatron-LM describes them."""
    records = []
    for number, row in enumerate(tables["device_event"], 1):
        row["correlation"] = number
        kind = row["stream"] - 7
        if kind == COMPUTE:
            continue
        stage, replica = divmod(row["process"], shape.replicas)
        operation = {1: "send", 2: "recv", 3: "send", 4: "recv", 5: "allreduce"}[kind]
        ranks = [other * shape.replicas + replica for other in range(shape.stages)]
        name = f"PIPELINE_MODEL_PARALLEL_GROUP {replica}"
        if operation == "allreduce":
            ranks, name = [stage * shape.replicas + other for other in range(shape.replicas)], f"DATA_PARALLEL_GROUP {stage}"
        peer = row["process"] + shape.replicas * {1: 1, 2: -1, 3: -1, 4: 1}.get(kind, 0)
        records.append({
            "node": 0, "process": row["process"], "on_device": True, "start_ns": row["start_ns"], "duration_ns": 1, "correlation": number,
            "operation": operation, "element_type": "Float", "in_elements": 8, "out_elements": 8, "group_name": name,
            "group_description": name.split()[0], "group_ranks": str(ranks), "group_size": len(ranks),
            "peer": peer if kind < 5 else None,
        })  # fmt: skip
    return {**tables, "collective": records}


def test_a_slow_rank_of_two_replicas_is_no_long_stage(make_store: MakeStore) -> None:
    # The median of its stage is 1.5 times that of the others, but the other replica is as fast as they are.
    shape = Shape(3, 2, factor=lambda stage, replica, step: 2.0 if (stage, replica) == (1, 1) else 1.0)
    results, findings = judged(make_store(**pipeline_job(shape, 1)))
    assert results["StageImbalance"].verdict == "NoIssuesFound"
    assert [finding.rule for finding in findings] == ["StragglerRank"]


def test_a_stage_that_explains_little_is_no_issue(make_store: MakeStore) -> None:
    # Four passes of 75 and an optimizer of 5 ms in stage 2, of 60 and 5 ms in the others: 305 ms, 15.1% above the mean of 265. A rank of
    # stage 0 that takes twice as long sets the pace.
    shape = Shape(3, 3, noise=0.001, factor=lambda stage, replica, step: 1.25 if stage == 2 else 2.0 if (stage, replica) == (0, 1) else 1.0)
    results, findings = judged(make_store(**pipeline_job(shape, 1)))
    assert results["StageImbalance"].verdict == "NoIssuesFound"
    assert "15.1% more than the mean" in str(results["StageImbalance"].finding)
    assert [finding.rule for finding in findings] == ["StragglerRank"]


def test_a_slow_rank_that_explains_little_is_no_issue(make_store: MakeStore) -> None:
    # A rank of the short stage 1 computes for 4 x 72 + 5 ms, 19.6% longer than the 4 x 60 + 5 ms of its peers; stage 0 twice as long.
    shape = Shape(2, 3, noise=0.001, factor=lambda stage, replica, step: 2.4 if stage == 0 else 1.2 if replica == 1 else 1.0)
    results, findings = judged(make_store(**pipeline_job(shape, 1)))
    assert [finding.rule for finding in findings] == ["StageImbalance"]
    result = results["StragglerRank"]
    assert result.verdict == "NoIssuesFound"
    assert str(result.finding).startswith("Rank 4, node-0 GPU 4 computes 19.6% longer")
    assert "but this explains only 0% of the avoidable time" in str(result.finding)


@pytest.mark.parametrize(("part", "words"), [(0.723, "72%"), (0.994, "99%"), (0.996, "all"), (1.1, "all")])
def test_a_cause_explains_at_most_the_complete_avoidable_time(part: float, words: str) -> None:
    gain = Gain(percent=6.2, explained=part, alone=0.0)
    assert explained(gain, 50) == f"This saving is {words} of the time that equal durations on all ranks would save (threshold 50%)."


def test_without_a_pipeline_there_are_no_stages(make_store: MakeStore) -> None:
    results, findings = judged(make_store(**pipeline_job(Shape(1, 4), 1)))
    assert (results["StageImbalance"].verdict, results["StageImbalance"].reason) == ("NotEvaluated", "no pipeline stages in this run")
    assert not findings


def test_four_steps_show_no_variance_of_work(make_store: MakeStore) -> None:
    shape = Shape(1, 4, steps=4, factor=lambda stage, replica, step: random.Random(1000 * replica + step).uniform(0.6, 1.4))
    results, findings = judged(make_store(**with_groups(shape, pipeline_job(shape, 1))))
    assert results["WorkImbalance"].reason == "4 steps in common to all ranks, of 5 that this requires"
    assert not findings


def test_kernels_without_duration_accuse_nobody(make_store: MakeStore) -> None:
    tables = pipeline_job(Shape(1, 4), 1)
    for row in tables["device_event"]:
        if not row["name"].startswith("nccl"):
            row["duration_ns"] = 0
    results, findings = judged(make_store(**tables))
    assert not findings
    assert {result.verdict for result in results.values()} <= {"NotEvaluated", "NoIssuesFound"}
    assert results["WorkImbalance"].reason == "no computation kernel of these ranks takes any time"


@pytest.mark.parametrize(
    ("long", "words"),
    [
        (0, ". The first stage also computes the embedding. In Megatron-LM, use `--account-for-embedding-in-pipeline-split`"),
        (1, ". Give it fewer layers, and count the embedding, the output layer and the loss as layers"),
        (2, ". The last stage also computes the output layer and the loss. In Megatron-LM, use `--account-for-loss-in-pipeline-split`"),
    ],
)
@pytest.mark.parametrize("replicas", [1, 2])
def test_advice_for_a_long_stage(make_store: MakeStore, replicas: int, long: int, words: str) -> None:
    shape = Shape(3, replicas, factor=lambda stage, replica, step: 1.6 if stage == long else 1.0)
    results, findings = judged(make_store(**with_groups(shape, pipeline_job(shape, 1))))
    assert [finding.rule for finding in findings] == ["StageImbalance"]
    first = long * replicas
    ranks = f"rank {first}" if replicas == 1 else f"ranks {first} and {first + 1}"
    assert findings[0].where == f"pipeline stage {long} ({ranks})"
    assert words in str(findings[0].recommendation)
    alone = "Only one rank of the stage is recorded, so first check the clock and temperature of its GPU."
    assert str(findings[0].recommendation).endswith(alone) is (replicas == 1)
    if replicas == 1:
        assert results["StragglerRank"].reason == "no rank has a peer, because each does different work"
        assert results["WorkImbalance"].verdict == FINE  # it compares the micro-batches of a rank


def test_the_order_of_the_files_changes_nothing(make_store: MakeStore) -> None:
    # Processes are numbered in the order of the files. The ends of collectives differ by up to 5 µs on two nodes.
    shape = Shape(1, 4, steps=16, factor=lambda stage, replica, step: random.Random(1000 * replica + step).uniform(0.6, 1.4))
    results = []
    for order in ((0, 1, 2, 3), (3, 1, 0, 2)):
        tables = pipeline_job(shape, 1)
        tables["nodes"] = [{"id": node, "hostname": f"host-{node}"} for node in (0, 1)]
        for row in (*tables["device_event"], *tables["step"], *tables["processes"]):
            row["node"] = (row["process"] if "process" in row else row["rank"]) // 2
        for row in (*tables["device_event"], *tables["step"]):
            row["process"] = order[row["process"]]
        for row in tables["processes"]:
            row["id"] = order[row["rank"]]
        store = make_store(**tables)
        rules, findings = judged(store)
        assert [finding.rule for finding in findings] == ["WorkImbalance"]
        ranks = plain_details(rules["WorkImbalance"])["ranks"]
        results.append(([rule.finding for rule in rules.values()], findings, ranks, collectives(store)))
    assert results[0] == results[1]


def test_a_replay_that_differs_from_the_recording_is_not_used(make_store: MakeStore) -> None:
    # In the fourth step all hosts pause for a second that no event records: the simulated job leaves this gap out.
    tables = pipeline_job(Shape(1, 4), 1)
    begin = min(row["host_start_ns"] for row in tables["step"] if row["index"] == 4)
    for row in tables["device_event"]:
        row["start_ns"] += 1_000_000_000 if row["start_ns"] >= begin else 0
    for row in tables["step"]:
        for name in ("host_start_ns", "device_start_ns"):
            row[name] += 1_000_000_000 if row["index"] >= 4 else 0
        if row["index"] == 3:
            row["host_duration_ns"] += 1_000_000_000
    results, findings = judged(make_store(**tables))
    assert not findings
    reason = str(results["WorkImbalance"].reason)
    assert reason.startswith("the simulated job takes ")
    assert reason.endswith(" less time than the recorded one")


def test_variance_of_means_that_chance_explains_is_not_between_ranks() -> None:
    # Deviations of +3, -3, +1, -1 (%) in turn: the means of 3 steps are 1, -1 and 1/3, which their own variance explains.
    rows = [(0, 3), (0, -3), (0, 3), (1, -3), (1, 3), (1, -3), (2, 1), (2, -1), (2, 1)]
    frame = pl.DataFrame([(rank, value / 100) for rank, value in rows], schema=["rank", "relative"], orient="row")
    # Variances 12, 12 and 4/3 (x 10^-4): a third of their mean is 2.81, more than (1 + 1 + 1/9) / 3 = 0.70.
    assert between_ranks(frame) == 0.0
    shifted = frame.with_columns(pl.col("relative") + pl.when(pl.col("rank") == 0).then(0.09).otherwise(-0.04))
    # Means 10, -5 and -11/3: (100 + 25 + 121/9) / 3 - 2.81 = 43.33 of 43.33 + 8.44
    assert between_ranks(shifted) == pytest.approx(43.3333 / (43.3333 + 8.4444), rel=1e-5)
