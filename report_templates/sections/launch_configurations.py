"""Section "Launch configurations": grids, blocks, registers, and shared memory of the kernels."""

from __future__ import annotations

from math import prod
from typing import Final

from ...analysis.report.model import LaunchConfiguration, Report
from ..blocks import Only, Section, coded, say
from ..blocks.tables import Cell, Col, table, word
from ..text.formats import count, duration, percent, plural, significant, size

_UNKNOWN = "No launch configurations are known of this run: make the report again from the traces."
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
    summary = report.launch_configurations
    if summary is None or not summary.rows:
        lead = coded((summary and summary.absent) or _UNKNOWN)
        return Section("launch-configurations", "Launch configurations", lead)
    small = summary.small_percent
    small_grids = (
        f" {percent(small)} of the kernel time went into grids with fewer blocks than the GPU has multiprocessors." if small else ""
    )
    kernels = summary.kernels or (len({row.name for row in summary.rows}) if len(summary.rows) == summary.total else None)
    configurations = plural(summary.total, "launch configuration")
    lead = say("{}{}.{}", f"{plural(kernels, 'kernel')} in " if kernels else "", configurations, small_grids)
    listed = f"the {count(len(summary.rows))} with most time" if summary.total > len(summary.rows) else "all"
    html_note = pdf_note = _NOTE
    if summary.total > len(summary.rows):
        html_note += f" Listed are {listed}."
    longest = sorted(summary.rows, key=lambda row: -row.total_ns)[:10]
    if summary.total > len(longest):
        pdf_note += f" {count(len(longest))} of {count(summary.total)} shown; {listed} are in the attached report.json."
    blocks = [
        Only(
            "html",
            table("launch-configurations-table", "Kernels by category and launch configuration", summary.rows, *_COLUMNS, note=html_note),
        ),
        Only("pdf", table("launch-configurations-longest", "Launch configurations with most time", longest, *_COLUMNS, note=pdf_note)),
    ]
    return Section("launch-configurations", "Launch configurations", lead, blocks)


def _three(sizes: tuple[int, int, int] | None) -> Cell:
    """Write three sizes; the cell is sorted by their product."""
    return Cell("–") if sizes is None else Cell(" × ".join(map(str, sizes)), sort=prod(sizes))
