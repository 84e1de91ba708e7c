"""Series of samples in columns: the samples of one metric of several nodes, series by series, in the order of time.

:func:`read` returns them from the store. Rows come in any order; mostly they are a few stretches per series that are in order, so that
only the stretches are sorted.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Sequence
from functools import cached_property
from typing import Any, Final, Literal, Self

import polars as pl

from ...ingest.store.metrics import METRICS
from ...ingest.store.store import Store
from ..toolkit.ordered import Ordered, repeated

FINITE: Final = "isfinite(value) AND time_ns IS NOT NULL"
_MOST_KEYS: Final = 1 << 62
_UINT32: Final = 1 << 32


class MetricSeries:
    """Series that follow one another, with one value at a time.

    ``table``: a row per series with node, unit (both i32), samples (i64), and further columns of the owner, by node and unit. ``time_ns``
    (i64), ``value`` (f64): a row per sample."""

    def __init__(self, table: pl.DataFrame, time_ns: pl.Series, value: pl.Series) -> None:
        self.table = table
        self.time_ns = time_ns
        self.value = value

    @classmethod
    def of(cls, rows: pl.DataFrame) -> Self:
        """Take the series of sorted rows: node, unit, time_ns, value."""
        number = rows.select(pl.struct("node", "unit").rle_id()).to_series()
        table = rows.group_by(number.alias("number"), maintain_order=True).agg(
            pl.col("node", "unit").first(), samples=pl.len().cast(pl.Int64)
        )
        return cls(table.drop("number"), rows["time_ns"], rows["value"])

    def __len__(self) -> int:
        return len(self.value)

    @cached_property
    def end(self) -> pl.Series:
        """The row after the last of each series."""
        return self.table["samples"].cum_sum()

    @cached_property
    def begin(self) -> pl.Series:
        """The first row of each series."""
        return self.end - self.table["samples"]

    @cached_property
    def number(self) -> pl.Series:
        """The number of the series of each row, u32."""
        return repeated(pl.int_range(len(self.table), dtype=pl.UInt32, eager=True), self.table["samples"])

    @cached_property
    def ordered(self) -> Ordered:
        return Ordered(self.value, self.end)

    @cached_property
    def mean(self) -> pl.Series:
        """The mean of each series.

        Its last digit does not depend on how rows are divided among threads."""
        rows = pl.DataFrame({"series": self.number, "value": self.value}).with_columns(pl.col("series").set_sorted())
        return rows.group_by("series", maintain_order=True).agg(pl.col("value").mean())["value"]

    @cached_property
    def moments(self) -> pl.DataFrame | None:
        """The times of each node, if all of its series have the same; else None.

        Columns: node, time_ns; row, of the node's first series; samples, of each series; series, of the node."""
        nodes = self.table.group_by("node", maintain_order=True).agg(
            pl.col("samples").first(), series=pl.len().cast(pl.Int64), even=pl.col("samples").n_unique() == 1, total=pl.col("samples").sum()
        )
        if not nodes["even"].all():
            return None
        row = nodes["total"].cum_sum() - nodes["total"]
        at = nodes.select("node", "samples", "series", row=pl.int_ranges(row, row + pl.col("samples"))).explode("row")
        at = at.with_columns(time_ns=self.time_ns.gather(at["row"]))
        most: Any = at["series"].max()
        for number in range(1, most or 0):
            if not (self.time_ns.gather(row_of(at, number)) == at["time_ns"]).all():
                return None
        return at.select("node", "time_ns", "row", "samples", "series")

    def by_row(self, column: str) -> pl.Series:
        """Return the value of a column of the table for each row."""
        return self.table[column].gather(self.number)

    def frame(self) -> pl.DataFrame:
        """Return a row per sample with all columns of the table, series and position."""
        names = [name for name in self.table.columns if name != "samples"]
        position = pl.int_range(len(self), eager=True) - self.begin.gather(self.number)
        columns = [self.number.alias("series"), position.cast(pl.UInt32).alias("position"), self.time_ns.alias("time_ns")]
        return pl.DataFrame([*map(self.by_row, names), *columns, self.value.alias("value")])

    def only(self, chosen: pl.Series) -> Self:
        """Return the series for which ``chosen`` is true."""
        if chosen.all():
            return self
        rows = pl.DataFrame({"begin": self.begin, "end": self.end}).filter(chosen)
        index = (
            rows.select(pl.int_ranges("begin", "end", dtype=pl.UInt32).explode()).to_series() if len(rows) else pl.Series(dtype=pl.UInt32)
        )
        return type(self)(self.table.filter(chosen), self.time_ns.gather(index), self.value.gather(index))

    def rows(self, chosen: pl.Series) -> Self:
        """Return the rows for which ``chosen`` is true, of the series that have any."""
        kept = self.number.filter(chosen).rle().struct
        lengths, numbers = kept.field("len").cast(pl.Int64), kept.field("value")
        table = self.table.select(pl.all().gather(numbers)).with_columns(samples=lengths)
        return type(self)(table, self.time_ns.filter(chosen), self.value.filter(chosen))

    @classmethod
    def joined(cls, parts: Sequence[Self]) -> Self:
        """Put the disjoint series of several parts in order of node and unit."""
        filled = [part for part in parts if len(part)]
        if len(filled) < 2:
            return filled[0] if filled else parts[0]
        tables = pl.concat([part.table for part in filled])
        end = tables["samples"].cum_sum()
        tables = tables.with_columns(begin=end - tables["samples"], end=end).sort("node", "unit")
        index = tables.select(pl.int_ranges("begin", "end", dtype=pl.UInt32).explode()).to_series()
        time_ns, value = (pl.concat([getattr(part, name) for part in filled]).gather(index) for name in ("time_ns", "value"))
        return cls(tables.drop("begin", "end"), time_ns, value)


