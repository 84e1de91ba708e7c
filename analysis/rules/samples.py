"""Which samples does a rule look at, in which order, and what are their quantiles at the end of every evaluation window?

Figures ("gpu" and so on) are what the rules speak of; they are made of the metrics of the store:

======================  ======================================================================================================
``gpu``                 utilisation of each GPU in percent; derived from kernel activity where the device has no samples
``gpu_memory``          memory of each GPU in percent: used / total (footprint) where the machine has it, else the memory
                        controller's utilisation as the hosted profiler records it
``core``                utilisation of each core in percent
``core_iowait``         share of time each core waited for I/O in percent
``cpu``                 mean of the cores of a machine per snapshot; unit 0
======================  ======================================================================================================
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import polars as pl

from ...ingest.store import Store
from ..snapshots import with_snapshots
from ..utilisation import derived_utilisation

FIGURES: Final = ("gpu", "gpu_memory", "core", "core_iowait", "cpu")
FOOTPRINT: Final = "gpu_memory_used_percent"
CONTROLLER: Final = "gpu_memory_controller"

BOX: Final = (
    "samples", "min", "p5", "p25", "p50", "p75", "p95", "max", "mean", "lower", "upper", "whisker_lower", "whisker_upper",
)  # fmt: skip
"""Keys of a box in the details of a rule."""

_METRIC: Final = {"gpu": "gpu_utilization", "core": "cpu_utilization", "core_iowait": "cpu_iowait"}
_MINUTE_NS: Final = 60_000_000_000
_BLOCK_SAMPLES: Final = 3_000_000
_MOST_SAMPLES: Final = 1 << 30


def box(row: Mapping[str, Any]) -> dict[str, Any]:
    """The box of a row of :meth:`SampleBlock.boxes`, as details of rules have it."""
    return {key: row[key] for key in BOX}


def samples_of(parameter: float) -> int:
    """A number of samples that a parameter gives (the interface takes fractions): at least one, rounded down."""
    return max(1, min(math.floor(parameter), _MOST_SAMPLES))


class Samples:
    """The samples of a run, in blocks of whole machines."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.derived = derived_utilisation(store)
        counts = store.frame("SELECT node, metric, count(*) AS n, min(time_ns) AS first FROM sample GROUP BY ALL")
        self._counts = counts
        self.metrics: frozenset[str] = frozenset(counts["metric"])
        first = [v for v in (counts["first"].min(), self.derived["time_ns"].min()) if isinstance(v, int)]
        self.interval_ns = _interval_ns(store, self.derived)
        """Median distance of successive samples of one series (of the derived buckets where nothing was sampled); None with no two."""
        self.origin_ns: int = min(first, default=0) // _MINUTE_NS * _MINUTE_NS
        steps = self.derived.select(step=pl.col("time_ns").diff().over("node", "unit"))["step"]
        shortest = steps.filter(steps > 0).min()
        self.bucket_ns: int | None = shortest if isinstance(shortest, int) else None
        """Length of the buckets of derived utilisation; None where none is derived (or each device has a single bucket)."""

    def has(self, figure: str) -> bool:
        """Whether any machine has samples of ``figure``."""
        if figure == "gpu":
            return "gpu_utilization" in self.metrics or len(self.derived) > 0
        if figure == "gpu_memory":
            return bool(self.metrics & {FOOTPRINT, CONTROLLER})
        return _METRIC["core" if figure == "cpu" else figure] in self.metrics

    def blocks(self) -> Iterator[SampleBlock]:
        """The machines in groups of about three million samples; a machine is never divided."""
        totals = dict(self._counts.group_by("node").agg(pl.col("n").sum()).rows())
        for node in self.derived["node"].unique():
            totals.setdefault(node, 0)
        group: list[int] = []
        held = 0
        for node in sorted(totals):
            if group and held + totals[node] > _BLOCK_SAMPLES:
                yield self._block(group)
                group, held = [], 0
            group.append(node)
            held += totals[node]
        if group:
            yield self._block(group)

    def _block(self, nodes: Sequence[int]) -> SampleBlock:
        rows = self._store.frame(
            f"SELECT node, metric, unit, time_ns, value FROM sample WHERE node IN ({', '.join(map(str, nodes))}) AND isfinite(value)"
        )
        return SampleBlock(tuple(nodes), rows, self.derived.filter(pl.col("node").is_in(nodes)), self.origin_ns)


