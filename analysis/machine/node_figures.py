"""Figures of the nodes over time, from the samples of all their metrics.

Nodes are read in groups of about a million samples. Mostly all series of a metric have the same times, which are snapshots; then the
figures of all nodes of a group are computed at once, otherwise node by node.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import polars as pl

from ...ingest.store.metrics import MEASURED, METRICS
from ...ingest.store.store import Store
from ..toolkit.places import batches
from .series import MetricSeries, per_moment, read
from .snapshots import SNAPSHOT_NS, with_snapshots

_AT_ONCE: Final = 1_000_000  # samples
_MOST_CODES: Final = 1 << 62
_MOST_UNITS: Final = 127  # Polars adds up larger groups in parts, and so would the last digit of a mean differ
# Mean of a group. Polars' own mean adds up in an order that varies from call to call, and so would the last digit in a report.
MEAN: Final = pl.col("value").sum() / pl.col("value").count()
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


class Figure:
    """A figure of a node. ``units``: snapshot_ns, unit, value; ``node``: snapshot_ns, value of the node, low and high."""

    def __init__(self, name: str, unit: str, units: pl.DataFrame, *, derived: bool = False, node: pl.DataFrame | None = None) -> None:
        self.name, self.unit, self.units, self.derived = name, unit, units, derived
        if node is None:
            value = pl.col("value")
            means = units.group_by("snapshot_ns", maintain_order=True).agg(MEAN, low=value.min(), high=value.max())
            node = means.sort("snapshot_ns")
        self.node = node


_COUNTS: Final = {
    "node": pl.Int32, "metric": pl.String, "n": pl.Int64, "active": pl.Int64, "first": pl.Int64, "last": pl.Int64, "first_unit": pl.Int32,
    "last_unit": pl.Int32,
}  # fmt: skip


def counts(store: Store) -> pl.DataFrame:
    """Return the number of samples of each metric of each node.

    Columns: node, metric, n, active (samples above 0), first and last time in ns, first_unit, last_unit (None: no unit)."""
    if not store.has_rows("sample"):
        return pl.DataFrame(schema=_COUNTS)
    return store.frame(f"""
        SELECT node, metric, count(*) AS n, count(*) FILTER (value > 0) AS active, min(time_ns) AS first, max(time_ns) AS last,
            min(unit) AS first_unit, max(unit) AS last_unit
        FROM sample WHERE {MEASURED} GROUP BY ALL ORDER BY ALL
    """)


def figures_of_nodes(
    store: Store, counted: pl.DataFrame, nodes: Sequence[int], derived: pl.DataFrame
) -> Iterator[tuple[int, list[Figure]]]:
    """Yield each node with its figures.

    ``nodes``: in ascending order. ``derived``: derived utilization, which replaces sampled."""
    samples = dict(counted.group_by("node").agg(pl.col("n").sum()).rows())
    for group in batches(((node, samples.get(node, 0)) for node in nodes), _AT_ONCE):
        inside = counted.filter(pl.col("node").is_between(group[0], group[-1]))
        metrics = _at_once(store, inside, group)
        parts = _node_by_node(store, group) if metrics is None else {}
        for node in group:
            of_node = derived.filter(pl.col("node") == node) if len(derived) else derived
            if metrics is None:
                yield node, _figures(parts[node], of_node)
            else:
                yield node, _figures_at_once(node, metrics, of_node)


def _metrics_of(name: str, present: Mapping[str, Any] | set[str]) -> tuple[str, ...]:
    """Return the metrics of a figure that a node has."""
    metrics = _FIGURES[name]
    if name == "gpu_memory" and metrics[0] not in present:
        metrics = (_RECORDED_MEMORY,)
    return tuple(metric for metric in metrics if metric in present)


# -- node by node ----------------------------------------------------------------------------------------------------------


def _node_by_node(store: Store, group: Sequence[int]) -> dict[int, pl.DataFrame]:
    """Return the samples of each node: metric, unit, time_ns, value."""
    rows = store.frame(
        f"SELECT node, metric, unit, time_ns, value FROM sample WHERE node BETWEEN {group[0]} AND {group[-1]} AND {MEASURED}"
    ).with_columns(pl.col("metric").cast(pl.Categorical))
    parts = rows.partition_by("node", as_dict=True, include_key=False)
    return {node: parts.get((node,), rows.clear().drop("node")) for node in group}


def _figures(samples: pl.DataFrame, derived: pl.DataFrame) -> list[Figure]:
    if len(samples):
        samples = with_snapshots(samples)
    present = set(samples["metric"].unique())
    figures = []
    for name in _FIGURES:
        metrics = _metrics_of(name, present)
        if name == "gpu" and len(derived):
            figures.append(_derived(derived))
        elif metrics:
            rows = samples.filter(pl.col("metric").is_in(metrics)).group_by("metric", "snapshot_ns", "unit").agg(MEAN)
            figures.append(_summed(name, metrics, rows))
    return figures


def _derived(rows: pl.DataFrame) -> Figure:
    units = rows.select(snapshot_ns="time_ns", unit="unit", value="value")
    return Figure("gpu", METRICS["gpu_utilization"], units, derived=True)


def _summed(name: str, metrics: Sequence[str], rows: pl.DataFrame) -> Figure:
    """Add up the metrics of a figure: rows of snapshot_ns, unit, value."""
    if len(metrics) > 1:
        rows = rows.group_by("snapshot_ns", "unit").agg(pl.col("value").sum())
    return Figure(name, METRICS[metrics[0]], rows.select("snapshot_ns", "unit", "value").sort("snapshot_ns", "unit"))


# -- all nodes of a group --------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Metric:
    """A metric of a group of nodes. ``means``: node, time_ns, mean, min, max. ``places``: of each node the first of its moments and their
    number, its first row, and its first series and their number. ``no_unit``: stands for no unit."""

    series: MetricSeries
    means: pl.DataFrame
    places: dict[int, tuple[int, int, int, int, int]]
    no_unit: int

    def node(self, node: int) -> pl.DataFrame:
        begin, count, _, _, _ = self.places[node]
        return self.means.slice(begin, count).select(snapshot_ns="time_ns", value="mean", low="min", high="max")

    def units(self, node: int) -> pl.DataFrame:
        _, count, row, first, series = self.places[node]
        unit = self.series.table["unit"].slice(first, series).gather(self.series.number.slice(row, count * series) - first)
        return pl.DataFrame(
            {
                "snapshot_ns": self.series.time_ns.slice(row, count * series),
                "unit": unit.set(unit == self.no_unit, None),
                "value": self.series.value.slice(row, count * series),
            }
        )


def _at_once(store: Store, counted: pl.DataFrame, group: Sequence[int]) -> dict[str, _Metric] | None:
    """Return the metrics of a group of nodes.

    None if series of a node differ in their times, or times are nearly equal."""
    ranges = counted.select(
        pl.col("first_unit").min(),
        pl.col("last_unit").max(),
        interval=((pl.col("last") - pl.col("first")) * (pl.col("last_unit") - pl.col("first_unit") + 1).fill_null(1) // pl.col("n")).max(),
    )
    no_unit = (ranges["first_unit"].item() or 0) - 1
    units = (no_unit, max(ranges["last_unit"].item() or 0, no_unit))
    names = counted["metric"].unique(maintain_order=True).to_list()
    if not set(names) <= METRICS.keys() or len(names) * (group[-1] - group[0] + 1) * (units[1] - units[0] + 1) >= _MOST_CODES:
        return None
    metrics: dict[str, _Metric] = {}
    times: list[pl.DataFrame] = []
    totals = dict(counted.group_by("metric").agg(pl.col("n").sum()).rows())
    every = read(store, names, (group[0], group[-1]), units, ranges["interval"].item() or None, no_unit=no_unit)
    for metric, series in every.items():
        most: Any = 0 if series.moments is None else series.moments["series"].max()
        if series.moments is None or most > _MOST_UNITS or len(series) != totals[metric]:
            return None
        means = per_moment(series, "sum", "min", "max").with_columns(mean=pl.col("sum") / series.moments["series"]).drop("sum")
        if not any(means["time_ns"].equals(known["time_ns"]) and means["node"].equals(known["node"]) for known in times):
            times.append(means.select("node", "time_ns"))
        metrics[metric] = _Metric(series, means, _places(series), no_unit)
    if times:
        each = times[0] if len(times) == 1 else pl.concat(times).unique().sort("node", "time_ns")
        near = (pl.col("node") == pl.col("node").shift()) & (pl.col("time_ns").diff() <= SNAPSHOT_NS)
        if each.select(near.any()).item():
            return None
    return metrics


def _places(series: MetricSeries) -> dict[int, tuple[int, int, int, int, int]]:
    nodes = series.table.with_row_index("first").group_by("node", maintain_order=True)
    places, row, moment = {}, 0, 0
    for node, first, count, number in nodes.agg(pl.col("first").first(), pl.col("samples").first(), pl.len()).iter_rows():
        places[node] = (moment, count, row, first, number)
        moment += count
        row += count * number
    return places


def _figures_at_once(node: int, metrics: Mapping[str, _Metric], derived: pl.DataFrame) -> list[Figure]:
    present = {metric: values for metric, values in metrics.items() if node in values.places}
    figures = []
    for name in _FIGURES:
        added = _metrics_of(name, present)
        if name == "gpu" and len(derived):
            figures.append(_derived(derived))
        elif len(added) == 1:
            values = present[added[0]]
            figures.append(Figure(name, METRICS[added[0]], values.units(node), node=values.node(node)))
        elif added:
            figures.append(_summed(name, added, pl.concat([present[metric].units(node) for metric in added])))
    return figures
