"""Notes of hardware errors that were sampled: XID errors and memory errors of GPUs, links of InfiniBand ports that went down.

Samples of a run store -> rows of ``ingest_note``, one per machine and kind of error. Counters are written when they change, so the highest
value of a metric less its first is the number of errors during the run.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

import polars as pl

from ..store.store import Store
from ..store.tables import Severity

XID: Final[dict[int, str]] = {
    8: "the GPU stopped processing",
    13: "an exception of the compute engine, mostly an illegal instruction or address of the program",
    31: "a page fault of the GPU, mostly an illegal address of the program",
    32: "damaged commands in a push buffer",
    38: "an error of the driver's firmware",
    43: "the GPU stopped processing, mostly after an error of the program",
    45: "work was removed from the GPU, mostly after an earlier error or the end of the program",
    46: "the GPU stopped processing",
    48: "an uncorrectable ECC error",
    61: "a breakpoint or warning of a microcontroller",
    62: "a microcontroller halted",
    63: "a memory page or row was marked for retirement",
    64: "a memory page or row could not be marked for retirement",
    69: "an exception of the graphics engine",
    74: "an NVLink error",
    79: "the GPU has fallen off the bus",
    92: "many corrected ECC errors",
    94: "an uncorrectable memory error that was contained to one program",
    95: "an uncorrectable memory error that was not contained",
    109: "a context switch timed out",
    119: "the GPU's system processor (GSP) did not answer",
    120: "an error of the GPU's system processor (GSP)",
    121: "a corrected error of the link between chips (C2C)",
    137: "an NVLink access without permission",
    140: "an ECC error that was not recovered",
    143: "the GPU could not be initialized",
    144: "an NVLink error", 145: "an NVLink error", 146: "an NVLink error", 147: "an NVLink error", 148: "an NVLink error",
    149: "an NVLink error", 150: "an NVLink error",
    154: "the action that recovers the GPU changed",
}  # fmt: skip
"""Meaning of the well-known XID errors."""

_UNKNOWN: Final = "see NVIDIA's list of XID errors"
_CHANGES: Final = """
    SELECT coalesce(n.hostname, 'node-' || s.node) AS node, unit, metric, arg_min(value, time_ns) AS first, max(value) AS last,
        min(time_ns) AS first_ns, max(time_ns) AS last_ns
    FROM sample AS s LEFT JOIN node AS n ON n.id = s.node
    WHERE isfinite(value) AND (starts_with(metric, 'gpu_ecc_') OR starts_with(metric, 'gpu_row_remapping_')
        OR starts_with(metric, 'gpu_remapped_rows_') OR metric = 'infiniband_link_downed') GROUP BY ALL ORDER BY node, unit
"""
_XIDS: Final = """
    SELECT coalesce(n.hostname, 'node-' || s.node) AS node, unit, CAST(value AS BIGINT) AS code, count(*) AS times,
        min(time_ns) AS first_ns, max(time_ns) AS last_ns
    FROM sample AS s LEFT JOIN node AS n ON n.id = s.node
    WHERE metric = 'gpu_xid' AND value BETWEEN 0 AND 1e9 GROUP BY ALL ORDER BY node, unit, code
"""


def note_health(store: Store, ports: Mapping[tuple[str, int], str]) -> None:
    """Note errors of GPUs and links, per node. ``ports``: (host, unit) -> port name."""
    if not store.has_rows("sample"):
        return
    xids = store.frame(_XIDS)
    for (node,), rows in xids.partition_by("node", as_dict=True, maintain_order=True).items():
        errors = [
            f"{_gpu(unit)}: XID {code} ({XID.get(code, _UNKNOWN)}){f', {times:,} times' if times > 1 else ''}"
            for unit, code, times in rows.select("unit", "code", "times").rows()
        ]
        text = f"The driver reported errors of GPUs on {node}: {'; '.join(errors)}."
        _note(store, "warning", "gpu_xid", text, rows, int(rows["times"].sum()))
    changes = store.frame(_CHANGES).with_columns(more=pl.col("last") - pl.col("first"))
    for (node,), rows in changes.partition_by("node", as_dict=True, maintain_order=True).items():
        _note_memory(store, node, rows)
        down = rows.filter((pl.col("metric") == "infiniband_link_downed") & (pl.col("more") > 0))
        if len(down):
            links = [f"{ports.get((node, unit), f'port {unit}')} {_times(more)}" for unit, more in down.select("unit", "more").rows()]
            text = f"Links of InfiniBand ports on {node} went down during the run: {', '.join(links)}."
            _note(store, "warning", "infiniband_link_down", text, down, len(down))


def _note_memory(store: Store, node: str, rows: pl.DataFrame) -> None:
    wanted = {
        "gpu_ecc_uncorrected": ("uncorrected ECC error", "uncorrected ECC errors"),
        "gpu_ecc_corrected": ("corrected ECC error", "corrected ECC errors"),
        "gpu_remapped_rows_uncorrected": ("row remapped for uncorrected errors", "rows remapped for uncorrected errors"),
        "gpu_remapped_rows_corrected": ("row remapped for corrected errors", "rows remapped for corrected errors"),
    }
    grown = rows.filter(pl.col("metric").is_in(list(wanted)) & (pl.col("more") > 0))
    if len(grown):
        counts = grown.select("unit", "metric", "more").rows()
        parts = [f"{_gpu(unit)}: {more:,.0f} {wanted[metric][more != 1]}" for unit, metric, more in counts]
        uncorrected = grown["metric"].str.ends_with("uncorrected").any()
        text = f"Memory errors of GPUs on {node} during the run: {'; '.join(parts)}."
        _note(store, "warning" if uncorrected else "info", "gpu_memory_errors", text, grown, len(grown))
    for metric, problem in (
        ("gpu_row_remapping_pending", "have a memory row that waits for a reset of the GPU to be replaced"),
        ("gpu_row_remapping_failed", "have a memory row that could not be replaced; NVIDIA recommends to replace such GPUs"),
    ):
        bad = rows.filter((pl.col("metric") == metric) & (pl.col("last") > 0))
        if len(bad):
            which = ", ".join(_gpu(unit) for unit in bad["unit"])
            _note(store, "warning", metric, f"These GPUs on {node} {problem}: {which}.", bad, len(bad))


def _gpu(unit: int | None) -> str:
    return "an unknown GPU" if unit is None else f"GPU {unit}"


def _times(number: float) -> str:
    return "once" if number == 1 else f"{number:,.0f} times"


def _note(store: Store, severity: Severity, code: str, text: str, rows: pl.DataFrame, count: int) -> None:
    first, last = rows.select(pl.col("first_ns").min(), last=pl.col("last_ns").max()).row(0)
    store.note(severity, code, text, count=count, first_ns=first, last_ns=last)


def port_names(recordings: Iterable[tuple[str, Mapping[str, str]]]) -> dict[tuple[str, int], str]:
    """Return port names by host and unit, from (host, metadata) of recordings."""
    return {
        (host, int(parts[1])): name
        for host, metadata in recordings
        for key, name in metadata.items()
        if len(parts := key.split(".")) == 3 and (parts[0], parts[2]) == ("infiniband", "port") and parts[1].isdigit()
    }
