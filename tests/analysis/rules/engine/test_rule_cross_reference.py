"""Recommendations agree with what other rules measured, and advise on broken files."""

from __future__ import annotations

import dataclasses
from types import SimpleNamespace
from typing import Any

import pytest
from empty_stores import empty_store
from postrun.analysis.report import FINE, ISSUES, NOT_EVALUATED
from postrun.analysis.rules.engine import cross_reference
from postrun.analysis.rules.engine.catalogue import DOCUMENTED, RULES
from postrun.analysis.rules.engine.cut_files import copy_again
from postrun.analysis.rules.engine.engine import evaluate
from postrun.analysis.rules.engine.selection import Chosen, Selection
from postrun.analysis.rules.evidence.base import Cost, Outcome, Parameters, Rule, not_evaluated
from postrun.analysis.rules.evidence.frameworks import MORE_WORKERS
from postrun.analysis.toolkit.labels import place, process_place
from rule_details import details_from, plain_details


def outcome(verdict: str = ISSUES, recommendation: str | None = "Do it.", **details: Any) -> Outcome:
    return Outcome(verdict, details=details, recommendation=recommendation)


def outcomes_with(**outcomes: Outcome) -> list[Outcome]:
    """The outcomes after references were added."""
    rules: list[Rule] = [RULES[name]() for name in outcomes]
    typed = [dataclasses.replace(one, details=details_from(name, plain_details(one))) for name, one in outcomes.items()]
    computed = cross_reference.refer(rules, typed)
    assert [one.verdict for one in computed] == [one.verdict for one in outcomes.values()]
    return computed


def referred(**outcomes: Outcome) -> dict[str, str | None]:
    """Recommendations by rule."""
    return {name: one.recommendation for name, one in zip(outcomes, outcomes_with(**outcomes), strict=True)}


def low(node: str, device: int, **more: Any) -> dict[str, Any]:
    return {"node": node, "device": device, "triggered": 1, "state": "under-utilized", "pattern": "whole run", **more}


LOAD = "Load further ahead (more `num_workers`)."


def loaders(issue: bool) -> Outcome:
    row = {"node": "m0", "issue": issue, "loaders": 16.0, "percent_of_cores": 100.0}
    return outcome(ISSUES if issue else FINE, nodes=[row])


@pytest.mark.parametrize(
    ("share", "end"),
    [
        (6.25, "Check the storage: a core of m0 waits for I/O in 6.2% of the snapshots while a GPU is low (IOBottleneck)."),
        (0.0, "Check decoding and augmentation."),
        (None, "Check decoding and augmentation."),
    ],
)
def test_enough_loaders_are_said(share: float | None, end: str) -> None:
    waits = outcome(FINE, nodes=[{"node": "m0", "issue": False, "bottleneck_percent": share}])
    outcomes = referred(StepOutlier=outcome(recommendation=LOAD), Dataloader=loaders(False), IOBottleneck=waits)
    assert outcomes["StepOutlier"] == (
        f"{LOAD} Do not raise `num_workers`: the 16 loader processes are already 100% of the number of cores of m0, so loading itself"
        f" is slow. {end}"
    )
    assert referred(StepOutlier=outcome(), Dataloader=loaders(False), IOBottleneck=waits)["StepOutlier"] == "Do it."


def test_a_wrong_number_of_loaders_comes_first() -> None:
    outcomes = referred(StepOutlier=outcome(recommendation=LOAD), Dataloader=loaders(True))
    assert (
        outcomes["StepOutlier"] == f"{LOAD} For `num_workers` follow Dataloader, which finds loader processes for 100% of the cores of m0."
    )


def test_loaders_are_not_both_to_be_more_and_to_be_left() -> None:
    """The rules' own advice on loaders gives way to that of Dataloader."""
    load = "Load further ahead (a larger `prefetch_factor`, more `num_workers` where cores are free): slow."
    for issue in (False, True):
        text = str(referred(StepOutlier=outcome(recommendation=load), Dataloader=loaders(issue))["StepOutlier"])
        assert text.startswith("Load further ahead (a larger `prefetch_factor`): slow. ")
        assert "more `num_workers`" not in text
        assert text.count("`num_workers`") == 1
    assert referred(StepOutlier=outcome(recommendation=load))["StepOutlier"] == load
    assert MORE_WORKERS in load