def row_of(moments: pl.DataFrame, number: int) -> pl.Series:
    """Return the rows of a series of each node, or of its last one, at its moments."""
    return moments.select(pl.col("row") + pl.min_horizontal(pl.lit(number), pl.col("series") - 1) * pl.col("samples")).to_series()


def per_moment(series: MetricSeries, *figures: Literal["min", "max", "mean", "sum"]) -> pl.DataFrame:
    """Reduce the series of a node at each time: node, time_ns, figures; sorted.

    If all series of every node were sampled at the same times, as samplers do, values are compared series by series; otherwise rows are
    grouped by time, which is ten times slower. A sum adds up the series in their order."""
    if (at := series.moments) is None:
        rows = pl.DataFrame({"node": series.by_row("node"), "time_ns": series.time_ns, "value": series.value})
        grouped = rows.group_by("node", "time_ns").agg(getattr(pl.col("value"), figure)().alias(figure) for figure in figures)
        return grouped.sort("node", "time_ns")
    most: Any = at["series"].max()
    values = [series.value.gather(row_of(at, number)).alias(str(number)) for number in range(most or 0)] or [series.value]
    several = at["series"].min() == most
    counted = values if several else [value * (at["series"] > number) for number, value in enumerate(values)]
    columns: dict[str, pl.Expr | pl.Series] = {}
    for figure in figures:
        match figure:
            case "min":
                columns[figure] = pl.min_horizontal(values)
            case "max":
                columns[figure] = pl.max_horizontal(values)
            case "mean":
                columns[figure] = pl.sum_horizontal(counted) / at["series"]
            case "sum":
                columns[figure] = functools.reduce(operator.add, counted)
    return at.select("node", "time_ns", **columns)


