"""Blocks of CPUBottleneck and IOBottleneck: snapshots by state, and what was active in the bottlenecks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from ...analysis.report.detail_rows import Active, NamedTime
from ...analysis.report.sample_details import BottleneckDetails
from ..blocks import Figure, Slice, ring, say
from ..blocks.tables import Cell, Col, Table, table
from ..text.formats import UNKNOWN, clip, count, duration, percent
from .rule_context import Blocks, RuleContext, marked

_SECTORS: Final = 5
_NAMED: Final = 12
_ALL: Final = 0.999  # share of the largest part; above it a ring is not worth drawing


def bottleneck(context: RuleContext, details: BottleneckDetails, what: str) -> Blocks:
    def unused(devices: Sequence[int]) -> str:
        return ", ".join(f"GPU {device}" for device in devices[:16]) or "none"

    return [
        _slices(context, details, what),
        table(
            f"{context.id}-nodes",
            f"Snapshots with {what} bottleneck by node",
            sorted(details.nodes, key=lambda node: -(node.bottleneck_percent or 0.0)),
            Col("Node", lambda node: Cell(clip(node.node, 40)), kind="name"),
            Col("Share of snapshots", lambda node: node.bottleneck_percent, percent),
            Col("Verdict", lambda node: marked(node.issue)),
            Col("Bottlenecks", lambda node: node.bottlenecks, count),
            Col("Low snapshots", lambda node: node.low, count),
            Col("Snapshots", lambda node: node.snapshots, count),
            Col("Of low", lambda node: node.of_low_percent, percent, html_only=True),
            Col(
                "Windows over",
                lambda node: Cell(f"{count(node.windows_exceeded)} of {count(node.windows)}", sort=node.windows_exceeded),
                kind="number",
                html_only=True,
            ),
            Col("Unused GPUs", lambda node: Cell(unused(node.unused)), when=not details.without_gpu, html_only=True),
            pdf_rows=8,
        ),
        *during(context, details.active, f"during the {what} bottleneck"),
    ]


def _slices(context: RuleContext, details: BottleneckDetails, what: str) -> Figure | None:
    total = details.total
    if not total.snapshots:
        return None
    parts = (
        (f"low, with {what} bottleneck", "host", total.bottlenecks, total.bottleneck_percent),
        ("low for another reason", "idle", total.low - total.bottlenecks, total.other_percent),
        (
            "mean of the cores at or above 50%" if details.without_gpu else "GPU above its threshold",
            "computation",
            total.snapshots - total.low,
            total.above_percent,
        ),
    )
    of_low = f" Of the low snapshots {percent(total.of_low_percent)} had a bottleneck." if total.of_low_percent is not None else ""
    return ring(
        f"{context.id}-slices",
        say("Each snapshot of each node counts once; the slices sum to 100%.{}", of_low if total.low else ""),
        "Snapshots by state of the cores" if details.without_gpu else "Snapshots by state of the GPUs",
        [Slice(label, meaning, share or 0.0, (count(number),)) for label, meaning, number, share in parts],
        ("State", "Snapshots", "Share"),
        middle=(count(total.snapshots), "snapshots"),
        total_percent=100.0,
    )


def during(context: RuleContext, active: Active, when: str) -> list[Figure | Table | None]:
    """List the activity in a table; add rings if the rule found an issue."""
    kinds = (
        ("phases", "Phase", "computation", active.phases),
        ("annotations", "Annotation", "host", active.annotations),
        ("operators", "Operator", "operator", active.operators),
    )
    drawn = [_ring(context, *kind, when) for kind in kinds] if context.issue else []
    return [
        *drawn,
        table(
            f"{context.id}-active",
            f"What was active {when}",
            [(title, entry) for _, title, _, entries in kinds for entry in _by_time(entries)[:_NAMED]],
            Col("Name", lambda row: row[1].name, kind="name", limit=72),
            Col("Kind", lambda row: row[0].lower()),
            Col("Time", lambda row: row[1].time_ns, duration),
            Col("Share of its kind", lambda row: row[1].percent, percent),
            pdf_rows=0,
        ),
    ]


def _by_time(entries: Sequence[NamedTime]) -> list[NamedTime]:
    return sorted(entries, key=lambda entry: -entry.time_ns)


def _ring(context: RuleContext, key: str, title: str, meaning: str, entries: Sequence[NamedTime], when: str) -> Figure | None:
    """Draw the entries with the largest times, which may overlap, and the others."""
    ordered = [entry for entry in _by_time(entries) if entry.time_ns]
    total = sum(entry.time_ns for entry in ordered)
    if not total or ordered[0].time_ns > _ALL * total:
        return None
    head, rest = ordered[:_SECTORS], ordered[_SECTORS:]
    parts = [Slice(entry.name or UNKNOWN, meaning, 100.0 * entry.time_ns / total, (duration(entry.time_ns),)) for entry in head]
    if rest:
        time = sum(entry.time_ns for entry in rest)
        parts.append(Slice(f"All others ({count(len(rest))})", "other", 100.0 * time / total, (duration(time),)))
    return ring(
        f"{context.id}-{key}",
        say("Share of the summed time {}, weighted by overlap.", when),
        f"{title}s {when}",
        parts,
        (title, "Time", "Share"),
        middle=(duration(total), "summed"),
        total_percent=100.0,
    )
