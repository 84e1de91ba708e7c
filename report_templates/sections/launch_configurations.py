"""Section "Launch configurations": grids, blocks, registers, and shared memory of the kernels."""

from __future__ import annotations

from math import prod
from typing import Final

from ...analysis.report.model import LaunchConfiguration, Report
from ..blocks import Only, Section, coded, say
from ..blocks.tables import Cell, Col, table, word
from ..text.formats import count, duration, percent, plural, significant, size

_UNKNOWN = "No launch configurations are known of this run: make the report again from the traces."
_PDF_ROWS = 10
_NOTE = "Registers per thread and shared memory per block; below one block per SM a part of the GPU has nothing to do."
_COLUMNS: Final[tuple[Col[LaunchConfiguration], ...]] = (
    Col("Category", lambda row: row.category, html_only=True),
    Col("Kernel", lambda row: word(row.short_name, full=row.name, limit=72), kind="name"),
    Col("Grid", lambda row: _three(row.grid)),
    Col("Block", lambda row: _three(row.block)),
    Col("Blocks per SM", lambda row: row.blocks_per_sm, significant),
    Col("Registers", lambda row: row.registers, count, html_only=True),
    Col("Shared memory", lambda row: row.shared_memory, size, html_only=True),
    Col("Runs", lambda row: row.count, count),
    Col("Total", lambda row: row.total_ns, duration),
    Col("Of kernel time", lambda row: row.share_of_kernel_time, percent),
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
    html_note = pdf_note = _NOTE
    if found.total > len(found.rows):
        html_note += f" Listed are {listed}."
    longest = sorted(found.rows, key=lambda row: -row.total_ns)[:_PDF_ROWS]
    if found.total > len(longest):
        pdf_note += f" {count(len(longest))} of {count(found.total)} shown; {listed} are in the attached report.json."
    made.add(
        Only(
            "html",
            table("launch-configurations-table", "Kernels by category and launch configuration", found.rows, *_COLUMNS, note=html_note),
        ),
        Only("pdf", table("launch-configurations-longest", "Launch configurations with most time", longest, *_COLUMNS, note=pdf_note)),
    )
    return made


def _three(sizes: tuple[int, int, int] | None) -> Cell:
    """Sorted by how many blocks or threads it makes."""
    return Cell("–") if sizes is None else Cell(" × ".join(map(str, sizes)), sort=prod(sizes))
