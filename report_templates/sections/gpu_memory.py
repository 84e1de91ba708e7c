"""Section "GPU memory over time": memory in use by sampling, and by PyTorch's allocator."""

from __future__ import annotations

from collections.abc import Sequence

from markupsafe import Markup

from ...analysis.report.device import AllocatorMemory
from ...analysis.report.machine import GpuMemory
from ...analysis.report.model import Report
from ..blocks import Figure, Section, coded, name, of_all, say, spread
from ..blocks.spans import Span
from ..blocks.tables import Col, Table, amount, table
from ..figures import lines
from ..figures.alike import alike_lines
from ..text import labels
from ..text.formats import clip, count, duration, percent, percent_of, plural, quantity, since

_ABSENT = (
    "No GPU memory was sampled in this run: record the job with `postrun record`, which samples it, or profile PyTorch with"
    " `profile_memory=True`, which records its allocator."
)
_GIB = 2.0**30


def gpu_memory(report: Report) -> Section:
    sampled, allocators = report.gpu_memory, report.allocator_memory
    leads = [*([_sampled(sampled)] if sampled else []), *([_allocated(allocators)] if allocators else [])]
    blocks = [_figure(sampled), _table(sampled), _allocator_figure(allocators), _allocator_table(allocators)]
    return Section("gpu-memory", "GPU memory over time", Markup(" ").join(leads) if leads else coded(_ABSENT), blocks)


def _sampled(every: Sequence[GpuMemory]) -> Markup:
    fullest = max(every, key=_filled)
    of_total = f", {percent(_filled(fullest))} of it" if fullest.unit == "B" and fullest.total else ""
    return say(
        "Of {} sampled, {} had most of its memory in use: {} at most{}.",
        plural(len(every), "GPU"),
        name(labels.device(fullest.node, None, fullest.device), 40),
        quantity(fullest.max, fullest.unit),
        of_total,
    )


def _start(every: Sequence[GpuMemory | AllocatorMemory]) -> int:
    return min((gpu.time_ns[0] for gpu in every), default=0)


def _table(every: Sequence[GpuMemory]) -> Table | None:
    return table(
        "gpu-memory-table",
        "Memory in use of each GPU",
        every,
        Col("GPU", lambda gpu: labels.device(gpu.node, None, gpu.device), kind="name"),
        Col("Highest", lambda gpu: amount(gpu.max, gpu.unit), kind="number"),
        Col("Of its memory", lambda gpu: percent_of(gpu.max, gpu.total), percent),
        Col("Highest after", lambda gpu: gpu.max_at_ns, since(_start(every)), span=lambda gpu: Span(gpu.max_at_ns, gpu.max_at_ns)),
        Col("First", lambda gpu: amount(gpu.first, gpu.unit), kind="number"),
        Col("Last", lambda gpu: amount(gpu.last, gpu.unit), kind="number"),
        Col("Lowest", lambda gpu: amount(gpu.min, gpu.unit), kind="number", html_only=True),
        Col("Samples", lambda gpu: gpu.samples, count, html_only=True),
        weight=lambda gpu: gpu.max,
        note="Of all processes on the GPU; memory that PyTorch reserves counts as in use.",
    )


def _figure(every: Sequence[GpuMemory]) -> Figure | None:
    unit_shown = max(every, key=_filled).unit if every else ""
    drawable = [gpu for gpu in every if gpu.unit == unit_shown and len(gpu.time_ns) > 1]
    drawn = spread(drawable, lines.MOST, _filled)
    if not drawn:
        return None
    start = _start(every)
    factor, unit = (_GIB, "GiB") if drawn[0].unit == "B" else (1.0, "%")
    every_line = [
        lines.Line(
            clip(labels.device(gpu.node, None, gpu.device), 28),
            [time - start for time in gpu.time_ns],
            [mean / factor for mean in gpu.mean],
            [low / factor for low in gpu.low],
            [high / factor for high in gpu.high],
        )
        for gpu in drawn
    ]
    highest = max(drawn, key=_filled)
    where = labels.device(highest.node, None, highest.device)
    return Figure(
        "gpu-memory-used",
        lines.lines(
            [lines.Panel("memory in use", alike_lines(every_line, "GPU"), unit=unit)],
            "time since the first sample",
            x_time=True,
            height=84,
        ),
        f"GPU memory in use over time; highest {quantity(highest.max, highest.unit)} on {where}",
        say(
            "Samples of each GPU; a band spans the lowest and the highest of a stretch.{}",
            of_all(len(drawn), len(drawable), "GPU", "memory"),
        ),
    )


