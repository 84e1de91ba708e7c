"""The findings are printed in the order of the actions, with their location and their worth."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from postrun.analysis.report.first_page import Action, Actions
from postrun.commands.report_words import verdict_lines

RULE = SimpleNamespace(category="rule", verdict="IssuesFound", informs=False, rule="R", reason="")


def finding(rank: int, rule: str, title: str, where: str | None = None, explained_by: str | None = None) -> SimpleNamespace:
    return SimpleNamespace(rank=rank, rule=rule, title=title, where=where, explained_by=explained_by)


@pytest.mark.parametrize(
    ("title", "where", "line"),
    [
        ("Check rank 5", "rank 5", "  1. Check rank 5: saves a predicted 4.3% of the run"),
        ("Check its clock", "rank 5", "  1. Check its clock (rank 5): saves a predicted 4.3% of the run"),
        ("Check its clock", None, "  1. Check its clock: saves a predicted 4.3% of the run"),
    ],
)
def test_the_place_of_a_finding_is_said_once(title: str, where: str | None, line: str) -> None:
    actions = Actions("GPU time of the run", 100, 8, (Action(1, "R", 4.3, 4, "predicted"),))
    report: Any = SimpleNamespace(rules=[RULE], findings=[finding(1, "R", title, where)], actions=actions)
    assert list(verdict_lines(report)) == ["Rules: 1 issue", line]


def test_the_first_three_findings_are_those_of_the_page() -> None:
    """An explained finding names its cause; each worth names its base."""
    rows = (
        Action(1, "StragglerRank", 4.3, 4, "predicted"),
        Action(2, "ExposedCommunication", 12.2, 12, "upper_bound", partly="StragglerRank"),
        Action(3, "Mine", 30.0, None, "upper_bound", base="time of the moon"),
        Action(4, "StepOutlier", None, None, None, cost_percent=4.0),
    )
    findings = [
        finding(1, "StragglerRank", "Inspect rank 5"),
        finding(2, "ExposedCommunication", "Overlap", explained_by="StragglerRank"),
        finding(3, "Mine", "Do it"),
        finding(4, "StepOutlier", "Remove stalls"),
    ]
    report: Any = SimpleNamespace(rules=[RULE], findings=findings, actions=Actions("GPU time in the profile window", 100, 8, rows))
    assert list(verdict_lines(report))[1:] == [
        "  1. Inspect rank 5: saves a predicted 4.3% of the window",
        "  2. Overlap: saves up to 12% of the window; partly the same as 1",
        "  3. Do it: saves up to 30% of time of the moon",
    ]
    report.findings = [finding(4, "StepOutlier", "Remove stalls")]
    assert list(verdict_lines(report))[1:] == ["  4. Remove stalls: costs 4.0% of the window"]
