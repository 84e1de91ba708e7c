"""How long does a launched kernel wait before it runs, and what did the host calls cost?"""

from __future__ import annotations

from typing import Final

import polars as pl

from ...ingest.store.store import Store
from ..report.model import Launches, LaunchPair, Share
from ..toolkit.places import Places
from ..toolkit.quantiles import log_histogram, quantiles
from ..toolkit.shares import percent_of, shares

SLOWEST: Final = 10

# A launch and the first run (by start) of its correlation. `min` of a struct compares its fields in order: ties are decided the same way
# every time. Correlations are unique per process; should two launches share one, the first by start counts.
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
           run.first.name AS kernel, call.first.name AS call, call.first.start AS launch_start, call.first."end" AS launch_end,
           run.first.start AS run_start, run.first.start - call.first."end" AS latency
    FROM run JOIN call USING (process, correlation)
"""


def launches(store: Store, *, top: int = 15) -> Launches:
    """Launch latency over all pairs of a launch call and the first device run of its correlation, and host time by call.

    Latency is the start of the run minus the end of the call, in nanoseconds; negative ones are counted and left out of the quantiles,
    the histogram and the ten slowest. ``runs_without_launch`` counts kernels, copies and memsets whose launch call is not in the trace.
    ``call_time``: launch, synchronisation and other runtime calls, the ``top`` by time and then "others"; percent of all these calls.
    """
    calls = store.frame("SELECT count(*) FROM host_event WHERE kind = 'launch'").item()
    runs = store.frame("SELECT count(*) FROM device_event WHERE kind <> 'sync'").item()
    pairs = store.frame(_PAIRS)
    waited = pairs.filter(pl.col("latency") >= 0)
    latency = waited.get_column("latency")
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
    order = ["latency", "launch_start", "process", "device"]
    slowest = pairs.sort(order, descending=[True, False, False, False]).head(SLOWEST)
    names = _texts(store, {*slowest.get_column("kernel").drop_nulls(), *slowest.get_column("call").drop_nulls()})
    places = Places(store)
    found = []
    for row in slowest.iter_rows(named=True):
        place = places.process(row["process"], row["node"])
        found.append(
            LaunchPair(
                node=place.node,
                rank=place.rank,
                device=row["device"],
                stream=row["stream"],
                call=names.get(row["call"], ""),
                kernel=names.get(row["kernel"], ""),
                launch_start_ns=row["launch_start"],
                launch_end_ns=row["launch_end"],
                run_start_ns=row["run_start"],
                latency_ns=row["latency"],
            )
        )
    return tuple(found)


def _texts(store: Store, ids: set[int]) -> dict[int, str]:
    if not ids:
        return {}
    wanted = ", ".join(str(i) for i in sorted(ids))
    return dict(store.frame(f"SELECT id, coalesce(short, text) FROM name WHERE id IN ({wanted})").rows())


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
    whole = sum(share.total_ns for share in listed)
    total = sum(share.total_ns for share in rest)
    return (*listed[:top], Share("others", total, sum(share.count for share in rest), percent_of(total, whole)))
