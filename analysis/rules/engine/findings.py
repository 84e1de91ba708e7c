"""Outcomes of rules with an issue -> findings, each with the rule that explains it. ``run/actions.py`` ranks them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from ...report.rules import ISSUES, Finding
from ..evidence.base import Outcome
from .explanations import causes
from .selection import Chosen

HIGH_PERCENT: Final = 20.0
MEDIUM_PERCENT: Final = 5.0


def findings(rules: Sequence[Chosen], outcomes: Sequence[Outcome]) -> tuple[Finding, ...]:
    """Return a finding per issue, numbered in the order of the rules."""
    explained = causes([chosen.rule for chosen in rules], outcomes)
    issues = [number for number, outcome in enumerate(outcomes) if outcome.verdict == ISSUES]
    return tuple(
        _finding(rank, rules[number], outcomes[number], rules[explained[number]].name if number in explained else None)
        for rank, number in enumerate(issues, 1)
    )


def _finding(rank: int, chosen: Chosen, outcome: Outcome, explained_by: str | None) -> Finding:
    cost, percent = outcome.cost, _percent(outcome)
    return Finding(
        rank=rank,
        rule=chosen.name,
        severity=_severity(percent),
        title=(cost.title if cost else outcome.title or chosen.rule.advice).rstrip("."),
        text=outcome.finding or outcome.reason or chosen.rule.checks,
        recommendation=outcome.recommendation,
        where=cost.where if cost else None,
        cost_ns=cost.ns if cost else None,
        cost_percent=percent,
        cost_per_step_ns=cost.per_step_ns if cost else None,
        saving_ns=cost.saving_ns if cost else None,
        saving_percent=_share(cost.saving_ns, cost.of_ns) if cost and cost.saving_ns is not None else None,
        base=cost.base if cost else None,
        saving_kind=cost.saving_kind if cost and cost.saving_ns is not None else None,
        explained_by=explained_by,
        module=outcome.site.module if outcome.site else None,
        source_line=outcome.site.line if outcome.site else None,
    )


def _percent(outcome: Outcome) -> float | None:
    cost = outcome.cost
    return _share(cost.ns, cost.of_ns) if cost else None


def _share(part_ns: int, of_ns: int) -> float | None:
    """Return the share in percent, at most 100 even if a rule is wrong."""
    return min(100 * part_ns / of_ns, 100.0) if of_ns else None


def _severity(percent: float | None) -> str:
    if percent is None:
        return "medium"
    return "high" if percent >= HIGH_PERCENT else "medium" if percent >= MEDIUM_PERCENT else "low"