class SampleBlock:
    """All samples of some machines. Samples that are not finite are left out; of samples of one series with the same time the mean counts.

    Frames are computed once and shared by the rules: do not change them in place.
    """

    def __init__(self, nodes: tuple[int, ...], rows: pl.DataFrame, derived: pl.DataFrame, origin_ns: int) -> None:
        self.nodes = nodes
        self.origin_ns = origin_ns
        self._rows = rows
        self._derived = derived
        self._series: dict[str, pl.DataFrame] = {}
        self._ends: dict[tuple[object, ...], pl.DataFrame] = {}
        self._snapshots: pl.DataFrame | None = None

    def series(self, figure: str) -> pl.DataFrame:
        """Samples of ``figure`` in the order of node, unit and time: node (i32), unit (i32), position (0-based number in its series, u32),
        time_ns (i64), value (f64), source (str: "sampled", "derived"; for gpu_memory the metric: FOOTPRINT or CONTROLLER)."""
        if figure not in self._series:
            self._series[figure] = self._make(figure)
        return self._series[figure]

    def ends(self, figure: str, scan_interval_us: float) -> pl.DataFrame:
        """The last sample of every series in every evaluation window that it has samples in: node, unit, window (i64, 0-based from the
        run's origin), row (row of that sample in ``series(figure)``, u32), count (samples of the series up to and with it, u32), time_ns.
        """
        key = ("ends", figure, scan_interval_us)
        if key not in self._ends:
            rows = self.series(figure).with_row_index("row").with_columns(window=self._window(scan_interval_us))
            self._ends[key] = rows.group_by("node", "unit", "window", maintain_order=True).agg(
                pl.col("row").last(), count=pl.col("position").last() + 1, time_ns=pl.col("time_ns").last()
            )
        return self._ends[key]

    def quantiles(self, figure: str, scan_interval_us: float, window: int, more_than: float) -> pl.DataFrame:
        """``ends`` with more than ``more_than`` samples, and p5 and p95 (linear interpolation) of the last ``window`` samples (fewer while
        the series is shorter) at each."""
        key = ("quantiles", figure, scan_interval_us, window, more_than)
        if key not in self._ends:
            ends = self.ends(figure, scan_interval_us).filter(pl.col("count") > more_than)
            first = pl.col("row") + 1 - pl.min_horizontal("count", pl.lit(window))
            last = ends.with_row_index("end").select("end", index=pl.int_ranges(first.cast(pl.Int64), pl.col("row") + 1)).explode("index")
            found = (
                last.with_columns(value=self.series(figure)["value"].gather(last["index"]))
                .group_by("end", maintain_order=True)
                .agg(p5=pl.col("value").quantile(0.05, "linear"), p95=pl.col("value").quantile(0.95, "linear"))
            )
            self._ends[key] = ends.with_columns(p5=found["p5"], p95=found["p95"])
        return self._ends[key]

    def boxes(self, figure: str) -> pl.DataFrame:
        """Per series over the whole run: node, unit, source, samples, first_ns, last_ns, min, p5, p25, p50, p75, p95, max, mean.

        ``lower``, ``upper``: quartile -/+ 1.5 IQR, cut to min and max. ``whisker_lower``, ``whisker_upper``: the most extreme values within
        1.5 IQR of the quartiles, as drawn.
        """
        key = ("boxes", figure)
        if key not in self._ends:
            value = pl.col("value")

            def q(fraction: float) -> pl.Expr:
                return value.quantile(fraction, "linear")

            low, high = q(0.25) - 1.5 * (q(0.75) - q(0.25)), q(0.75) + 1.5 * (q(0.75) - q(0.25))
            self._ends[key] = (
                self.series(figure)
                .group_by("node", "unit", maintain_order=True)
                .agg(
                    pl.col("source").first(),
                    samples=pl.len(),
                    first_ns=pl.col("time_ns").first(),
                    last_ns=pl.col("time_ns").last(),
                    min=value.min(), p5=q(0.05), p25=q(0.25), p50=q(0.5), p75=q(0.75), p95=q(0.95), max=value.max(), mean=value.mean(),
                    lower=pl.max_horizontal(low, value.min()),
                    upper=pl.min_horizontal(high, value.max()),
                    whisker_lower=value.filter(value >= low).min(),
                    whisker_upper=value.filter(value <= high).max(),
                )
            )  # fmt: skip
        return self._ends[key]

    def snapshots(self) -> pl.DataFrame:
        """Per machine and snapshot that has a value of a used GPU: node, snapshot_ns, gpu_min (lowest of the used GPUs), core_max and
        iowait_max (highest core; null without such samples). A GPU that is 0 % for the whole run is not used.

        Derived utilisation is joined to the other samples by time: a bucket belongs to the snapshot that lies in it.
        """
        if self._snapshots is None:
            self._snapshots = self._make_snapshots()
        return self._snapshots

    def unused(self) -> pl.DataFrame:
        """GPUs that are 0 % for the whole run: node, unit."""
        return self.boxes("gpu").filter(pl.col("max") <= 0).select("node", "unit")

    # -- making ------------------------------------------------------------------------------------------------------------

    def _window(self, scan_interval_us: float) -> pl.Expr:
        return (pl.col("time_ns") - self.origin_ns) // round(scan_interval_us * 1000)

    def _make(self, figure: str) -> pl.DataFrame:
        if figure == "cpu":
            rows = self._snapped("cpu_utilization")
            rows = rows.group_by("node", "snapshot_ns").agg(pl.col("value").mean())
            rows = rows.select("node", pl.lit(0, pl.Int32).alias("unit"), time_ns="snapshot_ns", value="value", source=pl.lit("sampled"))
        elif figure == "gpu_memory":
            rows = self._rows.filter(pl.col("metric").is_in([FOOTPRINT, CONTROLLER]))
            whole = pl.col("metric").eq(FOOTPRINT)
            rows = rows.filter(whole | ~whole.any().over("node")).select("node", "unit", "time_ns", "value", source="metric")
        else:
            rows = self._rows.filter(pl.col("metric") == _METRIC[figure])
            rows = rows.select("node", "unit", "time_ns", "value", source=pl.lit("sampled"))
            if figure == "gpu":
                made = self._derived.select("node", "unit", "time_ns", "value", source=pl.lit("derived"))
                rows = pl.concat([rows, made])
        rows = rows.with_columns(pl.col("unit").fill_null(0)).sort("node", "unit", "time_ns")
        same = (pl.struct("node", "unit", "time_ns") == pl.struct("node", "unit", "time_ns").shift()).any()
        if rows.height and rows.select(same).item():
            rows = rows.group_by("node", "unit", "time_ns", maintain_order=True).agg(pl.col("value").mean(), pl.col("source").first())
        return rows.with_columns(position=pl.int_range(pl.len(), dtype=pl.UInt32).over("node", "unit"))

    def _snapped(self, metric: str) -> pl.DataFrame:
        parts = [with_snapshots(part) for part in self._rows.partition_by("node")]
        rows = pl.concat(parts) if parts else self._rows.with_columns(snapshot_ns="time_ns")
        return rows.filter(pl.col("metric") == metric)

    def _make_snapshots(self) -> pl.DataFrame:
        gpus = self.series("gpu").join(self.unused(), on=["node", "unit"], how="anti")
        parts = []
        for node in self.nodes:
            own = self._rows.filter(pl.col("node") == node)
            used = gpus.filter(pl.col("node") == node)
            rows = own.filter(pl.col("metric") != "gpu_utilization")
            sampled = used.select("node", pl.lit("gpu_utilization").alias("metric"), "unit", "time_ns", "value")
            rows = with_snapshots(pl.concat([rows, sampled]).sort("metric", "unit", "time_ns"))
            if not rows.height:
                continue
            value, metric = pl.col("value"), pl.col("metric")
            parts.append(
                rows.group_by("node", "snapshot_ns").agg(
                    gpu_min=value.filter(metric == "gpu_utilization").min(),
                    core_max=value.filter(metric == "cpu_utilization").max(),
                    iowait_max=value.filter(metric == "cpu_iowait").max(),
                )
            )
        if not parts:
            schema = {"node": pl.Int32, "snapshot_ns": pl.Int64, "gpu_min": pl.Float64, "core_max": pl.Float64, "iowait_max": pl.Float64}
            return pl.DataFrame(schema=schema)
        return pl.concat(parts).filter(pl.col("gpu_min").is_not_null()).sort("node", "snapshot_ns")


def _interval_ns(store: Store, derived: pl.DataFrame) -> int | None:
    found = store.frame("""
        SELECT median(step) AS step FROM (
            SELECT time_ns - lag(time_ns) OVER (PARTITION BY node, metric, unit ORDER BY time_ns) AS step
            FROM sample WHERE node = (SELECT min(node) FROM sample)
        ) WHERE step > 0
    """).item()
    if isinstance(found, int | float):
        return round(found)
    steps = derived.select(step=pl.col("time_ns").diff().over("node", "unit"))["step"].drop_nulls()
    median = steps.filter(steps > 0).median()
    return round(median) if isinstance(median, int | float) else None