def _filled(gpu: GpuMemory) -> float:
    return 100 * gpu.max / gpu.total if gpu.total else gpu.max / _GIB / 1000


def _allocated(every: Sequence[AllocatorMemory]) -> Markup:
    most = max(every, key=lambda one: one.peak)
    grown = max(every, key=lambda one: one.growth)
    return say(
        "PyTorch's allocator held at most {} on {}{}, and had reserved {} then. The largest growth is {} in {}{}.",
        quantity(most.peak, "B"),
        name(labels.device(most.node, most.rank, most.device), 40),
        f" ({percent(100 * most.peak / most.total)} of its memory)" if most.total else "",
        "an unknown amount" if most.reserved_at_peak is None else quantity(most.reserved_at_peak, "B"),
        quantity(grown.growth, "B"),
        duration(grown.growth_to_ns - grown.growth_from_ns),
        f" on {labels.device(grown.node, grown.rank, grown.device)}" if grown is not most else "",
    )


def _allocator_figure(every: Sequence[AllocatorMemory]) -> Figure | None:
    known = [one for one in every if len(one.time_ns) > 1]
    drawn = spread(known, lines.MOST, lambda one: one.peak)
    if not drawn:
        return None
    start = _start(every)
    panels = [
        lines.Panel("allocated", [_line(one, one.high, one.low, start) for one in drawn], unit="GiB"),
        lines.Panel("reserved", [_line(one, one.reserved, (), start) for one in drawn if None not in one.reserved], unit="GiB"),
    ]
    highest = max(drawn, key=lambda one: one.peak)
    return Figure(
        "gpu-memory-allocator",
        lines.lines([panel for panel in panels if panel.lines], "time since the first allocation", x_time=True, height=58),
        f"Memory of PyTorch's allocator over time; most allocated {quantity(highest.peak, 'B')} on"
        f" {labels.device(highest.node, highest.rank, highest.device)}",
        say(
            "What PyTorch's allocator gave to tensors and what it had reserved for them; a band spans the lowest and the highest of a"
            " stretch.{}",
            of_all(len(drawn), len(known), "GPU", "allocated memory"),
        ),
    )


def _line(memory: AllocatorMemory, of: Sequence[int | None], low: Sequence[int], start: int) -> lines.Line:
    known = [amount / _GIB for amount in of if amount is not None]
    label = clip(labels.device(memory.node, memory.rank, memory.device), 28)
    return lines.Line(label, [time - start for time in memory.time_ns], known, [amount / _GIB for amount in low], known if low else ())


def _allocator_table(every: Sequence[AllocatorMemory]) -> Table | None:
    return table(
        "gpu-memory-allocator-table",
        "PyTorch's allocator on each GPU",
        every,
        Col("GPU", lambda row: labels.device(row.node, row.rank, row.device), kind="name"),
        Col("Most allocated", lambda row: amount(row.peak, "B"), kind="number"),
        Col("Of its memory", lambda row: percent_of(row.peak, row.total), percent),
        Col("After", lambda row: row.peak_at_ns, since(_start(every)), span=lambda row: Span(row.peak_at_ns, row.peak_at_ns, row.rank)),
        Col("Reserved then", lambda row: amount(row.reserved_at_peak, "B"), kind="number"),
        Col("Most reserved", lambda row: amount(row.reserved_peak, "B"), kind="number"),
        Col("Largest growth", lambda row: amount(row.growth, "B"), kind="number"),
        Col(
            "From",
            lambda row: row.growth_from_ns,
            since(_start(every)),
            html_only=True,
            span=lambda row: Span(row.growth_from_ns, row.growth_to_ns, row.rank),
        ),
        Col("To", lambda row: row.growth_to_ns, since(_start(every)), html_only=True),
        Col("First", lambda row: amount(row.first, "B"), kind="number", html_only=True),
        Col("Last", lambda row: amount(row.last, "B"), kind="number"),
        Col("Events", lambda row: row.events, count, html_only=True),
        weight=lambda row: row.peak,
        note="Allocations on the GPU that the profiler recorded; those of main memory are not part of it.",
    )
