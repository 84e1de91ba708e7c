"""Shares of a total -> a ring and its table, and the sections that consist of such rings."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence

from markupsafe import Markup

from ...analysis.report.model import Report
from ...analysis.report.rows import Share
from ..blocks import SECTORS, Figure, Section, Slice, meaning_of, ring, say
from ..text import labels
from ..text.formats import capitalized, count, duration, percent

_ACTIVITIES = {"kernel": "kernels", "memcpy": "memory copies", "memset": "memory sets", "sync": "synchronization"}
_ENOUGH = 1.0  # percent of the kernel time


def shares_ring(
    id: str,
    caption: Markup,
    what: str,
    shares: Sequence[Share],
    first: str,
    of: str,
    *,
    label: str,
    time: str = "Time",
    meaning: Callable[[str], str] = meaning_of,
    html_note: str | None = None,
) -> Figure | None:
    """Draw the shares.

    ``first``, ``time``, ``of``: headings of names, times, shares. ``html_note``: below the table in HTML.
    """
    ordered = sorted(shares, key=lambda share: -share.percent)
    head, rest = ordered[:SECTORS], ordered[SECTORS:]
    if len(rest) == 1:
        head, rest = ordered, []
    parts = [Slice(share.name, meaning(share.name), share.percent, (duration(share.total_ns), count(share.count))) for share in head]
    if rest:
        cells = (duration(sum(share.total_ns for share in rest)), count(sum(share.count for share in rest)))
        parts.append(Slice(f"All others ({count(len(rest))})", "other", sum(share.percent for share in rest), cells))
    total = duration(sum(share.total_ns for share in shares))
    return ring(id, caption, what, parts, (first, time, "Count", of), middle=(total, label), html_note=html_note)


def activity(report: Report) -> Section:
    """Make "Activity distribution": device time by kind of activity."""
    shares = [dataclasses.replace(share, name=_ACTIVITIES.get(share.name, share.name)) for share in report.activity.shares]
    if not shares:
        lead = say("No kernel, copy or memset in this run: record the GPU activity of the profiler.")
        return Section("activity", "Activity distribution", lead)
    source = {"device": " Synchronization: recorded by the device.", "host": " Synchronization: blocking host calls."}
    figure = shares_ring(
        "activity-time",
        say("Concurrent work counts twice.{}", source.get(report.activity.sync_source or "", "")),
        "GPU activity",
        shares,
        "Activity",
        "Of the sum",
        label="summed",
        meaning=lambda name: "computation" if name == "kernels" else meaning_of(name),
    )
    lead = say("Summed durations: {}.", ", ".join(f"{share.name} {percent(share.percent)}" for share in shares))
    return Section("activity", "Activity distribution", lead, [figure], compact=True)


def categories(report: Report) -> Section:
    """Make "Kernel categories": kernel time by kind of work."""
    if not report.categories:
        lead = say("No kernel in this run to sort into categories: record the GPU activity of the profiler.")
        return Section("categories", "Kernel categories", lead)
    shares = [dataclasses.replace(share, name=labels.category(share.name)) for share in report.categories]
    first, *rest = sorted(shares, key=lambda share: -share.percent)
    second = say(", then {} with {}", rest[0].name, percent(rest[0].percent)) if rest else ""
    figure = shares_ring(
        "categories-time",
        say("Elementwise work and reductions are usually memory-bound, GEMM and attention compute-bound."),
        "Kernel time by category",
        shares,
        "Category",
        "Of kernel time",
        label="kernel time",
        html_note=sources(report.category_sources, "Classified", "operator", "no category"),
    )
    lead = say("The largest category is {} with {} of kernel time{}.", first.name, percent(first.percent), second)
    return Section("categories", "Kernel categories", lead, [figure], compact=True)


def sources(shares: Sequence[Share], verb: str, by_operator: str, unknown: str) -> str:
    """Write the sources of classes: "By operator (87%) and kernel name (13%)."

    Reports of earlier versions have no shares: their kernels are classified by name.
    """
    known = {share.name: share.percent for share in shares}
    parts = [
        f"{text} ({percent(known[name])})" for name, text in (("operator", by_operator), ("kernel name", "kernel name")) if name in known
    ]
    if not shares:
        return f"{verb} by kernel name."
    text = f"{verb} by {' and '.join(parts)} of the kernel time" if parts else f"Not {verb.lower()}"
    return f"{text}; {percent(known['unknown'])} {unknown}." if known.get("unknown") else f"{text}."


def precision(report: Report) -> Section:
    """Make "Precision": kernel time and matrix work by arithmetic."""
    every, matrix = report.precision.shares, report.precision.matrix
    if not every:
        lead = say("No kernel in this run, so precision is unknown: record the GPU activity of the profiler.")
        return Section("precision", "Precision", lead)

    def draw(id: str, caption: str, what: str, shares: Sequence[Share], label: str, html_note: str | None = None) -> Figure | None:
        return shares_ring(
            id, say(caption), what, shares, "Precision", f"Of {label}", label=label, html_note=html_note,
            meaning=lambda name: "idle" if name == "unknown" else "computation",
        )  # fmt: skip

    rings = (
        draw("precision-matrix", "GEMM, attention and convolution: lower precision pays the most here.",
             "Precision of matrix kernels", matrix, "matrix time"),
        draw("precision-all", "", "Precision of all kernels, with communication", every, "kernel time",
             sources(report.precision.sources, "Known", "operator and input types", "unknown precision")),
    )  # fmt: skip
    return Section("precision", "Precision", say("{}", _precision_lead(every, matrix)), rings, compact=True)


def _precision_lead(every: Sequence[Share], matrix: Sequence[Share]) -> str:
    """Write the conclusion, by the matrix work if there is enough of it."""
    part = 100.0 * sum(share.total_ns for share in matrix) / max(1, sum(share.total_ns for share in every))
    of_kernels = _largest(every, "kernel time")
    if part >= _ENOUGH:
        of_matrix = _largest(matrix, "matrix time (GEMM, attention, convolution)")
        return f"{capitalized(of_matrix)}; {of_kernels}."
    little = f"takes only {percent(part)} of kernel time" if part else "was not recorded"
    return f"{capitalized(of_kernels)}; matrix work (GEMM, attention, convolution) {little}."


def _largest(shares: Sequence[Share], what: str) -> str:
    first = max(shares, key=lambda share: share.percent)
    if first.name == "unknown":
        return f"the precision of {percent(first.percent)} of the {what} is unknown"
    return f"{percent(first.percent)} of the {what} ran in {first.name}"
