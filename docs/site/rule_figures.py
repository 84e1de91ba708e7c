"""Examples for the page of the rules: a simulated run -> rule -> HTML of its figure, drawn by postrun itself."""

from __future__ import annotations

import re
import tempfile
from collections.abc import Callable, Iterable
from html import escape
from pathlib import Path
from typing import Final

import postrun
from postrun.analysis.report import Report
from postrun.report_templates.blocks import Figure, Section
from postrun.report_templates.blocks.tables import Table
from postrun.report_templates.figures.palette import themed
from postrun.report_templates.sections.framework import framework
from postrun.report_templates.sections.idle import idle
from postrun.report_templates.sections.job_statistics import job_statistics
from postrun.report_templates.sections.memory_operations import memory_operations
from postrun.report_templates.sections.rank_comparison import rank_comparison
from postrun.report_templates.sections.rules import findings, rules
from postrun.report_templates.sections.step_breakdown import step_breakdown
from postrun.report_templates.sections.steps import steps
from postrun.report_templates.sections.system_usage import system_usage
from postrun.report_templates.sections.time_breakdown import time_breakdown
from postrun.simulate import Problems, write_demo

# Rules without a figure of their own: the section of the report that draws what they look at.
ELSEWHERE: Final[dict[str, Callable[[Report], Section]]] = {
    "InputBound": steps,
    "HostPreprocessing": steps,
    "PageableCopies": memory_operations,
    "SlowCollectives": time_breakdown,
    "UnfusedElementwise": time_breakdown,
    "UnfusedAttention": time_breakdown,
    "LowOccupancy": time_breakdown,
    "LayoutConversions": time_breakdown,
    "InefficientMatmul": time_breakdown,
    "Recompiles": idle,
    "StageImbalance": rank_comparison,
    "WorkImbalance": step_breakdown,
    "HostPauses": idle,
    "OverallSystemUsage": system_usage,
    "OverallFrameworkMetrics": framework,
    "ProfilerReport": job_statistics,
}
GENERATED_AT_NS: Final = 1_772_000_000_000_000_000


def examples(step_count: int = 40, nodes: int = 2, gpus: int = 3) -> dict[str, str]:
    """Return rule -> HTML of its figure and finding in a simulated run."""
    with tempfile.TemporaryDirectory(prefix="postrun-docs-") as scratch:
        run = Path(scratch) / "run"
        slow = Problems(straggler_rank=nodes * gpus - 1)
        write_demo(run, steps=step_count, nodes=nodes, gpus_per_node=gpus, problems=slow)
        report = postrun.analyze(run, generated_at_ns=GENERATED_AT_NS)
    parts = {part.title: part for section in (findings(report), rules(report)) for part in section.parts}
    figures = {name: _first(part.figures.values()) for name, part in parts.items()}
    for name, section in ELSEWHERE.items():
        figures[name] = _first(section(report).figures.values())
    texts = {rule.rule: rule.finding or rule.reason or "" for rule in report.rules}
    return {name: _html(name, figure, texts.get(name, "")) for name, figure in figures.items() if figure is not None}


def _first(figures: Iterable[Figure]) -> Figure | None:
    return next(iter(figures), None)


def _html(rule: str, figure: Figure, finding: str) -> str:
    name = f"example-{rule.lower()}"
    drawing = themed(figure.svg).removeprefix("<svg")
    legend = _legend(figure.legend) if figure.legend else ""
    caption = f"<p><strong>Example, a simulated run.</strong> {escape(finding.replace('`', ''))}</p><p>{figure.caption}</p>"
    html = (
        f'<figure class="example"><div class="drawing" tabindex="0">'
        f'<svg role="img" aria-label="{escape(figure.alt, quote=True)}"{drawing}</div>{legend}'
        f"<figcaption>{caption}</figcaption></figure>"
    )
    # A blank line would end the block of HTML; links of the report lead to places that this page does not have.
    # Digits of one number stay on one line.
    return re.sub(r"\s*\n\s*", " ", re.sub(r"</?a\b[^>]*>", "", html)).replace("\u2009", "\u202f")


def _legend(table: Table) -> str:
    columns = table.columns_for("html")
    rows = []
    for row in table.rows:
        cells = []
        for i in columns:
            sector = row[i].sector
            swatch = f'<span class="swatch" style="background:var(--{sector.meaning});opacity:{sector.shade:g}"></span>' if sector else ""
            cells.append(f"<td>{swatch}{escape(row[i].text)}</td>")
        rows.append(f"<tr>{''.join(cells)}</tr>")
    head = "".join(f"<th>{escape(table.columns[i].label)}</th>" for i in columns)
    return f'<table class="legend"><thead><tr>{head}</tr></thead><tbody>{"".join(rows)}</tbody></table>'
