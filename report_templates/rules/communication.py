"""Blocks of the rules on communication: exposed collectives."""

from __future__ import annotations

from typing import Final

from ...analysis.report.communication_details import ExposedCollective
from ...analysis.report.rule_details import ExposedCommunicationDetails
from ..blocks.tables import Cell, Col, Table, table
from ..text.formats import UNKNOWN, count, duration, size
from .rule_context import RuleContext

_PDF_ROWS: Final = 6


def exposed_collectives(context: RuleContext, details: ExposedCommunicationDetails) -> Table | None:
    """List the exposed collectives: what, who launched them, waiting or transfer."""
    rows = details.collectives
    return table(
        f"{context.id}-collectives",
        "Exposed collectives",
        rows,
        Col("Operation", lambda row: row.operation, kind="name"),
        Col("Size", lambda row: row.bytes, size),
        Col("Element type", lambda row: row.element_type, html_only=True),
        Col("Group", _group, kind="name"),
        Col("Stream", lambda row: row.stream, lambda stream: UNKNOWN if stream is None else str(stream), html_only=True),
        Col("Part of the step", lambda row: row.part or UNKNOWN),
        Col("Launched by", lambda row: row.launcher or UNKNOWN),
        Col("Number", lambda row: row.count, count),
        Col("Time", lambda row: row.time_ns, duration, html_only=True),
        Col("Exposed", lambda row: row.exposed_ns, duration),
        Col("Waiting", lambda row: row.waiting_ns, duration),
        Col("Transfer", lambda row: row.transfer_ns, duration),
        Col("Last rank", lambda row: row.last_rank, lambda rank: UNKNOWN if rank is None else str(rank)),
        pdf_rows=_PDF_ROWS,
        html_note="Waiting: until the last rank of the group arrives; unknown if its ranks are not in the run. Last rank: most of the"
        " waiting is for it.",
    )


def _group(row: ExposedCollective) -> Cell:
    ranks = "" if row.group_size is None else f"{count(row.group_size)} ranks{' assumed' if row.group_size_assumed else ''}"
    return Cell(", ".join(part for part in (row.group, ranks) if part) or UNKNOWN, sort=row.group_size)
