"""Evaluate the rules on a store, without the parts of the analysis that only the other sections of a report need."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache

from empty_stores import empty_store
from postrun.analysis import Options, analyze
from postrun.analysis.report import Finding, Report, RuleResult
from postrun.analysis.rules.engine.engine import evaluate
from postrun.analysis.rules.engine.selection import select
from postrun.analysis.rules.evidence.run_data import RunData
from postrun.analysis.run.actions import actions
from postrun.ingest.store import Store


@dataclass(frozen=True)
class Judged:
    """As in a Report."""

    rules: tuple[RuleResult, ...]
    findings: tuple[Finding, ...]


def rules_of(store: Store, options: Options = Options()) -> Judged:  # noqa: B008  (Options is frozen)
    """The results and findings that ``analyze`` would give."""
    store.settle_views()  # as ingest does
    with store.unchanged():  # as analyze does: equal questions of rules are answered once
        results, findings = evaluate(RunData(store, options), options.selection or select())
    return Judged(results, actions(replace(empty_report(), findings=findings))[0])


def report_of_rules(store: Store, options: Options) -> Report:
    """Return a report with the rules and findings of ``store`` in an empty run."""
    judged = rules_of(store, options)
    return replace(empty_report(), rules=judged.rules, findings=judged.findings)


@cache
def empty_report() -> Report:
    with empty_store() as store:
        return analyze(store, Options(generated_at_ns=0))
