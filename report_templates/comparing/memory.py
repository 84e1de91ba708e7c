"""Which copies and memsets changed, and how full was the GPU memory?"""

from __future__ import annotations

from ...analysis.comparison import Comparison, MemoryChange
from ..blocks import Cell, Column, Section, say, table
from ..formats import UNKNOWN, bandwidth, percent, size
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
            [
                Column("Kind", "name"),
                Column("Verdict"),
                Column("Base", "number"),
                Column("New", "number"),
                Column("Effect", "number"),
                Column("Change", "number"),
                Column("Count, base", "number"),
                Column("Count, new", "number"),
                Column("Bytes, base", "number", html_only=True),
                Column("Bytes, new", "number", html_only=True),
                Column("Bandwidth, base", "number", html_only=True),
                Column("Bandwidth, new", "number", html_only=True),
            ],
            [
                [
                    Cell(_name(one)),
                    words.state(one.state),
                    words.time(one.base_ns),
                    words.time(one.new_ns),
                    words.effect(one.effect_ns),
                    words.change(one.change_percent),
                    words.number(one.base_count),
                    words.number(one.new_count),
                    Cell(size(one.base_bytes), sort=_known(one.base_bytes)),
                    Cell(size(one.new_bytes), sort=_known(one.new_bytes)),
                    Cell(bandwidth(one.base_gb_per_s) if one.base_gb_per_s is not None else UNKNOWN, sort=_known(one.base_gb_per_s)),
                    Cell(bandwidth(one.new_gb_per_s) if one.new_gb_per_s is not None else UNKNOWN, sort=_known(one.new_gb_per_s)),
                ]
                for one in made.memory_operations
            ],
        )
    )
    return found


def _name(one: MemoryChange) -> str:
    return f"{one.kind} {one.memory}" if one.memory else one.kind


def _known(value: float | None) -> float | str:
    return "" if value is None else value
