"""GPU work that no recorded step launched, for the section "Steps": a sentence and a table."""

from __future__ import annotations

from collections.abc import Sequence

from ...analysis.report.steps import WorkOutsideSteps
from ..blocks.spans import Span
from ..blocks.tables import Col, Table, table
from ..text import labels
from ..text.formats import count, duration, plural


def _launched(work: WorkOutsideSteps) -> str:
    return {"before": "before the first step", "after": "after the last step"}.get(work.when, "between the recorded steps")


def outside_table(outside: Sequence[WorkOutsideSteps]) -> Table | None:
    return table(
        "steps-outside",
        "GPU work outside of the steps",
        outside,
        Col("GPU", lambda work: labels.device(work.node, work.rank, work.device), kind="name"),
        Col("Launched", _launched, span=lambda work: Span(work.first_ns, work.last_ns, work.rank)),
        Col("Runs", lambda work: work.runs, count),
        Col("Busy", lambda work: work.busy_ns, duration),
        Col("Longest", lambda work: work.longest, kind="name", code=True),
        pdf_rows=5,
    )


def outside_sentence(outside: Sequence[WorkOutsideSteps]) -> str:
    """Sum up the work outside of the steps, which no figure per step contains."""
    if not outside:
        return ""
    longest = max(outside, key=lambda work: work.busy_ns)
    whens = [work for work in outside if work.when == longest.when]
    busy, runs = sum(work.busy_ns for work in outside), sum(work.runs for work in outside)
    when = _launched(longest) if len(whens) == len(outside) else f"outside of the recorded steps, most of it {_launched(longest)}"
    name = f"; the longest is {longest.longest}" if longest.longest else ""
    return f"{plural(runs, 'GPU event')} ({duration(busy)} of GPU time{name}) were launched {when} and are in no figure per step."
