"""Section "Iterations": the iterations of an inference engine by kind, with batch, tokens, and the gaps between them."""

from __future__ import annotations

from ...analysis.report.causes import Iteration
from ...analysis.report.model import Report
from ..blocks import Section, say
from ..blocks.spans import Span
from ..blocks.tables import Cell, Col, table
from ..text import labels
from ..text.formats import count, digits, duration, percent, plural

_ABSENT = (
    "No iterations of inference are known: the run has no ranges of an inference engine, which vLLM, SGLang and TensorRT-LLM write into"
    " the traces of their own profilers."
)
_NOTE = "Median and p90 are of the range of an iteration on the host."
_TOKENS = " Tokens per second: of a process, over the time from the start of an iteration to the start of the next one."
_GAP = " Gap: from the end of the iteration before, which is the time of the scheduler."
_BUSY = " Busy: share of the time to the next iteration in which the GPU ran something."


def iterations(report: Report) -> Section:
    rows = report.iteration_kinds
    if not rows:
        return Section("iterations", "Iterations", say("{}", _ABSENT))
    main = max(rows, key=lambda row: row.count * row.median_ns)
    total = sum(row.count for row in rows)
    first = f"{plural(total, 'iteration')}; the largest share of time is {main.kind}, {duration(main.median_ns)} each (median)"
    gap = f", with gaps of {duration(main.gap_ns)} between them" if main.gap_ns else ""
    blocks = [
        table(
            "iterations-kinds",
            "Iterations by kind",
            rows,
            Col("Kind", lambda row: row.kind, kind="name"),
            Col("Number", lambda row: row.count, count),
            Col("Median", lambda row: row.median_ns, duration),
            Col("p90", lambda row: row.p90_ns, duration),
            Col("Batch", lambda row: _rounded(row.batch), kind="number"),
            Col("Tokens", lambda row: _rounded(row.tokens), kind="number"),
            Col("Tokens per second", lambda row: _rounded(row.tokens_per_s), kind="number"),
            Col("Gap before", lambda row: row.gap_ns, duration),
            Col("With a graph", lambda row: row.graph_percent, percent),
            Col("GPU busy", lambda row: row.busy_percent, percent),
            note=_NOTE
            + (_TOKENS if any(row.tokens_per_s is not None for row in rows) else "")
            + (_GAP if any(row.gap_ns is not None for row in rows) else "")
            + (_BUSY if any(row.busy_percent is not None for row in rows) else ""),
        ),
        table(
            "iterations-list",
            "Iterations in order of time" + (f", the first {count(len(report.iterations))}" if len(report.iterations) < total else ""),
            report.iterations,
            Col("Process", lambda row: labels.process(row.node, row.rank, None), kind="name"),
            Col(
                "After the first",
                lambda row: row.start_ns - report.iterations[0].start_ns,
                duration,
                span=lambda row: Span(row.start_ns, row.start_ns + row.duration_ns, row.rank),
            ),
            Col("Kind", lambda row: row.kind),
            Col("Duration", lambda row: row.duration_ns, duration),
            Col("Gap before", lambda row: row.gap_ns, duration),
            Col("Batch", lambda row: row.batch, digits),
            Col("Tokens", lambda row: row.tokens, count),
            Col("Graph", _graph),
            Col("GPU busy", lambda row: row.busy_percent, percent),
            pdf_rows=0,
        ),
    ]
    return Section("iterations", "Iterations", say("{}{}.", first, gap), blocks)


def _rounded(number: float | None) -> Cell:
    return Cell(count(None if number is None else round(number)), sort=number)


def _graph(row: Iteration) -> str | None:
    return None if row.graph is None else "graph" if row.graph else "eager"
