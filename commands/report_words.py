"""The text and the JSON that the command line prints of a finished report."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from ..analysis.report.model import Report
from ..analysis.report.rules import ERROR, FINE, ISSUES, NOT_EVALUATED
from ..analysis.run.actions import worth_words
from ..analysis.toolkit.wording import verdict_counts

_FINDINGS_SHOWN: Final = 3
_WORDS: Final = re.compile(r"[\w-]+")
_VERDICTS: Final = ("issues", "failed", "fine", "informing", "not_evaluated")  # keys of --json, in the order of the text


def verdict_lines(report: Report) -> Iterator[str]:
    """Yield the counts of verdicts, the first findings, and why rules failed."""
    rules = [result for result in report.rules if result.category != "report"]
    if not rules:
        return
    counts = _counts(report)
    yield f"Rules: {verdict_counts(*(counts[key] for key in _VERDICTS))}"
    actions = report.actions
    worths = {row.finding: worth_words(row, actions.base) for row in actions.rows} if actions is not None else {}
    ranks = {finding.rule: finding.rank for finding in report.findings}
    for finding in report.findings[:_FINDINGS_SHOWN]:
        named = finding.where and set(_WORDS.findall(finding.where)) <= set(_WORDS.findall(finding.title))
        where = f" ({finding.where})" if finding.where and not named else ""
        worth = f": {words}" if (words := worths.get(finding.rank)) else ""
        cause = f"; partly the same as {ranks[finding.explained_by]}" if finding.explained_by in ranks else ""
        yield f"  {finding.rank}. {finding.title}{where}{worth}{cause}"
    yield from (f"  {line}" for line in failures(report))


def failures(report: Report) -> Iterator[str]:
    """Why rules failed, a line for each."""
    for result in report.rules:
        if result.verdict == ERROR and result.category != "report":
            yield f"{result.rule} failed: {result.reason}"


def _counts(report: Report) -> dict[str, int]:
    """Count the rules per verdict; an informational rule never counts as passed."""
    rules = [result for result in report.rules if result.category != "report"]
    words = {ISSUES: "issues", ERROR: "failed", FINE: "fine", NOT_EVALUATED: "not_evaluated"}
    states = ["informing" if result.informs and result.verdict == FINE else words[result.verdict] for result in rules]
    return {word: states.count(word) for word in _VERDICTS}


def summary(report: Report, written: Mapping[str, Path]) -> dict[str, Any]:
    """Return the data that --json prints."""
    return {
        "run": report.run.name,
        "status": report.run.status,
        "headline": report.summary.headline,
        "figures": {tile.key: {"value": tile.number, "unit": tile.unit, "text": tile.value} for tile in report.summary.figures},
        "rules": {result.rule: result.verdict for result in report.rules},
        "rule_counts": _counts(report),
        "findings": [dataclasses.asdict(finding) for finding in report.findings],
        "warnings": list(report.summary.warnings),
        "notes": len(report.data_quality),
        "written": {kind: str(path) for kind, path in written.items()},
    }
