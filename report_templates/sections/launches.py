"""Section "Launches": launch latency, and the host time in runtime calls."""

from __future__ import annotations

from collections.abc import Sequence

from ...analysis.report.model import Report
from ..blocks import Figure, Section, say
from ..blocks.tables import Col, pairs_table, table
from ..figures.histogram import histogram
from ..text import labels
from ..text.formats import clip, count, digits, duration, percent, plural, since
from .distribution import bins_of, worth_drawing

_LONG = 1_000_000  # ns; a shorter median is the way to the device, not a queue


def launches(report: Report) -> Section:
    summary = report.launches
    latency = summary.latency
    if latency is not None:
        waited = f" the {count(latency.count)} runs that began after their call had ended" if summary.negative else " them"
        lead = say(
            "{} started device work; half of{} began within {} of the end of the call, 95 % within {}, the last after {}.{}",
            plural(summary.pairs, "launch", "launches"),
            waited,
            duration(latency.p50),
            duration(latency.p95),
            duration(latency.max),
            f" {count(summary.negative)} more began before {'its' if summary.negative == 1 else 'their'} call ended."
            if summary.negative
            else "",
        )
    else:
        lead = say("{}", summary.absent or "No launch call of this run is linked to device work.")
    rows: Sequence[tuple[str, int]] = ()
    if summary.calls or summary.pairs:
        rows = (
            ("Launch calls", summary.calls),
            ("Launch-run pairs", summary.pairs),
            ("Runs without a launch call in the trace", summary.runs_without_launch),
            ("Launch calls without a run in the trace", summary.launches_without_run),
            ("Further runs of one call (graphs)", summary.graph_runs),
            ("Runs that began before their call ended", summary.negative),
        )
    figure = None
    if latency is not None and worth_drawing(latency) and summary.histogram is not None and any(summary.histogram.counts):
        drawn = histogram([bins_of("", summary.histogram, latency.p50)], "host", "launch-run pairs")
        finding = f"median {duration(latency.p50)}, p95 {duration(latency.p95)}, longest {duration(latency.max)}"
        queued = " A long wait means a full queue." if latency.p50 > _LONG else ""
        caption = say("From the end of the launch call to the start of the run: {}.{}", finding, queued)
        figure = Figure("launches-latency", drawn, f"Launch latency: {finding}", caption)
    start = report.run.started_at_ns or 0
    blocks = [
        figure,
        pairs_table("launches-counts", "Launches and runs", rows, ("What", "Count"), count, sortable=False),
        table(
            "launches-slowest",
            "Longest waits between a launch and its run",
            summary.slowest,
            Col("Kernel", lambda pair: pair.kernel, kind="name", limit=56),
            Col("Call", lambda pair: pair.call, html_only=True),
            Col("Process", lambda pair: labels.process(pair.node, pair.rank, None)),
            Col("GPU", lambda pair: pair.device, str),
            Col("Stream", lambda pair: pair.stream, digits, html_only=True),
            Col("Launched after", lambda pair: pair.launch_start_ns, since(start)),
            Col("Latency", lambda pair: pair.latency_ns, duration),
            pdf_rows=5,
        ),
        table(
            "launches-calls",
            "Host time in launch, synchronisation and other runtime calls",
            summary.call_time,
            Col("Call", lambda share: clip(share.name, 60), kind="name"),
            Col("Time", lambda share: share.total_ns, duration),
            Col("Calls", lambda share: share.count, count),
            Col("Of these calls", lambda share: share.percent, percent),
            pdf_rows=8,
        ),
    ]
    return Section("launches", "Launches", lead, blocks)
