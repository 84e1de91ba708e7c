"""Utilization of the nodes: processors, GPUs, memory, disks and network."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Final

import polars as pl

from ...ingest.store.store import Store
from ..report.machine import ActiveTime, MetricUsage, Series, SystemUsage, UnitHeat
from ..toolkit.places import Places, in_order
from ..toolkit.quantiles import quantile
from ..toolkit.wording import whole_percent
from .gpu_clocks import gpu_clocks, throttling
from .node_figures import MEAN, Figure, counts, figures_of_nodes
from .utilization import derived_utilization

SERIES_POINTS: Final = 400
HEAT_BUCKETS: Final = 200
_BUSY: Final = 70.0
# Samples of processors, of every source, are of everything that ran on the node.
_MACHINE: Final = "this is the whole machine, not the job alone"
_DRAWN: Final = ("gpu", "cpu", "gpu_memory", "io_wait", "cpu_memory", "network")
_DISKS: Final = ("disk_read", "disk_write")  # drawn over time only without GPUs, which need the room
_ABSENT: Final = (
    "No system metrics and no device activity in this run. The hosted profiler's folder system/ has samples of processors, GPUs, memory,"
    " disks and network; traces with GPU kernels give the GPUs' busy share."
)
_NO_SAMPLES: Final = pl.DataFrame(schema={"metric": pl.Categorical, "unit": pl.Int32, "time_ns": pl.Int64, "value": pl.Float64})


def system_usage(store: Store, derived: pl.DataFrame | None = None) -> SystemUsage:
    """Return quantiles, statements, active time, series and heat of every node.

    Nodes are in order of host name. Per snapshot (samples taken together), percentages are averaged over the node's own units; network is
    receive + transmit of the algorithm. ``gpu_memory`` is used / total if it was sampled, else the utilization of the memory controller as
    the hosted profiler records it; the unit distinguishes them. A node without sampled GPU utilization gets the utilization derived from
    kernel activity (``derived``, if it is known).
    """
    places = Places(store)
    derived = derived_utilization(store) if derived is None else derived
    counted = counts(store)
    sampled = counted.filter(pl.col("metric") == "gpu_utilization")["node"].to_list()
    derived = derived.filter(~pl.col("node").is_in(sampled))
    measured = {*counted["node"], *derived["node"]}
    usage: list[MetricUsage] = []
    statements: list[tuple[str, str]] = []
    series: list[Series] = []
    heat: list[UnitHeat] = []
    for node, figures in figures_of_nodes(store, counted, sorted(measured), derived):
        name = places.node(node)
        rows = [_usage(name, figure) for figure in figures]
        usage += rows
        if sentence := _statement({row.metric: row for row in rows}, _mean(figures)):
            statements.append((name, sentence))
        drawn = _DRAWN if any(figure.name in ("gpu", "gpu_memory") for figure in figures) else (*_DRAWN, *_DISKS)
        series += [_series(name, figure) for key in drawn for figure in figures if figure.name == key]
        heat += [_heat(name, figure) for key in ("cpu", "gpu") for figure in figures if figure.name == key]
    clocks = gpu_clocks(store)
    return SystemUsage(
        nodes=tuple(sorted(usage, key=lambda row: in_order(row.node))),
        statements=tuple(sorted(statements, key=lambda row: in_order(row[0]))),
        gpu_active=_active(counted, "gpu_utilization")
        or _active_time(len(derived), derived.filter(pl.col("value") > 0).height, derived=True),
        cpu_active=_active(counted, "cpu_utilization"),
        series=tuple(sorted(series, key=lambda row: in_order(row.node))),
        heat=tuple(sorted(heat, key=lambda row: in_order(row.node))),
        absent=None if usage else _ABSENT,
        gpu_clocks=clocks,
        throttling=throttling(clocks),
    )


def _usage(node: str, figure: Figure) -> MetricUsage:
    ordered = figure.node["value"].sort()
    return MetricUsage(
        node=node,
        metric=figure.name,
        unit=figure.unit,
        samples=len(ordered),
        max=float(ordered[-1]),
        p99=quantile(ordered, 0.99),
        p95=quantile(ordered, 0.95),
        p50=quantile(ordered, 0.50),
        min=float(ordered[0]),
        derived=figure.derived,
    )


def _mean(figures: Iterable[Figure]) -> float:
    """Return the mean GPU utilization over the whole time; 0 without samples."""
    return next((float(figure.node["value"].mean() or 0) for figure in figures if figure.name == "gpu"), 0.0)  # type: ignore[arg-type]


def _exact(value: float) -> float:
    """Round away the last digits of a quantile: 70 stays 70."""
    return round(value, 9)


def _statement(usage: dict[str, MetricUsage], gpu_mean: float) -> str | None:
    """Write the documented sentence on the use of a node."""
    gpu, cpu = usage.get("gpu"), usage.get("cpu")
    if gpu is None:
        if cpu is None:
            return None
        if _exact(cpu.p95) > _BUSY:
            return (
                f"Well used: the 95th percentile of the CPU is {whole_percent(cpu.p95)}, its median {whole_percent(cpu.p50)}; {_MACHINE}."
            )
        return (
            f"No GPU was sampled; the median of the CPU is {whole_percent(cpu.p50)}, its 95th percentile {whole_percent(cpu.p95)};"
            f" {_MACHINE}."
        )
    if gpu.derived:  # the documented thresholds are for samples, not for short buckets of a profile
        return f"No GPU utilization was sampled; derived from kernel activity its median is {whole_percent(gpu.p50)}."
    if _exact(gpu.p95) < _BUSY and cpu is not None and _exact(cpu.p95) < _BUSY:
        return (
            f"Under-utilized: the 95th percentile of the GPUs is {whole_percent(gpu.p95)}, of the CPU {whole_percent(cpu.p95)};"
            " a smaller instance would do."
        )
    if _exact(gpu.p95) < _BUSY and cpu is not None and _exact(cpu.p95) > _BUSY:
        return (
            f"GPUs under-used, likely waiting for the CPU: the 95th percentile of the GPUs is {whole_percent(gpu.p95)},"
            f" of the CPU {whole_percent(cpu.p95)}."
        )
    if _exact(gpu.p50) > _BUSY:
        return f"Well used: the median of the GPUs is {whole_percent(gpu.p50)}, their mean over the whole time {whole_percent(gpu_mean)}."
    rest = "; no CPU samples" if cpu is None else f", of the CPU {whole_percent(cpu.p50)}"
    return f"The median of the GPUs is {whole_percent(gpu.p50)}{rest}."


def _series(node: str, figure: Figure) -> Series:
    grid, _ = _grid(figure.node["snapshot_ns"], SERIES_POINTS)
    points = (
        figure.node.join(grid, on="snapshot_ns", maintain_order="left")
        .group_by("bucket", maintain_order=True)
        .agg(pl.col("time_ns").first(), MEAN, pl.col("low").min(), pl.col("high").max())
        .sort("bucket")
    )
    return Series(
        node=node,
        metric=figure.name,
        unit=figure.unit,
        time_ns=tuple(points["time_ns"]),
        mean=tuple(points["value"]),
        low=tuple(points["low"]),
        high=tuple(points["high"]),
        derived=figure.derived,
    )


def _heat(node: str, figure: Figure) -> UnitHeat:
    grid, times = _grid(figure.node["snapshot_ns"], HEAT_BUCKETS)
    ordered = figure.units.join(grid, on="snapshot_ns", maintain_order="left")
    cells = ordered.group_by("unit", "bucket", maintain_order=True).agg(MEAN)
    known = cells.filter(pl.col("unit").is_not_null())
    rows = {unit: dict(part.select("bucket", "value").rows()) for (unit,), part in known.partition_by("unit", as_dict=True).items()}
    units = sorted(rows)
    return UnitHeat(
        node=node,
        metric=figure.name,
        units=tuple(units),
        time_ns=tuple(times),
        values=tuple(tuple(rows[unit].get(bucket) for bucket in range(len(times))) for unit in units),
        derived=figure.derived,
    )


def _grid(snapshots: pl.Series, limit: int) -> tuple[pl.DataFrame, list[int]]:
    """Assign the snapshots to buckets; also return the starts of all buckets.

    Columns: snapshot_ns, bucket, time_ns (start of the bucket). Up to ``limit`` snapshots have a bucket each; more share ``limit`` equal
    buckets.
    """
    frame = snapshots.sort().to_frame()
    if len(frame) <= limit:
        return frame.with_row_index("bucket").with_columns(time_ns=pl.col("snapshot_ns")), frame["snapshot_ns"].to_list()
    first, last = frame["snapshot_ns"][0], frame["snapshot_ns"][-1]
    width = math.ceil((last - first + 1) / limit)
    bucket = (pl.col("snapshot_ns") - first) // width
    count = (last - first) // width + 1
    return frame.with_columns(bucket=bucket, time_ns=first + bucket * width), [first + i * width for i in range(count)]


def _active(counted: pl.DataFrame, metric: str) -> ActiveTime | None:
    return _active_time(*counted.filter(pl.col("metric") == metric).select(pl.col("n", "active").sum()).row(0))


def _active_time(points: int, active: int, *, derived: bool = False) -> ActiveTime | None:
    return ActiveTime(points, active, 100 * active / points, derived=derived) if points else None
