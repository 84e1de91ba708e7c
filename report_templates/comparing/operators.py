"""Section "Operators" of a comparison: operator calls by module, aligned, and how they differ."""

from __future__ import annotations

from collections import Counter
from typing import Final

from ...analysis.report.comparison import Comparison, OperatorChange
from ..blocks import Section, plain, say
from ..blocks.tables import Cell, Col, Table, word
from ..text.formats import plural
from . import words

_LISTED: Final = 60
_MARKS: Final = {"same": "v-none", "slower": "v-issue", "faster": "v-fine", "undecided": "v-none"}


def operators(comparison: Comparison) -> Section:
    rows = comparison.operator_calls
    if comparison.different_programs:
        return Section("operators", "Operators", say("Calls of operators are not aligned: the runs execute different programs."))
    if not rows:
        return Section("operators", "Operators", say("No operators with GPU work in both reports."))
    if all(row.state == "same" for row in rows):
        return Section("operators", "Operators", say("None of {} changed.", plural(len(rows), "row")), (_table(comparison),))
    states = Counter(row.state for row in rows if row.state != "same")
    largest = rows[0]
    lead = say(
        "The largest effect is that of {}: {}, {} {}. Of {}: {}.",
        _named(largest),
        plain(", ".join(largest.reasons) or "no other inputs or kernels"),
        words.signed(largest.effect_ns),
        words.per(comparison.basis),
        plural(len(rows), "row"),
        ", ".join(f"{count} {state}" for state, count in states.most_common()),
    )
    return Section("operators", "Operators", lead, (_table(comparison),))


def _named(row: OperatorChange) -> str:
    return f"{row.operator} in {row.module}" if row.module else row.operator


def _table(comparison: Comparison) -> Table | None:
    modules = any(row.module or row.base_module for row in comparison.operator_calls)
    unit = words.per(comparison.basis)
    calls = "Calls per step" if comparison.basis.unit == "step" else "Calls"
    bar = words.effect_bar(row.effect_ns for row in comparison.operator_calls)
    return words.changes_table(
        "operators-table",
        f"Operator calls, largest effect {unit} first",
        comparison.operator_calls,
        Col("Operator", lambda row: word(row.operator, full=row.operator, limit=60), kind="name", code=True),
        Col("Module", _module, kind="name", code=True, when=modules),
        Col("Verdict", lambda row: Cell(", ".join(row.reasons) or "same", mark=_MARKS.get(row.state, "v-changed"))),
        Col("Effect", lambda row: bar(row.effect_ns, "operator"), kind="number", html_only=True),
        Col("Effect", lambda row: row.effect_ns, words.effect, pdf_only=True),
        Col("Change", lambda row: row.change_percent, words.change, html_only=True),
        Col("Base", lambda row: row.base_ns if row.base_dims is not None else None, words.time),
        Col("New", lambda row: row.new_ns if row.new_dims is not None else None, words.time),
        Col(f"{calls}, base", lambda row: row.base_calls, words.number),
        Col(f"{calls}, new", lambda row: row.new_calls, words.number),
        Col("Inputs", lambda row: _change(row.base_dims, row.new_dims), limit=120, html_only=True),
        Col("Types", lambda row: _change(row.base_types, row.new_types), limit=60, html_only=True),
        Col("Kernels", _kernels, limit=160, html_only=True),
        Col("Precision", lambda row: _change(row.base_precision, row.new_precision), html_only=True),
        Col("Instead", lambda row: ", ".join(row.instead), html_only=True),
        pdf_rows=15,
        most=_LISTED,
        note=f"Sums {unit} without communication. Rows have the same module, operator and inputs; else the same module and operator, or the"
        " same inputs in another module. Slower and faster are of one call.",
    )


def _module(row: OperatorChange) -> str:
    module = row.module or "—"
    return f"{row.base_module} → {module}" if row.base_module else module


def _change(base: str | None, new: str | None) -> str:
    """Write both values, or the one that both runs share."""
    return " → ".join(dict.fromkeys(text for text in (base, new) if text))


def _kernels(row: OperatorChange) -> str:
    return _change(*(", ".join(kernels[:2]) for kernels in (row.base_kernels, row.new_kernels)))
