"""Blocks of the rule over compilations by torch.compile."""

from __future__ import annotations

from typing import Final

from ...analysis.report.rule_details import CompiledFunction, RecompilesDetails
from ..blocks.tables import Col, table
from ..text.formats import UNKNOWN, count, duration, plural
from .rule_context import Blocks, RuleContext

_PDF_ROWS: Final = 5


def recompiles(context: RuleContext, details: RecompilesDetails) -> Blocks:
    profiled, logged = details.compilations > 0, details.logged_compilations > 0
    return [
        table(
            f"{context.id}-functions",
            "Functions that torch.compile compiled",
            details.functions,
            Col("Function", lambda row: row.function or UNKNOWN, kind="name", limit=60),
            Col("Line", _location, kind="name", limit=60),
            Col("Module", lambda row: row.module, kind="name", limit=60, when=any(row.module for row in details.functions)),
            Col("Ranks", lambda row: row.ranks, count, html_only=True),
            Col("Compilations", lambda row: row.compilations, count, when=profiled),
            Col("After the first steps", lambda row: row.recompilations, count, when=profiled),
            Col("Time", lambda row: row.time_ns, duration, when=profiled),
            Col("Devices without work", lambda row: row.idle_ns, duration, when=any(row.idle_ns for row in details.functions)),
            Col("In the log", lambda row: row.logged_compilations, count, when=logged),
            Col(
                "Limit reached", lambda row: "yes" if row.limit_reached else None, when=any(row.limit_reached for row in details.functions)
            ),
            Col("Guard that failed", lambda row: row.reason, limit=160),
            Col("Graph breaks", lambda row: row.graph_breaks, count, html_only=True, when=logged),
            Col(
                "First graph break",
                lambda row: row.graph_break,
                limit=160,
                html_only=True,
                when=any(row.graph_breaks for row in details.functions),
            ),
            pdf_rows=_PDF_ROWS,
            note=_note(details),
        )
    ]


def _location(row: CompiledFunction) -> str:
    if row.file and row.line is not None:
        return f"{row.file}:{row.line}"
    return row.caller or UNKNOWN


def _note(details: RecompilesDetails) -> str:
    texts = []
    if details.compilations:
        texts.append(
            f"The profile has {plural(details.compilations, 'compilation')} of {duration(details.compile_ns)}, {count(details.late)} of"
            " them recompilations after the first steps."
        )
    if details.logged_compilations:
        texts.append(
            f"The logs have {plural(details.logged_compilations, 'compilation')} of {duration(details.logged_ns)},"
            f" {count(details.logged_recompilations)} of them recompilations."
        )
    return " ".join(texts)
