"""Section "Kernel categories": kernel time by kind of work."""

from __future__ import annotations

from ...analysis.report.model import Report
from ..blocks import Section, say
from ..text.formats import percent
from .shares import shares_ring


def categories(report: Report) -> Section:
    shares = report.categories
    if not shares:
        return Section(
            "categories",
            "Kernel categories",
            say("No kernel in this run to sort into categories: record the GPU activity of the profiler."),
        )
    first, *rest = sorted(shares, key=lambda share: -share.percent)
    second = say(", then {} with {}", rest[0].name, percent(rest[0].percent)) if rest else ""
    ring = shares_ring(
        "categories-time",
        say("Told by the names of the kernels. Element-wise work and reductions are bound by memory, GEMM and attention by arithmetic."),
        "Kernel time by category",
        shares,
        "Category",
        "Of kernel time",
        label="kernel time",
    )
    lead = say("Most kernel time went into {}: {}{}.", first.name, percent(first.percent), second)
    return Section("categories", "Kernel categories", lead, [ring])
