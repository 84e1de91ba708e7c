"""Samples that a timeline draws as lines: utilization, memory, power, counters.

The lanes of utilization have the names of the hosted service's timeline. Its SUM Utilization, which is a mean, is called Mean utilization.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import polars as pl

from ...ingest.store.metrics import COUNTER, METRICS
from ...ingest.store.store import Store
from .events import registered

POINTS: Final = 150_000  # points of all lines together
MOST: Final = 1000  # points of a line; more samples are averaged over intervals of equal length
LEAST: Final = 32
MOST_LINES: Final = 4000

_MIB: Final = 1024 * 1024
# Metric -> label, unit of the line, factor. GPUs have a line each; processors and the node have one line.
_GPU: Final = {
    "gpu_utilization": ("utilization", "percent", 1.0),
    "gpu_memory_used_bytes": ("memory", "MiB", 1 / _MIB),
    "gpu_memory_used_percent": ("memory", "percent", 1.0),
    "gpu_power": ("power", "W", 1.0),
    "gpu_sm_clock": ("clock", "MHz", 1.0),
    "gpu_temperature": ("temperature", "°C", 1.0),
    "gpu_pcie_transmit": ("PCIe, sent", "MiB/s", 1 / _MIB),
    "gpu_pcie_receive": ("PCIe, received", "MiB/s", 1 / _MIB),
    "gpu_nvlink_transmit": ("NVLink, sent", "MiB/s", 1 / _MIB),
    "gpu_nvlink_receive": ("NVLink, received", "MiB/s", 1 / _MIB),
}
_MACHINE: Final = {
    "cpu_utilization": ("Average utilization", "percent", 1.0),
    "cpu_iowait": ("Waiting for input and output", "percent", 1.0),
    "memory_used_percent": ("Host memory in use", "percent", 1.0),
    "disk_read": ("Disk, read", "MiB/s", 1 / _MIB),
    "disk_write": ("Disk, written", "MiB/s", 1 / _MIB),
    "network_receive": ("Network, received", "MiB/s", 1 / _MIB),
    "network_transmit": ("Network, sent", "MiB/s", 1 / _MIB),
    **{metric: (metric.removeprefix("perf."), METRICS[metric], 1.0) for metric in METRICS if metric.startswith("perf.")},
}
UTILIZATION: Final = ("cpu_utilization", "gpu_utilization")
_DERIVED: Final = " (derived from kernel activity)"


@dataclass(frozen=True, slots=True)
class Drawn:
    """A line of samples. ``scope``: machine, gpus (mean of a node's), gpu or process; ``number``: of the GPU or process. ``detail``: the
    full label if it is longer. ``points``: time_ns, mean, low, high."""

    scope: str
    node: int
    number: int
    metric: str
    label: str
    detail: str
    unit: str
    points: pl.DataFrame


def lines(store: Store, derived: pl.DataFrame) -> list[Drawn]:
    """Return every line, thinned to mean and range over intervals of equal length."""
    counted = f"starts_with(metric, '{COUNTER}')"
    known = ", ".join(f"'{metric}'" for metric in (*_GPU, *_MACHINE))
    wanted = f"SELECT node, metric, unit, time_ns, value FROM sample WHERE isfinite(value) AND (metric IN ({known}) OR {counted})"
    unit = f"CASE WHEN {counted} OR starts_with(metric, 'gpu_') THEN coalesce(unit, -1) ELSE -1 END"
    estimates = derived.select("node", pl.lit("gpu_utilization").alias("metric"), "unit", "time_ns", "value")
    every = f"({wanted} UNION ALL SELECT * FROM derived_utilization)"
    # The track "GPUs" shows the mean of a node's GPUs, even of a single one.
    lined = f"""(SELECT node, metric, {unit} AS number, time_ns, value FROM {every}
        UNION ALL SELECT node, 'mean', -1, time_ns, value FROM {every} WHERE metric = 'gpu_utilization')"""
    spans = f"""SELECT node, metric::VARCHAR AS metric, number, count(*) AS values, min(time_ns) AS first, max(time_ns) AS last
        FROM {lined} GROUP BY node, metric, number ORDER BY number >= 0, node, metric, number"""
    with registered(store, "derived_utilization", estimates) as cursor:
        series = cursor.sql(spans).pl()
        points = max(LEAST, min(MOST, POINTS // max(len(series), 1)))
        length = (pl.col("last") - pl.col("first")) // points + 1
        width = pl.when(pl.col("values") > points).then(length).otherwise(1)
        cursor.register("series", series.head(MOST_LINES).select("node", "metric", "number", "first", width=width).to_arrow())
        thinned = cursor.sql(f"""
            SELECT node, metric, number, min(time_ns) AS time_ns, favg(value) AS mean, min(value) AS low, max(value) AS high
            FROM {lined} AS l JOIN series AS s USING (node, metric, number)
            GROUP BY node, metric, number, (time_ns - s.first) // s.width
            ORDER BY node, metric, number, time_ns
        """).pl()
        cursor.unregister("series")
    estimated = set(derived.select("node", "unit").unique().rows()) if derived.height else set()
    parts = thinned.partition_by("node", "metric", "number", as_dict=True, include_key=False, maintain_order=True)
    has_bytes = {(node, number) for node, metric, number in parts if metric == "gpu_memory_used_bytes"}
    return [
        _drawn(node, metric, number, part, (node, number) in estimated or (metric == "mean" and any(n == node for n, _ in estimated)))
        for (node, metric, number), part in parts.items()
        if not (metric == "gpu_memory_used_percent" and (node, number) in has_bytes)
    ]


def _drawn(node: int, metric: str, number: int, points: pl.DataFrame, estimated: bool) -> Drawn:
    if metric.startswith(COUNTER):
        scope, (label, unit, factor) = "process", (metric.removeprefix(COUNTER), "", 1.0)
    elif metric == "mean":
        scope, (label, unit, factor) = "gpus", ("Mean utilization", "percent", 1.0)
    elif metric in _MACHINE:
        scope, (label, unit, factor) = "machine", _MACHINE[metric]
    else:
        scope, (label, unit, factor) = "gpu", _GPU[metric]
        label = f"GPU-{number} {label}" if number >= 0 else f"GPUs, {label}"
    detail = f"{label} of the node's GPUs" if metric == "mean" else ""
    if estimated and metric in ("mean", "gpu_utilization"):
        detail = (detail or label) + _DERIVED
    scaled = points.select("time_ns", *(pl.col(column) * factor for column in ("mean", "low", "high")))
    # Rounding may move a mean beyond its ends.
    within = scaled.with_columns(mean=pl.max_horizontal("low", pl.min_horizontal("mean", "high")))
    return Drawn(scope, node, number, metric, label, detail, unit, within)
