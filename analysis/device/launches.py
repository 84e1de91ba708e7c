"""Launch latency of kernels, and host time in CUDA calls."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

import polars as pl

from ...ingest.store.store import Store
from ..report.device import Launches, LaunchPair
from ..report.rows import Share
from ..toolkit.contents import kinds
from ..toolkit.counted import MOST, Counted
from ..toolkit.intervals import first_of
from ..toolkit.places import Places, process_conditions
from ..toolkit.quantiles import log_histogram, quantiles
from ..toolkit.shares import percent_of, shares
from .operators import ALL_WORK

SLOWEST: Final = 10

_RUNS: Final = """
    SELECT e.process, e.correlation AS number, e.start_ns AS start, e.node, e.device, e.stream, e.name FROM device_run AS e
    WHERE e.correlation IS NOT NULL AND {}
"""
_CALLS: Final = """
    SELECT e.process, e.correlation AS number, e.start_ns AS start, e.start_ns + e.duration_ns AS "end", e.name FROM host_event AS e
    WHERE e.kind = 'launch' AND e.correlation IS NOT NULL AND {}
"""


def launches(store: Store, *, top: int = 15) -> Launches:
    """Compute the launch latencies, and the host time by call.

    Latency is the start of the first device work of a launch call minus the end of the call, in nanoseconds. Negative latencies are
    counted, but left out of the quantiles, the histogram and the ten slowest. ``runs_without_launch`` counts kernels, copies and memsets
    whose launch call is not in the trace. ``call_time``: launch, synchronization and other runtime calls, the ``top`` by time and then
    "others"; percent of all calls.
    """
    calls = store.frame("SELECT count(*) FROM host_event WHERE kind = 'launch'").item() if "launch" in kinds(store, "host_event") else 0
    runs = store.frame(ALL_WORK).row(0)[0]
    parts, latency = [], Counted()
    for condition in process_conditions(store):
        part, latencies = _paired(store, condition)
        parts.append(part)
        latency.add(latencies)
    pairs, paired_runs, paired_calls = (
        sum(part.pairs for part in parts),
        sum(part.runs for part in parts),
        sum(part.calls for part in parts),
    )
    values = latency.column() if len(latency) <= MOST else None  # of few values, the deviation is summed value by value
    return Launches(
        calls=calls,
        pairs=pairs,
        runs_without_launch=runs - paired_runs,
        launches_without_run=calls - paired_calls,
        graph_runs=paired_runs - pairs,
        negative=pairs - len(latency),
        latency=latency.quantiles() if values is None else quantiles(values),
        histogram=latency.log_histogram() if values is None else log_histogram(values),
        slowest=_slowest(store, [part.slowest for part in parts]),
        call_time=_call_time(store, top),
        absent=_absent(calls, runs, pairs),
    )


class _Paired(NamedTuple):
    """Launches of some processes with the first work (by start) of their correlation."""

    pairs: int
    runs: int  # kernels, copies and memsets that have a launch
    calls: int  # launches that have one of these
    slowest: pl.DataFrame


def _paired(store: Store, condition: str) -> tuple[_Paired, pl.Series]:
    """Return the launches of some processes, and their latencies in ns."""
    # Correlations are unique per process; if two launches share one, the first by start counts. The orders make ties fixed.
    runs, calls = store.frame(_RUNS.format(condition)), store.frame(_CALLS.format(condition))
    call = first_of(runs, calls, ["process"], ["start", "end", "name"])
    run = first_of(calls, runs, ["process"], ["start", "node", "device", "stream", "name"])
    first = call.drop_nulls().unique()
    launch, work = calls.select(pl.all().gather(first)), runs.select(pl.exclude("process").gather(run.gather(first)))
    waited = (
        launch.select(
            "process",
            call="name",
            launch_start_ns="start",
            launch_end_ns="end",
            run_start_ns=work["start"],
            latency_ns=work["start"] - pl.col("end"),
        )
        .hstack(work.select("node", "device", "stream", kernel="name"))
        .filter(pl.col("latency_ns") >= 0)
    )
    return _Paired(len(first), call.count(), run.count(), _top(waited)), waited["latency_ns"]


def _top(pairs: pl.DataFrame) -> pl.DataFrame:
    order = ["latency_ns", "launch_start_ns", "process", "device"]
    # A first choice by latency alone: sorting all pairs takes longer.
    long = pairs["latency_ns"].top_k(SLOWEST)
    return (
        pairs.filter(pl.col("latency_ns") >= pl.lit(long.min(), pl.Int64)).sort(order, descending=[True, False, False, False]).head(SLOWEST)
    )


def _absent(calls: int, runs: int, pairs: int) -> str | None:
    if pairs:
        return None
    if not calls and not runs:
        return "No launch calls and no device work in this run; profile with CPU and CUDA activities to record both."
    if not calls:
        return "No launch calls in this run, only device work; profile with CPU activities, too."
    if not runs:
        return "Launch calls, but no device work in this run; profile with CUDA activities, too."
    return "No launch call of this run has the correlation of a device run."


def _slowest(store: Store, parts: Sequence[pl.DataFrame]) -> tuple[LaunchPair, ...]:
    if not parts:
        return ()
    slowest = _top(pl.concat(parts))
    ids = ", ".join(str(i) for column in ("kernel", "call") for i in slowest[column].drop_nulls()) or "NULL"
    names = dict(store.frame(f"SELECT id, coalesce(short, text) FROM name WHERE id IN ({ids})").rows())
    places = Places(store)
    rows = []
    for row in slowest.iter_rows(named=True):
        location = places.process(row.pop("process"), row.pop("node"))
        texts = {column: names.get(row.pop(column), "") for column in ("call", "kernel")}
        rows.append(LaunchPair(node=location.node, rank=location.rank, **texts, **row))
    return tuple(rows)


def _call_time(store: Store, top: int) -> tuple[Share, ...]:
    if kinds(store, "host_event").isdisjoint({"launch", "sync", "call"}):
        return ()
    rows = store.frame("""
        SELECT coalesce(n.text, ''), t.total, t.count FROM (
            SELECT name, sum(duration_ns)::BIGINT AS total, count(*) AS count
            FROM host_event WHERE kind IN ('launch', 'sync', 'call') GROUP BY name
        ) AS t LEFT JOIN name AS n ON n.id = t.name
    """).rows()
    listed = shares(rows)
    rest = listed[top:]
    if not rest:
        return listed
    all_calls = sum(share.total_ns for share in listed)
    total = sum(share.total_ns for share in rest)
    return (*listed[:top], Share("others", total, sum(share.count for share in rest), percent_of(total, all_calls)))
