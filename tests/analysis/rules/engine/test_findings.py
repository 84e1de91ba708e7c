"""The order of findings, and the findings that explain others."""

from __future__ import annotations

import dataclasses
import itertools
from typing import Any, ClassVar

import pytest
from hypothesis import given
from hypothesis import strategies as st
from judging import empty_report
from postrun.analysis.report import FINE, ISSUES
from postrun.analysis.report.rules import Finding
from postrun.analysis.rules.engine.catalogue import RULES
from postrun.analysis.rules.engine.explanations import causes
from postrun.analysis.rules.engine.findings import findings as engine_findings
from postrun.analysis.rules.engine.selection import Chosen
from postrun.analysis.rules.evidence.base import Cost, Outcome, Parameters, Rule
from postrun.analysis.run.actions import actions
from rule_details import details_from


def cost(percent: float, *, saving: float | None = None, predicted: bool = False, of_ns: int = 10_000_000) -> Cost:
    return Cost(
        title="Do it",
        ns=round(percent * of_ns / 100),
        of_ns=of_ns,
        saving_ns=None if saving is None else round(saving * of_ns / 100),
        saving_kind="predicted" if predicted else "upper_bound",
    )


class _Named(Rule):
    category: ClassVar[Any] = "custom"
    checks: ClassVar[str] = "Checks."
    condition: ClassVar[str] = "it is so"
    advice: ClassVar[str] = "Do it."

    def __init__(self, name: str, explains: tuple[str, ...] = ()) -> None:
        self.name = name  # type: ignore[misc]
        self.explains = explains  # type: ignore[misc]

    def evaluate(self, run: Any, parameters: Parameters) -> Outcome:
        raise NotImplementedError


def findings(*cases: tuple[Rule, Outcome]) -> tuple[Finding, ...]:
    """Return the findings in their final order; all costs are of the same base."""
    unranked = engine_findings([Chosen(rule, Parameters({})) for rule, _ in cases], [outcome for _, outcome in cases])
    return actions(dataclasses.replace(empty_report(), findings=unranked))[0]


def order(*cases: tuple[Rule, Outcome]) -> list[tuple[str, str | None]]:
    computed = findings(*cases)
    assert [finding.rank for finding in computed] == list(range(1, len(computed) + 1))
    return [(finding.rule, finding.explained_by) for finding in computed]


def issue(name: str, of: Cost | None, explains: tuple[str, ...] = ()) -> tuple[Rule, Outcome]:
    return _Named(name, explains), Outcome(ISSUES, cost=of, finding="It is so.")


def built_in(name: str, of: Cost | None = None, verdict: str = ISSUES, **details: Any) -> tuple[Rule, Outcome]:
    return RULES[name](), Outcome(verdict, cost=of, finding="It is so.", details=details_from(name, details))


def test_the_most_costly_comes_first_and_no_time_before_little_time() -> None:
    cases = (issue("little", cost(1.99)), issue("none", None), issue("more", cost(30)), issue("less", cost(2.0)))
    assert order(*cases) == [("more", None), ("less", None), ("none", None), ("little", None)]


def test_a_title_has_no_full_stop_and_a_share_is_at_most_all_of_the_time() -> None:
    (finding,) = findings(issue("too much", dataclasses.replace(cost(150, saving=120), title="Do it.")))
    assert (finding.title, finding.cost_percent, finding.saving_percent) == ("Do it", 100.0, 100.0)


def test_a_saving_ranks_before_a_larger_cost() -> None:
    """A cost of 60% with a saving of 10% is worth 10%, predicted or not."""
    cases = (issue("predicted", cost(60, saving=10, predicted=True)), issue("bound", cost(50, saving=5)), issue("cost", cost(20)))
    assert [name for name, _ in order(*cases)] == ["cost", "predicted", "bound"]


def test_a_saving_below_two_percent_is_small_whatever_the_cost() -> None:
    assert [name for name, _ in order(issue("bound", cost(50, saving=1.9)), issue("cost", cost(3)))] == ["cost", "bound"]


def test_a_cause_outranks_what_it_explains() -> None:
    """Waits of 50% are explained by a cause that would save 30%.

    The cause takes their place before 40%, and they follow it."""
    waits, cause, else_ = issue("waits", cost(50)), issue("cause", cost(30, saving=30, predicted=True), ("waits",)), issue("e", cost(40))
    assert order(waits, cause, else_) == [("cause", None), ("waits", "cause"), ("e", None)]


