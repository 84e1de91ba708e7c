"""What did the slowest steps do differently from the typical ones?"""

from __future__ import annotations

from typing import Final

from ...analysis.report import Report, StepDifference
from .. import labels
from ..blocks import Cell, Column, Section, say, table, value, word
from ..formats import count, duration

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
    found = report.slow_steps
    text = " ".join(found.sentences) or found.absent or "The report was made by a version of postrun that did not compare single steps."
    made = Section("slow-steps", "What the slowest steps did differently", say("{}", text))
    if not found.parts:
        return made
    number = len(found.slow)
    place = labels.process(found.node or "", found.rank, found.pid)
    usual = f"least to most of {count(found.typical)} typical"
    made.add(
        table(
            "slow-steps-parts",
            f"The slowest steps of {place} against its typical ones",
            [
                Column("Part", "name"),
                Column("Slow", "number"),
                Column("Typical", "number"),
                Column(usual, "number"),
                Column("Difference", "number"),
                Column("Longer in", "number", html_only=True),
            ],
            [_row(Cell(_PARTS.get(part.name, part.name)), part, number) for part in (*found.parts, *found.beside)],
            sortable=False,
            note="Means per step, from the end of the step before it to its own end on the device. Within the spread: the mean of the slow"
            " steps lies between the least and the most of the typical ones. Data loading and host operators run beside the device.",
        ),
        table(
            "slow-steps-ran",
            "What ran longer than in the typical steps",
            [
                Column("Name", "name"),
                Column("Kind"),
                Column("Slow", "number"),
                Column("Typical", "number"),
                Column(usual, "number", html_only=True),
                Column("Difference", "number"),
                Column("Longer in", "number", html_only=True),
            ],
            [[word(one.name, limit=60), Cell(_KINDS.get(one.kind, one.kind)), *_row(None, one, number)] for one in found.ran],
            pdf_rows=8,
            note="Times of what is nested in each other contain each other; they do not add up.",
        ),
    )
    return made


def _row(name: Cell | None, one: StepDifference, number: int) -> list[Cell]:
    """``name``, slow, typical, from least to most, difference, in how many of the slow steps."""
    sign = "+" if one.extra_ns > 0 else ""
    difference = f"{sign}{duration(one.extra_ns)}" if one.claimed else "within the spread"
    return [
        *([name] if name else []),
        value(one.slow_ns, duration),
        value(one.typical_ns, duration),
        Cell(f"{duration(one.typical_low_ns)} – {duration(one.typical_high_ns)}", sort=one.typical_high_ns),
        Cell(difference, sort=one.extra_ns),
        Cell(f"{count(one.beyond)} of {count(number)}", sort=one.beyond),
    ]