def read(
    store: Store, metrics: Sequence[str], nodes: tuple[int, int], units: tuple[int, int], interval_ns: int | None, *, no_unit: int = 0
) -> dict[str, MetricSeries]:
    """Return the finite samples of metrics of nodes; several at one time are averaged.

    ``metrics``: names in METRICS. ``nodes``: first and last. ``units``: lowest and highest; ``no_unit`` replaces null. ``interval_ns``: the
    usual distance of samples, which determines where a stretch can end."""
    if not set(metrics) <= METRICS.keys():
        raise ValueError(f"unknown metrics: {', '.join(set(metrics) - METRICS.keys())}")
    if not metrics:
        return {}
    width, count = units[1] - units[0] + 1, nodes[1] - nodes[0] + 1
    kind = "UINTEGER" if len(metrics) * count * width < _UINT32 else "BIGINT"
    number = " ".join(f"WHEN '{metric}' THEN {index * count}" for index, metric in enumerate(metrics))
    code = f"(((CASE metric {number} END + node - {nodes[0]})::BIGINT * {width}) + coalesce(unit, {no_unit}) - {units[0]})::{kind}"
    chosen = ", ".join(f"'{metric}'" for metric in metrics)
    series = (
        store.frame(f"""
            SELECT {code} AS code, time_ns, value FROM sample
            WHERE metric IN ({chosen}) AND node BETWEEN {nodes[0]} AND {nodes[1]} AND {FINITE}
        """)
        .group_by("code")
        .agg("time_ns", "value")
        .sort("code")
    )
    number_of, time_ns, value = pl.col("code").cast(pl.Int64), series["time_ns"].explode(), series["value"].explode()
    table = series.select(
        (number_of // (width * count)).cast(pl.Int64).alias("metric"),
        (number_of // width % count + nodes[0]).cast(pl.Int32).alias("node"),
        (number_of % width + units[0]).cast(pl.Int32).alias("unit"),
        pl.col("time_ns").list.len().cast(pl.Int64).alias("samples"),
    )
    ordered = _in_order(MetricSeries(table, time_ns, value), interval_ns)
    parts, begin = {}, 0
    for index, metric in enumerate(metrics):
        part = ordered.table.filter(pl.col("metric") == index).drop("metric")
        length = int(part["samples"].sum())
        parts[metric] = MetricSeries(part, ordered.time_ns.slice(begin, length), ordered.value.slice(begin, length))
        begin += length
    return parts


def _in_order(series: MetricSeries, interval_ns: int | None) -> MetricSeries:
    if _is_in_order(series):
        return series
    if interval_ns is not None:
        stretches = _by_stretches(series, interval_ns * 3 // 2)
        if _is_in_order(stretches):
            return stretches
    return _sorted(series)


def _is_in_order(series: MetricSeries) -> bool:
    """Return whether time passes from each row of a series to the next."""
    back = series.time_ns.to_frame("time_ns").select((pl.col("time_ns").diff() <= 0).arg_true()).to_series()
    return len(back) < len(series.table) and bool(back.cast(pl.Int64).is_in(series.begin.implode()).all())


def _by_stretches(series: MetricSeries, longest_ns: int) -> MetricSeries:
    """Sort the stretches of each series, which end where time goes back or far ahead."""
    inside = pl.col("time_ns").diff().is_between(0, longest_ns, closed="right")
    breaks = series.time_ns.to_frame("time_ns").select((~inside).arg_true()).to_series().cast(pl.Int64)
    begin = pl.concat([series.begin, breaks]).unique().sort()
    stretches = pl.DataFrame(
        {
            "series": series.end.search_sorted(begin, side="right"),
            "time_ns": series.time_ns.gather(begin),
            "begin": begin,
            "end": begin.shift(-1, fill_value=len(series)),
        }
    )
    index = stretches.sort("series", "time_ns").select(pl.int_ranges("begin", "end", dtype=pl.UInt32).explode()).to_series()
    return MetricSeries(series.table, series.time_ns.gather(index), series.value.gather(index))


def _sorted(series: MetricSeries) -> MetricSeries:
    """Sort all rows; average the values of one series and time."""
    first: Any = series.time_ns.min() or 0
    last: Any = series.time_ns.max() or 0
    span, value = last - first + 1, pl.col("value")
    if len(series.table) * span < _MOST_KEYS:
        key = series.number.cast(pl.Int64) * span + (series.time_ns - first)
        rows = pl.DataFrame({"key": key, "value": series.value}).sort("key")
        if rows.select((pl.col("key").diff() == 0).any()).item():
            rows = rows.group_by("key", maintain_order=True).agg(value.mean())
        rows = rows.select(series=pl.col("key") // span, time_ns=pl.col("key") % span + first, value="value")
    else:
        rows = pl.DataFrame({"series": series.number, "time_ns": series.time_ns, "value": series.value}).sort("series", "time_ns")
        rows = rows.group_by("series", "time_ns", maintain_order=True).agg(value.mean())
    samples = rows["series"].rle().struct.field("len").cast(pl.Int64)
    return MetricSeries(series.table.with_columns(samples=samples), rows["time_ns"], rows["value"])