def test_a_cause_of_too_little_explains_nothing() -> None:
    """Of 40% of waits a cause of 9.9% is less than a quarter, one of 10% is not."""
    waits = issue("waits", cost(40))
    assert order(waits, issue("cause", cost(9.9), ("waits",))) == [("waits", None), ("cause", None)]
    assert order(waits, issue("cause", cost(10), ("waits",))) == [("cause", None), ("waits", "cause")]
    # The larger cause is named.
    assert order(waits, issue("a", cost(12), ("waits",)), issue("b", cost(20), ("waits",)))[1] == ("waits", "b")


def test_rules_that_explain_each_other_make_no_circle() -> None:
    computed = order(issue("a", cost(30), ("b",)), issue("b", cost(30), ("a",)))
    assert sorted(by or "" for _, by in computed) == ["", "b"]


def test_a_fine_rule_explains_nothing() -> None:
    fine = (_Named("cause", ("waits",)), Outcome(FINE))
    assert order(issue("waits", cost(40)), fine) == [("waits", None)]


def low(device: int, unused: float, **more: Any) -> dict[str, Any]:
    row = {"node": "m0", "device": device, "triggered": 1, "state": "under-utilized", "pattern": "whole run", "samples": 1000}
    return {**row, "unused_samples": unused * 1000, **more}


def bound(device: int, host_wait: int, *, issue: bool = True, percent: float = 0.0) -> dict[str, Any]:
    row = {"node": "m0", "rank": device, "device": device, "issue": issue, "span_ns": 1000}
    return {**row, "host_wait_ns": host_wait, "percent": percent}


@pytest.mark.parametrize(
    ("waits", "explained"),
    [
        ([bound(0, 300), bound(1, 200)], True),  # 0.3 + 0.2 of 0.5 + 0.4 idle: 56%
        ([bound(0, 300), bound(1, 140)], False),  # 49%
        ([bound(0, 900), bound(1, 0)], True),  # no device covers more than its own idle time: 0.5 of 0.9
        ([bound(0, 400), bound(1, 400, issue=False)], False),  # a device without the issue counts for nothing: 0.4 of 0.9
    ],
)
def test_low_utilization_is_explained_by_the_time_of_the_host(waits: list[dict[str, Any]], explained: bool) -> None:
    general = built_in("LowGPUUtilization", cost(45), devices=[low(0, 0.5), low(1, 0.4)])
    host = built_in("HostBound", cost(25), devices=waits, first_use=None)
    expected: list[tuple[str, str | None]] = [("LowGPUUtilization", None), ("HostBound", None)]
    assert order(general, host) == ([("HostBound", None), ("LowGPUUtilization", "HostBound")] if explained else expected)


@pytest.mark.parametrize(
    "more", [{"state": "unused"}, {"pattern": "idle tail"}, {"pattern": "idle head"}, {"pattern": "idle head and tail"}]
)
def test_an_idle_end_of_the_run_has_another_cause(more: dict[str, Any]) -> None:
    general = built_in("LowGPUUtilization", cost(45), devices=[low(0, 0.5, **more)])
    assert order(general, built_in("HostBound", cost(40), devices=[bound(0, 500)], first_use=None))[0] == ("LowGPUUtilization", None)


def test_a_finding_is_explained_through_another_one() -> None:
    """Utilization is low because the host waits, which it does in synchronizations."""
    cases = (
        built_in("LowGPUUtilization", cost(50), devices=[low(0, 0.5)]),
        built_in("HostBound", cost(45), devices=[bound(0, 450)], first_use=None),
        built_in("SyncBound", cost(30), devices=[bound(0, 0, percent=30.0)]),
    )
    assert order(*cases) == [("SyncBound", None), ("HostBound", "SyncBound"), ("LowGPUUtilization", "HostBound")]


def test_communication_is_device_work_and_explains_no_idle_time() -> None:
    general = built_in("LowGPUUtilization", cost(50), devices=[low(0, 0.5)])
    exposed = built_in("ExposedCommunication", cost(50), devices=[{**bound(0, 0), "exposed_percent": 50.0}])
    assert order(general, exposed)[0] == ("LowGPUUtilization", None)


def test_a_bottleneck_of_the_machine_explains_its_gpus() -> None:
    general = built_in("LowGPUUtilization", cost(50), devices=[low(0, 0.5)])
    for share, explained in ((30.0, True), (20.0, False)):
        node = {"node": "m0", "issue": True, "bottleneck_percent": share}
        assert ("LowGPUUtilization", "CPUBottleneck" if explained else None) in order(
            general, built_in("CPUBottleneck", cost(20), nodes=[node])
        )
    elsewhere = {"node": "m1", "issue": True, "bottleneck_percent": 90.0}
    assert order(general, built_in("CPUBottleneck", cost(20), nodes=[elsewhere]))[0] == ("LowGPUUtilization", None)


