"""Which kernels took the GPU time, and which were launched most?"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ...analysis.report import Kernel, Report
from ..blocks import SECTORS, Cell, Column, Figure, Section, Slice, meaning_of, ring, say, table, value, word
from ..formats import clip, count, duration, percent, plural


def kernels(report: Report) -> Section:
    every = report.kernels
    if not every:
        return Section("kernels", "Kernels", say("No kernel in this run: record the GPU activity of the profiler (in PyTorch ProfilerActivity.CUDA)."))
    top = int(report.options.get("top", 15))
    total = sum(kernel.total_ns for kernel in every)
    launches = sum(kernel.count for kernel in every)
    first = every[0]
    shown = every[:top]
    made = Section(
        "kernels",
        "Kernels",
        say(
            "{} took {} in {}; the longest, {}, took {} of it, the first {} together {}.",
            plural(len(every), "kernel"),
            duration(total),
            plural(launches, "run"),
            clip(first.short_name, 60),
            percent(first.share_of_kernel_time),
            count(len(shown)),
            percent(sum(kernel.share_of_kernel_time for kernel in shown)),
        ),
    )
    by_count = sorted(every, key=lambda kernel: -kernel.count)

    def time_share(kernel: Kernel) -> float:
        return kernel.share_of_kernel_time

    def count_share(kernel: Kernel) -> float:
        return 100.0 * kernel.count / launches

    spent = "Sectors are shares of the summed kernel time; the profile is its span times the devices."
    counted = "Sectors are shares of all kernel launches. Many short launches cost host time."
    made.add(
        _time_ring("kernels-time", say(spent), "Time spent by all kernels", every, time_share, (duration(total), "kernel time")),
        _time_ring("kernels-time-top", say("Only the first {}; percentages as before.", count(len(shown))),
                   f"Time spent by the top {len(shown)} kernels", shown, time_share,
                   (duration(sum(kernel.total_ns for kernel in shown)), f"top {len(shown)}")),
        _count_ring("kernels-launches", say(counted), "Launches of all kernels", by_count, count_share, (count(launches), "launches")),
        _count_ring("kernels-launches-top", say("Only the first {} by launches; percentages as before.", count(len(shown))),
                    f"Launches of the top {len(shown)} kernels", by_count[:top], count_share,
                    (count(sum(kernel.count for kernel in by_count[:top])), f"top {len(shown)}")),
        table(
            "kernels-table",
            "Every kernel, longest first",
            [
                Column("#", "number"),
                Column("Kernel", "name"),
                Column("Category"),
                Column("Precision"),
                Column("Runs", "number"),
                Column("Total", "number"),
                Column("Mean", "number"),
                Column("Min", "number", html_only=True),
                Column("Max", "number"),
                Column("Of kernel time", "number"),
                Column("Of profile", "number"),
                Column("Full name", "full", html_only=True),
            ],
            [
                [
                    Cell(str(number), sort=number),
                    word(kernel.short_name, full=kernel.name, limit=72),
                    word(kernel.category),
                    word(kernel.precision),
                    value(kernel.count, count),
                    value(kernel.total_ns, duration),
                    value(kernel.mean_ns, duration),
                    value(kernel.min_ns, duration),
                    value(kernel.max_ns, duration),
                    value(kernel.share_of_kernel_time, percent),
                    value(kernel.share_of_profile, percent),
                    word(kernel.name, limit=400),
                ]
                for number, kernel in enumerate(every, 1)
            ],
        ),
    )  # fmt: skip
    return made


def _time_ring(id: str, caption: object, what: str, rows: Sequence[Kernel], share: Callable[[Kernel], float], middle: tuple[str, str]) -> Figure | None:
    return _ring(id, caption, what, rows, share, middle, ("Kernel", "Total", "Of profile", "Of kernel time"),
                 lambda some: (Cell(duration(sum(k.total_ns for k in some))), Cell(percent(sum(k.share_of_profile for k in some)))))  # fmt: skip


def _count_ring(id: str, caption: object, what: str, rows: Sequence[Kernel], share: Callable[[Kernel], float], middle: tuple[str, str]) -> Figure | None:
    return _ring(id, caption, what, rows, share, middle, ("Kernel", "Launches", "Of launches"), lambda some: (Cell(count(sum(k.count for k in some))),))


def _ring(
    id: str,
    caption: object,
    what: str,
    rows: Sequence[Kernel],
    share: Callable[[Kernel], float],
    middle: tuple[str, str],
    columns: tuple[str, ...],
    cells: Callable[[Sequence[Kernel]], tuple[Cell, ...]],
) -> Figure | None:
    """The first sectors by ``share`` and one for the others."""
    head, rest = rows[:SECTORS], rows[SECTORS:]
    parts = [Slice(k.short_name, meaning_of(k.category), share(k), cells([k]), title=k.name) for k in head]
    if rest:
        parts.append(Slice(f"{plural(len(rest), 'other')}", "other", sum(share(k) for k in rest), cells(rest)))
    return ring(id, say("{}", caption), what, parts, columns, middle=middle, whole=sum(share(k) for k in rows))
