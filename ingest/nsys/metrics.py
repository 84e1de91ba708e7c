"""Converts the GPU metrics of an Nsight Systems export to samples.

They are taken up to 200,000 times a second; a sample of the store is the mean of a stretch of time. Only counters that equal a metric of
the store are stored (DCGM measures the same ones); none of them is the utilization that nvidia-smi reports.
"""

from __future__ import annotations

from typing import Final

import polars as pl

from . import schema as schema
from .events import LATEST_NS, integers
from .schema import Export

STRETCH_NS: Final = 10_000_000  # length of the time that one sample covers
_NAMES: Final = (
    ("gr active", "gpu_engine_active"),
    ("sms active", "gpu_sm_active"),
    ("sm active", "gpu_sm_active"),
    ("tensor active", "gpu_tensor_active"),
    ("dram read", "gpu_dram_active"),
    ("dram write", "gpu_dram_active"),
)
"""Start of a name in lower case -> metric. The store has the sum of reading and writing."""


def _metrics_of(export: Export) -> dict[tuple[int, int], str]:
    """Return the store's metric by type and metric number, for metrics in percent."""
    metrics = {}
    for kind, number, name in export.rows(schema.METRIC_NAMES, ("typeId", "metricId", "metricName")):
        if type(kind) is int and type(number) is int and isinstance(name, str) and "%" in name:
            known = next((metric for start, metric in _NAMES if name.lower().startswith(start)), None)
            if known is not None:
                metrics[kind, number] = known
    return metrics


def samples(export: Export) -> pl.DataFrame:
    """Return rows of `sample` without node: metric, unit, time_ns, value.

    ``time_ns`` is the middle of a stretch, in the time of the session.
    """
    empty = pl.DataFrame(schema={"metric": pl.String, "unit": pl.Int32, "time_ns": pl.Int64, "value": pl.Float64})
    metrics, table = _metrics_of(export), export.table(schema.GPU_METRICS)
    if table is None or not metrics:
        return empty
    known = pl.DataFrame(
        [(kind, number, metric) for (kind, number), metric in metrics.items()],
        schema={"typeId": pl.Int64, "metricId": pl.Int64, "metric": pl.String}, orient="row",
    )  # fmt: skip
    keys = ["typeId", "metricId", "stretch"]
    sums: list[pl.DataFrame] = []
    columns = ("timestamp", "typeId", "metricId", "value")
    for batch in export.batches(table, columns):
        rows = pl.DataFrame([integers(values).alias(name) for name, values in zip(columns, batch, strict=True)])
        rows = rows.filter(pl.col("timestamp").is_between(-LATEST_NS, LATEST_NS), pl.col("value").is_between(0, 100))
        rows = rows.join(known, on=["typeId", "metricId"], how="inner").with_columns(stretch=pl.col("timestamp").floordiv(STRETCH_NS))
        sums.append(rows.group_by(keys).agg(pl.col("value").sum().alias("sum"), pl.len().alias("count")))
        if len(sums) > 64:
            sums = [_summed(sums, keys)]
    if not sums:
        return empty
    means = _summed(sums, keys).with_columns(value=pl.col("sum") / pl.col("count")).join(known, on=["typeId", "metricId"], how="left")
    return (
        means.group_by("metric", "typeId", "stretch")
        .agg(pl.col("value").sum().clip(0, 100))
        .select(
            "metric",
            (pl.col("typeId") & 0xFF).cast(pl.Int32).alias("unit"),
            (pl.col("stretch") * STRETCH_NS + STRETCH_NS // 2).alias("time_ns"),
            "value",
        )
        .sort("metric", "unit", "time_ns")
    )


def _summed(parts: list[pl.DataFrame], keys: list[str]) -> pl.DataFrame:
    return pl.concat(parts).group_by(keys).agg(pl.col("sum").sum(), pl.col("count").sum())
