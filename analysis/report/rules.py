"""Plain data on rules: parameters, results and findings."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from .details import RuleDetails

ISSUES: Final = "IssuesFound"
FINE: Final = "NoIssuesFound"
NOT_EVALUATED: Final = "NotEvaluated"
ERROR: Final = "Error"
VERDICTS: Final = (ISSUES, ERROR, FINE, NOT_EVALUATED)  # Most important first
SMALL_PERCENT: Final = 2.0  # a finding worth less than this share of its base is the last to take up


@dataclass(frozen=True, slots=True)
class RuleParameter:
    """Effective value of one parameter of a rule. ``changed``: it is not the default of the preset. ``seconds``: the same as time, if it
    counts samples and the sampling interval is known."""

    name: str
    value: int | float | str | None
    unit: str
    default: int | float | str | None
    changed: bool
    seconds: float | None
    meaning: str


@dataclass(frozen=True, slots=True)
class RuleResult:
    """The result of one rule. ``verdict``: IssuesFound, NoIssuesFound, NotEvaluated or Error; ``reason``: why it is one of the last two,
    and ``capture`` which capture would supply the missing data. ``triggered``: times triggered; ``violations``, ``datapoints``:
    violations of the rule among all data evaluated; ``windows``: evaluation windows. ``parameters``: name to effective value,
    ``changed_parameters`` those that are not the default. ``details``: per node and device, keys depend on the rule. ``finding``: one
    sentence; ``recommendation``: what to do. ``informs``: the rule reports figures and never finds an issue."""

    rule: str
    category: str  # report, system, framework, trace, custom
    verdict: str
    reason: str | None
    capture: str | None
    triggered: int
    violations: int
    datapoints: int
    windows: int
    windows_triggered: int
    first_ns: int | None
    last_ns: int | None
    parameters: dict[str, Any]
    changed_parameters: dict[str, Any]
    parameter_table: tuple[RuleParameter, ...]
    details: RuleDetails | dict[str, Any]
    finding: str | None
    recommendation: str | None
    checks: str
    condition: str
    advice: str
    informs: bool = False


@dataclass(frozen=True, slots=True)
class Finding:
    """An issue. ``rank``: its place among the recommended actions. ``severity``: high for at least 20 percent of the time, medium for at
    least 5, else low. Times: see ``base``; the times of several findings overlap and do not add up. ``saving_kind``: whether the saving is
    "predicted" (by simulation) or an "upper_bound". ``explained_by``: the rule whose finding is the cause of this one, which then follows
    that finding. ``module``, ``source_line`` (file:line): of at least half of the issue. Numbers are None if the issue has no time."""

    rank: int
    rule: str
    severity: str
    title: str
    text: str
    recommendation: str | None
    where: str | None
    cost_ns: int | None
    cost_percent: float | None
    cost_per_step_ns: float | None
    saving_ns: int | None
    saving_percent: float | None
    base: str | None
    saving_kind: str | None = None
    explained_by: str | None = None
    module: str | None = None
    source_line: str | None = None
