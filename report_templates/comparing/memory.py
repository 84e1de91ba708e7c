"""Section "Memory operations" of a comparison: copies and memsets that changed, and GPU memory."""

from __future__ import annotations

from ...analysis.report.comparison import Comparison, MemoryChange
from ..blocks import Section, say
from ..blocks.tables import Cell, Col, table
from ..text.formats import bandwidth, percent, size
from . import words


def memory(made: Comparison) -> Section:
    if not made.memory_operations and made.gpu_memory is None:
        return Section("memory", "Memory operations", say("No copies, memsets or samples of GPU memory in both runs."))
    moved = [f"{_name(one)} {words.signed(one.effect_ns)}" for one in made.memory_operations if one.state != "same"]
    told = f"Changed {words.per(made.basis)}: {', '.join(moved)}." if moved else "No kind of copies changed."
    peak = made.gpu_memory
    if peak is not None:
        told += f" Highest sample of GPU memory: {percent(peak.base)} before, {percent(peak.new)} now."
    found = Section("memory", "Memory operations", say("{}", told))
    unit = words.per(made.basis)
    found.add(
        table(
            "memory-table",
            f"Copies and memsets {unit}",
            made.memory_operations,
            Col("Kind", lambda row: Cell(_name(row)), kind="name"),
            words.VERDICT,
            *words.AMOUNT,
            Col("Count, base", lambda row: row.base_count, words.number),
            Col("Count, new", lambda row: row.new_count, words.number),
            Col("Bytes, base", lambda row: row.base_bytes, words.known(size), html_only=True),
            Col("Bytes, new", lambda row: row.new_bytes, words.known(size), html_only=True),
            Col("Bandwidth, base", lambda row: row.base_gb_per_s, words.known(bandwidth), html_only=True),
            Col("Bandwidth, new", lambda row: row.new_gb_per_s, words.known(bandwidth), html_only=True),
        )
    )
    return found


def _name(one: MemoryChange) -> str:
    return f"{one.kind} {one.memory}" if one.memory else one.kind