def test_an_unequal_load_explains_what_the_others_have_more() -> None:
    gpus = [{"node": "m0", "device": 0, "mean": 90.0, "evaluated": True}, {"node": "m0", "device": 1, "mean": 40.0, "evaluated": True}]
    unequal = [{"a": {"node": "m0", "device": 0}, "b": {"node": "m0", "device": 1}, "violation": True}]
    general = built_in("LowGPUUtilization", cost(30), devices=[low(1, 0.6)])  # 0.5 of 0.6
    assert order(general, built_in("LoadBalancing", cost(20), devices=gpus, pairs=unequal))[1] == ("LowGPUUtilization", "LoadBalancing")
    every = built_in("LowGPUUtilization", cost(60), devices=[low(0, 0.6), low(1, 0.6)])  # 0.5 of 1.2
    assert order(every, built_in("LoadBalancing", cost(20), devices=gpus, pairs=unequal))[0] == ("LowGPUUtilization", None)


def test_a_straggler_explains_an_unequal_load() -> None:
    unequal = [{"a": {"node": "m0", "device": 0}, "b": {"node": "m0", "device": 1}, "mean_difference": 30.0, "violation": True}]
    load = built_in("LoadBalancing", cost(20), pairs=unequal)
    slow = {"node": "m0", "rank": 5, "pid": 1, "device": 1, "straggler": True}
    assert order(load, built_in("StragglerRank", cost(10), ranks=[slow]))[1] == ("LoadBalancing", "StragglerRank")
    assert order(load, built_in("StragglerRank", cost(10), ranks=[{**slow, "node": "m9"}]))[0] == ("LoadBalancing", None)


def test_a_straggler_explains_a_load_that_differs_by_less_than_it_costs() -> None:
    """One GPU of the pair is idle while the other waits in a collective."""
    slow = {"node": "m0", "rank": 5, "pid": 1, "device": 5, "straggler": True}
    for difference, cause in ((-40.0, "StragglerRank"), (60.0, None)):
        pair = {"a": {"node": "m0", "device": 0}, "b": {"node": "m0", "device": 1}, "mean_difference": difference, "violation": True}
        load = built_in("LoadBalancing", cost(20), pairs=[pair])
        ranked = order(load, built_in("StragglerRank", cost(50, saving=50, predicted=True), ranks=[slow]))
        assert dict(ranked)["LoadBalancing"] == cause
    assert dict(order(load, built_in("StragglerRank", cost(90), ranks=[slow])))["LoadBalancing"] is None


def test_a_straggler_explains_idle_time_of_others_without_work_of_their_host() -> None:
    """Devices 0 and 1 are idle for 40%; the straggler costs 50%."""
    slow = {"node": "m0", "rank": 5, "pid": 1, "device": 5, "straggler": True}
    cases = (
        ("nothing recorded", slow, True, True),
        ("operators", slow, True, False),  # the trace shows what the host did
        ("nothing recorded", {**slow, "device": 0}, True, True),  # half of it is the straggler's
        ("nothing recorded", slow, False, False),  # no simulation
    )
    for activity, rank, predicted, explained in cases:
        host = [{"activity": activity, "percent": 90.0}]
        idle = built_in("HostBound", cost(40), devices=[bound(0, 400), bound(1, 400)], first_use=None, host=host)
        ranked = order(idle, built_in("StragglerRank", cost(50, saving=50, predicted=predicted), ranks=[rank]))
        assert dict(ranked)["HostBound"] == ("StragglerRank" if explained else None)


def test_host_waits_explain_gaps_before_short_kernels() -> None:
    """Host waits of 15% of the span are half of gaps of 30%."""
    short = built_in("ShortKernels", cost(30), devices=[{**bound(0, 0), "gap_percent": 30.0}])
    for waits, cause in ((300, "HostBound"), (150, "HostBound"), (149, None)):
        ranked = order(short, built_in("HostBound", cost(20), devices=[bound(0, waits)], first_use=None))
        assert dict(ranked)["ShortKernels"] == cause


