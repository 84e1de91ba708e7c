"""Findings are printed once each, with their location and their cost."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from postrun.commands.report_words import verdict_lines


@pytest.mark.parametrize(
    ("title", "where", "line"),
    [
        ("Check rank 5", "rank 5", "  1. Check rank 5: 2.00 s, 7.5% of GPU time"),
        ("Check its clock", "rank 5", "  1. Check its clock (rank 5): 2.00 s, 7.5% of GPU time"),
        ("Check its clock", None, "  1. Check its clock: 2.00 s, 7.5% of GPU time"),
    ],
)
def test_the_place_of_a_finding_is_said_once(title: str, where: str | None, line: str) -> None:
    finding = SimpleNamespace(
        rank=1, rule="R", explained_by=None, title=title, where=where, cost_ns=2 * 10**9, cost_percent=7.5, base="GPU time"
    )
    rule = SimpleNamespace(category="rule", verdict="IssuesFound", informs=False, rule="R", reason="")
    report: Any = SimpleNamespace(rules=[rule], findings=[finding])
    assert list(verdict_lines(report)) == ["Rules: 1 issue", line]
