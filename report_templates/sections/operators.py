"""Which operators does the device time belong to, and which kernels did each launch?"""

from __future__ import annotations

from ...analysis.report import Report
from ..blocks import Column, Section, coded, name, say, table, value, word
from ..formats import count, duration, percent, plural

_UNKNOWN = "No attribution to operators is known of this run: make the report again from the traces."


def operators(report: Report) -> Section:
    found = report.operators
    if found is None or not found.rows:
        return Section("operators", "Operators and their kernels", coded(_UNKNOWN if found is None else found.absent or _UNKNOWN))
    first = found.rows[0]
    made = Section(
        "operators",
        "Operators and their kernels",
        say(
            "{} of the device time was launched by {}; most by {}, {}.",
            percent(found.linked_percent),
            plural(len(found.rows) + found.further, "operator"),
            name(first.name, 60),
            percent(first.percent),
        ),
    )
    whole = {row.name: row.total_ns for row in found.rows}
    rest = f" {plural(found.further, 'further operator')} took less." if found.further else ""
    made.add(
        table(
            "operators-table",
            "Device time by operator",
            [
                Column("Operator", "name"),
                Column("Device time", "number"),
                Column("Of device time", "number"),
                Column("Calls", "number"),
                Column("Kernels, copies and memsets", "number"),
                Column("Distinct", "number", html_only=True),
                Column("Per call", "number"),
            ],
            [
                [
                    word(row.name),
                    value(row.total_ns, duration),
                    value(row.percent, percent),
                    value(row.calls, count),
                    value(row.count, count),
                    value(row.kernels, count),
                    value(row.total_ns / row.calls if row.calls else None, duration),
                ]
                for row in found.rows
            ],
            pdf_rows=10,
            note="Work belongs to the innermost operator that ran on the thread of its launch call. Calls: those that launched work."
            + rest,
        ),
        table(
            "operators-kernels",
            "Kernels under operators",
            [
                Column("Operator"),
                Column("Kernel, copy or memset", "name"),
                Column("Kind", html_only=True),
                Column("Runs", "number"),
                Column("Device time", "number"),
                Column("Of operator", "number"),
            ],
            [
                [
                    word(row.operator, limit=60),
                    word(row.kernel, limit=72),
                    word(row.kind),
                    value(row.count, count),
                    value(row.total_ns, duration),
                    value(100 * row.total_ns / whole[row.operator] if whole.get(row.operator) else None, percent),
                ]
                for row in found.kernels
            ],
            pdf_rows=8,
        ),
    )
    return made
