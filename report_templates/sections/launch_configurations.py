"""With which grids, blocks, registers and shared memory were the kernels launched?"""

from __future__ import annotations

from math import prod

from ...analysis.report import LaunchConfiguration, Report
from ..blocks import Cell, Column, Section, coded, say, table, value, word
from ..formats import count, duration, percent, plural, significant, size

_UNKNOWN = "No launch configurations are known of this run: make the report again from the traces."
_PDF_ROWS = 10
_NOTE = "Registers per thread and shared memory per block; below one block per SM a part of the GPU has nothing to do."
_COLUMNS = (
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
)


def launch_configurations(report: Report) -> Section:
    found = report.launch_configurations
    if found is None or not found.rows:
        lead = coded(_UNKNOWN if found is None else found.absent or _UNKNOWN)
        return Section("launch-configurations", "Launch configurations", lead)
    small = found.small_percent
    few = f" {percent(small)} of the kernel time went into grids with fewer blocks than the GPU has multiprocessors." if small else ""
    kernels = found.kernels or (len({row.name for row in found.rows}) if len(found.rows) == found.total else None)
    configurations = plural(found.total, "launch configuration")
    made = Section(
        "launch-configurations",
        "Launch configurations",
        say("{} in {}.{}", plural(kernels, "kernel"), configurations, few) if kernels else say("{}.{}", configurations, few),
    )
    listed = f"the {count(len(found.rows))} with most time" if found.total > len(found.rows) else "all"
    longest = sorted(found.rows, key=lambda row: -row.total_ns)[:_PDF_ROWS]
    made.add(
        table(
            "launch-configurations-table",
            "Kernels by category and launch configuration",
            _COLUMNS,
            [_cells(row) for row in found.rows],
            note=_NOTE + (f" Listed are {listed}." if found.total > len(found.rows) else ""),
        ),
        table(
            "launch-configurations-longest",
            "Launch configurations with most time",
            _COLUMNS,
            [_cells(row) for row in longest],
            pdf_rows=_PDF_ROWS,
            note=_NOTE
            + (
                f" {count(len(longest))} of {count(found.total)} shown; {listed} are in the attached report.json."
                if found.total > len(longest)
                else ""
            ),
        ),
    )
    return made


def _cells(row: LaunchConfiguration) -> list[Cell]:
    return [
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


def _three(sizes: tuple[int, int, int] | None) -> Cell:
    """Sorted by how many blocks or threads it makes."""
    return Cell("–") if sizes is None else Cell(" × ".join(map(str, sizes)), sort=prod(sizes))


def _ratio(value: float | None) -> str:
    return "–" if value is None else significant(value)
