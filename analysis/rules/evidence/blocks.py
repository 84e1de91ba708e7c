"""The samples that rules evaluate, in blocks of whole nodes, with their quantiles at the end of every evaluation window.

Rules use figures, which are derived from the metrics of the store:

======================  ======================================================================================================
``gpu``                 utilization of each GPU in percent; derived from kernel activity if the device has no samples
``gpu_memory``          memory of each GPU in percent: used / total (footprint) if the node has it, else the memory
                        controller's utilization as the hosted profiler records it
``core``                utilization of each core in percent
``core_iowait``         share of time each core waited for I/O in percent
``cpu``                 mean of the cores of a node per snapshot; unit 0
======================  ======================================================================================================

A node and a time are joined by one integer, the packed key ``(node - first node) * span + time - first time``, whose offsets are those of
the block.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Final, Literal

import polars as pl

from ....ingest.store.metrics import MEASURED, METRICS
from ....ingest.store.store import Store
from ...machine.series import FINITE, MetricSeries, per_moment, read
from ...machine.snapshots import SNAPSHOT_NS, begins, tolerance_ns
from ...machine.utilization import derived_utilization
from .common_time import CommonTime, common_time

FIGURES: Final = ("gpu", "gpu_memory", "core", "core_iowait", "cpu")
FOOTPRINT: Final = "gpu_memory_used_percent"
CONTROLLER: Final = "gpu_memory_controller"
_METRIC: Final = {"gpu": "gpu_utilization", "core": "cpu_utilization", "core_iowait": "cpu_iowait"}
_MINUTE_NS: Final = 60_000_000_000
_LEAST_BUCKET_NS: Final = 1_000_000
_BLOCK_SAMPLES: Final = 3_000_000
_MOST_SAMPLES: Final = 1 << 30
_MOST_KEYS: Final = 1 << 62
_NO_GPUS: Final = f"""
    SELECT coalesce(bool_and(gpus = 0), FALSE) AND NOT EXISTS (FROM device) AND NOT EXISTS (FROM device_event) FROM node
    WHERE id IN (SELECT node FROM sample WHERE {MEASURED})
