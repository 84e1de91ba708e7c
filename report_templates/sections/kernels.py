"""Section "Kernels": kernels by time and by number of launches."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Final

from markupsafe import Markup

from ...analysis.report.device import Kernel
from ...analysis.report.model import Report
from ..blocks import SECTORS, Figure, Only, Section, Slice, coded, meaning_of, ring, say
from ..blocks.tables import Col, share_cell, table, word
from ..text import labels
from ..text.formats import clip, count, duration, percent, plural, times_signed

_TOP: Final = 15  # default of --top
_PDF_ROWS: Final = 10  # with that default; cells take time in the PDF


def kernels(report: Report) -> Section:
    every = report.kernels
    if not every:
        lead = coded("No kernel in this run: record the job with `postrun record`, or profile it with ProfilerActivity.CUDA.")
        return Section("kernels", "Kernels", lead)
    top = int(report.options.get("top", _TOP))
    launches = sum(kernel.count for kernel in every)
    first, complete = every[0], len(every) <= top
    covered = percent(sum(kernel.share_of_kernel_time for kernel in every[:top]))
    lead = say(
        "{} took {} in {}; the largest, {}, is {} of kernel time{}.",
        plural(len(every), "kernel"),
        duration(sum(kernel.total_ns for kernel in every)),
        plural(launches, "launch", "launches"),
        clip(first.short_name, 60),
        percent(first.share_of_kernel_time),
        "" if complete else f"; the top {count(top)} are {covered}",
    )
    above = "" if complete else f"Above all kernels, below the top {count(top)}. "
    spent = say("{}Percent of the summed kernel time; of profile: percent of the profile window times its GPUs.", above)
    above = "" if complete else f"Above all launches, below those of the top {count(top)} by launches. "
    counted = say("{}Many short launches cost host time.", above)
    numbers = itertools.count(1)
    with_operators = _known(every, "operator")

    def spent_texts(some: Sequence[Kernel]) -> tuple[str, ...]:
        return duration(sum(k.total_ns for k in some)), percent(sum(k.share_of_profile for k in some))

    def counted_texts(some: Sequence[Kernel]) -> tuple[str, ...]:
        return (count(sum(k.count for k in some)),)

    blocks = [
        Only("dashboard", _rings("kernels-time", spent, "Time spent by all kernels", every, top, lambda kernel: kernel.share_of_kernel_time,
               ("Total", "Of profile"), spent_texts, "kernel time")),
        Only("dashboard", _rings("kernels-launches", counted, "Launches of all kernels",
                                 sorted(every, key=lambda kernel: -kernel.count), top, lambda kernel: 100.0 * kernel.count / launches,
                                 ("Launches",), counted_texts, "launches")),
        table(
            "kernels-table",
            "Kernels by total time",
            every,
            Col("#", lambda _: next(numbers), str, html_only=True),
            Col("Kernel", lambda kernel: word(kernel.short_name, full=kernel.name, limit=72), kind="name", code=True),
            Col("Category", lambda kernel: labels.category(kernel.category)),
            Col("Precision", lambda kernel: kernel.precision),
            Col("Operator", lambda kernel: kernel.operator, code=True, limit=60, html_only=True, when=with_operators),
            Col("Operator", _bare, code=True, limit=20, pdf_only=True, when=with_operators),
            Col("Launches", lambda kernel: kernel.count, count),
            Col("Total", lambda kernel: kernel.total_ns, duration),
            Col("Mean", lambda kernel: kernel.mean_ns, duration, html_only=True),
            Col("Min", lambda kernel: kernel.min_ns, duration, html_only=True),
            Col("Max", lambda kernel: kernel.max_ns, duration, html_only=True),
            Col("Of kernel time", lambda kernel: share_cell(kernel.share_of_kernel_time, meaning_of(kernel.category)), kind="number"),
            Col("Of profile", lambda kernel: kernel.share_of_profile, percent, html_only=True),
            Col("Of roof", lambda kernel: kernel.percent_of_roof, percent, html_only=True, when=_known(every, "percent_of_roof")),
            Col("Inputs", lambda kernel: times_signed(kernel.shape), limit=48, html_only=True, when=_known(every, "shape")),
            Col("Occupancy", lambda kernel: kernel.occupancy_percent, percent, html_only=True, when=_known(every, "occupancy_percent")),
            Col("Grid", _grid, html_only=True, when=_known(every, "grid")),
            Col("Module", lambda kernel: kernel.module, code=True, limit=60, html_only=True, when=_known(every, "module")),
            Col("Full name", lambda kernel: kernel.name, kind="full", code=True, limit=400, html_only=True),
            pdf_rows=_PDF_ROWS if top == _TOP else top,
        ),
    ]  # fmt: skip
    return Section("kernels", "Kernels", lead, blocks)


def _bare(kernel: Kernel) -> str | None:
    """Return the operator without the name of the library, for the PDF."""
    return None if kernel.operator is None else kernel.operator.removeprefix("aten::")


def _grid(kernel: Kernel) -> str | None:
    return "×".join(map(str, kernel.grid)) if kernel.grid else None


def _known(rows: Sequence[Kernel], field: str) -> bool:
    return any(getattr(row, field) is not None for row in rows)


def _rings(
    id: str,
    caption: Markup,
    what: str,
    rows: Sequence[Kernel],
    top: int,
    share: Callable[[Kernel], float],
    headers: tuple[str, ...],
    texts: Callable[[Sequence[Kernel]], tuple[str, ...]],
    label: str,
) -> Figure | None:
    """Draw a ring of all kernels, and one of the first ``top`` with the same numbers."""
    columns = ("Kernel", *headers, f"Of {label}")
    named, further, rest = rows[:SECTORS], rows[SECTORS:top], rows[top:]
    parts = [Slice(k.short_name, meaning_of(k.category), share(k), texts([k]), title=k.name) for k in named]
    if further:
        parts.append(Slice(f"Others of the top {top} ({count(len(further))})", "other", sum(share(k) for k in further), texts(further)))
    within = len(parts)
    if rest:
        parts.append(Slice(f"All others ({count(len(rest))})", "other", sum(share(k) for k in rest), texts(rest)))
    figure = ring(id, caption, what, parts, columns, middle=(texts(rows)[0], label), total_percent=sum(map(share, rows)))
    if figure is None or not rest:
        return figure
    middle, total_percent = (texts(rows[:top])[0], f"top {top}"), sum(map(share, rows[:top]))
    what = f"{what}, top {top} alone"
    return replace(figure, below=ring(f"{id}-top", caption, what, parts[:within], columns, middle=middle, total_percent=total_percent))
