"""The sections about launches: latency and host time, the queue of each stream, and launch configurations."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Final

from ...analysis.report.device import LaunchConfiguration, LaunchQueue, StreamQueue
from ...analysis.report.model import Report
from ..blocks import Figure, Section, bins_of, coded, name, say, worth_drawing
from ..blocks.spans import Span
from ..blocks.tables import Cell, Col, pairs_table, table, word
from ..figures import lines
from ..figures.alike import alike_lines
from ..figures.histogram import histogram
from ..text import labels
from ..text.formats import UNKNOWN, clip, count, digits, duration, percent, percent_of, plural, significant, since, size

_LEAST_DEPTH: Final = 0.001  # mean number of waiting runs
_NEAR: Final = 0.1  # of the greatest depth; queues that differ by less on average are alike
_LONG = 1_000_000  # ns; a shorter median is the way to the device, not a queue
_UNKNOWN_QUEUE = "No queue of launches is known of this run: make the report again from the traces."
_LEFT_OUT = "{} of {} do not count: their launch is not in the trace, and neither is what waited then."
_UNKNOWN_CONFIGURATIONS = "No launch configurations are known of this run: make the report again from the traces."
_NOTE = "Registers per thread and shared memory per block; below one block per SM, part of the GPU is idle."
_COLUMNS: Final[tuple[Col[LaunchConfiguration], ...]] = (
    Col("Category", lambda row: labels.category(row.category), html_only=True),
    Col("Kernel", lambda row: word(row.short_name, full=row.name, limit=72), kind="name", code=True),
    Col("Grid", lambda row: _three(row.grid)),
    Col("Block", lambda row: _three(row.block)),
    Col("Blocks per SM", lambda row: row.blocks_per_sm, significant),
    Col("Registers", lambda row: row.registers, count, html_only=True),
    Col("Shared memory", lambda row: row.shared_memory, size, html_only=True),
    Col("Runs", lambda row: row.count, count),
    Col("Total", lambda row: row.total_ns, duration),
    Col("Of kernel time", lambda row: row.share_of_kernel_time, percent),
)


def launches(report: Report) -> Section:
    summary = report.launches
    latency = summary.latency
    if latency is not None:
        lead = say(
            "Launch latency: median {}, p95 {}, longest {} ({}{}).",
            duration(latency.p50),
            duration(latency.p95),
            duration(latency.max),
            plural(summary.pairs, "launch", "launches"),
            f"; {plural(summary.negative, 'kernel')} started before the call returned" if summary.negative else "",
        )
    else:
        lead = say("{}", summary.absent or "No launch call of this run is linked to device work.")
    rows: Sequence[tuple[str, int]] = ()
    if summary.calls or summary.pairs:
        rows = (
            ("Launch calls", summary.calls),
            ("Linked launches", summary.pairs),
            ("Kernels without a launch call", summary.runs_without_launch),
            ("Launch calls without a kernel", summary.launches_without_run),
            ("Additional graph kernels", summary.graph_runs),
            ("Kernels that started before the call returned", summary.negative),
        )
    figure = None
    if latency is not None and worth_drawing(latency) and summary.histogram is not None and any(summary.histogram.counts):
        drawn = histogram([bins_of("", summary.histogram, latency.p50)], "host", "kernels")
        finding = f"median {duration(latency.p50)}, p95 {duration(latency.p95)}, longest {duration(latency.max)}"
        queued = " Long latency means a full queue (GPU-bound), not a slow host." if latency.p50 > _LONG else ""
        caption = say("From the return of the launch call to the start of the kernel.{}", queued)
        figure = Figure("launches-latency", drawn, f"Launch latency: {finding}", caption)
    start = report.run.started_at_ns or 0
    blocks = [
        figure,
        pairs_table("launches-counts", "Launches and kernels", rows, ("What", "Count"), count, sortable=False),
        table(
            "launches-slowest",
            "Longest launch latencies",
            summary.slowest,
            Col("Kernel", lambda pair: pair.kernel, kind="name", code=True, limit=56),
            Col("Call", lambda pair: pair.call, html_only=True),
            Col("Process", lambda pair: labels.process(pair.node, pair.rank, None), html_only=True),
            Col("GPU", lambda pair: pair.device, str),
            Col("Stream", lambda pair: pair.stream, digits, html_only=True),
            Col(
                "Launched after",
                lambda pair: pair.launch_start_ns,
                since(start),
                span=lambda pair: Span(pair.launch_start_ns, pair.run_start_ns, pair.rank),
            ),
            Col("Latency", lambda pair: pair.latency_ns, duration),
            pdf_rows=5,
        ),
        table(
            "launches-calls",
            "Host time in launch, synchronization and other runtime calls",
            summary.call_time,
            Col("Call", lambda share: clip(share.name, 60), kind="name", code=True),
            Col("Time", lambda share: share.total_ns, duration),
            Col("Calls", lambda share: share.count, count),
            Col("Of these calls", lambda share: share.percent, percent),
            pdf_rows=8,
        ),
    ]
    return Section("launches", "Launches", lead, blocks)


def launch_queue(report: Report) -> Section:
    queue = report.launch_queue
    if queue is None or not queue.streams:
        return Section("launch-queue", "Launch queue", coded((queue and queue.absent) or _UNKNOWN_QUEUE))
    first = queue.streams[0]
    unlinked = first.runs - first.linked
    left_out = f" {_LEFT_OUT.format(plural(unlinked, 'run'), count(first.runs))}" if unlinked else ""
    lead = say(
        "On the busiest stream, {}, {} waited on average and {} at most; the queue was empty for {} of its busy time.{}",
        name(_label(first), 60),
        UNKNOWN if first.mean_depth is None else f"{_depth(first.mean_depth)} launched kernels",
        count(first.max_depth),
        percent(percent_of(first.empty_ns, first.busy_ns)),
        left_out,
    )
    drawn = [stream for stream in queue.streams if len(stream.time_ns) > 1]
    rest = f" Listed are {count(len(queue.streams))} of {plural(queue.total, 'stream')}." if queue.total > len(queue.streams) else ""
    blocks = [
        _queue_figure(queue, drawn) if any(any(stream.depth) for stream in drawn) else None,
        table(
            "launch-queue-table",
            "Queue of each stream",
            queue.streams,
            Col("Process", lambda stream: labels.process(stream.node, stream.rank, stream.pid), kind="name"),
            Col("GPU", lambda stream: stream.device, str),
            Col("Stream", lambda stream: stream.stream, digits),
            Col("Runs", lambda stream: stream.runs, count, html_only=True),
            Col("Launch known", lambda stream: stream.linked, count, html_only=True),
            Col("Mean depth", lambda stream: stream.mean_depth, _depth),
            Col("Highest", lambda stream: stream.max_depth, count),
            Col("Busy", lambda stream: stream.busy_ns, duration, html_only=True),
            Col("Busy and nothing waiting", lambda stream: stream.empty_ns, duration),
            Col("Of busy", lambda stream: percent_of(stream.empty_ns, stream.busy_ns), percent),
            pdf_rows=6,
            note="Depth: launched kernels that have not started. Times cover kernels whose launch is known." + rest,
        ),
    ]
    return Section("launch-queue", "Launch queue", lead, blocks)


def _depth(mean: float | None) -> str:
    """Write a mean depth; one in a thousand runs that wait is nearly none."""
    return f"<\u00a0{_LEAST_DEPTH}" if mean is not None and 0 < mean < _LEAST_DEPTH else significant(mean)


def _queue_figure(queue: LaunchQueue, drawn: Sequence[StreamQueue]) -> Figure:
    start = min(stream.time_ns[0] for stream in drawn)
    every = [lines.Line(clip(_label(stream), 28), [time - start for time in stream.time_ns], stream.depth) for stream in drawn]
    labeled = alike_lines(every, "stream", near=_NEAR)
    of = f" ({labeled[0].label})" if len(labeled) == 1 < len(every) else ""
    fewer = (
        f" Drawn are {count(len(drawn))} of {plural(queue.total, 'stream')}, those with the most runs." if len(drawn) < queue.total else ""
    )
    highest = max(queue.streams, key=lambda stream: stream.max_depth)
    return Figure(
        "launch-queue-depth",
        lines.lines([lines.Panel(f"kernels launched, not started{of}", labeled)], "time since the first launch", x_time=True, height=84),
        f"Depth of the launch queue over time; the highest is {highest.max_depth} on {_label(highest)}",
        say(
            "At most {} kernels waited, on {}. At zero, the GPU idles if the host is late. Mean over intervals of equal length.{}",
            count(highest.max_depth),
            _label(highest),
            fewer,
        ),
    )


def _label(stream: StreamQueue) -> str:
    where = labels.device(stream.node, stream.rank, stream.device) if stream.rank is None else f"rank {stream.rank} GPU {stream.device}"
    return where if stream.stream is None else f"{where} stream {stream.stream}"


def launch_configurations(report: Report) -> Section:
    summary = report.launch_configurations
    if summary is None or not summary.rows:
        lead = coded((summary and summary.absent) or _UNKNOWN_CONFIGURATIONS)
        return Section("launch-configurations", "Launch configurations", lead)
    small = summary.small_percent
    small_grids = f" {percent(small)} of kernel time ran with fewer blocks than the GPU has multiprocessors." if small else ""
    kernels = summary.kernels or (len({row.name for row in summary.rows}) if len(summary.rows) == summary.total else None)
    configurations = plural(summary.total, "launch configuration")
    lead = say("{}{}.{}", f"{plural(kernels, 'kernel')} in " if kernels else "", configurations, small_grids)
    note = f"{_NOTE} Listed are the {count(len(summary.rows))} with the most time." if summary.total > len(summary.rows) else _NOTE
    blocks = [table("launch-configurations-table", "Kernels by category and launch configuration", summary.rows, *_COLUMNS, note=note)]
    return Section("launch-configurations", "Launch configurations", lead, blocks, html_only=True)


def _three(sizes: tuple[int, int, int] | None) -> Cell:
    """Write three sizes; the cell is sorted by their product."""
    return Cell(UNKNOWN) if sizes is None else Cell(" × ".join(map(str, sizes)), sort=prod(sizes))
