"""How much launched work waits on each stream, over time, and how long did a stream run with nothing behind it?"""

from __future__ import annotations

import dataclasses
from typing import Any, Final

import numpy as np
import polars as pl

from ...ingest.store.store import Store
from ..report.model import LaunchQueue, StreamQueue
from ..toolkit.intervals import difference_length, union_length
from ..toolkit.places import Places, process_conditions
from ..toolkit.windows import windows, with_window

MOST: Final = 100
DRAWN: Final = 4
POINTS: Final = 200

_ABSENT: Final = "No device work of this run has its launch call in the trace: profile with CPU and CUDA activities to record both."
_STREAM: Final = ("node", "process", "device", "stream")

_RUNS: Final = """
    WITH call AS (
        SELECT process, correlation, min_by(start_ns + duration_ns, start_ns) AS launched
        FROM host_event WHERE kind = 'launch' AND correlation IS NOT NULL GROUP BY process, correlation
    )
    SELECT e.node, e.process, e.device, e.stream, e.start_ns AS start, e.start_ns + e.duration_ns AS "end", c.launched
    FROM device_event AS e LEFT JOIN call AS c ON c.process = e.process AND c.correlation = e.correlation
    WHERE e.kind <> 'sync' AND {}
"""


def launch_queue(store: Store) -> LaunchQueue:
    """Depth of the queue of every stream: runs whose launch call has ended and that have not begun.

    Runs whose launch is not in the trace, such as those launched before the profiler began, count for nothing: not for the depth, and
    not for the time over which it is a mean, as what waited then is not known either.
    """
    places = Places(store)
    profiled = windows(store, "process")
    found: list[tuple[Any, StreamQueue]] = []
    for condition in process_conditions(store):
        runs = store.frame(_RUNS.format(condition))
        linked = runs.filter(pl.col("launched").is_not_null())
        if linked.is_empty():
            continue
        queued = linked.select(*_STREAM, start="launched", end="start").filter(pl.col("end") > pl.col("start"))
        found += _streams(places, profiled, runs, linked, queued)
    if not found:
        return LaunchQueue((), 0, _ABSENT)
    ordered = sorted(found, key=lambda one: (-one[1].runs, one[0]))
    streams = [stream if number < DRAWN else _without_series(stream) for number, (_, stream) in enumerate(ordered[:MOST])]
    return LaunchQueue(tuple(streams), len(found), None)


def _streams(
    places: Places, profiled: pl.DataFrame, runs: pl.DataFrame, linked: pl.DataFrame, queued: pl.DataFrame
) -> list[tuple[Any, StreamQueue]]:
    by = list(_STREAM)
    reach = with_window(linked.with_columns(start=pl.min_horizontal("start", "launched")), profiled)
    spans = reach.group_by(*by, "window").agg(first=pl.col("start").min(), last=pl.col("end").max())
    span = spans.group_by(by).agg(span=(pl.col("last") - pl.col("first")).sum(), first=pl.col("first").min(), last=pl.col("last").max())
    counts = runs.group_by(by).agg(runs=pl.len(), linked=pl.col("launched").count())
    busy = union_length(linked, by).rename({"length": "busy"})
    empty = difference_length(linked, queued, by).rename({"length": "empty"})
    table = counts.filter(pl.col("linked") > 0)
    for more in (span, busy, empty):
        table = table.join(more, on=by, how="left", nulls_equal=True)
    steps = _depths(queued)
    found = []
    for row in table.sort(by, nulls_last=True).to_dicts():
        own = steps.get(tuple(row[column] for column in by))
        highest, area, series = (0, 0, ((), ())) if own is None else _series(own, row["first"], row["last"])
        place = places.process(row["process"], row["node"])
        stream = StreamQueue(
            node=place.node,
            rank=place.rank,
            pid=place.pid,
            device=row["device"],
            stream=row["stream"],
            runs=row["runs"],
            linked=row["linked"],
            max_depth=highest,
            mean_depth=area / row["span"] if row["span"] else None,
            span_ns=row["span"],
            busy_ns=row["busy"],
            empty_ns=row["empty"],
            time_ns=series[0],
            depth=series[1],
        )
        found.append(((place.order, row["device"], row["stream"] is None, row["stream"] or 0), stream))
    return found


def _depths(queued: pl.DataFrame) -> dict[tuple[Any, ...], pl.DataFrame]:
    """Per stream the times at which the depth changes and the depth from then on."""
    changes = pl.concat(
        [
            queued.select(*_STREAM, time="start", change=pl.lit(1, pl.Int64)),
            queued.select(*_STREAM, time="end", change=pl.lit(-1, pl.Int64)),
        ]
    )
    summed = changes.group_by(*_STREAM, "time").agg(pl.col("change").sum()).sort("time")
    return {
        key: part.select("time", depth=pl.col("change").cum_sum())
        for key, part in summed.partition_by(*_STREAM, as_dict=True, maintain_order=True).items()
    }


def _series(steps: pl.DataFrame, first: int, last: int) -> tuple[int, int, tuple[tuple[int, ...], tuple[float, ...]]]:
    """Highest depth, its integral over time, and its mean in stretches of equal time from ``first`` to ``last``."""
    time = steps["time"].to_numpy() - first  # exact: from here on numbers are small
    depth = steps["depth"].to_numpy()
    area = np.concatenate([[0], np.cumsum(depth[:-1] * np.diff(time))])
    width = max(1, -(-(last - first) // POINTS))
    edges = np.arange(0, last - first + width, width)
    before = np.searchsorted(time, edges, side="right") - 1
    at = np.where(before < 0, 0, area[before] + depth[before] * (edges - time[before]))
    means = np.diff(at) / width
    return int(depth.max()), int(area[-1]), (tuple(int(edge) + first for edge in edges[:-1]), tuple(float(mean) for mean in means))


def _without_series(stream: StreamQueue) -> StreamQueue:
    return dataclasses.replace(stream, time_ns=(), depth=())