def test_two_definitions_of_well_used_are_told_apart_by_the_evidence() -> None:
    def usage(node: str, statement: str | None) -> Outcome:
        return outcome(FINE, nodes=[{"node": node, "statement": statement, "metrics": []}])

    gpu = dataclasses.replace(outcome(devices=[low("m0", 1)]), finding="It is low.")
    well_used = outcomes_with(LowGPUUtilization=gpu, OverallSystemUsage=usage("m0", "Well used: the median of the GPUs is 88%."))[0]
    assert str(well_used.finding).startswith("It is low. OverallSystemUsage reports these nodes as well used")
    assert well_used.recommendation == "Do it."  # the definitions are nothing to do
    for fields in (usage("m1", "Well used: it is."), usage("m0", "Under-utilized: it is."), usage("m0", None)):
        assert outcomes_with(LowGPUUtilization=gpu, OverallSystemUsage=fields)[0].finding == "It is low."


def test_every_row_names_rules_that_there_are() -> None:
    for reference in cross_reference.REFERENCES:
        assert {*reference.later, reference.first} <= set(RULES.values())
        assert reference.first not in reference.later


@pytest.mark.parametrize(
    ("status", "code", "expected"),
    [
        (
            "partial",
            "cut_stream",
            "Copy the whole of `r0.json.gz` again: it breaks off, and what this rule needs may stand behind the break.",
        ),
        ("partial", "no_timestamp", "Profile."),
        ("completed", "cut_stream", "Profile."),
    ],
)
def test_a_file_that_breaks_off_is_to_be_copied_again(status: str, code: str, expected: str) -> None:
    values = {
        "HostBound": not_evaluated("no device activity in this run", "Profile."),
        "StepOutlier": not_evaluated("6 of more than 26 steps needed", "Record more."),
        "StragglerRank": not_evaluated("one rank in this run", "Give all."),
        "CPUBottleneck": not_evaluated("no CPU samples in this run", "Sample."),
        "SyncBound": dataclasses.replace(outcome(FINE), capture=None),
    }
    with empty_store() as store:
        store.insert("run", {"status": status})
        store.insert("ingest_note", {"file": "traces/r0.json.gz", "severity": "warning", "code": code, "message": "cut", "count": 1})
        outcomes = [one.capture for one in copy_again([RULES[name]() for name in values], list(values.values()), store)]
    more = f"{expected} Record more." if expected != "Profile." else "Record more."
    assert outcomes == [expected, more, "Give all.", "Sample.", None]


@pytest.mark.parametrize(
    ("path", "format", "ranges", "texts"),
    [
        ("r0.json", "PyTorch profiler trace", (), {"StepOutlier", "MaxInitializationTime", "Dataloader", "HostBound"}),
        ("1_algo-1_pythontimeline.json", "hosted framework timeline", (), {"StepOutlier", "MaxInitializationTime", "Dataloader"}),
        ("1_algo-1_horovod_timeline.json", "hosted framework timeline", (), set()),
        ("tl", "hosted framework timeline", (("NEGOTIATE_ALLREDUCE", "w"), ("ALLREDUCE", "w")), set()),
        (
            "both.json",
            "hosted framework timeline",
            (("NEGOTIATE_ALLREDUCE", "w"), ("step 3", "Step:ModeKeys.TRAIN")),
            {"StepOutlier", "MaxInitializationTime", "Dataloader"},
        ),
        ("smi.csv", "nvidia-smi log", (), set()),
    ],
)
def test_only_files_that_can_hold_what_a_rule_needs_are_to_be_copied_again(
    path: str, format: str, ranges: tuple[tuple[str, str], ...], texts: set[str]
) -> None:
    values = {
        "StepOutlier": not_evaluated("no step annotations in this run", "Own."),
        "MaxInitializationTime": not_evaluated("no step annotations in this run", "Own."),
        "Dataloader": not_evaluated("no data loader events in this run", "Own."),
        "HostBound": not_evaluated("no device activity in this run", "Own."),
    }
    with empty_store() as store:
        store.insert("run", {"status": "partial"})
        store.insert("source", {"id": 0, "path": path, "format": format})
        store.insert("process", {"id": 0, "node": 0, "source": 0})
        for name, phase in ranges:
            text = store.name_ids([name])[0]
            store.insert("annotation", {"process": 0, "name": text, "phase": phase, "side": "host", "start_ns": 0, "duration_ns": 5})
        note = {"source": 0, "file": path, "severity": "warning", "code": "truncated", "message": "cut", "count": 1}
        store.insert("ingest_note", note)
        outcomes = copy_again([RULES[name]() for name in values], list(values.values()), store)
    assert {name for name, one in zip(values, outcomes, strict=True) if one.capture != "Own."} == texts


