"""With which grids, blocks, registers and shared memory were the kernels launched?"""

from __future__ import annotations

from math import prod

from ...analysis.report import Report
from ..blocks import Cell, Column, Section, coded, say, table, value, word
from ..formats import count, duration, percent, plural, significant, size

_UNKNOWN = "No launch configurations are known of this run: make the report again from the traces."


def launch_configurations(report: Report) -> Section:
    found = report.launch_configurations
    if found is None or not found.rows:
        lead = coded(_UNKNOWN if found is None else found.absent or _UNKNOWN)
        return Section("launch-configurations", "Launch configurations", lead)
    small = found.small_percent
    few = f" {percent(small)} of the kernel time went into grids with fewer blocks than the GPU has multiprocessors." if small else ""
    made = Section(
        "launch-configurations",
        "Launch configurations",
        say(
            "{} in {}.{}",
            plural(len({row.name for row in found.rows}), "kernel"),
            plural(found.total, "launch configuration"),
            few,
        ),
    )
    rest = f" Listed are the {count(len(found.rows))} with most time." if found.total > len(found.rows) else ""
    made.add(
        table(
            "launch-configurations-table",
            "Kernels by category and launch configuration",
            [
                Column("Category", html_only=True),
                Column("Kernel", "name"),
                Column("Grid"),
                Column("Block"),
                Column("Blocks per SM", "number"),
                Column("Registers", "number", html_only=True),
                Column("Shared memory", "number", html_only=True),
                Column("Runs", "number"),
                Column("Total", "number"),
                Column("Of kernel time", "number"),
            ],
            [
                [
                    word(row.category),
                    word(row.short_name, full=row.name, limit=72),
                    _three(row.grid),
                    _three(row.block),
                    value(row.blocks_per_sm, _ratio),
                    value(row.registers, count),
                    value(row.shared_memory, size),
                    value(row.count, count),
                    value(row.total_ns, duration),
                    value(row.share_of_kernel_time, percent),
                ]
                for row in found.rows
            ],
            pdf_rows=10,
            note="Registers per thread and shared memory per block; below one block per SM a part of the GPU has nothing to do." + rest,
        )
    )
    return made


def _three(sizes: tuple[int, int, int] | None) -> Cell:
    """Sorted by how many blocks or threads it makes."""
    return Cell("–") if sizes is None else Cell(" × ".join(map(str, sizes)), sort=prod(sizes))


def _ratio(value: float | None) -> str:
    return "–" if value is None else significant(value)
