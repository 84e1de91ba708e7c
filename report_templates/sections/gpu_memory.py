"""How much memory of each GPU was in use, over time?"""

from __future__ import annotations

from collections.abc import Sequence

from ...analysis.report import GpuMemory, Report
from ..blocks import Cell, Column, Figure, Section, coded, name, of_all, say, spread, table, value, word
from ..figures import lines
from ..formats import clip, count, duration, percent, plural, quantity
from . import labels

_ABSENT = (
    "No GPU memory was sampled in this run: record the job with `postrun record`, which samples it. Memory events of PyTorch's profiler are"
    " not read."
)
_GIB = 2.0**30


def gpu_memory(report: Report) -> Section:
    every = report.gpu_memory
    if not every:
        return Section("gpu-memory", "GPU memory over time", coded(_ABSENT))
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
            [
                Column("GPU", "name"),
                Column("Highest", "number"),
                Column("Of its memory", "number"),
                Column("Highest after", "number"),
                Column("First", "number"),
                Column("Last", "number"),
                Column("Lowest", "number", html_only=True),
                Column("Samples", "number", html_only=True),
            ],
            [
                [
                    word(labels.device(gpu.node, None, gpu.device)),
                    _amount(gpu.max, gpu.unit),
                    value(100 * gpu.max / gpu.total if gpu.total else None, percent),
                    Cell(duration(gpu.max_at_ns - start), sort=gpu.max_at_ns),
                    _amount(gpu.first, gpu.unit),
                    _amount(gpu.last, gpu.unit),
                    _amount(gpu.min, gpu.unit),
                    value(gpu.samples, count),
                ]
                for gpu in every
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


def _amount(number: float, unit: str) -> Cell:
    return Cell(quantity(number, unit), sort=number)
