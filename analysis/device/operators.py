"""Device time by the framework's operator that launched it, with the kernels of each operator."""

from __future__ import annotations

from typing import Final

import polars as pl

from ...ingest.store.store import Store
from ..report.model import DeviceOperator, OperatorAttribution, OperatorKernel
from ..toolkit.places import process_conditions
from ..toolkit.shares import percent_of

MOST: Final = 200
MOST_KERNELS: Final = 400

_NO_OPERATORS: Final = "No operator in this run: profile PyTorch with ProfilerActivity.CPU and ProfilerActivity.CUDA."
_NO_WORK: Final = "Operators, but no device work in this run: profile PyTorch with ProfilerActivity.CUDA, too."
_NO_LINK: Final = "No launch call of this run lies in an operator on its thread and has the correlation of device work."

_WORK: Final = """
    WITH launch AS (
        SELECT process, correlation, arg_min(tid, start_ns) AS tid, min(start_ns) AS time
        FROM host_event WHERE kind IN ('launch', 'call') AND correlation IS NOT NULL GROUP BY process, correlation
    )
    SELECT e.process, l.tid, l.time, e.name AS kernel, e.kind::VARCHAR AS kind, count(*) AS count, sum(e.duration_ns)::BIGINT AS total
    FROM device_event AS e JOIN launch AS l ON l.process = e.process AND l.correlation = e.correlation
    WHERE e.kind <> 'sync' AND {} GROUP BY ALL
"""
_OPERATORS: Final = """
    SELECT process, tid, name, start_ns AS start, start_ns + duration_ns AS "end", external_id AS number
    FROM host_event AS e WHERE kind = 'operator' AND duration_ns > 0 AND {}
"""
# Work whose launch is not in the trace. Some versions of the profiler write the correlation as external id; it identifies no operator.
_NAMED: Final = """
    WITH operator AS (
        SELECT process, external_id, arg_min(name, (duration_ns, name)) AS name, arg_min(tid, (duration_ns, name)) AS tid,
            arg_min(start_ns, (duration_ns, name)) AS start
        FROM host_event AS e WHERE kind = 'operator' AND external_id > 0
            AND external_id IN (SELECT external_id FROM device_event)  -- most operators launch nothing: six times as fast
            AND {0}
        GROUP BY process, external_id
    ), launch AS (
        SELECT DISTINCT process, correlation FROM host_event WHERE kind IN ('launch', 'call') AND correlation IS NOT NULL
    )
    SELECT e.process, o.tid, o.start, o.name AS operator, e.name AS kernel, e.kind::VARCHAR AS kind, count(*) AS count,
        sum(e.duration_ns)::BIGINT AS total
    FROM device_event AS e JOIN operator AS o ON o.process = e.process AND o.external_id = e.external_id
    ANTI JOIN launch AS l ON l.process = e.process AND l.correlation = e.correlation
    WHERE e.kind <> 'sync' AND e.external_id IS DISTINCT FROM e.correlation AND {0} GROUP BY ALL
"""


def operators(store: Store, attributed_work: pl.DataFrame | None = None) -> OperatorAttribution:
    """Sum device time by operator, from the result of :func:`attribution`, if known."""
    total = store.frame("SELECT coalesce(sum(duration_ns), 0)::BIGINT AS t, count(*) AS n FROM device_event WHERE kind <> 'sync'").row(0)
    if not store.frame("SELECT EXISTS (FROM host_event WHERE kind = 'operator') AS found").item():
        return OperatorAttribution((), 0, (), None, _NO_OPERATORS)
    if not total[1]:
        return OperatorAttribution((), 0, (), None, _NO_WORK)
    pairs = attribution(store) if attributed_work is None else attributed_work
    if pairs.is_empty():
        return OperatorAttribution((), 0, (), percent_of(0, total[0]), _NO_LINK)
    by_operator = (
        pairs.group_by("operator")
        .agg(
            calls=pl.col("calls").explode().n_unique(),
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
            DeviceOperator(row["operator"], row["calls"], row["count"], row["total"], percent_of(row["total"], total[0]), row["kernels"])
            for row in kept.iter_rows(named=True)
        ),
        further=max(0, len(by_operator) - MOST),
        kernels=tuple(
            OperatorKernel(row["operator"], row["kernel"], row["kind"], row["count"], row["total"]) for row in kernels.iter_rows(named=True)
        ),
        linked_percent=percent_of(int(by_operator["total"].sum()), total[0]),
        absent=None,
    )


def attribution(store: Store) -> pl.DataFrame:
    """Attribute device work to the innermost operator around its launch.

    That operator was running on the launching thread when the launch call began. Work whose launch is not in the trace is attributed by its
    external id. Columns: operator, kernel (as reports show it), kind, calls (calls of the operator that launched the work), count, total.
    """
    frames = []
    for condition in process_conditions(store) or ["FALSE"]:
        work = store.frame(_WORK.format(condition))
        launched = attributed(work, store.frame(_OPERATORS.format(condition)))
        columns = ["process", "tid", "start", "operator", "kernel", "kind", "count", "total"]
        linked = pl.concat([launched.select(columns), store.frame(_NAMED.format(condition)).select(columns)], how="vertical_relaxed")
        frames.append(
            linked.group_by("operator", "kernel", "kind").agg(
                calls=pl.struct("process", "tid", "start").unique().implode(), count=pl.col("count").sum(), total=pl.col("total").sum()
            )
        )
    texts = dict(store.frame("SELECT id, coalesce(short, text) FROM name").rows())
    return pl.concat(frames).with_columns(pl.col("operator", "kernel").replace_strict(texts, default="", return_dtype=pl.String))


def attributed(work: pl.DataFrame, ranges: pl.DataFrame) -> pl.DataFrame:
    """Return ``work`` in a range of its thread, with the innermost range.

    ``work``: process, tid, time, ...; the result adds ``operator``, the range's name, and ``start``. ``ranges``: process, tid, name,
    start, end, number; the ranges of a thread are nested or disjoint. If several have the same times, the highest number is innermost.
    """
    thread = ["process", "tid"]
    ranges = ranges.join(work.select(thread).unique(), on=thread, how="semi")
    begins = ranges.select(*thread, "number", "name", "start", time="start", delta=pl.lit(1, pl.Int32), order=-pl.col("end"))
    ends = ranges.select(*thread, time="end", delta=pl.lit(-1, pl.Int32), order=-pl.col("start"))
    points = pl.concat([begins, ends], how="diagonal")
    # At equal times, ends come before starts; of ranges that start together the longest is the outermost.
    points = points.sort(*thread, "time", "delta", "order", "number", "name")
    depth = pl.col("delta").cum_sum().over(thread)
    # After a range has ended, the innermost range is the last one that started at the remaining depth.
    points = (
        points.with_columns(depth=depth)
        .with_columns(pl.col("name", "start").forward_fill().over(*thread, "depth"))
        .with_columns(pl.when(pl.col("depth") > 0).then(pl.col("name", "start")))
        .unique([*thread, "time"], keep="last", maintain_order=True)
        .select(*thread, "time", operator="name", start="start")
    )
    joined = work.sort("time").join_asof(points.sort("time"), on="time", by=thread, strategy="backward", check_sortedness=False)
    return joined.filter(pl.col("operator").is_not_null())
