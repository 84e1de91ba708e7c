"""How much memory of each GPU was in use, over time?"""

from __future__ import annotations

from collections.abc import Sequence

from markupsafe import Markup

from ...analysis.report import AllocatorMemory, GpuMemory, Report
from .. import labels
from ..blocks import Figure, Section, coded, name, of_all, say, spread
from ..figures import lines
from ..formats import clip, count, duration, percent, percent_of, plural, quantity, since
from ..tables import Col, Table, amount, table

_ABSENT = (
    "No GPU memory was sampled in this run: record the job with `postrun record`, which samples it, or profile PyTorch with"
    " `profile_memory=True`, which records its allocator."
)
_GIB = 2.0**30


def gpu_memory(report: Report) -> Section:
    every, allocators = report.gpu_memory, report.allocator_memory
    if every:
        made = _sampled(every)
        if allocators:
            made.lead += Markup(" ") + _allocated(allocators)
    else:
        made = Section("gpu-memory", "GPU memory over time", _allocated(allocators) if allocators else coded(_ABSENT))
    if allocators:
        start = min(one.time_ns[0] for one in allocators)
        made.add(_allocator_figure(allocators, start), _allocator_table(allocators, start))
    return made


def _sampled(every: Sequence[GpuMemory]) -> Section:
    fullest = max(every, key=_filled)
    of_total = f", {percent(_filled(fullest))} of it" if fullest.unit == "B" and fullest.total else ""
    made = Section(
        "gpu-memory",
        "GPU memory over time",
        say(
            "Of {} sampled, {} had most of its memory in use: {} at most{}.",
            plural(len(every), "GPU"),
            name(labels.device(fullest.node, None, fullest.device), 40),
            quantity(fullest.max, fullest.unit),
            of_total,
        ),
    )
    start = min(gpu.time_ns[0] for gpu in every)
    same = [gpu for gpu in every if gpu.unit == fullest.unit and len(gpu.time_ns) > 1]
    drawn = spread(same, lines.MOST, _filled)
    if drawn:
        made.add(_figure(drawn, len(same), start))
    made.add(
        table(
            "gpu-memory-table",
            "Memory in use of each GPU",
            every,
            [
                Col("GPU", lambda gpu: labels.device(gpu.node, None, gpu.device), kind="name"),
                Col("Highest", lambda gpu: amount(gpu.max, gpu.unit), kind="number"),
                Col("Of its memory", lambda gpu: percent_of(gpu.max, gpu.total), percent),
                Col("Highest after", lambda gpu: gpu.max_at_ns, since(start)),
                Col("First", lambda gpu: amount(gpu.first, gpu.unit), kind="number"),
                Col("Last", lambda gpu: amount(gpu.last, gpu.unit), kind="number"),
                Col("Lowest", lambda gpu: amount(gpu.min, gpu.unit), kind="number", html_only=True),
                Col("Samples", lambda gpu: gpu.samples, count, html_only=True),
            ],
            note="Of all that ran on the GPU; what PyTorch holds in reserve counts as in use.",
        )
    )
    return made


def _figure(drawn: Sequence[GpuMemory], total: int, start: int) -> Figure:
    factor, unit = (_GIB, "GiB") if drawn[0].unit == "B" else (1.0, "%")
    made = [
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
        lines.lines([lines.Panel(f"memory in use, {unit}", made)], "time since the first sample", x_time=True, height=110),
        f"GPU memory in use over time; highest {quantity(highest.max, highest.unit)} on {where}",
        say("Samples of each GPU; a band spans the lowest and the highest of a stretch.{}", of_all(len(drawn), total, "GPU", "memory")),
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


def _allocator_figure(every: Sequence[AllocatorMemory], start: int) -> Figure | None:
    known = [one for one in every if len(one.time_ns) > 1]
    drawn = spread(known, lines.MOST, lambda one: one.peak)
    if not drawn:
        return None
    panels = [
        lines.Panel("allocated, GiB", [_line(one, one.high, one.low, start) for one in drawn]),
        lines.Panel("reserved, GiB", [_line(one, one.reserved, (), start) for one in drawn if None not in one.reserved]),
    ]
    highest = max(drawn, key=lambda one: one.peak)
    return Figure(
        "gpu-memory-allocator",
        lines.lines([panel for panel in panels if panel.lines], "time since the first allocation", x_time=True, height=92),
        f"Memory of PyTorch's allocator over time; most allocated {quantity(highest.peak, 'B')} on"
        f" {labels.device(highest.node, highest.rank, highest.device)}",
        say(
            "What PyTorch's allocator gave to tensors and what it had reserved for them; a band spans the lowest and the highest of a"
            " stretch.{}",
            of_all(len(drawn), len(known), "GPU", "allocated memory"),
        ),
    )


def _line(one: AllocatorMemory, of: Sequence[int | None], low: Sequence[int], start: int) -> lines.Line:
    known = [amount / _GIB for amount in of if amount is not None]
    label = clip(labels.device(one.node, one.rank, one.device), 28)
    return lines.Line(label, [time - start for time in one.time_ns], known, [amount / _GIB for amount in low], known if low else ())


def _allocator_table(every: Sequence[AllocatorMemory], start: int) -> Table | None:
    return table(
        "gpu-memory-allocator-table",
        "PyTorch's allocator on each GPU",
        every,
        [
            Col("GPU", lambda row: labels.device(row.node, row.rank, row.device), kind="name"),
            Col("Most allocated", lambda row: amount(row.peak, "B"), kind="number"),
            Col("Of its memory", lambda row: percent_of(row.peak, row.total), percent),
            Col("After", lambda row: row.peak_at_ns, since(start)),
            Col("Reserved then", lambda row: amount(row.reserved_at_peak, "B"), kind="number"),
            Col("Most reserved", lambda row: amount(row.reserved_peak, "B"), kind="number"),
            Col("Largest growth", lambda row: amount(row.growth, "B"), kind="number"),
            Col("From", lambda row: row.growth_from_ns, since(start), html_only=True),
            Col("To", lambda row: row.growth_to_ns, since(start), html_only=True),
            Col("First", lambda row: amount(row.first, "B"), kind="number", html_only=True),
            Col("Last", lambda row: amount(row.last, "B"), kind="number"),
            Col("Events", lambda row: row.events, count, html_only=True),
        ],
        note="Allocations on the GPU that the profiler recorded; those of main memory are not part of it.",
    )
