"""Device time by the framework's operator that launched it, with the kernels of each operator."""

from __future__ import annotations

from typing import Final

import polars as pl

from ...ingest.store.store import Store
from ..report.device import DeviceOperator, OperatorAttribution, OperatorKernel
from ..toolkit.contents import kinds
from ..toolkit.shares import percent_of

MOST: Final = 200
MOST_KERNELS: Final = 400

_NO_OPERATORS: Final = "No operator in this run: profile PyTorch with ProfilerActivity.CPU and ProfilerActivity.CUDA."
_NO_WORK: Final = "Operators, but no device work in this run: profile PyTorch with ProfilerActivity.CUDA, too."
_NO_LINK: Final = "No launch call of this run lies in an operator on its thread and has the correlation of device work."

ALL_WORK: Final = "SELECT count(*) AS n, coalesce(sum(duration_ns), 0)::BIGINT AS t FROM device_run"


def operators(store: Store, attributed_work: pl.DataFrame) -> OperatorAttribution:
    """Sum device time by the innermost operator around the launch.

    ``attributed_work``: operator, kernel (as reports show it), kind, calls (of the operator, that launched any work), count, total (ns)."""
    if "operator" not in kinds(store, "host_event"):
        return OperatorAttribution((), 0, (), None, _NO_OPERATORS)
    count, total = store.frame(ALL_WORK).row(0)
    if not count:
        return OperatorAttribution((), 0, (), None, _NO_WORK)
    if attributed_work.is_empty():
        return OperatorAttribution((), 0, (), percent_of(0, total), _NO_LINK)
    by_operator = (
        attributed_work.group_by("operator")
        .agg(
            calls=pl.col("calls").first(),
            count=pl.col("count").sum(),
            total=pl.col("total").sum(),
            kernels=pl.struct("kernel", "kind").n_unique(),
        )
        .sort("total", "operator", descending=[True, False])
    )
    kept = by_operator.head(MOST)
    kernels = (
        attributed_work.filter(pl.col("operator").is_in(kept["operator"].to_list()))
        .group_by("operator", "kernel", "kind")
        .agg(pl.col("count").sum(), pl.col("total").sum())
        .sort("total", "operator", "kernel", "kind", descending=[True, False, False, False])
        .head(MOST_KERNELS)
    )
    return OperatorAttribution(
        rows=tuple(
            DeviceOperator(row["operator"], row["calls"], row["count"], row["total"], percent_of(row["total"], total), row["kernels"])
            for row in kept.iter_rows(named=True)
        ),
        further=max(0, len(by_operator) - MOST),
        kernels=tuple(
            OperatorKernel(row["operator"], row["kernel"], row["kind"], row["count"], row["total"]) for row in kernels.iter_rows(named=True)
        ),
        linked_percent=percent_of(int(by_operator["total"].sum()), total),
        absent=None,
    )
