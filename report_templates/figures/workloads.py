"""Histograms of the utilization of each GPU: a row of bars per GPU, all on one scale, with percentiles and thresholds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ..text.formats import percent
from . import svg
from .dot_plot import limit_names
from .palette import GRID, INK, MEANINGS, MUTED, PAPER

_ROW, _TOP = 34.0, 20.0


@dataclass(frozen=True, slots=True)
class Workload:
    """Shares of the samples (0 to 1) in equal bins from 0 to 100%.

    ``mean`` is drawn as a dashed line, ``p5`` and ``p95`` as dots on the axis, all in percent.
    """

    label: str
    shares: Sequence[float]
    mean: float | None = None
    note: str = ""
    p5: float | None = None
    p95: float | None = None


def workloads(rows: Sequence[Workload], limits: Sequence[tuple[float, str]] = (), *, width: float = svg.NARROW) -> str:
    """Return SVG text; the highest bar of all rows fills its row.

    ``limits``: thresholds in percent, and their names.
    """
    labels, widest = svg.column((row.label for row in rows), 26, min(196.0, 0.36 * width))
    left = 14 + widest
    right = width - max((16 + svg.width_of(row.note, 10) for row in rows if row.note), default=14.0)
    highest = max((share for row in rows for share in row.shares), default=0.0) or 1.0
    body, top = limit_names(limits, left, right, 100.0, _TOP)
    bottom = top + _ROW * len(rows)
    marks = [
        "dashed: mean" if any(row.mean is not None for row in rows) else "",
        "○ p5, ● p95" if any(row.p95 is not None for row in rows) else "",
    ]
    heading = "; ".join(filter(None, ("share of the samples", f"highest bar {percent(100 * highest)}", *marks)))
    body.append(svg.text(0, 11, heading, fill=MUTED, size=10))
    for tick in range(0, 101, 20):
        x = left + (right - left) * tick / 100
        body.append(svg.line(x, top, x, bottom, GRID))
        body.append(svg.text(x, bottom + 14, f"{tick}%" if tick == 100 else str(tick), anchor="middle", fill=MUTED, size=10))
    for number, (row, label) in enumerate(zip(rows, labels, strict=True), 1):
        base = top + _ROW * number
        body.append(svg.line(left, base, right, base, GRID))
        body.append(svg.text(left - 8, base - 10, label, anchor="end"))
        wide = (right - left) / max(1, len(row.shares))
        bars = [
            f"M{left + i * wide:.1f} {base:g}V{base - (_ROW - 5) * share / highest:.1f}H{left + (i + 1) * wide:.1f}V{base:g}z"
            for i, share in enumerate(row.shares)
            if share > 0
        ]
        data = f' data-bins="0 100 even % {" ".join(f"{100 * share:.3g}" for share in row.shares)}"'
        title = f"{row.label}, share of the samples".removeprefix(", ")
        body.append(svg.path("".join(bars), MEANINGS["computation"], title=title, data=data))
        if row.mean is not None:
            x = left + (right - left) * min(max(row.mean, 0.0), 100.0) / 100
            body.append(svg.line(x, base, x, base - _ROW + 3, INK, dashes="3 2"))
        for value, fill, edge in ((row.p5, PAPER, INK), (row.p95, INK, PAPER)):
            if value is not None:
                body.append(svg.circle(left + (right - left) * min(max(value, 0.0), 100.0) / 100, base, 3.2, fill, edge))
        if row.note:
            body.append(svg.text(width - 2, base - 10, row.note, anchor="end", fill=MUTED, size=10))
    for limit, _ in limits:
        x = left + (right - left) * min(limit, 100.0) / 100
        body.append(svg.line(x, top - 2, x, bottom, INK, dashes="4 3"))
    body.append(svg.text(right, bottom + 28, "GPU utilization", anchor="end", fill=MUTED, size=10))
    return svg.document(width, bottom + 33, body)
