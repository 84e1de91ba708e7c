"""Issues of rules -> findings in the order in which a reader should take them up.

Findings are ranked by their worth: the saving, or the share of the time that they cost if the saving is unknown. A finding that another
explains follows behind all others and names its cause, which takes the better of both places. A finding that is worth less than 2% comes
last.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from ...report.rules import ISSUES, SMALL_PERCENT, Finding
from ..evidence.base import Outcome
from .explanations import causes
from .selection import Chosen

HIGH_PERCENT: Final = 20.0
MEDIUM_PERCENT: Final = 5.0


def ranked(rules: Sequence[Chosen], outcomes: Sequence[Outcome]) -> tuple[Finding, ...]:
    """Return the findings of the outcomes with an issue, ranked from 1."""
    explained = causes([chosen.rule for chosen in rules], outcomes)
    issues = [number for number, outcome in enumerate(outcomes) if outcome.verdict == ISSUES]
    worth = {number: _rank_percent(outcomes[number]) for number in issues}
    for number in issues:
        cause = number
        while cause in explained:
            cause = explained[cause]
            worth[cause] = max(worth[cause], worth[number])
    order = sorted(issues, key=lambda number: (*_group(number, outcomes, explained), -worth[_root(number, explained)], -worth[number]))
    return tuple(
        _finding(rank, rules[number], outcomes[number], rules[explained[number]].name if number in explained else None)
        for rank, number in enumerate(order, 1)
    )


def _root(number: int, explained: Mapping[int, int]) -> int:
    while number in explained:
        number = explained[number]
    return number


def _group(number: int, outcomes: Sequence[Outcome], explained: Mapping[int, int]) -> tuple[bool, bool]:
    worth = _worth(outcomes[number])
    return worth is not None and worth < SMALL_PERCENT, number in explained


def _worth(outcome: Outcome) -> float | None:
    """Return the percentage that fixing the issue can save at most, None if unknown."""
    cost = outcome.cost
    if cost is None:
        return None
    return _share(cost.ns if cost.saving_ns is None else cost.saving_ns, cost.of_ns)


def _rank_percent(outcome: Outcome) -> float:
    """Return the saving in percent, or else the cost, or else 0."""
    return _worth(outcome) or 0.0


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