def test_a_pause_explains_blocking_calls_before_which_the_device_runs_empty() -> None:
    """Blocking calls cause 3.0 ms of idle time; pauses of the host 1.6 or 1.4 ms."""
    blocked = built_in("SyncBound", cost(30), devices=[bound(0, 0, percent=30.0)])
    for idle_ns, cause in ((1_600_000, "HostPauses"), (1_400_000, None)):
        assert dict(order(blocked, built_in("HostPauses", cost(16), idle_ns=idle_ns)))["SyncBound"] == cause


@pytest.mark.parametrize("rule", ["SyncBound", "IOBottleneck", "Dataloader"])
def test_each_cause_of_idle_time_explains_low_utilization(rule: str) -> None:
    """The GPUs are idle for 50%, and each cause covers 30% of the time."""
    general = built_in("LowGPUUtilization", cost(50), devices=[low(0, 0.5)])
    details: dict[str, dict[str, Any]] = {
        "SyncBound": {"devices": [bound(0, 0, percent=30.0)]},
        "IOBottleneck": {"nodes": [{"node": "m0", "issue": True, "bottleneck_percent": 30.0}]},
        "Dataloader": {"nodes": [{"node": "m0", "issue": True}]},
    }
    assert dict(order(general, built_in(rule, cost(30), **details[rule])))["LowGPUUtilization"] == rule
    elsewhere = {key: [{**row, "node": "m1"} for row in rows] for key, rows in details[rule].items()}
    assert dict(order(general, built_in(rule, cost(30), **elsewhere)))["LowGPUUtilization"] is None


def test_slow_transfers_and_the_waits_for_their_ranks_explain_exposed_communication() -> None:
    """The slow transfers could save a tenth of the exposed communication of 4 ms."""
    for explained_ns, explained in ((1_990_000, None), (2_000_000, "SlowCollectives"), (9_000_000, "SlowCollectives")):
        slow = built_in("SlowCollectives", cost(10, saving=4), groups=[], explained_ns=explained_ns)
        assert dict(order(slow, issue("ExposedCommunication", cost(40))))["ExposedCommunication"] == explained
    # A saving of a quarter is enough, whatever the waits.
    slow = built_in("SlowCollectives", cost(12, saving=10), groups=[], explained_ns=0)
    assert dict(order(slow, issue("ExposedCommunication", cost(40))))["ExposedCommunication"] == "SlowCollectives"


def test_details_of_another_shape_explain_nothing() -> None:
    general = built_in("LowGPUUtilization", cost(45), devices=[low(0, 0.5)])
    rule, outcome = built_in("HostBound", cost(40), devices=[bound(0, 500)], first_use=None)
    assert order(general, (rule, dataclasses.replace(outcome, details={"devices": 3})))[0] == ("LowGPUUtilization", None)


COSTS = st.none() | st.builds(cost, st.floats(0, 100), saving=st.none() | st.floats(0, 100), predicted=st.booleans())
NAMES = [f"rule{number}" for number in range(6)]
CASES = st.lists(st.tuples(COSTS, st.sets(st.sampled_from(NAMES))), min_size=1, max_size=6)


@given(CASES)
def test_every_issue_is_listed_once_and_small_ones_last(cases: list[tuple[Cost | None, set[str]]]) -> None:
    chosen = [issue(name, of, tuple(sorted(explains))) for name, (of, explains) in zip(NAMES, cases, strict=False)]
    computed = findings(*chosen)
    assert sorted(finding.rule for finding in computed) == NAMES[: len(cases)]
    trees: dict[str, list[float]] = {finding.rule: [] for finding in computed if not finding.explained_by}
    for finding in computed:
        root = [finding.rule, *_chain(finding, computed)][-1]
        trees[root] += [worth] if (worth := _worth(finding)) is not None else []
    small = [bool(known) and max(known) < 2 for known in trees.values()]
    assert small == sorted(small)
    places = {finding.rule: finding.rank for finding in computed}
    for finding in computed:
        assert len(list(itertools.islice(_chain(finding, computed), 10))) < 10
        assert finding.explained_by is None or places[finding.explained_by] < finding.rank
    explained = causes([rule for rule, _ in chosen], [outcome for _, outcome in chosen])
    assert {NAMES[later]: NAMES[first] for later, first in explained.items()} == {
        finding.rule: finding.explained_by for finding in computed if finding.explained_by
    }


def _worth(finding: Finding) -> float | None:
    return finding.cost_percent if finding.saving_percent is None else finding.saving_percent


def _chain(finding: Finding, every: tuple[Finding, ...]) -> Any:
    """Yield the causes of a finding, the root last."""
    by_rule = {one.rule: one for one in every}
    while finding.explained_by:
        finding = by_rule[finding.explained_by]
        yield finding.rule
