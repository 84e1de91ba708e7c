"""Device time by the framework's operator that launched it, with the kernels of each operator."""

from __future__ import annotations

from typing import Final

import polars as pl

from ...ingest.store.store import Store
from ..report.device import DeviceOperator, OperatorAttribution, OperatorKernel
from ..toolkit.contents import kinds
from ..toolkit.intervals import first_of, innermost
from ..toolkit.places import process_conditions
from ..toolkit.shares import percent_of

MOST: Final = 200
MOST_KERNELS: Final = 400

_NO_OPERATORS: Final = "No operator in this run: profile PyTorch with ProfilerActivity.CPU and ProfilerActivity.CUDA."
_NO_WORK: Final = "Operators, but no device work in this run: profile PyTorch with ProfilerActivity.CUDA, too."
_NO_LINK: Final = "No launch call of this run lies in an operator on its thread and has the correlation of device work."

_LAUNCHES: Final = """
    SELECT e.process, e.tid, e.correlation AS number, e.start_ns AS "order" FROM host_event AS e
    WHERE e.kind IN ('launch', 'call') AND e.correlation IS NOT NULL AND {}
"""
_WORK: Final = """
    SELECT e.process, e.correlation AS number, e.name AS kernel, e.kind, e.duration_ns AS duration,
        CASE WHEN e.external_id > 0 AND e.external_id IS DISTINCT FROM e.correlation THEN e.external_id END AS operator_number
    FROM device_run AS e WHERE {}
"""
# Some versions of the profiler write the correlation as external id; it identifies no operator.
_OPERATORS: Final = """
    SELECT e.process, e.tid, e.name, e.start_ns AS start, e.start_ns + e.duration_ns AS "end", e.external_id AS number
    FROM host_event AS e WHERE e.kind = 'operator' AND {}
"""
ALL_WORK: Final = "SELECT count(*) AS n, coalesce(sum(duration_ns), 0)::BIGINT AS t FROM device_run"
_GROUP: Final = ("operator", "kernel", "kind")
_SCHEMA: Final = {
    "operator": pl.String, "kernel": pl.String, "kind": pl.String, "calls": pl.UInt32, "count": pl.UInt32, "total": pl.Int64
}  # fmt: skip


def operators(store: Store, attributed_work: pl.DataFrame | None = None) -> OperatorAttribution:
    """Sum device time by operator, from the result of :func:`attribution`, if known."""
    if "operator" not in kinds(store, "host_event"):
        return OperatorAttribution((), 0, (), None, _NO_OPERATORS)
    count, total = store.frame(ALL_WORK).row(0)
    if not count:
        return OperatorAttribution((), 0, (), None, _NO_WORK)
    pairs = attribution(store) if attributed_work is None else attributed_work
    if pairs.is_empty():
        return OperatorAttribution((), 0, (), percent_of(0, total), _NO_LINK)
    by_operator = (
        pairs.group_by("operator")
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
        pairs.filter(pl.col("operator").is_in(kept["operator"].to_list()))
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


def attribution(store: Store) -> pl.DataFrame:
    """Attribute device work to the innermost operator around its launch.

    That operator was running on the launching thread when the launch call began. Work whose launch is not in the trace is attributed by its
    external id. Columns: operator, kernel (as reports show it), kind, calls (calls of the operator that launched any work), count, total.
    """
    work, calls = [], []
    conditions = process_conditions(store) if "operator" in kinds(store, "host_event") else []
    if not conditions:
        return pl.DataFrame(schema=_SCHEMA)
    for condition in conditions:
        linked = _linked(store, condition)
        work.append(linked.group_by(_GROUP).agg(count=pl.len(), total=pl.col("duration").sum()))
        calls.append(linked.group_by("operator").agg(calls=pl.col("call").n_unique()))
    texts = dict(store.frame("SELECT id, coalesce(short, text) FROM name").rows())
    named = pl.col("operator").replace_strict(texts, default="", return_dtype=pl.String)
    kernel = pl.col("kernel").replace_strict(texts, default="", return_dtype=pl.String)
    called = pl.concat(calls).group_by(named).agg(pl.col("calls").sum())
    summed = pl.concat(work).group_by(named, kernel, pl.col("kind").cast(pl.String)).agg(pl.col("count", "total").sum())
    return summed.join(called, on="operator").select(*_GROUP, "calls", "count", "total")


def _linked(store: Store, condition: str) -> pl.DataFrame:
    """Return the work that belongs to an operator, with the number of its call.

    Columns: operator, call, kernel, kind, duration (ns)."""
    work = store.frame(_WORK.format(condition))
    launches = store.frame(_LAUNCHES.format(condition))
    launch = first_of(work, launches, ["process"], ["order"])
    points = launches.select(pl.col("process", "tid", "order").gather(launch)).rename({"order": "time"})
    del launches
    ranges = store.frame(_OPERATORS.format(condition))
    call = innermost(points, ranges, ["process", "tid"], ["number", "name"])
    unlaunched = work.filter(launch.is_null()).select("process", number="operator_number").drop_nulls("number")
    if unlaunched.height:
        called = ranges.with_row_index("call").join(unlaunched, on=["process", "number"], how="semi")
        called = called.sort("name", maintain_order=True).with_columns(order=pl.col("end") - pl.col("start"))
        numbers = work.select("process", number=pl.when(launch.is_null()).then("operator_number"))
        by_number = called["call"].gather(first_of(numbers, called, ["process"], ["order"]))
        call = call.zip_with(launch.is_not_null(), by_number)
    linked = work.select("kernel", "kind", "duration", operator=ranges["name"].gather(call), call=call)
    return linked.filter(pl.col("operator").is_not_null())