def test_a_device_has_one_name() -> None:
    assert place("node-1", 5, 3) == "rank 5, node-1 GPU 3"
    assert place("node-1", None, 3) == "node-1 GPU 3"
    assert place("unknown host", None, 0) == "GPU 0"
    assert place("unknown host 2", 0, 0) == place("unknown host", 0, 0) == "rank 0, GPU 0"
    assert place("unknown host 2", None, 0) == "unknown host 2 GPU 0"  # nothing else distinguishes it from GPU 0 of the first
    assert (process_place("n", 1, 7), process_place("n", None, 7), process_place("n", None, None)) == ("rank 1, n", "pid 7, n", "n")
    assert process_place("unknown host", None, 7) == "pid 7"


class _Says(Rule):
    """A rule that gives a known answer under the name of another."""

    category = "system"
    checks, condition, advice = "checks", "condition", "Advice."

    def __init__(self, name: str, outcome: Outcome, informs: bool = False) -> None:
        self.name, self.informs, self.outcome = name, informs, outcome  # type: ignore[misc]

    def evaluate(self, run: Any, parameters: Parameters) -> Outcome:
        return self.outcome


def results(*rules: Rule, summarized: bool = False) -> Any:
    with empty_store() as store:
        sites = SimpleNamespace(known=False)
        run: Any = SimpleNamespace(store=store, samples=SimpleNamespace(interval_ns=None), sites=sites)
        chosen = tuple(Chosen(rule, Parameters({"scan_interval_us": 1})) for rule in rules)
        return evaluate(run, Selection(chosen, summarized))


def test_no_share_is_above_the_whole() -> None:
    _, (finding,) = results(_Says("Own", Outcome(ISSUES, cost=Cost("t", 50, 5, saving_ns=20))))
    assert (finding.cost_percent, finding.saving_percent, finding.severity) == (100.0, 100.0, "high")


def test_a_title_without_a_cost() -> None:
    _, findings = results(_Says("A", Outcome(ISSUES, title="Find it")), _Says("B", Outcome(ISSUES)))
    assert [finding.title for finding in findings] == ["Find it", "Advice"]


def test_the_summary_counts_the_rules_that_judge() -> None:
    verdicts = [ISSUES, FINE, NOT_EVALUATED]
    rules = [_Says(rule.name, Outcome(FINE if rule.informs else verdicts[at % 3]), rule.informs) for at, rule in enumerate(DOCUMENTED)]
    first, *rest = results(*rules, summarized=True)[0]
    judging = [result.verdict for result in rest if not result.informs]
    assert [result.rule for result in rest if result.informs] == ["OverallSystemUsage", "OverallFrameworkMetrics"]
    assert (first.rule, first.informs, len(judging)) == ("ProfilerReport", False, 9)
    assert first.finding == (
        f"{judging.count(ISSUES)} of 9 documented rules found an issue, {judging.count(NOT_EVALUATED)} could not be evaluated."
    )