"""
SNAPSHOTS: Final = {
    "node": pl.Int32, "snapshot_ns": pl.Int64, "gpu_min": pl.Float64, "core_max": pl.Float64, "iowait_max": pl.Float64,
}  # fmt: skip
"""Columns of :meth:`SampleBlock.snapshots`."""
_SOURCE: Final = pl.Enum(["sampled", "derived", FOOTPRINT, CONTROLLER])
_SAMPLES: Final = {"node": pl.Int32, "unit": pl.Int32, "time_ns": pl.Int64, "value": pl.Float64}


def samples_of(parameter: float) -> int:
    """Round a parameter, which may be a fraction, down to a number of samples (>= 1)."""
    return max(1, math.floor(min(parameter, _MOST_SAMPLES)))


def window_ns(scan_interval_us: float) -> int:
    """Return the length of an evaluation window: at least 1 ns, and it fits a column."""
    return max(1, round(min(scan_interval_us * 1000, _MOST_KEYS)))


class Samples:
    """The samples of a run, in blocks of whole nodes. ``derived``: the store's derived utilization, if it is known already."""

    def __init__(self, store: Store, derived: pl.DataFrame | None = None) -> None:
        self._store = store
        self.derived = derived_utilization(store) if derived is None else derived
        self._counts = store.frame(f"""
            SELECT node, metric, count(*) AS n, count(*) FILTER ({FINITE}) AS finite, min(time_ns) AS first, max(time_ns) AS last,
                min(coalesce(unit, 0)) AS first_unit, max(coalesce(unit, 0)) AS last_unit
            FROM sample WHERE node IS NOT NULL AND {MEASURED} GROUP BY ALL
        """)
        self.metrics: frozenset[str] = frozenset(self._counts.filter(pl.col("finite") > 0)["metric"])
        first = [v for v in (self._counts["first"].min(), self.derived["time_ns"].min()) if isinstance(v, int)]
        self.interval_ns = _interval_ns(store, self._counts, self.derived)
        """Median distance of successive samples of one series, or of derived buckets if nothing was sampled; None with fewer than two."""
        self.origin_ns: int = min(first, default=0) // _MINUTE_NS * _MINUTE_NS
        self.bucket_ns = _bucket_ns(self.derived, self.interval_ns)
        """Length of the buckets of derived utilization; None without any."""
        self.without_gpu: bool = not self.has("gpu") and store.frame(_NO_GPUS).item()
        """Whether the run proves that no node with samples has a GPU, so that the processors compute."""

    def windows_of(self, starts: pl.Series, scan_interval_us: float) -> pl.Series:
        """Return the evaluation window in which each event starts, from its start in ns.

        Windows are half open and count from the full minute of the first sample, or of the first event in a run without samples."""
        first = starts.min()
        origin = self.origin_ns or (first // _MINUTE_NS * _MINUTE_NS if isinstance(first, int) else 0)
        windows: pl.Series = (starts - origin) // max(1, round(scan_interval_us * 1000))
        return windows

    @cached_property
    def gpus_together(self) -> CommonTime | None:
        """Return when the GPUs of all nodes were sampled; None if all at the same time."""
        sampled = self._counts.filter((pl.col("metric") == "gpu_utilization") & (pl.col("finite") > 0)).select("node", "first", "last")
        derived = self.derived.group_by("node").agg(first=pl.col("time_ns").min(), last=pl.col("time_ns").max())
        spans = pl.concat([sampled, derived], how="vertical_relaxed").group_by("node").agg(pl.col("first").max(), pl.col("last").min())
        return common_time({node: (first, last) for node, first, last in spans.iter_rows()})

    def has(self, figure: str) -> bool:
        """Return whether any node has samples of ``figure``."""
        if figure not in FIGURES:
            raise ValueError(f"{figure!r} is not a figure of the samples; accepted: {', '.join(FIGURES)}")
        if figure == "gpu":
            return "gpu_utilization" in self.metrics or len(self.derived) > 0
        if figure == "gpu_memory":
            return bool(self.metrics & {FOOTPRINT, CONTROLLER})
        return _METRIC["core" if figure == "cpu" else figure] in self.metrics

    def blocks(self) -> Iterator[SampleBlock]:
        """Group the nodes by about three million samples; a node is never divided."""
        derived = self.derived.select("node", n=pl.lit(1), first="time_ns", last="time_ns", first_unit="unit", last_unit="unit")
        columns = ("node", "n", "first", "last", "first_unit", "last_unit")
        every = pl.concat([self._counts.select(columns), derived.select(columns)], how="vertical_relaxed")
        totals = (
            every.group_by("node")
            .agg(pl.col("n").sum(), pl.col("first", "first_unit").min(), pl.col("last", "last_unit").max())
            .filter(pl.col("first").is_not_null())
            .select(columns)
            .sort("node")
        )
        group: list[int] = []
        held, packing = 0, _Packing(0, 0, 0, 0, 0, 0)
        for node, n, first, last, first_unit, last_unit in totals.iter_rows():
            single = _Packing(node, node, first_unit, last_unit, first, last)
            wider = packing.with_node(single) if group else single
            if group and (held + n > _BLOCK_SAMPLES or not wider.fits):
                yield self._block(group, packing)
                group, held, wider = [], 0, single
            group.append(node)
            held += n
            packing = wider
        if group:
            yield self._block(group, packing)

    def _block(self, nodes: Sequence[int], packing: _Packing) -> SampleBlock:
        inside = pl.col("node").is_between(nodes[0], nodes[-1])
        counts = self._counts.filter(inside & (pl.col("finite") > 0))
        derived = self.derived.filter(inside)
        return SampleBlock(self, self._store, tuple(nodes), packing, counts, derived)


@dataclass(frozen=True, slots=True)
class _Packing:
    """Bounds of the numbers in a packed key."""

    first_node: int
    last_node: int
    first_unit: int
    last_unit: int
    first_ns: int
    last_ns: int

    @property
    def units(self) -> int:
        return self.last_unit - self.first_unit + 1

    @property
    def span(self) -> int:
        """Return the range of times plus a minute, so that keys of two series never touch."""
        return self.last_ns - self.first_ns + _MINUTE_NS

    @property
    def fits(self) -> bool:
        return (self.last_node - self.first_node + 1) * self.units * self.span < _MOST_KEYS

    def with_node(self, node: _Packing) -> _Packing:
        return _Packing(
            min(self.first_node, node.first_node), max(self.last_node, node.last_node),
            min(self.first_unit, node.first_unit), max(self.last_unit, node.last_unit),
            min(self.first_ns, node.first_ns), max(self.last_ns, node.last_ns),
        )  # fmt: skip

    def moment(self, node: str = "node", time: str = "time_ns") -> pl.Expr:
        """Return the key of a node and a time."""
        return (pl.col(node).cast(pl.Int64) - self.first_node) * self.span + (pl.col(time) - self.first_ns)


class SampleBlock:
    """All finite samples of some nodes; samples of one series with the same time are averaged.

    Frames are computed once and shared by the rules: do not change them in place."""

    def __init__(
        self, samples: Samples, store: Store, nodes: tuple[int, ...], packing: _Packing, counts: pl.DataFrame, derived: pl.DataFrame
    ) -> None:
        self.nodes = nodes
        self.gpus_together = samples.gpus_together  # of all blocks
        self.device = "cpu" if samples.without_gpu else "gpu"  # figure of the devices that compute in :meth:`snapshots`
        self.origin_ns = samples.origin_ns
        self._bucket_ns = samples.bucket_ns
        self._store = store
        self._packing = packing
        self._counts = counts
        self._derived = derived
        self._interval_ns = samples.interval_ns
        self._read_metrics: dict[str, MetricSeries] = {}
        self._series: dict[str, MetricSeries] = {}
        self._ends: dict[tuple[object, ...], pl.DataFrame] = {}

    def series(self, figure: str) -> pl.DataFrame:
        """Return the samples of ``figure`` in the order of node, unit and time.

        Columns: node (i32), unit (i32), series (number in the block from 0, u32), position (0-based number in the series, u32), time_ns
        (i64), value (f64), source (enum: "sampled", "derived"; for gpu_memory the metric: FOOTPRINT or CONTROLLER)."""
        return self.columns(figure).frame().select("node", "unit", "series", "position", "time_ns", "value", "source")

    def columns(self, figure: str) -> MetricSeries:
        """Return the samples of ``figure`` in columns, by node and unit.

        Column ``source`` of the table: "sampled", "derived"; for gpu_memory the metric: FOOTPRINT or CONTROLLER."""
        if figure not in self._series:
            if figure not in FIGURES:
                raise ValueError(f"{figure!r} is not a figure of the samples; accepted: {', '.join(FIGURES)}")
            self._series[figure] = self._make(figure)
        return self._series[figure]

    def ends(self, figure: str, scan_interval_us: float) -> pl.DataFrame:
        """Return the last sample of each series in each evaluation window with samples.

        Columns: node, unit, window (i64, 0-based from the run's origin), row (of ``series(figure)``, u32), count (samples of the series
        up to and including this one, u32), time_ns."""
        key = ("ends", figure, scan_interval_us)
        if key not in self._ends:
            series = self.columns(figure)
            windows = (series.time_ns - self.origin_ns) // window_ns(scan_interval_us)
            changes = windows.to_frame("window").select((pl.col("window") != pl.col("window").shift(-1)).arg_true()).to_series()
            rows = pl.concat([changes.cast(pl.Int64), series.end - 1]).unique().sort()
            number = series.end.search_sorted(rows, side="right")
            self._ends[key] = series.table.select(pl.col("node", "unit").gather(number)).with_columns(
                window=windows.gather(rows),
                row=rows.cast(pl.UInt32),
                count=(rows - series.begin.gather(number) + 1).cast(pl.UInt32),
                time_ns=series.time_ns.gather(rows),
            )
        return self._ends[key]

    def quantiles(self, figure: str, scan_interval_us: float, window: float, more_than: float) -> pl.DataFrame:
        """Return ``ends`` with more than ``more_than`` samples, with p5 and p95.

        Quantiles (linear interpolation) are over the last ``window`` samples, or fewer at the start of a series."""
        length = samples_of(window)
        asked = ("quantiles", figure, scan_interval_us, length)
        if (*asked, more_than) not in self._ends:
            known = [key for key in self._ends if key[:-1] == asked and key[-1] <= more_than]  # type: ignore[operator]
            if known:
                rows = self._ends[known[0]].filter(pl.col("count") > more_than)
            else:
                ends = self.ends(figure, scan_interval_us).filter(pl.col("count") > more_than)
                rows = _with_quantiles(self.columns(figure), ends, length)
            self._ends[(*asked, more_than)] = rows
        return self._ends[(*asked, more_than)]

    def boxes(self, figure: str) -> pl.DataFrame:
        """Return a row per series with its statistics over the whole run.

        Columns: node, unit, source, samples, first_ns, last_ns, min, p5, p25, p50, p75, p95, max, mean. ``lower``, ``upper``: quartile -/+
        1.5 IQR, limited to min and max. ``whisker_lower``, ``whisker_upper``: the most extreme values within 1.5 IQR of the quartiles."""
        key = ("boxes", figure)
        if key not in self._ends:
            series = self.columns(figure)
            ordered, begin, end = series.ordered, series.begin, series.end
            rows = series.table.select(
                "node", "unit", pl.col("source").cast(pl.String), pl.col("samples").cast(pl.UInt32),
                first_ns=series.time_ns.gather(begin),
                last_ns=series.time_ns.gather(end - 1),
                min=ordered.values.gather(begin),
                **{f"p{percent}": ordered.quantile(percent / 100) for percent in (5, 25, 50, 75, 95)},
                max=ordered.values.gather(end - 1),
                mean=series.mean,
            ).with_columns(
                low=pl.col("p25") - 1.5 * (pl.col("p75") - pl.col("p25")), high=pl.col("p75") + 1.5 * (pl.col("p75") - pl.col("p25"))
            )  # fmt: skip
            beyond = pl.Series([math.nextafter(high, math.inf) for high in rows["high"] + 1e-9], dtype=pl.Float64)
            self._ends[key] = rows.with_columns(
                lower=pl.max_horizontal("low", "min"),
                upper=pl.min_horizontal("high", "max"),
                whisker_lower=ordered.values.gather(begin + ordered.below(rows["low"] - 1e-9)),
                whisker_upper=ordered.values.gather(begin + ordered.below(beyond) - 1),
            ).drop("low", "high")
        return self._ends[key]

    def snapshots(self) -> pl.DataFrame:
        """Return a row per node and snapshot that has a value of a used GPU.

        Columns: node, snapshot_ns, gpu_min (lowest of the used GPUs), core_max and iowait_max (highest core; null without such samples), by
        node and time. A GPU that is 0% for the whole run is not used. In a run without GPUs gpu_min is the mean of the cores.

        Derived utilization is joined to the other samples by time: a bucket belongs to every snapshot inside it; a bucket without one is a
        snapshot of its own, at its start."""
        return self._snapshots

    def unused(self) -> pl.DataFrame:
        """Return node and unit of the GPUs that are 0% for the whole run."""
        return self.boxes("gpu").filter(pl.col("max") <= 0).select("node", "unit")

    # -- making ------------------------------------------------------------------------------------------------------------

    def _make(self, figure: str) -> MetricSeries:
        if figure == "cpu":
            return _from(MetricSeries.of(self._mean_core()), "sampled")
        if figure == "gpu_memory":
            footprint = self._counts.filter(pl.col("metric") == FOOTPRINT)["node"]
            rest = self._read(CONTROLLER)
            if len(rest) and len(footprint):
                rest = rest.only(~rest.table["node"].is_in(footprint.implode()))
            return MetricSeries.joined([self._read(FOOTPRINT), rest])
        sampled = self._read(_METRIC[figure])
        if figure != "gpu" or self._derived.is_empty():
            return sampled
        derived = MetricSeries.of(self._derived.sort("node", "unit", "time_ns").select("node", "unit", "time_ns", "value"))
        return MetricSeries.joined([sampled, _from(derived, "derived")])

    def _read(self, metric: str) -> MetricSeries:
        """Return the samples of a metric; all of the block are read at once."""
        if not self._read_metrics:
            units = (self._packing.first_unit, self._packing.last_unit)
            metrics = [name for name in self._counts["metric"].unique(maintain_order=True) if name in METRICS]
            series = read(self._store, metrics, (self.nodes[0], self.nodes[-1]), units, self._interval_ns)
            none = MetricSeries.of(pl.DataFrame(schema=_SAMPLES))
            for name in {*metrics, *_METRIC.values(), FOOTPRINT, CONTROLLER}:
                self._read_metrics[name] = _from(series.get(name, none), name if name in (FOOTPRINT, CONTROLLER) else "sampled")
        return self._read_metrics[metric]

    # -- snapshots ---------------------------------------------------------------------------------------------------------

    @cached_property
    def _moments(self) -> pl.DataFrame:
        """Map each packed (node, time) with a sample to the start of its snapshot.

        Columns: moment, snapshot. Empty if every moment of the block is a snapshot of its own."""
        frames = [self._read(metric) for metric in self._counts["metric"].unique(maintain_order=True)]
        none = pl.DataFrame(schema={"moment": pl.Int64, "snapshot": pl.Int64})
        parts = [per_moment(frame).select(moment=self._packing.moment()) for frame in frames]
        different = [part for number, part in enumerate(parts) if number == 0 or not part.equals(parts[0])]
        times = different[0] if len(different) == 1 else pl.concat([none.select("moment"), *different]).unique().sort("moment")
        if times.select((pl.col("moment").diff() > SNAPSHOT_NS).all()).item():
            return none
        tolerance = self._tolerances(frames)
        node = times.select((pl.col("moment") // self._packing.span + self._packing.first_node).cast(pl.Int32).alias("node"))
        each = node.join(tolerance, on="node", how="left", maintain_order="left")["tolerance"].fill_null(SNAPSHOT_NS)
        starts = times.select(snapshot=pl.col("moment").gather(begins(times["moment"], each)))
        return times.join_asof(starts, left_on="moment", right_on="snapshot", coalesce=False)

    def _tolerances(self, frames: Sequence[MetricSeries]) -> pl.DataFrame:
        """Return how long a snapshot may last on each node: node, tolerance."""
        steps = pl.concat([_steps(series) for series in frames])
        medians = steps.group_by("node").agg(pl.col("step").median())
        tolerances = [tolerance_ns(round(median)) for median in medians["step"]]
        return medians.select("node", tolerance=pl.Series(tolerances, dtype=pl.Int64))

    def _with_snapshot(self, rows: pl.DataFrame) -> pl.DataFrame:
        """Add ``snapshot``, the packed start of its snapshot, to rows (node, time_ns)."""
        keyed = rows.with_columns(snapshot=self._packing.moment())
        if self._moments.is_empty():
            return keyed
        begin = keyed.select(moment="snapshot").join(self._moments, on="moment", how="left", maintain_order="left")
        return keyed.with_columns(begin["snapshot"])

    def _extreme(self, rows: MetricSeries, which: Literal["min", "max"]) -> pl.DataFrame:
        """Return the lowest or highest value of a node's series: snapshot, value."""
        values = self._with_snapshot(per_moment(rows, which)).select("snapshot", value=which)
        return values if self._moments.is_empty() else values.group_by("snapshot").agg(getattr(pl.col("value"), which)())

    def _mean_core(self) -> pl.DataFrame:
        """Average the cores per node and snapshot: node, unit (0), time_ns, value; sorted."""
        cores = self.columns("core")
        if not len(cores):
            return pl.DataFrame(schema=_SAMPLES)
        if self._moments.is_empty():
            return per_moment(cores, "mean").select("node", pl.lit(0, pl.Int32).alias("unit"), "time_ns", value="mean")
        rows = self._with_snapshot(cores.frame()).group_by("snapshot", "series").agg(pl.col("value").mean())
        means = self._unpacked(rows.group_by("snapshot").agg(pl.col("value").mean()).sort("snapshot"))
        return means.select("node", pl.lit(0, pl.Int32).alias("unit"), "time_ns", "value")

    def _unpacked(self, rows: pl.DataFrame) -> pl.DataFrame:
        number = pl.col("snapshot") // self._packing.span
        return rows.with_columns(
            node=(number + self._packing.first_node).cast(pl.Int32),
            time_ns=pl.col("snapshot") - number * self._packing.span + self._packing.first_ns,
        )

    @cached_property
    def _snapshots(self) -> pl.DataFrame:
        gpus = self.columns(self.device)
        if self.device == "gpu" and len(gpus):
            gpus = gpus.only(self.boxes("gpu")["max"] > 0)
        is_derived = gpus.table["source"] == "derived"
        derived, sampled = gpus.only(is_derived), gpus.only(~is_derived)
        lowest = self._extreme(sampled, "min").rename({"value": "gpu_min"})
        cores = {"core_max": "core", "iowait_max": "core_iowait"}
        highest = {name: self._extreme(self.columns(figure), "max").rename({"value": name}) for name, figure in cores.items()}
        if len(derived):
            known = pl.concat([frame.select("snapshot") for frame in (lowest, *highest.values())]).unique()
            matched = self._meet(derived, known)
            lowest = pl.concat([lowest, matched]).group_by("snapshot").agg(pl.col("gpu_min").min())
        lowest = lowest if lowest["snapshot"].is_sorted() else lowest.sort("snapshot")
        for name, frame in highest.items():
            if frame["snapshot"].equals(lowest["snapshot"]):
                lowest = lowest.with_columns(frame[name])
            else:
                lowest = lowest.join(frame, on="snapshot", how="left", maintain_order="left")
        return self._unpacked(lowest).select("node", pl.col("time_ns").alias("snapshot_ns"), "gpu_min", *cores)

    def _meet(self, derived: MetricSeries, known: pl.DataFrame) -> pl.DataFrame:
        """Return the lowest derived utilization per snapshot, known or of its own bucket."""
        keys = ["node", "unit"]
        snapshots = self._unpacked(known).select("node", "snapshot", at="time_ns")
        buckets = derived.frame().select(*keys, "time_ns", "value").sort("time_ns")
        asked = snapshots.join(buckets.select(keys).unique(), on="node").sort("at")
        inside = pl.col("at") - pl.col("time_ns") < (self._bucket_ns or _LEAST_BUCKET_NS)
        met = asked.join_asof(buckets, left_on="at", right_on="time_ns", by=keys, coalesce=False, check_sortedness=False).filter(inside)
        alone = buckets.join(met.select(*keys, "time_ns"), on=[*keys, "time_ns"], how="anti")
        parts = [met.select("snapshot", "value"), alone.select(self._packing.moment().alias("snapshot"), "value")]
        return pl.concat(parts).group_by("snapshot").agg(gpu_min=pl.col("value").min())


def _from(series: MetricSeries, source: str) -> MetricSeries:
    return MetricSeries(series.table.with_columns(source=pl.lit(source, _SOURCE)), series.time_ns, series.value)


def _steps(series: MetricSeries) -> pl.DataFrame:
    """Return the distances of successive samples of a series: node, step."""
    rows = pl.DataFrame({"node": series.by_row("node"), "series": series.number, "time_ns": series.time_ns})
    step = pl.when(pl.col("series") == pl.col("series").shift()).then(pl.col("time_ns").diff())
    return rows.select("node", step=step).filter(pl.col("step") > 0)


def _with_quantiles(series: MetricSeries, ends: pl.DataFrame, length: int) -> pl.DataFrame:
    """Add p5 and p95 of the last ``length`` values, or fewer, to ``ends``."""
    last = ends["row"].cast(pl.Int64) + 1
    first = ends.select(last - pl.min_horizontal(pl.col("count").cast(pl.Int64), pl.lit(length, pl.Int64))).to_series()
    p5, p95 = series.ordered.windows(first, last, (0.05, 0.95))
    return ends.with_columns(p5.alias("p5"), p95.alias("p95"))


def _bucket_ns(derived: pl.DataFrame, interval_ns: int | None) -> int | None:
    """Return the shortest distance of two derived buckets, which is their length.

    All devices have aligned buckets of one length. For a single bucket: the sampling interval that it was computed from."""
    if derived.is_empty():
        return None
    shortest = derived["time_ns"].unique().sort().diff().min()
    return shortest if isinstance(shortest, int) else max(interval_ns or 0, _LEAST_BUCKET_NS)


def _interval_ns(store: Store, counts: pl.DataFrame, derived: pl.DataFrame) -> int | None:
    """Return the median sampling interval of the first node with most of the samples."""
    machines = counts.group_by("node").agg(pl.col("n").sum()).sort("n", "node", descending=[True, False])
    if len(machines):
        step = store.frame(
            f"""
            SELECT median(step) AS step FROM (
                SELECT time_ns - lag(time_ns) OVER (PARTITION BY metric, unit ORDER BY time_ns) AS step
                FROM sample WHERE node = ? AND {MEASURED}
            ) WHERE step > 0
            """,
            [machines["node"][0]],
        ).item()
        if isinstance(step, int | float):
            return round(step)
    steps = derived.select(step=pl.col("time_ns").diff().over("node", "unit"))["step"].drop_nulls()
    median = steps.filter(steps > 0).median()
    return round(median) if isinstance(median, int | float) else None
