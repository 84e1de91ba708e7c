"""Section "Operators and their kernels": device time by operator, and the kernels that each launched."""

from __future__ import annotations

from ...analysis.report.model import Report
from ..blocks import Section, coded, name, say
from ..blocks.tables import Col, share_cell, table
from ..text.formats import count, duration, percent, percent_of, plural

_UNKNOWN = "No attribution to operators is known of this run: make the report again from the traces."


def operators(report: Report) -> Section:
    attribution = report.operators
    if attribution is None or not attribution.rows:
        return Section("operators", "Operators and their kernels", coded((attribution and attribution.absent) or _UNKNOWN))
    first = attribution.rows[0]
    lead = say(
        "{} of device time was launched by {}; the largest is {}, {}.",
        percent(attribution.linked_percent),
        plural(len(attribution.rows) + attribution.further, "operator"),
        name(first.name, 60),
        percent(first.percent),
    )
    total_ns = {row.name: row.total_ns for row in attribution.rows}
    rest = f" {plural(attribution.further, 'further operator')} took less time." if attribution.further else ""
    blocks = [
        table(
            "operators-table",
            "Device time by operator",
            attribution.rows,
            Col("Operator", lambda row: row.name, kind="name", code=True),
            Col("Device time", lambda row: row.total_ns, duration),
            Col("Of device time", lambda row: share_cell(row.percent, "computation"), kind="number"),
            Col("Calls", lambda row: row.calls, count),
            Col("Launches", lambda row: row.count, count),
            Col("Distinct", lambda row: row.kernels, count, html_only=True),
            Col("Per call", lambda row: row.total_ns / row.calls if row.calls else None, duration),
            pdf_rows=10,
            note="Time is attributed to the innermost operator on the launching thread. Calls counts launching calls only." + rest,
        ),
        table(
            "operators-kernels",
            "Kernels under operators",
            attribution.kernels,
            Col("Operator", lambda row: row.operator, code=True, limit=60),
            Col("Kernel, copy or memset", lambda row: row.kernel, kind="name", code=True, limit=72),
            Col("Kind", lambda row: row.kind, html_only=True),
            Col("Runs", lambda row: row.count, count),
            Col("Device time", lambda row: row.total_ns, duration),
            Col("Of operator", lambda row: percent_of(row.total_ns, total_ns.get(row.operator)), percent),
            pdf_rows=0,
        ),
    ]
    return Section("operators", "Operators and their kernels", lead, blocks)
