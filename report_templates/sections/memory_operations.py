"""Which copies and memsets took time, and how fast were they?"""

from __future__ import annotations

from ...analysis.report import MemoryOperation, Report
from ..blocks import SECTORS, Cell, Column, Section, Slice, ring, say, table, value, word
from ..formats import bandwidth, count, duration, percent, plural, size


def memory_operations(report: Report) -> Section:
    every = report.memory_operations
    if not every:
        lead = say("No memory copy or memset was recorded in this run: they are part of the GPU activity of the profiler.")
        return Section("memory-operations", "Memory operations", lead)
    first = max(every, key=lambda operation: operation.total_ns)
    total = sum(operation.total_ns for operation in every)
    speed = say(" at {}", bandwidth(first.bandwidth_gb_per_s)) if first.bandwidth_gb_per_s is not None else ""
    made = Section(
        "memory-operations",
        "Memory operations",
        say(
            "{} took {}; {} of that was {}{}.",
            plural(sum(operation.count for operation in every), "memory operation"),
            duration(total),
            percent(first.percent),
            _name(first),
            speed,
        ),
    )
    ordered = sorted(every, key=lambda operation: -operation.percent)
    parts = [Slice(_name(o), "memory", o.percent, (Cell(duration(o.total_ns)),)) for o in ordered[:SECTORS]]
    if rest := ordered[SECTORS:]:
        parts.append(
            Slice(plural(len(rest), "other"), "other", sum(o.percent for o in rest), (Cell(duration(sum(o.total_ns for o in rest))),))
        )
    made.add(
        ring(
            "memory-operations-time",
            say("Share of the summed time of copies and memsets. Copies from pageable memory are slow and block the host."),
            "Time of memory operations",
            parts,
            ("Operation", "Time", "Of memory time"),
            middle=(duration(total), "memory time"),
        ),
        table(
            "memory-operations-table",
            "Bandwidth of memory operations",
            [
                Column("Operation", "name"),
                Column("Host memory"),
                Column("Count", "number"),
                Column("Time", "number"),
                Column("Bytes", "number"),
                Column("Bandwidth", "number"),
            ],
            [
                [
                    word(o.kind),
                    word(o.memory),
                    value(o.count, count),
                    value(o.total_ns, duration),
                    value(o.total_bytes, size),
                    value(o.bandwidth_gb_per_s, bandwidth),
                ]
                for o in every
            ],
        ),
    )
    return made


def _name(operation: MemoryOperation) -> str:
    return f"{operation.kind} ({operation.memory})" if operation.memory else operation.kind
