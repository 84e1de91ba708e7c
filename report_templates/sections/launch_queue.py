"""Section "Launch queue": launched work that waits on each stream over time."""

from __future__ import annotations

from collections.abc import Sequence

from ...analysis.report.model import Report, StreamQueue
from ..blocks import Figure, Section, coded, name, say
from ..blocks.tables import Col, table
from ..figures import lines
from ..text import labels
from ..text.formats import UNKNOWN, clip, count, digits, duration, percent, percent_of, plural, significant

_UNKNOWN = "No queue of launches is known of this run: make the report again from the traces."
_LEFT_OUT = "{} of {} do not count: their launch is not in the trace, and neither is what waited then."


def launch_queue(report: Report) -> Section:
    queue = report.launch_queue
    if queue is None or not queue.streams:
        return Section("launch-queue", "Launch queue", coded((queue and queue.absent) or _UNKNOWN))
    first = queue.streams[0]
    unlinked = first.runs - first.linked
    left_out = f" {_LEFT_OUT.format(plural(unlinked, 'run'), count(first.runs))}" if unlinked else ""
    lead = say(
        "On the stream with most work, {}, {} waited on average and {} at most; {} of the time it ran, nothing waited behind.{}",
        name(_label(first), 60),
        UNKNOWN if first.mean_depth is None else f"{significant(first.mean_depth)} launched runs",
        count(first.max_depth),
        percent(percent_of(first.empty_ns, first.busy_ns)),
        left_out,
    )
    drawn = [stream for stream in queue.streams if len(stream.time_ns) > 1]
    rest = f" Listed are {count(len(queue.streams))} of {plural(queue.total, 'stream')}." if queue.total > len(queue.streams) else ""
    blocks = [
        _figure(drawn) if any(any(stream.depth) for stream in drawn) else None,
        table(
            "launch-queue-table",
            "Queue of each stream",
            queue.streams,
            Col("Process", lambda stream: labels.process(stream.node, stream.rank, stream.pid), kind="name"),
            Col("GPU", lambda stream: stream.device, str),
            Col("Stream", lambda stream: stream.stream, digits),
            Col("Runs", lambda stream: stream.runs, count),
            Col("Launch known", lambda stream: stream.linked, count, html_only=True),
            Col("Mean depth", lambda stream: stream.mean_depth, significant),
            Col("Highest", lambda stream: stream.max_depth, count),
            Col("Busy", lambda stream: stream.busy_ns, duration),
            Col("Busy and nothing waiting", lambda stream: stream.empty_ns, duration),
            Col("Of busy", lambda stream: percent_of(stream.empty_ns, stream.busy_ns), percent),
            pdf_rows=6,
            note="Depth: runs whose launch call has ended and that have not begun; times are of runs whose launch is known. With an empty"
            " queue a GPU idles once the host is late." + rest,
        ),
    ]
    return Section("launch-queue", "Launch queue", lead, blocks)


def _figure(drawn: Sequence[StreamQueue]) -> Figure:
    start = min(stream.time_ns[0] for stream in drawn)
    labelled = [lines.Line(clip(_label(stream), 28), [time - start for time in stream.time_ns], stream.depth) for stream in drawn]
    highest = max(drawn, key=lambda stream: stream.max_depth)
    return Figure(
        "launch-queue-depth",
        lines.lines([lines.Panel("launched and not begun", labelled)], "time since the first launch", x_time=True, height=110),
        f"Depth of the launch queue over time; the highest is {highest.max_depth} on {_label(highest)}",
        say("Mean of stretches of equal time. At zero the host is only just ahead of the GPU, or behind it."),
    )


def _label(stream: StreamQueue) -> str:
    where = labels.device(stream.node, stream.rank, stream.device) if stream.rank is None else f"rank {stream.rank} GPU {stream.device}"
    return where if stream.stream is None else f"{where} stream {stream.stream}"
