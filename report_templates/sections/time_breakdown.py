"""Section "Time breakdown": computation, exposed communication, exposed memory operations, and idle time of each GPU."""

from __future__ import annotations

from collections.abc import Sequence
from operator import attrgetter
from typing import Final

from ...analysis.report.device import DeviceTime
from ...analysis.report.model import Report
from ..blocks import Figure, Only, Section, bar_rows, say
from ..blocks.tables import Cell, Col, table
from ..figures.stacked_bars import Part, stacked_bars
from ..text import labels
from ..text.formats import duration, percent, percent_of, plural

PARTS = (
    Part("computation", "computation"),
    Part("exposed communication", "communication"),
    Part("exposed memory operations", "memory"),
    Part("idle", "idle"),
)

part_times: Final = attrgetter("computation_ns", "exposed_communication_ns", "exposed_memory_ns", "idle_ns")  # in the order of PARTS


def time_breakdown(report: Report) -> Section:
    devices = report.time_breakdown
    section = Section("time-breakdown", "Time breakdown", say("{}", _lead(devices)))
    if not devices:
        return section
    most_idle = max(devices, key=lambda d: d.idle_percent)
    rows, more = bar_rows(
        [(labels.device(d.node, d.rank, d.device), [d.of_span(time) for time in part_times(d)]) for d in devices],
        ("rank", "ranks") if all(d.rank is not None for d in devices) else ("GPU", "GPUs"),
        "time without computation",
        lambda row: 100 - row[1][0],
    )
    caption = say(
        "Percent of each GPU's profile window. Most idle: {} with {}.{}",
        labels.device(most_idle.node, most_idle.rank, most_idle.device),
        percent(most_idle.idle_percent),
        more,
    )
    figure = Figure("time-breakdown-devices", stacked_bars(PARTS, rows, "%", axis_end=100.0), _lead(devices), caption)
    section.add(
        figure if len(devices) > 1 else Only("html", figure),
        table(
            "time-breakdown-table",
            "GPU time by rank",
            devices,
            Col(
                "Device",
                lambda d: Cell(labels.device(d.node, d.rank, d.device), sort=d.rank if d.rank is not None else d.device),
                kind="name",
            ),
            Col("Span", lambda d: d.span_ns, duration),
            Col("Busy", lambda d: _of_span(d.busy_ns, d), kind="number"),
            Col("Computation", lambda d: _of_span(d.computation_ns, d), kind="number", html_only=True),
            Col("Exposed communication", lambda d: _of_span(d.exposed_communication_ns, d), kind="number", html_only=True),
            Col("Exposed memory", lambda d: _of_span(d.exposed_memory_ns, d), kind="number", html_only=True),
            Col("Idle", lambda d: _of_span(d.idle_ns, d), kind="number", html_only=True),
            Col("Communication", lambda d: d.communication_ns, duration, html_only=True),
            Col("Overlap", lambda d: d.overlap_percent, percent),
            Col("Memory operations", lambda d: d.memory_ns, duration, html_only=True),
            Col("Kernel time, summed", lambda d: d.kernel_total_ns, duration, html_only=True),
            Col("Model", lambda d: d.device_name, html_only=True),
            weight=lambda d: percent_of(d.computation_ns, d.span_ns),
        ),
    )
    return section


def _of_span(part: int, device: DeviceTime) -> Cell:
    return Cell(percent(device.of_span(part)), sort=part, title=duration(part))


def _lead(devices: Sequence[DeviceTime]) -> str:
    span = sum(d.span_ns for d in devices)
    if not span:
        return "No GPU activity in this run: record the job with postrun record, or profile it with ProfilerActivity.CUDA."
    parts = [percent(100.0 * sum(times) / span) for times in zip(*map(part_times, devices), strict=True)]
    return (
        f"{plural(len(devices), 'GPU')}: {parts[0]} computation, {parts[1]} exposed communication, "
        f"{parts[2]} exposed memory operations, {parts[3]} idle."
    )
