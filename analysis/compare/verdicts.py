"""Verdicts of the rules on two runs, side by side."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from ..report.comparison import Amount, VerdictChange
from ..report.model import Report
from ..report.rules import FINE, ISSUES, RuleResult
from .basis import SAME

MENDED: Final = "mended"
BROKEN: Final = "broken"
_REPORT: Final = "report"
MEASURES: Final = {"ExposedCommunication": "exposed communication", "ExposedCopies": "exposed memory operations"}
"""Rules that compare the share of a part of the GPU time with a threshold."""


def verdicts(base: Report, new: Report, parts: Iterable[Amount], *, comparable: bool = True) -> tuple[VerdictChange, ...]:
    """Compare every rule that ran for either run, without the summary rule.

    ``parts``: of the GPU time. ``comparable``: False for different programs, whose issues are neither new nor fixed.
    """
    sides = [{rule.rule: rule for rule in report.rules if rule.category != _REPORT} for report in (base, new)]
    names = dict.fromkeys([*sides[0], *sides[1]])
    same = {part.name for part in parts if part.state == SAME}
    return tuple(_verdict(name, sides[0].get(name), sides[1].get(name), comparable, MEASURES.get(name) in same) for name in names)


def _verdict(name: str, base: RuleResult | None, new: RuleResult | None, comparable: bool, same: bool) -> VerdictChange:
    before, after = base.verdict if base else None, new.verdict if new else None
    differ = base is not None and new is not None and _values(base) != _values(new)
    known = {} if differ or not comparable else {(ISSUES, FINE): MENDED, (FINE, ISSUES): BROKEN}
    outcome = SAME if before == after else known.get((before or "", after or ""), "other")
    informs = any(rule.informs for rule in (base, new) if rule is not None)
    unsure = same and outcome in (MENDED, BROKEN)
    return VerdictChange(name, before, after, outcome, _finding(base), _finding(new), differ, informs, unsure)


def _values(rule: RuleResult) -> dict[str, object]:
    """Return the parameters; lists of a report read from JSON equal tuples."""
    return {name: list(value) if isinstance(value, tuple) else value for name, value in rule.parameters.items()}


def _finding(rule: RuleResult | None) -> str | None:
    return (rule.finding or rule.reason) if rule else None
