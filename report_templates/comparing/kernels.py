"""Section "Kernels" of a comparison: kernels and categories whose time changed."""

from __future__ import annotations

from collections import Counter
from typing import Final

from ...analysis.compare.basis import SMALLEST_PERCENT
from ...analysis.report.comparison import Comparison, KernelChange
from ..blocks import Section, meaning_of, say
from ..blocks.tables import Cell, Col, Table, word
from ..text import labels
from ..text.formats import count, plural
from . import words

_OPERATORS: Final = 40  # listed; the reports may share more


def kernels(comparison: Comparison) -> Section:
    if not comparison.kernels:
        return Section("kernels", "Kernels", say("No kernels in both runs: there is nothing to compare."))
    states = Counter(kernel.state for kernel in comparison.kernels)
    counts = ", ".join(
        f"{states[name]} {word}"
        for name, word in (("grown", "grew"), ("shrunk", "shrank"), ("added", "were added"), ("vanished", "vanished"))
        if states[name]
    )
    unit = words.per(comparison.basis)
    changes = f"{counts}, beyond spread and threshold" if counts else "none changed beyond spread and threshold"
    if comparison.different_programs:
        changes = f"{count(sum(kernel.matched is not None for kernel in comparison.kernels))} run in both programs"
    lead = say("Of {} {}.", plural(len(comparison.kernels), "kernel"), changes)
    categories = words.changes_table(
        "kernels-categories",
        f"Categories of kernels {unit}",
        comparison.categories,
        Col("Category", lambda row: Cell(labels.category(row.name)), kind="name"),
        *words.amount_columns(comparison, comparison.categories, lambda row: meaning_of(row.name)),
        Col("Runs, base", lambda row: row.base_count, words.number),
        Col("Runs, new", lambda row: row.new_count, words.number),
        words.verdict(comparison, words.least(comparison)),
    )
    operators = words.changes_table(
        "kernels-operators",
        f"GPU time by operator {unit}",
        comparison.operators,
        Col("Operator", lambda row: row.name, kind="name", code=True),
        *words.amount_columns(comparison, comparison.operators, lambda _: "operator"),
        Col("Calls, base", lambda row: row.base_count, words.number),
        Col("Calls, new", lambda row: row.new_count, words.number),
        words.verdict(comparison, words.least(comparison)),
        pdf_rows=8,
        most=_OPERATORS,
    )
    return Section("kernels", "Kernels", lead, (_table(comparison, unit), categories, operators))


def _table(comparison: Comparison, unit: str) -> Table | None:
    bar = words.effect_bar(kernel.effect_ns for kernel in comparison.kernels)
    least_ns = (comparison.whole.base_ns if comparison.whole else 0.0) * SMALLEST_PERCENT / 100

    same = not comparison.different_programs

    def large(row: KernelChange) -> bool:
        return abs(row.change_percent or 0.0) >= comparison.threshold_percent and abs(row.effect_ns) >= least_ns

    return words.changes_table(
        "kernels-table",
        f"Kernels, largest effect {unit} first",
        comparison.kernels,
        Col("Kernel", lambda row: word(row.short_name, full=_names(row), limit=72), kind="name", code=True),
        Col("Category", lambda row: labels.category(row.category), html_only=True),
        Col("Verdict", lambda row: words.kernel_state(row, large=large(row)), when=same),
        Col("Effect", lambda row: bar(row.effect_ns, meaning_of(row.category)), kind="number"),
        Col("Change", lambda row: row.change_percent, words.change, when=same),
        Col("Base", lambda row: row.base_ns if row.base_names else None, words.time),
        Col("New", lambda row: row.new_ns if row.new_names else None, words.time),
        Col("Runs, base", lambda row: row.base_count, words.number, html_only=True),
        Col("Runs, new", lambda row: row.new_count, words.number, html_only=True),
        Col("Mean, base", lambda row: row.base_mean_ns, words.time),
        Col("Mean, new", lambda row: row.new_mean_ns, words.time),
        Col("Duration per run", lambda row: row.duration_state, html_only=True, when=same),
        Col("Number of runs", lambda row: row.count_state, html_only=True, when=same),
        Col("Precision", lambda row: " → ".join(dict.fromkeys(filter(None, (row.base_precision, row.new_precision)))), html_only=True),
        Col("Met by", lambda row: row.matched or "in one run only", html_only=True),
        Col("Full name", _names, kind="full", code=True, limit=400, html_only=True),
        pdf_rows=15,
        note=f"Base, New and Effect are sums {unit}; Mean is of one run of the kernel. Kernels whose full names differ meet by short name"
        " and category.",
    )


def _names(kernel: KernelChange) -> str:
    return " | ".join(dict.fromkeys([*kernel.new_names, *kernel.base_names]))
