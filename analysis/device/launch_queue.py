"""Launch queue of each stream over time, and the time in which a stream ran with an empty queue."""

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
        linked = runs.filter(pl.col("launched").is_not_null())
        if linked.is_empty():
            continue
        queued = linked.select(*_STREAM, start="launched", end="start").filter(pl.col("end") > pl.col("start"))
        queues += _streams(places, profiled, runs, linked, queued)
    if not queues:
        return LaunchQueue((), 0, _ABSENT)
    ordered = sorted(queues, key=lambda one: (-one[1].runs, one[0]))
    listed = [stream for _, stream in ordered[:MOST]]
    listed[DRAWN:] = [dataclasses.replace(stream, time_ns=(), depth=()) for stream in listed[DRAWN:]]
    return LaunchQueue(tuple(listed), len(queues), None)


def _streams(
    places: Places, profiled: pl.DataFrame, runs: pl.DataFrame, linked: pl.DataFrame, queued: pl.DataFrame
) -> list[tuple[Any, StreamQueue]]:
    by = list(_STREAM)
    reach = with_window(linked.with_columns(start=pl.min_horizontal("start", "launched")), profiled)
    spans = reach.group_by(*by, "window").agg(first=pl.col("start").min(), last=pl.col("end").max())
    span = spans.group_by(by).agg(span_ns=(pl.col("last") - pl.col("first")).sum(), first=pl.col("first").min(), last=pl.col("last").max())
    counts = runs.group_by(by).agg(runs=pl.len(), linked=pl.col("launched").count())
    busy = union_length(linked, by).rename({"length": "busy_ns"})
    empty = difference_length(linked, queued, by).rename({"length": "empty_ns"})
    table = counts.filter(pl.col("linked") > 0)
    for more in (span, busy, empty):
        table = table.join(more, on=by, how="left", nulls_equal=True)
    steps = _depths(queued)
    streams = []
    for row in table.sort(by, nulls_last=True).to_dicts():
        changes = steps.get(tuple(row[column] for column in by))
        first, last = row.pop("first"), row.pop("last")
        highest, area, (times, depth) = (0, 0, ((), ())) if changes is None else _series(changes, first, last)
        location = places.process(row.pop("process"), row.pop("node"))
        mean = area / row["span_ns"] if row["span_ns"] else None
        stream = StreamQueue(*location, max_depth=highest, mean_depth=mean, time_ns=times, depth=depth, **row)
        streams.append(((location.order, row["device"], row["stream"] is None, row["stream"] or 0), stream))
    return streams


def _depths(queued: pl.DataFrame) -> dict[tuple[Any, ...], pl.DataFrame]:
    """Return, per stream, the times at which the depth changes and the new depth."""
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
    """Return the highest depth, its integral, and its means over equal intervals."""
    time = steps["time"].to_numpy() - first  # exact, because the differences are small
    depth = steps["depth"].to_numpy()
    area = np.concatenate([[0], np.cumsum(depth[:-1] * np.diff(time))])
    width = max(1, -(-(last - first) // POINTS))
    edges = np.arange(0, last - first + width, width)
    before = np.searchsorted(time, edges, side="right") - 1
    at = np.where(before < 0, 0, area[before] + depth[before] * (edges - time[before]))
    means = np.diff(at) / width
    return int(depth.max()), int(area[-1]), (tuple(int(edge) + first for edge in edges[:-1]), tuple(float(mean) for mean in means))
