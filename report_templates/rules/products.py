"""Blocks of the rule over shapes of matrix products."""

from __future__ import annotations

from typing import Final

from ...analysis.report.rule_details import InefficientMatmulDetails
from ..blocks.tables import Col, table
from ..text.formats import UNKNOWN, count, duration, percent, plural
from .rule_context import Blocks, RuleContext

_PDF_ROWS: Final = 5


def inefficient_matmul(context: RuleContext, details: InefficientMatmulDetails) -> Blocks:
    return [
        table(
            f"{context.id}-shapes",
            "Shapes of matrix products far below comparable ones",
            details.products,
            Col("Operator", lambda row: row.operator, kind="name", code=True, limit=48),
            Col("Shape", lambda row: row.shape),
            Col("Type", lambda row: row.types),
            Col("Time", lambda row: row.time_ns, duration),
            Col("At their rate", lambda row: row.peer_ns, duration),
            Col("Of roof", lambda row: row.percent_of_roof, percent),
            Col("Comparable shapes", lambda row: row.peer_percent, percent),
            Col("Reason", lambda row: "; ".join(row.reasons) or UNKNOWN, limit=120),
            Col("Module", lambda row: row.module or UNKNOWN, kind="name", code=True, limit=60, html_only=True),
            Col("Kernel", lambda row: row.kernel or UNKNOWN, kind="name", code=True, limit=60, html_only=True),
            pdf_rows=_PDF_ROWS,
            note=f"{plural(details.compared, 'shape')} have comparable ones, {count(details.alone)} have none. Rows without a reason do not"
            " count.",
        )
    ]
