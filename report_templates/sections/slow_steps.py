"""Section "What was different in the slowest steps": their parts and events against typical steps."""

from __future__ import annotations

from typing import Final

from ...analysis.report.model import Report
from ...analysis.report.steps import SlowSteps, Step, StepDifference
from ...analysis.toolkit import wording
from ..blocks import Only, Section, Texts, say
from ..blocks.spans import Span
from ..blocks.tables import Cell, Col, table
from ..text import labels
from ..text.formats import count, duration

_PARTS: Final = {
    "step": "Step",
    "computation": "Computation",
    "exposed_communication": "Exposed communication",
    "exposed_memory": "Exposed memory operations",
    "idle": "Idle",
    "loader": "Data loading",
    "operator": "Host operators",
    "others": "Exposed communication of the other ranks",
}
_KINDS: Final = {
    "kernel": "kernel",
    "memcpy": "copy",
    "memset": "memset",
    "operator": "host operator",
    "loader": "data loading",
    "sync": "host waits",
    "annotation": "range",
}


def slow_steps(report: Report) -> Section:
    slow = report.slow_steps
    text = " ".join(slow.sentences) or slow.absent or "The report was made by a version of postrun that did not compare single steps."
    section = Section("slow-steps", "What was different in the slowest steps", say("{}", text))
    if not slow.parts:
        return section
    process = labels.process(slow.node or "", slow.rank, slow.pid)
    section.add(
        Only("html", Texts("spans", _spans(report))),
        table(
            "slow-steps-parts",
            f"The slowest steps of {process} against its typical ones",
            (*slow.parts, *slow.beside),
            Col("Part", lambda row: _PARTS.get(row.name, row.name), kind="name"),
            *_columns(slow),
            sortable=False,
            note="Means per step, from the end of the previous step to its own end on the device. Within typical range: the mean of the"
            " slow steps is between the shortest and the longest typical step. Data loading and host operators run alongside the device.",
        ),
        table(
            "slow-steps-ran",
            "Events longer than in typical steps",
            slow.ran,
            Col("Name", lambda row: row.name, kind="name", limit=60),
            Col("Kind", lambda row: _KINDS.get(row.kind, row.kind)),
            *_columns(slow, usual_html_only=True),
            pdf_rows=8,
            note="Nested events contain each other; their times do not add up.",
        ),
    )
    return section


def _spans(report: Report) -> list[tuple[str, Span]]:
    """Return the slow steps with a known time, from the end of the step before."""
    slow = report.slow_steps
    known: dict[int, list[Step]] = {}
    for step in report.steps.steps:
        if step.on_device and (step.node, step.rank, step.pid) == (slow.node, slow.rank, slow.pid):
            known.setdefault(step.index, []).append(step)
    spans = []
    for index in sorted(slow.slow):
        steps, before = known.get(index, []), known.get(index - 1, [])
        if len(steps) == 1:
            step = steps[0]
            start = before[0].start_ns + before[0].duration_ns if len(before) == 1 else step.start_ns
            spans.append((wording.step(index), Span(min(start, step.start_ns), step.start_ns + step.duration_ns, step.rank)))
    return spans


def _columns(slow: SlowSteps, *, usual_html_only: bool = False) -> list[Col[StepDifference]]:
    return [
        Col("Slow", lambda row: row.slow_ns, duration),
        Col("Typical", lambda row: row.typical_ns, duration),
        Col(
            f"typical range (n = {count(slow.typical)})",
            lambda row: Cell(f"{duration(row.typical_low_ns)} – {duration(row.typical_high_ns)}", sort=row.typical_high_ns),
            kind="number",
            html_only=usual_html_only,
        ),
        Col("Difference", _difference, kind="number"),
        Col("Longer in", lambda row: row.beyond, lambda beyond: f"{count(beyond)} of {count(len(slow.slow))}", html_only=True),
    ]


def _difference(row: StepDifference) -> Cell:
    sign = "+" if row.extra_ns > 0 else ""
    return Cell(f"{sign}{duration(row.extra_ns)}" if row.claimed else "within typical range", sort=row.extra_ns)
