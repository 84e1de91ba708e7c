"""Launch queue of each stream over time, and the time in which a stream ran with an empty queue."""

from __future__ import annotations

import dataclasses
from typing import Any, Final

import numpy as np
import polars as pl

from ...ingest.store.store import Store
from ..report.device import LaunchQueue, StreamQueue
from ..toolkit.intervals import sweep_length
from ..toolkit.places import Places, process_conditions
from ..toolkit.windows import windows, with_window
from .idle import stream_runs

MOST: Final = 100
DRAWN: Final = 4
POINTS: Final = 200

_ABSENT: Final = "No device work of this run has its launch call in the trace: profile with CPU and CUDA activities to record both."
_STREAM: Final = ("node", "process", "device", "stream")


def launch_queue(store: Store) -> LaunchQueue:
    """Return the depth of the launch queue of every stream.

    The queue is the work whose launch call has ended and that has not begun. Work whose launch is not in the trace, such as launches before
    the profiler began, counts neither in the depth nor in the time over which the depth is averaged, because the queue of that time is
    unknown.
    """
    places = Places(store)
    profiled = windows(store, "process")
    queues: list[tuple[Any, StreamQueue]] = []
    for condition in process_conditions(store):
        runs = stream_runs(store, condition)
        if runs["launched"].count():
            queues += _streams(places, profiled, runs)
    if not queues:
        return LaunchQueue((), 0, _ABSENT)
    ordered = sorted(queues, key=lambda one: (-one[1].runs, one[0]))
    listed = [stream for _, stream in ordered[:MOST]]
    listed[DRAWN:] = [dataclasses.replace(stream, time_ns=(), depth=()) for stream in listed[DRAWN:]]
    return LaunchQueue(tuple(listed), len(queues), None)


def _streams(places: Places, profiled: pl.DataFrame, runs: pl.DataFrame) -> list[tuple[Any, StreamQueue]]:
    by = list(_STREAM)
    linked = runs.filter(pl.col("launched").is_not_null())
    queued = linked.select(*by, start="launched", end="start").filter(pl.col("end") > pl.col("start"))
    busy = pl.concat(
        [
            linked.select(*by, "start", "end", busy=pl.lit(True), queued=pl.lit(False)),
            queued.with_columns(busy=pl.lit(False), queued=pl.lit(True)),
        ]
    )
    lengths = sweep_length(busy, by, ("busy", "queued")).filter("busy").group_by(by)
    times = lengths.agg(busy_ns=pl.col("length").sum(), empty_ns=pl.col("length").filter(~pl.col("queued")).sum())
    table = _spans(runs, profiled).join(times, on=by, how="left", nulls_equal=True).with_columns(pl.col("busy_ns", "empty_ns").fill_null(0))
    waits = queued.partition_by(by, as_dict=True)
    streams = []
    for row in table.sort(by, nulls_last=True).to_dicts():
        waiting = waits.get(tuple(row[column] for column in by))
        first, last = row.pop("first"), row.pop("last")
        highest, area, (times_ns, depth) = (0, 0, ((), ())) if waiting is None else _series(waiting, first, last)
        location = places.process(row.pop("process"), row.pop("node"))
        mean = area / row["span_ns"] if row["span_ns"] else None
        stream = StreamQueue(*location, max_depth=highest, mean_depth=mean, time_ns=times_ns, depth=depth, **row)
        streams.append(((location.order, row["device"], row["stream"] is None, row["stream"] or 0), stream))
    return streams


def _spans(runs: pl.DataFrame, profiled: pl.DataFrame) -> pl.DataFrame:
    """Count the runs of each stream, with the time of those whose launch is known."""
    linked = pl.col("launched").is_not_null()
    reach = with_window(runs.select(*_STREAM, "launched", "end", start=pl.min_horizontal("start", "launched")), profiled)
    spans = reach.group_by(*_STREAM, "window").agg(
        runs=pl.len(),
        linked=pl.col("launched").count(),
        first=pl.col("start").filter(linked).min(),
        last=pl.col("end").filter(linked).max(),
    )
    streams = spans.group_by(_STREAM).agg(
        pl.col("runs", "linked").sum(),
        span_ns=(pl.col("last") - pl.col("first")).sum(),
        first=pl.col("first").min(),
        last=pl.col("last").max(),
    )
    return streams.filter(pl.col("linked") > 0)


def _series(waits: pl.DataFrame, first: int, last: int) -> tuple[int, int, tuple[tuple[int, ...], tuple[float, ...]]]:
    """Return the highest depth, its integral, and its means over equal intervals.

    ``waits``: the time of each run in the queue (``start``, ``end``; not empty)."""
    begins, ends = (np.sort(waits[column].to_numpy() - first, kind="stable") for column in ("start", "end"))  # small, hence exact
    depth = np.arange(1, len(begins) + 1) - np.searchsorted(ends, begins, side="right")
    width = max(1, -(-(last - first) // POINTS))
    edges = np.arange(0, last - first + width, width)
    means = np.diff(_passed(begins, edges) - _passed(ends, edges)) / width
    return (
        int(depth.max()),
        int(ends.sum() - begins.sum()),
        (tuple(int(edge) + first for edge in edges[:-1]), tuple(float(mean) for mean in means)),
    )


def _passed(moments: np.ndarray[Any, Any], edges: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Return the summed time from the moments before each edge to the edge."""
    before = np.searchsorted(moments, edges, side="right")
    sums: np.ndarray[Any, Any] = edges * before - np.concatenate([[0], np.cumsum(moments)])[before]
    return sums
