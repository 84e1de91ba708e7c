"""The head of the page of all runs: an index -> the verdict in a sentence, the worst run, and tiles."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from ..analysis.report.run import Tile
from ..report_templates.text.formats import clip, count, duration, ended, glued, percent, plural
from .history import NIGHT_NS, open_levels
from .metrics import METRICS, STEP

if TYPE_CHECKING:
    from .index_model import Index

_LONGEST_REASON: Final = 120


def headline(index: Index) -> str:
    """Word how many runs regressed, failed or have new issues, and name the worst."""
    if not index.total:
        return "There are no runs yet."
    total = plural(index.total, "run")
    new = new_runs(index)
    total += f" ({count(new)} in the last 36 hours)" if new else ""
    counts = [
        (len(runs_with(index, "regression")), "regressed", "regressed"),
        (len(index.failed), "failed", "failed"),
        (len(runs_with(index, "new_issue")), "has new issues", "have new issues"),
    ]
    clauses = [f"{count(number)} {word if number == 1 else words}" for number, word, words in counts if number]
    if not clauses:
        return glued(f"No regressions, failures or new issues in {total}.{_levels(index)}")
    listed = f"{', '.join(clauses[:-1])} and {clauses[-1]}" if len(clauses) > 1 else clauses[0]
    return glued(f"Of {total}, {listed}. {_worst(index)}{_levels(index)}")


def _levels(index: Index) -> str:
    """Name the families whose level became worse and stays so; empty without one."""
    levels = [change for family in index.families for change in open_levels(family, index.settings)]
    if not levels:
        return ""
    number = len({change.family for change in levels})
    change = min(levels, key=lambda change: (change.metric != STEP.key, -abs(change.change_percent)))
    metric = next(metric for metric in METRICS if metric.key == change.metric)
    families = "1 family stays" if number == 1 else f"{count(number)} families stay"
    moved = f"{metric.label} {metric.moved(change.change_percent)} since {clip(change.id, 80)}"
    return f" {families} at a worse level; {clip(change.family, 80)}: {moved}."


def _worst(index: Index) -> str:
    """Name the largest regression, else the newest failure, else a new issue."""
    for finding in index.findings:
        if finding.kind == "regression":
            if finding.metric != STEP.key:
                return f"The worst is {clip(finding.id, 80)}: {finding.text}."
            times = f"{duration(finding.base)} → {duration(finding.value)}"
            return f"The worst is {clip(finding.id, 80)}: {percent(finding.change_percent)} slower per step ({times})."
    if index.failed:
        row = index.failed[0]
        reason = ended(first_sentence(row.reason or "", row.id), _LONGEST_REASON).rstrip(".")
        return f"The newest failure is {clip(row.id, 80)}: {reason}."
    first = index.findings[0]
    rules = runs_with(index, "new_issue")[first.id]
    return f"The first is {clip(first.id, 80)}: {', '.join(rules)}."


def first_sentence(text: str, run_id: str) -> str:
    """Shorten a reason, without the path of the run, which its row contains."""
    first = re.split(r"(?<=\.)\s+(?=[A-Z])|\n", text, maxsplit=1)[0]
    prefix, colon, rest = first.partition(f"{run_id}: ")
    return rest if colon and rest and not re.search(r"\s", prefix) else first


def runs_with(index: Index, kind: str) -> dict[str, list[str]]:
    """Return the runs with findings of a kind, and the rules of these findings."""
    rules: dict[str, list[str]] = {}
    for finding in index.findings:
        if finding.kind == kind:
            rules.setdefault(finding.id, []).append(finding.rule or "")
    return rules


def new_runs(index: Index) -> int:
    """Count the runs that ended in the 36 hours before the index was written.

    Without known times, a run counts as ended when its report was made or failed."""
    ends = (
        min(
            end
            for end in (row.reported_at_ns, None if row.started_ns is None else row.started_ns + (row.duration_ns or 0))
            if end is not None
        )
        for row in index.rows
        if row.state in ("reported", "failed") and (row.started_ns, row.reported_at_ns) != (None, None)
    )
    return sum(end >= index.generated_at_ns - NIGHT_NS for end in ends)


def tiles(index: Index) -> list[Tile]:
    """Return the counts of runs and findings, the worst first."""
    new = new_runs(index)
    families = index.families_total - len(index.alone)
    runs = [f"{count(new)} in the last 36 h"] * bool(new) + [plural(families, "family", "families")] * bool(families)
    unfinished = index.states.get("running", 0) + index.states.get("waiting", 0)
    return [
        Tile("regressions", "regressions", count(len(runs_with(index, "regression"))), "in step time or another figure", "regressions"),
        Tile("failed", "failed", count(len(index.failed)), "no report", "failed"),
        Tile("new-issues", "new issues", count(len(runs_with(index, "new_issue"))), "in rules that passed before", "new-issues"),
        Tile("improvements", "improvements", count(len(runs_with(index, "improvement"))), "in step time", "improvements"),
        *([Tile("unfinished", "not yet", count(unfinished), "running or waiting", "runs")] if unfinished else []),
        Tile("runs", "runs", count(index.total), ", ".join(runs), "runs"),
    ]
