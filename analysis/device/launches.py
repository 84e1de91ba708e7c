"""Launch latency of kernels, and host time in CUDA calls."""

from __future__ import annotations

from typing import Final

import polars as pl

from ...ingest.store.store import Store
from ..report.model import Launches, LaunchPair, Share
from ..toolkit.places import Places
from ..toolkit.quantiles import log_histogram, quantiles
from ..toolkit.shares import percent_of, shares

SLOWEST: Final = 10

# A launch and the first work (by start) of its correlation. `min` of a struct compares its fields in order, so ties have a fixed result.
# Correlations are unique per process; if two launches share one, the first by start counts.
_PAIRS: Final = """
    WITH run AS (
        SELECT process, correlation, count(*) AS runs,
               min({'start': start_ns, 'node': node, 'device': device, 'stream': stream, 'name': name}) AS first
        FROM device_event WHERE kind <> 'sync' AND correlation IS NOT NULL GROUP BY process, correlation
    ), call AS (
        SELECT process, correlation, count(*) AS calls,
               min({'start': start_ns, 'end': start_ns + duration_ns, 'name': name}) AS first
        FROM host_event WHERE kind = 'launch' AND correlation IS NOT NULL GROUP BY process, correlation
    )
    SELECT process, run.runs, call.calls, run.first.node AS node, run.first.device AS device, run.first.stream AS stream,
           run.first.name AS kernel, call.first.name AS call, call.first.start AS launch_start_ns, call.first."end" AS launch_end_ns,
           run.first.start AS run_start_ns, run.first.start - call.first."end" AS latency_ns
    FROM run JOIN call USING (process, correlation)
"""


def launches(store: Store, *, top: int = 15) -> Launches:
    """Compute the launch latencies, and the host time by call.

    Latency is the start of the first device work of a launch call minus the end of the call, in nanoseconds. Negative latencies are
    counted, but left out of the quantiles, the histogram and the ten slowest. ``runs_without_launch`` counts kernels, copies and memsets
    whose launch call is not in the trace. ``call_time``: launch, synchronization and other runtime calls, the ``top`` by time and then
    "others"; percent of all calls.
    """
    calls = store.frame("SELECT count(*) FROM host_event WHERE kind = 'launch'").item()
    runs = store.frame("SELECT count(*) FROM device_event WHERE kind <> 'sync'").item()
    pairs = store.frame(_PAIRS)
    waited = pairs.filter(pl.col("latency_ns") >= 0)
    latency = waited.get_column("latency_ns")
    paired_runs = int(pairs.get_column("runs").sum())
    return Launches(
        calls=calls,
        pairs=len(pairs),
        runs_without_launch=runs - paired_runs,
        launches_without_run=calls - int(pairs.get_column("calls").sum()),
        graph_runs=paired_runs - len(pairs),
        negative=len(pairs) - len(waited),
        latency=quantiles(latency),
        histogram=log_histogram(latency),
        slowest=_slowest(store, waited),
        call_time=_call_time(store, top),
        absent=_absent(calls, runs, len(pairs)),
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


def _slowest(store: Store, pairs: pl.DataFrame) -> tuple[LaunchPair, ...]:
    order = ["latency_ns", "launch_start_ns", "process", "device"]
    slowest = pairs.drop("runs", "calls").sort(order, descending=[True, False, False, False]).head(SLOWEST)
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
