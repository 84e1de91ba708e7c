"""Section "Memory operations": time and bandwidth of copies and memsets."""

from __future__ import annotations

from collections.abc import Sequence

from ...analysis.report.device import MemoryOperation
from ...analysis.report.model import Report
from ..blocks import SECTORS, Section, Slice, ring, say
from ..text.formats import bandwidth, count, duration, percent, plural, size


def memory_operations(report: Report) -> Section:
    every = report.memory_operations
    if not every:
        lead = say("No memory copy or memset was recorded in this run: they are part of the GPU activity of the profiler.")
        return Section("memory-operations", "Memory operations", lead)
    first = max(every, key=lambda operation: operation.total_ns)
    total = sum(operation.total_ns for operation in every)
    speed = say(" at {}", bandwidth(first.bandwidth_gb_per_s)) if first.bandwidth_gb_per_s is not None else ""
    lead = say(
        "{} took {}; {} of that was {}{}.",
        plural(sum(operation.count for operation in every), "memory operation"),
        duration(total),
        percent(first.percent),
        _name(first),
        speed,
    )
    ordered = sorted(every, key=lambda operation: -operation.percent)
    parts = [Slice(_name(o), "memory", o.percent, _texts([o])) for o in ordered[:SECTORS]]
    if rest := ordered[SECTORS:]:
        parts.append(Slice(f"All others ({count(len(rest))})", "other", sum(o.percent for o in rest), _texts(rest)))
    slow = any(operation.memory == "pageable" for operation in every)
    pageable = " Copies from pageable memory are slow and block the host." if slow else ""
    blocks = [
        ring(
            "memory-operations-time",
            say("Share of the summed time of copies and memsets.{}", pageable),
            "Copies and memsets: time and bandwidth",
            parts,
            ("Operation", "Number", "Bytes", "Bandwidth", "Time", "Of memory time"),
            middle=(duration(total), "memory time"),
        )
    ]
    return Section("memory-operations", "Memory operations", lead, blocks)


def _texts(operations: Sequence[MemoryOperation]) -> tuple[str, ...]:
    """Write number, bytes (if all are known), bandwidth (of one kind), and time."""
    known = [o.total_bytes for o in operations if o.total_bytes is not None]
    return (
        count(sum(o.count for o in operations)),
        size(sum(known) if len(known) == len(operations) else None),
        bandwidth(operations[0].bandwidth_gb_per_s if len(operations) == 1 else None),
        duration(sum(o.total_ns for o in operations)),
    )


def _name(operation: MemoryOperation) -> str:
    return f"{operation.kind} ({operation.memory})" if operation.memory else operation.kind
