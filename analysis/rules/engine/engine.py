"""Evaluation of the chosen rules over a run: results and findings in the order of the selection."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields, replace
from typing import Any, Final

from ...causes.program import INFERENCE
from ...report.rules import ERROR, ISSUES, Finding, RuleParameter, RuleResult
from ...run.capture_notes import python_frames
from ..evidence.base import Outcome, Rule, SampleRule, not_evaluated
from ..evidence.run_data import RunData
from . import profiler_report
from .cross_reference import refer
from .cut_files import copy_again
from .findings import findings
from .selection import Chosen, Selection

# Fields of an outcome that a result has as they are; those of its checks and condition can also be the rule's.
_MEASURED: Final = {field.name for field in fields(Outcome)} & {field.name for field in fields(RuleResult)} - {"checks", "condition"}

_SLOWED: Final = "The profiler recorded Python frames, which slows the host and makes these times longer."


def evaluate(run: RunData, selection: Selection) -> tuple[tuple[RuleResult, ...], tuple[Finding, ...]]:
    """Return the results and the findings, both in the order of the selection.

    ProfilerReport's own result is first. A rule that fails has the verdict Error and does not stop the others."""
    rules = [chosen.rule for chosen in selection.rules]
    outcomes = _slowed(rules, refer(rules, copy_again(rules, _outcomes(run, selection.rules), run.store)), run)
    interval = run.samples.interval_ns
    results = [_result(chosen, outcome, interval) for chosen, outcome in zip(selection.rules, outcomes, strict=True)]
    if selection.summarized:
        results.insert(0, profiler_report.summarize(results, selection))
    return tuple(results), findings(selection.rules, outcomes)


def _outcomes(run: RunData, rules: Sequence[Chosen]) -> list[Outcome]:
    """Evaluate sample rules block by block, one block in memory, then all others."""
    observed: list[list[Any]] = [[] for _ in rules]
    outcomes: dict[int, Outcome] = {}
    for number, chosen in enumerate(rules):
        if chosen.rule.of_training and run.program.kind == INFERENCE:
            outcomes[number] = not_evaluated("the run is inference")
    sampled = [
        number
        for number, chosen in enumerate(rules)
        if number not in outcomes and isinstance(chosen.rule, SampleRule) and chosen.rule.observes(run)
    ]
    for block in run.samples.blocks() if sampled else ():
        for number in sampled:
            if number not in outcomes:
                rule = rules[number].rule
                assert isinstance(rule, SampleRule)
                try:
                    observed[number].append(rule.observe(block, rules[number].parameters))
                except Exception as error:
                    outcomes[number] = _failure(error)
    for number, chosen in enumerate(rules):
        rule = chosen.rule
        if number not in outcomes:
            try:
                if isinstance(rule, SampleRule):
                    outcomes[number] = rule.conclude(observed[number], run, chosen.parameters)
                else:
                    outcomes[number] = _sited(rule, run, rule.evaluate(run, chosen.parameters))
            except Exception as error:
                outcomes[number] = _failure(error)
    return [outcomes[number] for number in range(len(rules))]


def _sited(rule: Rule, run: RunData, outcome: Outcome) -> Outcome:
    """Add the module and source line of an issue."""
    site = rule.site(run, outcome) if outcome.verdict == ISSUES and run.sites.known else None
    if site is None:
        return outcome
    if outcome.finding is None or (rule.names_code and site.module is None):
        return replace(outcome, site=site)
    return replace(outcome, site=site, finding=f"{outcome.finding} Most of it is in {site.words}.")


def _slowed(rules: Sequence[Rule], outcomes: Sequence[Outcome], run: RunData) -> list[Outcome]:
    """Add to findings on the host that the recording slowed it."""
    if not python_frames(run.store):
        return list(outcomes)
    return [
        replace(outcome, finding=f"{outcome.finding} {_SLOWED}")
        if rule.host_times and outcome.verdict == ISSUES and outcome.finding
        else outcome
        for rule, outcome in zip(rules, outcomes, strict=True)
    ]


def _failure(error: Exception) -> Outcome:
    text = str(error).splitlines()
    return Outcome(ERROR, reason=f"{type(error).__name__}: {text[0]}" if text else type(error).__name__)


def _result(chosen: Chosen, outcome: Outcome, interval_ns: int | None) -> RuleResult:
    rule, values = chosen.rule, chosen.parameters
    defaults = {parameter.name: parameter.default("documented") for parameter in rule.all_parameters()}
    table = tuple(
        RuleParameter(
            name=parameter.name,
            value=values[parameter.name],
            unit=parameter.unit,
            default=defaults[parameter.name],
            changed=parameter.name in values.changed,
            seconds=_seconds(values[parameter.name], interval_ns) if parameter.seconds else None,
            meaning=parameter.meaning,
        )
        for parameter in rule.all_parameters()
    )
    return RuleResult(
        rule=chosen.name,
        category=rule.category,
        parameters=dict(values),
        changed_parameters={name: values[name] for name in values.changed},
        parameter_table=table,
        checks=outcome.checks or rule.checks,
        condition=outcome.condition or rule.condition,
        advice=rule.advice,
        informs=rule.informs,
        **{name: getattr(outcome, name) for name in _MEASURED},
    )


def _seconds(samples: Any, interval_ns: int | None) -> float | None:
    return samples * interval_ns / 1e9 if interval_ns is not None and isinstance(samples, int | float) else None
