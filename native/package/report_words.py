"""What does the command line print of a finished report?"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from .analysis.report import Report
from .analysis.rules.base import ERROR, FINE, ISSUES, NOT_EVALUATED
from .analysis.wording import duration, percent, plural

_FINDINGS_SHOWN: Final = 3


def verdict_lines(report: Report) -> Iterator[str]:
    """How many rules said what, the findings that cost most, and why rules failed."""
    rules = [result for result in report.rules if result.category != "report"]
    if not rules:
        return
    counts = {word: sum(result.verdict == word for result in rules) for word in (ISSUES, ERROR, FINE, NOT_EVALUATED)}
    told = [plural(counts[ISSUES], "issue")]
    if counts[ERROR]:
        told.append(f"{counts[ERROR]} failed")
    told += [f"{counts[FINE]} fine", f"{counts[NOT_EVALUATED]} not evaluated"]
    yield f"Rules: {', '.join(told)}"
    for finding in report.findings[:_FINDINGS_SHOWN]:
        cost = [duration(finding.cost_ns)] if finding.cost_ns is not None else []
        if finding.cost_percent is not None:
            cost.append(f"{percent(finding.cost_percent)} of {finding.base}")
        where = f" ({finding.where})" if finding.where else ""
        yield f"  {finding.rank}. {finding.title}{where}" + (f": {', '.join(cost)}" if cost else "")
    for result in rules:
        if result.verdict == ERROR:
            yield f"  {result.rule} failed: {result.reason}"


def summary(report: Report, written: Mapping[str, Path]) -> dict[str, Any]:
    """What --json prints."""
    return {
        "run": report.run.name,
        "status": report.run.status,
        "headline": report.summary.headline,
        "figures": {tile.key: {"value": tile.number, "unit": tile.unit, "text": tile.value} for tile in report.summary.tiles},
        "rules": {result.rule: result.verdict for result in report.rules},
        "findings": [dataclasses.asdict(finding) for finding in report.findings],
        "warnings": list(report.summary.warnings),
        "notes": len(report.data_quality),
        "written": {kind: str(path) for kind, path in written.items()},
    }
