"""How long did launched work wait before it ran, and what did launching cost the host?"""

from __future__ import annotations

from ...analysis.report import Report
from .. import labels
from ..blocks import Cell, Column, Figure, Section, say, table, value, word
from ..figures.histogram import histogram
from ..formats import clip, count, duration, percent, plural
from .distribution import bins_of, worth_drawing

_LONG = 1_000_000  # ns; a shorter median is the way to the device, not a queue


def launches(report: Report) -> Section:
    found = report.launches
    latency = found.latency
    if latency is not None:
        waited = f" the {count(latency.count)} runs that began after their call had ended" if found.negative else " them"
        lead = say(
            "{} started device work; half of{} began within {} of the end of the call, 95 % within {}, the last after {}.{}",
            plural(found.pairs, "launch", "launches"),
            waited,
            duration(latency.p50),
            duration(latency.p95),
            duration(latency.max),
            f" {count(found.negative)} more began before {'its' if found.negative == 1 else 'their'} call ended." if found.negative else "",
        )
    else:
        lead = say("{}", found.absent or "No launch call of this run is linked to device work.")
    made = Section("launches", "Launches", lead)
    if found.calls or found.pairs:
        rows = (
            ("Launch calls", found.calls),
            ("Launch-run pairs", found.pairs),
            ("Runs without a launch call in the trace", found.runs_without_launch),
            ("Launch calls without a run in the trace", found.launches_without_run),
            ("Further runs of one call (graphs)", found.graph_runs),
            ("Runs that began before their call ended", found.negative),
        )
        made.add(
            table(
                "launches-counts",
                "Launches and runs",
                [Column("What", "name"), Column("Count", "number")],
                [[Cell(label), value(number, count)] for label, number in rows],
                sortable=False,
            )
        )
    if latency is not None and worth_drawing(latency) and found.histogram is not None and any(found.histogram.counts):
        drawn = histogram([bins_of("", found.histogram, latency.p50)], "host", "launch-run pairs")
        finding = f"median {duration(latency.p50)}, p95 {duration(latency.p95)}, longest {duration(latency.max)}"
        made.add(
            Figure(
                "launches-latency",
                drawn,
                f"Launch latency: {finding}",
                say(
                    "From the end of the launch call to the start of the run: {}.{}",
                    finding,
                    " A long wait means a full queue." if latency.p50 > _LONG else "",
                ),
            )
        )
    start = report.run.started_at_ns or 0
    made.add(
        table(
            "launches-slowest",
            "Longest waits between a launch and its run",
            [
                Column("Kernel", "name"),
                Column("Call", html_only=True),
                Column("Process"),
                Column("GPU", "number"),
                Column("Stream", "number", html_only=True),
                Column("Launched after", "number"),
                Column("Latency", "number"),
            ],
            [
                [
                    word(pair.kernel, limit=56),
                    word(pair.call),
                    Cell(labels.process(pair.node, pair.rank, None)),
                    Cell(str(pair.device), sort=pair.device),
                    Cell("–" if pair.stream is None else str(pair.stream), sort=pair.stream),
                    Cell(duration(pair.launch_start_ns - start), sort=pair.launch_start_ns),
                    value(pair.latency_ns, duration),
                ]
                for pair in found.slowest
            ],
            pdf_rows=5,
        ),
        table(
            "launches-calls",
            "Host time in launch, synchronisation and other runtime calls",
            [Column("Call", "name"), Column("Time", "number"), Column("Calls", "number"), Column("Of these calls", "number")],
            [
                [Cell(clip(share.name, 60)), value(share.total_ns, duration), value(share.count, count), value(share.percent, percent)]
                for share in found.call_time
            ],
            pdf_rows=8,
        ),
    )
    return made
