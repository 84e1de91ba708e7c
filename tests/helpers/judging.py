"""What rules say of a store, without the rest of a report."""

from __future__ import annotations

from dataclasses import dataclass

from postrun.analysis import Options
from postrun.analysis.report import Finding, RuleResult
from postrun.analysis.rules.engine import evaluate
from postrun.analysis.rules.run_data import RunData
from postrun.analysis.rules.selection import select
from postrun.ingest.store import Store


@dataclass(frozen=True)
class Judged:
    """As in a Report."""

    rules: tuple[RuleResult, ...]
    findings: tuple[Finding, ...]


def rules_of(store: Store, options: Options = Options()) -> Judged:  # noqa: B008  (Options is frozen)
    """The results and findings that ``analyze`` would give."""
    return Judged(*evaluate(RunData(store, options), options.selection or select()))
