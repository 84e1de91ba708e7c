"""Comparisons with several base runs, of hand-made reports: how much equal runs differ, and what is beyond that."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import pytest
from compared_runs import MS, communicating, kernel, pieces, with_
from judging import empty_report
from postrun.analysis.compare.base_runs import limit
from postrun.analysis.compare.build import compare
from postrun.analysis.report import Generator, Report
from postrun.analysis.report.comparison import Comparison
from postrun.analysis.report.rules import FINE, ISSUES, RuleResult

GENERATOR = Generator("postrun", "0", 0, {})


def compared(base: Report, new: Report, base_runs: Sequence[Report], **options: Any) -> Comparison:
    listed = [(run, f"runs/{number}", "traces") for number, run in enumerate(base_runs)]
    return compare(base, new, generator=GENERATOR, baselines=listed, **options)


def run(step_ms: float, **changes: Any) -> Report:
    """Ten steps, whose GPU time is a kernel of the same length."""
    listed = (kernel("k", "k", 10, step_ms, spread=0.001),)
    return with_(empty_report(), lengths=[step_ms] * 10, kernels=listed, **changes)


def test_the_limit_of_equal_runs() -> None:
    # s = 1.29099 of 100, 102, 101, 103; t = 5.841
    assert limit([100, 102, 101, 103]) == pytest.approx(5.841 * 2**0.5 * 1.2909944)
    assert limit([100, 102]) == pytest.approx(63.657 * 2)  # s = √2
    assert limit([7.0] * 20) == 0
    values = [0.0, 1.0] * 10
    assert limit(values) == pytest.approx(3.169 * 2**0.5 * (20 * 0.25 / 19) ** 0.5)


@pytest.mark.parametrize(
    ("new_ms", "verdict", "part"),
    # Base runs of 100, 104, 98 and 102 ms: s = √(20/3) = 2.582, limit 5.841 · √2 · s = 21.33 ms or percent.
    [(115, "cannot say", "same"), (130, "slower", "grown"), (100, "cannot say", "same")],
)
def test_a_change_is_beyond_the_spread_of_the_base_runs(new_ms: float, verdict: str, part: str) -> None:
    comparison = compared(run(100), run(new_ms), [run(104), run(98), run(102)])
    judgment = comparison.judgment
    assert judgment is not None
    assert judgment.runs_percent == pytest.approx(21.328, abs=0.001)
    assert (judgment.low_percent, judgment.high_percent) == pytest.approx((new_ms - 121.328, new_ms - 78.672), abs=0.001)
    assert comparison.verdict == verdict
    computation = comparison.parts[0]
    assert (computation.state, (computation.noise_ns or 0.0) / MS) == (part, pytest.approx(21.328, abs=0.001))
    assert (comparison.kernels[0].state, (comparison.kernels[0].noise_ns or 0.0) / MS) == (part, pytest.approx(21.328, abs=0.001))
    assert {change.area for change in comparison.changes} == ({"step", "part", "kernel"} if part == "grown" else set())
    assert "Equal runs differ by up to 21.3% in 99 of 100 pairs, from 4 base runs." in comparison.details
    assert ("the base runs vary too much" in comparison.headline) == (verdict == "cannot say")


@pytest.mark.parametrize(("new_ms", "verdict"), [(102, "same"), (106, "slower")])
def test_base_runs_that_are_alike_decide(new_ms: float, verdict: str) -> None:
    # 100, 101, 100 and 101 ms: s = 0.577, limit 4.769 percent; 2% more is the same, because more than 10% is ruled out.
    comparison = compared(run(100), run(new_ms), [run(101), run(100), run(101)])
    assert comparison.verdict == verdict
    assert comparison.steps is not None
    assert comparison.steps.verdict == verdict
    assert [side.given for side in comparison.baselines] == ["runs/0", "runs/1", "runs/2"]


def test_base_runs_decide_on_waits_of_few_steps() -> None:
    # 10, 10.5, 11 and 10.5 ms of communication: s = 0.408, limit 3.372 ms. Four steps have no known noise.
    base, new = communicating(empty_report(), [100] * 4, 10), communicating(empty_report(), [120] * 4, 30)
    runs = [communicating(empty_report(), [100] * 4, each) for each in (10.5, 11, 10.5)]
    listed = pieces(compared(base, new, runs))
    assert {where: row.state for where, row in listed.items()} == dict.fromkeys(listed, "grown")
    assert {round(row.noise_ns / MS, 3) for row in listed.values()} == {3.372}
    assert {row.state for row in pieces(compared(base, new, [])).values()} == {"undecided"}


def test_pieces_have_at_least_the_noise_of_their_part() -> None:
    # Exposed communication of the base runs differs more than the kernel does.
    base, new = communicating(empty_report(), [100] * 10, 10), communicating(empty_report(), [110] * 10, 20)
    runs = []
    for exposed_ms in (16, 10, 16):
        base_run = communicating(empty_report(), [100] * 10, 10)
        ns = round(10 * exposed_ms * MS)
        (time,) = base_run.time_breakdown
        time = dataclasses.replace(time, exposed_communication_ns=ns, computation_ns=time.span_ns - time.idle_ns - ns)
        runs.append(dataclasses.replace(base_run, time_breakdown=(time,)))
    listed = pieces(compared(base, new, runs))
    # s = 3.464 of 10, 16, 10 and 16: limit 28.61 ms
    assert {round((row.noise_ns or 0.0) / MS, 2) for row in listed.values()} == {28.61}
    assert {row.state for row in listed.values()} == {"same"}


def rule(verdict: str) -> tuple[RuleResult, ...]:
    return (
        RuleResult(
            rule="HostBound", category="trace", verdict=verdict, reason=None, capture=None, triggered=0, violations=0, datapoints=0,
            windows=0, windows_triggered=0, first_ns=None, last_ns=None, parameters={}, changed_parameters={}, parameter_table=(),
            details={}, finding=None, recommendation=None, checks="", condition="", advice="",
        ),
    )  # fmt: skip


@pytest.mark.parametrize(("verdicts", "outcome"), [((FINE, FINE), "broken"), ((FINE, ISSUES), "other")])
def test_an_issue_of_another_base_run_is_not_new(verdicts: Sequence[str], outcome: str) -> None:
    runs = [run(100, rules=rule(verdict)) for verdict in verdicts]
    comparison = compared(run(100, rules=rule(FINE)), run(100, rules=rule(ISSUES)), runs)
    assert [row.outcome for row in comparison.rules] == [outcome]


def test_base_runs_of_another_unit_are_not_used_and_differences_are_listed() -> None:
    short = with_(empty_report(), lengths=[10] * 8, time_breakdown=run(100).time_breakdown, world_size=2)
    comparison = compared(run(100, world_size=1), run(130, world_size=1), [short])
    assert comparison.judgment is not None
    assert (comparison.verdict, comparison.judgment.runs_percent) == ("slower", None)
    limits = {row.name: (row.base, row.limits) for row in comparison.differences}
    assert limits["world size of a base run"] == ("1", "the spread of the base runs is without this run")
    assert limits["divisor of a base run"] == ("step", "the spread of the base runs is without this run")
    used = compared(run(100, world_size=1), run(130, world_size=1), [run(100, world_size=2)])
    assert {row.limits for row in used.differences if row.name.startswith("world")} == {
        "the spread of the base runs contains this difference"
    }


def test_one_base_run_changes_nothing() -> None:
    plain = compare(run(100), run(130), generator=GENERATOR)
    assert compared(run(100), run(130), []) == plain
