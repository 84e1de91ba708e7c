"""Blocks of the rules on communication: exposed collectives, and the bandwidth of process groups."""

from __future__ import annotations

from typing import Final

from ...analysis.report.communication_details import ExposedCollective, ExposedCommunicationDetails, GroupBandwidth, SlowCollectivesDetails
from ..blocks.tables import Cell, Col, Table, table
from ..text.formats import UNKNOWN, bandwidth, count, duration, percent, size
from .rule_context import Blocks, RuleContext, marked

_PDF_ROWS: Final = 6


def exposed_collectives(context: RuleContext, details: ExposedCommunicationDetails) -> Table | None:
    """List the exposed collectives: what, who launched them, waiting or transfer."""
    rows = details.collectives
    sized = any(row.bytes is not None for row in rows)
    waiting = "How long they wait for other ranks is unknown, because these are not in the run."
    if any(row.waiting_ns is not None for row in rows):
        waiting = "Waiting: until the last rank of the group arrives. Last rank: most of the waiting is for it."
    return table(
        f"{context.id}-collectives",
        "Exposed collectives",
        rows,
        Col("Operation", lambda row: row.operation),
        Col("Size", lambda row: row.bytes, size, when=sized),
        Col("Element type", lambda row: row.element_type, html_only=True),
        Col("Group", lambda row: row.group, kind="name", limit=60),
        Col("Ranks", _group_size, kind="number", html_only=True),
        Col("Stream", lambda row: row.stream, lambda stream: UNKNOWN if stream is None else str(stream), html_only=sized),
        Col("Part of the step", lambda row: row.part, when=any(row.part for row in rows)),
        Col("Launched by", lambda row: row.launcher or UNKNOWN, html_only=True),
        Col("Number", lambda row: row.count, count),
        Col("Time", lambda row: row.time_ns, duration, html_only=True),
        Col("Exposed", lambda row: row.exposed_ns, duration),
        Col("Waiting", lambda row: row.waiting_ns, duration),
        Col("Transfer", lambda row: row.transfer_ns, duration),
        Col("Last rank", lambda row: row.last_rank, lambda rank: UNKNOWN if rank is None else str(rank)),
        pdf_rows=_PDF_ROWS,
        html_note=f"Times are of all ranks, added up call by call: calls at the same time each count. {waiting}",
    )


def _group_size(row: ExposedCollective) -> Cell:
    assumed = " assumed" if row.group_size_assumed and row.group_size is not None else ""
    return Cell(f"{count(row.group_size)}{assumed}", sort=row.group_size)


def slow_collectives(context: RuleContext, details: SlowCollectivesDetails) -> Blocks:
    return [
        table(
            f"{context.id}-groups",
            "Bus bandwidth of process groups",
            details.groups,
            Col("Group", lambda row: f"{row.description or ''} {row.group}".strip(), kind="name", limit=60),
            Col("Verdict", lambda row: marked(row.issue, "slow") if row.issue is not None else Cell("too few")),
            Col("Operation", lambda row: row.operation, kind="name", code=True),
            Col("Ranks", lambda row: row.ranks, count),
            Col("Nodes", lambda row: row.nodes, count),
            Col("Number", lambda row: row.count, count),
            Col("Smallest", lambda row: row.smallest_bytes, size, html_only=True),
            Col("Transfer", lambda row: row.transfer_ns, duration),
            Col("Bus bandwidth", lambda row: row.bus_gb_per_s, bandwidth),
            Col("Link", lambda row: row.link or UNKNOWN),
            Col("Of the link", _of_link, percent),
            Col("Equal groups", lambda row: row.peers_gb_per_s, bandwidth),
            pdf_rows=_PDF_ROWS,
            html_note="Bus bandwidth: median of large collectives, of the transfer alone. Equal groups: median of equal collectives in"
            " other groups of the kind.",
        )
    ]


def _of_link(row: GroupBandwidth) -> float | None:
    return 100 * row.bus_gb_per_s / row.link_gb_per_s if row.link_gb_per_s else None
