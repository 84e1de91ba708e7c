"""ProfilerReport: whether any of the documented rules that it runs found an issue."""

from __future__ import annotations

from collections.abc import Sequence

from ...report.rule_details import ProfilerReportDetails, RuleVerdict
from ...report.rules import FINE, ISSUES, NOT_EVALUATED, RuleResult
from ...toolkit import wording
from ..evidence.base import SCAN_INTERVAL
from .catalogue import DOCUMENTED, PROFILER_REPORT
from .selection import Selection

CHECKS = "Runs the documented rules over the whole run and collects their verdicts."
CONDITION = "any of the rules that it runs finds an issue"
ADVICE = "Begin with the finding that costs the most time."


def summarize(results: Sequence[RuleResult], selection: Selection) -> RuleResult:
    """Return ProfilerReport's own row over the documented rules among ``results``.

    An issue if any rule has one; not evaluated if none could be evaluated. A rule that only informs is not evidence that nothing is
    wrong, nor is an Error."""
    documented = {rule.name for rule in DOCUMENTED}
    informing = {rule.name for rule in DOCUMENTED if rule.informs}
    reported = [result for result in results if result.rule in documented]  # one attached again under another name is not among them
    issues = [result for result in reported if result.verdict == ISSUES]
    judged = [result for result in reported if result.verdict in (ISSUES, FINE) and result.rule not in informing]
    verdict = ISSUES if issues else FINE if judged else NOT_EVALUATED
    changed = {f"{result.rule}_{name}": value for result in reported for name, value in result.changed_parameters.items()}
    first = [result.first_ns for result in issues if result.first_ns is not None]
    last = [result.last_ns for result in issues if result.last_ns is not None]
    able = [result for result in reported if result.rule not in informing]
    missing = len(able) - len(judged)
    counted = f"{len(issues)} of {wording.plural(len(able), 'documented rule')} found an issue"
    counted += f", {missing} could not be evaluated" if missing else ""
    others = [result for result in results if result.rule not in documented and result.verdict == ISSUES]
    beside = f"; other rules found {wording.plural(len(others), 'issue')}" if others else ""
    return RuleResult(
        rule=PROFILER_REPORT,
        category="report",
        verdict=verdict,
        reason=f"none of its {wording.plural(len(able), 'rule')} could be evaluated{beside}" if verdict == NOT_EVALUATED else None,
        capture=None,
        triggered=sum(result.triggered for result in reported),
        violations=sum(result.violations for result in reported),
        datapoints=max((result.datapoints for result in reported), default=0),
        windows=max((result.windows for result in reported), default=0),
        windows_triggered=max((result.windows_triggered for result in reported), default=0),
        first_ns=min(first, default=None),
        last_ns=max(last, default=None),
        parameters={SCAN_INTERVAL.name: SCAN_INTERVAL.default(selection.preset), **changed},
        changed_parameters=changed,
        parameter_table=(),
        details=ProfilerReportDetails(tuple(RuleVerdict(result.rule, result.verdict) for result in reported)),
        finding=f"{counted}{beside}." if judged else None,
        recommendation=None,
        checks=CHECKS,
        condition=CONDITION,
        advice=ADVICE,
    )
