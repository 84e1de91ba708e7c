"""Utilization of the nodes: processors, GPUs, memory, disks and network."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

import polars as pl

from ...ingest.store.store import Store
from ...ingest.store.tables import MEASURED, METRICS
from ..report.model import ActiveTime, MetricUsage, Series, SystemUsage, UnitHeat
from ..toolkit.places import Places, batches, in_order
from ..toolkit.quantiles import quantile
from ..toolkit.wording import whole_percent
from .gpu_clocks import gpu_clocks, throttling
from .snapshots import with_snapshots
from .utilization import derived_utilization

SERIES_POINTS: Final = 400
HEAT_BUCKETS: Final = 200
_BUSY: Final = 70.0
# Samples of processors, of every source, are of everything that ran on the node.
_MACHINE: Final = "this is the whole machine, not the job alone"
_AT_ONCE: Final = 1_000_000  # samples
# Mean of a group. Polars' own mean adds up in an order that varies from call to call, and so would the last digit in a report.
_MEAN: Final = pl.col("value").sum() / pl.col("value").count()
# Figure of the report -> metrics that are added up for it, per snapshot, after averaging each over its units.
_FIGURES: Final[dict[str, tuple[str, ...]]] = {
    "network": ("network_receive", "network_transmit"),
    "gpu": ("gpu_utilization",),
    "cpu": ("cpu_utilization",),
    "cpu_memory": ("memory_used_percent",),
    "gpu_memory": ("gpu_memory_used_percent",),
    "io_wait": ("cpu_iowait",),
    "disk_read": ("disk_read",),
    "disk_write": ("disk_write",),
    # Only in the table: DCGM's profiling counters, which measure other quantities than the utilization; temperatures and links.
    "gpu_engine_active": ("gpu_engine_active",),
    "gpu_sm_active": ("gpu_sm_active",),
    "gpu_sm_occupancy": ("gpu_sm_occupancy",),
    "gpu_tensor_active": ("gpu_tensor_active",),
    "gpu_fp64_active": ("gpu_fp64_active",),
    "gpu_fp32_active": ("gpu_fp32_active",),
    "gpu_fp16_active": ("gpu_fp16_active",),
    "gpu_dram_active": ("gpu_dram_active",),
    "gpu_throttle_power": ("gpu_throttle_power",),
    "gpu_throttle_thermal": ("gpu_throttle_thermal",),
    "gpu_temperature": ("gpu_temperature",),
    "gpu_memory_temperature": ("gpu_memory_temperature",),
    "gpu_pcie": ("gpu_pcie_transmit", "gpu_pcie_receive"),
    "gpu_nvlink": ("gpu_nvlink_transmit", "gpu_nvlink_receive"),
    "infiniband": ("infiniband_transmit", "infiniband_receive"),
}
_RECORDED_MEMORY: Final = "gpu_memory_controller"
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
    measured = set(derived["node"])
    if store.has_rows("sample"):
        sampled = store.frame("SELECT DISTINCT node FROM sample WHERE metric = 'gpu_utilization'")["node"].to_list()
        derived = derived.filter(~pl.col("node").is_in(sampled))
        measured = {*store.frame(f"SELECT DISTINCT node FROM sample WHERE {MEASURED}")["node"], *derived["node"]}
    usage: list[MetricUsage] = []
    statements: list[tuple[str, str]] = []
    series: list[Series] = []
    heat: list[UnitHeat] = []
    for node, samples in _samples(store, sorted(measured)):
        name = places.node(node)
        figures = _figures(samples, derived.filter(pl.col("node") == node) if len(derived) else derived)
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
        gpu_active=_active(store, "gpu_utilization")
        or _active_time(len(derived), derived.filter(pl.col("value") > 0).height, derived=True),
        cpu_active=_active(store, "cpu_utilization"),
        series=tuple(sorted(series, key=lambda row: in_order(row.node))),
        heat=tuple(sorted(heat, key=lambda row: in_order(row.node))),
        absent=None if usage else _ABSENT,
        gpu_clocks=clocks,
        throttling=throttling(clocks),
    )


class _Figure:
    """A figure of a node. ``units``: snapshot_ns, unit, value; ``node``: snapshot_ns, value of the node, low and high."""

    def __init__(self, name: str, unit: str, units: pl.DataFrame, derived: bool) -> None:
        self.name, self.unit, self.units, self.derived = name, unit, units, derived
        value = pl.col("value")
        means = units.group_by("snapshot_ns", maintain_order=True).agg(_MEAN, low=value.min(), high=value.max())
        self.node = means.sort("snapshot_ns")


def _samples(store: Store, nodes: Sequence[int]) -> Iterator[tuple[int, pl.DataFrame]]:
    """Read the samples of each node in groups of about a million samples.

    Columns: metric, unit, time_ns, value. ``nodes`` are in ascending order.
    """
    if not store.has_rows("sample"):
        yield from ((node, _NO_SAMPLES) for node in nodes)
        return
    counts = dict(store.frame(f"SELECT node, count(*) FROM sample WHERE {MEASURED} GROUP BY node").rows())
    for group in batches(((node, counts.get(node, 0)) for node in nodes), _AT_ONCE):
        rows = store.frame(
            f"SELECT node, metric, unit, time_ns, value FROM sample WHERE node BETWEEN ? AND ? AND {MEASURED}", [group[0], group[-1]]
        ).with_columns(pl.col("metric").cast(pl.Categorical))
        parts = rows.partition_by("node", as_dict=True, include_key=False)
        yield from ((node, parts.get((node,), rows.clear().drop("node"))) for node in group)


def _figures(samples: pl.DataFrame, derived: pl.DataFrame) -> list[_Figure]:
    if len(samples):
        samples = with_snapshots(samples)
    present = set(samples["metric"].unique())
    figures = []
    for name, metrics in _FIGURES.items():
        if name == "gpu_memory" and metrics[0] not in present:
            metrics = (_RECORDED_MEMORY,)
        if name == "gpu" and len(derived):
            units = derived.select(snapshot_ns="time_ns", unit="unit", value="value")
            figures.append(_Figure(name, METRICS[metrics[0]], units, derived=True))
        elif present & set(metrics):
            rows = samples.filter(pl.col("metric").is_in(metrics)).group_by("metric", "snapshot_ns", "unit").agg(_MEAN)
            if len(metrics) > 1:
                rows = rows.group_by("snapshot_ns", "unit").agg(pl.col("value").sum())
            units = rows.select("snapshot_ns", "unit", "value").sort("snapshot_ns", "unit")
            figures.append(_Figure(name, METRICS[metrics[0]], units, derived=False))
    return figures


def _usage(node: str, figure: _Figure) -> MetricUsage:
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


def _mean(figures: Iterable[_Figure]) -> float:
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
        return f"No GPU utilisation was sampled; derived from kernel activity its median is {whole_percent(gpu.p50)}."
    if _exact(gpu.p95) < _BUSY and cpu is not None and _exact(cpu.p95) < _BUSY:
        return (
            f"Under-utilised: the 95th percentile of the GPUs is {whole_percent(gpu.p95)}, of the CPU {whole_percent(cpu.p95)};"
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


def _series(node: str, figure: _Figure) -> Series:
    grid, _ = _grid(figure.node["snapshot_ns"], SERIES_POINTS)
    points = (
        figure.node.join(grid, on="snapshot_ns", maintain_order="left")
        .group_by("bucket", maintain_order=True)
        .agg(pl.col("time_ns").first(), _MEAN, pl.col("low").min(), pl.col("high").max())
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


def _heat(node: str, figure: _Figure) -> UnitHeat:
    grid, times = _grid(figure.node["snapshot_ns"], HEAT_BUCKETS)
    ordered = figure.units.join(grid, on="snapshot_ns", maintain_order="left")
    cells = ordered.group_by("unit", "bucket", maintain_order=True).agg(_MEAN)
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


def _active(store: Store, metric: str) -> ActiveTime | None:
    if not store.has_rows("sample"):
        return None
    return _active_time(*store.frame("SELECT count(*), count(*) FILTER (value > 0) FROM sample WHERE metric = ?", [metric]).row(0))


def _active_time(points: int, active: int, *, derived: bool = False) -> ActiveTime | None:
    return ActiveTime(points, active, 100 * active / points, derived=derived) if points else None
