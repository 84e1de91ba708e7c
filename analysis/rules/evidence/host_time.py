"""The host's activity in some stretches of time: data loading, synchronization, runtime calls and operators."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Final

import polars as pl

from ....ingest.store.store import Store
from ...causes.iterations import between_iterations
from ...causes.pauses import compilations, host_optimizers, host_pauses
from ...steps.loading_ranges import loading_ranges
from ...toolkit.contents import kinds as kinds_of
from ...toolkit.intervals import difference, intersection, length_inside, union
from ...toolkit.names import base_name

CALLS: Final = "runtime calls"
LOADER: Final = "data loader"
OPERATORS: Final = "operators"
COMPILATION: Final = "compilation"
HOST_OPTIMIZER: Final = "optimizer on the host"

# Kinds of host events by activity, in the order in which they claim the time: each gets the time that the ones before it left. Overhead
# of the driver itself is a call.
ACTIVITIES: Final = {
    "profiler overhead": ("overhead",),
    LOADER: ("loader",),
    COMPILATION: (),
    HOST_OPTIMIZER: (),
    "synchronization": ("sync",),
    CALLS: ("launch", "call"),
    OPERATORS: ("operator",),
}
# The ranges named as data loading, which are of no kind, come after the calls: a wait for the device in them is not a wait for data.
_CLAIMS: Final = (
    *((name, kinds) for name, kinds in ACTIVITIES.items() if name != OPERATORS),
    (LOADER, ()),
    (OPERATORS, ACTIVITIES[OPERATORS]),
)
RANGES: Final = "annotated ranges"
UNRECORDED: Final = "nothing recorded"

# Overhead in CUPTI's words (those of Kineto and Nsight Systems), or that Kineto cannot name, which is the driver's own work in
# a call, which takes as long without a profiler. The rest is the profiler's: its buffers and their flushes, instrumentation, its resources.
_OF_THE_DRIVER: Final = r"(?i)^(unknown|unrecognized)$|driver.*compiler|module loading|lazy function loading|command buffer full"
_ROWS_AT_ONCE: Final = 500_000  # host events that are held in memory at once


def activities(store: Store, gaps: pl.DataFrame) -> tuple[dict[str, int], dict[str, int]]:
    """Return the ns of ``gaps`` by activity, and of RANGES also by range name.

    ``gaps``: columns process, start, end. The activity is that of the gap's process on any thread; range names are without the number at
    their end. Every moment counts once, for the first of ACTIVITIES that was active, else for the innermost range of the process, on any
    thread. Ranges named as data loading (:func:`.loading_ranges.loading_ranges`) belong to the data loader except during a call:
    operators in them load. Ranges of entire steps are ignored. The rest is "nothing recorded": Python between the operators, or work that
    the profiler does not see."""
    times: dict[str, int] = {}
    before = 0

    def covered_by(segments: pl.DataFrame) -> int:
        return int(length_inside(gaps, segments, "process").sum())

    stretches = union(gaps, ["process"])
    segments = stretches.clear()
    for name, kinds in _CLAIMS:
        events = _events_in(store, stretches, kinds) if kinds else _NAMED[name](store, stretches)
        parts = [union(part, ["process"]) for part in events]
        if any(part.height for part in parts):
            segments = union(pl.concat([segments, *parts]), ["process"])
            total = covered_by(segments)
            times[name] = times.get(name, 0) + total - before
            before = total
    ranges: dict[str, int] = {}
    for (name,), intervals in _innermost(store, difference(stretches, segments, ["process"])).group_by("name"):
        ranges[str(name)] = covered_by(intervals)
    if ranges:
        times[RANGES] = sum(ranges.values())
    times[UNRECORDED] = int((gaps["end"] - gaps["start"]).sum()) - before - times.get(RANGES, 0)
    return times, ranges


def _named_in(ranges: Callable[[Store], pl.DataFrame], store: Store, stretches: pl.DataFrame) -> Iterator[pl.DataFrame]:
    """Yield the ranges that a function returns, one part per process."""
    rows = ranges(store).select(pl.col("process").cast(stretches.schema["process"]), "start", "end").select(stretches.columns)
    for process in stretches["process"].drop_nulls().unique().sort():
        yield rows.filter(pl.col("process") == process)


# Activities by the names of ranges.
_NAMED: Final = {
    LOADER: partial(_named_in, loading_ranges),
    COMPILATION: partial(_named_in, compilations),
    HOST_OPTIMIZER: partial(_named_in, host_optimizers),
}


def with_a_cause(store: Store, stretches: pl.DataFrame) -> pl.DataFrame:
    """Return when the host did something that delays launches on its own.

    That is data loading, compilation, garbage collection, checkpoints, an optimizer on the host, a profiler's own work, and the time
    between the iterations of an inference engine. ``stretches``: process, start, end, disjoint per process. The result has these columns,
    disjoint as well, and may extend beyond the stretches."""
    named = [host_pauses(store), compilations(store), host_optimizers(store), between_iterations(store)]
    parts = [part.select(pl.col("process").cast(stretches.schema["process"]), "start", "end") for part in named]
    parts += [
        part.select(stretches.columns) for part in _events_in(store, stretches, (*ACTIVITIES["profiler overhead"], *ACTIVITIES[LOADER]))
    ]
    parts += _NAMED[LOADER](store, stretches)
    return union(pl.concat(parts), ["process"])


def _innermost(store: Store, rest: pl.DataFrame) -> pl.DataFrame:
    """Return the innermost annotated range at every moment of ``rest``.

    Columns: process, name, start, end; disjoint per process, as ``rest`` is. Innermost: started last; among those the first to end."""
    schema = {"process": pl.Int32, "name": pl.Int32, "start": pl.Int64, "end": pl.Int64}
    rows: list[tuple[int, int, int, int]] = []
    for (process,), stretch in rest.group_by("process"):
        if process is not None:
            rows += [(process, *segment) for segment in _flat(_ranges(store, process, stretch))]
    inner = pl.DataFrame(rows, schema=schema, orient="row")
    parts = []
    for (name,), stretch in inner.group_by("name"):
        inside = intersection(stretch, rest.with_columns(pl.col("process").cast(pl.Int32)), ["process"])
        parts.append(inside.with_columns(name=pl.lit(name, pl.Int32)))
    if not parts:
        return pl.DataFrame(schema={**schema, "name": pl.String})
    names = store.frame("SELECT id AS name, text FROM name WHERE id IN (SELECT DISTINCT name FROM annotation)")
    return pl.concat(parts).join(names, on="name").select("process", "start", "end", name=base_name(pl.col("text")))


def _ranges(store: Store, process: object, rest: pl.DataFrame) -> pl.DataFrame:
    """Return the host ranges of a process in ``rest`` that are not steps, by start."""
    rows = store.frame(
        """
        SELECT a.start_ns AS start, a.start_ns + a.duration_ns AS "end", a.name FROM annotation AS a
        WHERE a.process = ? AND a.side = 'host' AND a.complete IS NOT FALSE AND a.duration_ns > 0 AND a.start_ns < ?
            AND a.start_ns + a.duration_ns > ?
            AND NOT EXISTS (FROM step AS s WHERE s.process = a.process AND s.host_start_ns = a.start_ns
                AND s.host_duration_ns = a.duration_ns)
        """,
        [process, rest["end"].max(), rest["start"].min()],
    )
    ends = rest.select(begin="start", finish="end").sort("finish")
    reaching = (
        rows.with_columns(after=pl.col("start") + 1).sort("after").join_asof(ends, left_on="after", right_on="finish", strategy="forward")
    )
    return reaching.filter(pl.col("begin") < pl.col("end")).select("start", "end", "name").sort("start", "end", descending=[False, True])


def _flat(ranges: pl.DataFrame) -> Iterator[tuple[int, int, int]]:
    """Yield name, start, end of the innermost range at every moment; input by start."""
    open_ranges: list[tuple[int, int, int, int]] = []
    at = 0

    def until(time: int | None) -> Iterator[tuple[int, int, int]]:
        nonlocal at
        while open_ranges and (time is None or at < time):
            _, _, end, name = open_ranges[0]
            stop = end if time is None else min(end, time)
            if stop > at:
                yield name, at, stop
                at = stop
            if end <= at:
                heapq.heappop(open_ranges)

    for number, (start, end, name) in enumerate(ranges.iter_rows()):
        yield from until(start)
        at = max(at, start)
        heapq.heappush(open_ranges, (-start, -number, end, name))
    yield from until(None)


def calls_in(store: Store, gaps: pl.DataFrame, kinds: Iterable[str]) -> pl.DataFrame:
    """Sum host events inside gaps (process, start, end) by name, longest sum first.

    Columns: name, count, time (inside the gaps), longest (such time of one event)."""
    stretches = union(gaps, ["process"])
    parts = []
    for part in _events_in(store, stretches, kinds):
        inside = part.with_columns(inside=length_inside(part, stretches, "process"))
        parts.append(inside.group_by("name").agg(count=pl.len(), time=pl.col("inside").sum(), longest=pl.col("inside").max()))
    if not parts:
        return pl.DataFrame(schema={"name": pl.Int32, "count": pl.UInt32, "time": pl.Int64, "longest": pl.Int64})
    summed = pl.concat(parts).group_by("name").agg(pl.col("count", "time").sum(), pl.col("longest").max())
    return summed.sort("time", "name", descending=[True, False])


def _events_in(store: Store, stretches: pl.DataFrame, kinds: Iterable[str]) -> Iterator[pl.DataFrame]:
    """Yield host events that overlap ``stretches`` (disjoint per process), in parts."""
    ends = stretches.select("process", begin="start", finish="end").sort("finish")
    for part in host_events(store, kinds, stretches["process"].drop_nulls().unique().to_list()):
        # The first stretch that has not ended when the event starts; one that ends at that instant is left out.
        following = part.with_columns(after=pl.col("start") + 1).sort("after")
        next_stretch = following.join_asof(
            ends, left_on="after", right_on="finish", by="process", strategy="forward", check_sortedness=False
        )
        yield next_stretch.filter(pl.col("begin") < pl.col("end")).select(part.columns)


def host_events(store: Store, kinds: Iterable[str], processes: Iterable[int | None]) -> Iterator[pl.DataFrame]:
    """Yield host events in parts of bounded size: process, tid, name, start, end.

    A part can be empty. Overhead of the driver counts as calls, not as overhead."""
    listed = ", ".join(str(process) for process in processes if process is not None)
    if not listed:
        return
    wanted = set(kinds) | ({"overhead"} if "call" in kinds else set())
    if wanted.isdisjoint(kinds_of(store, "host_event")):
        return
    yield from store.batches(
        'SELECT process, tid, name, start_ns AS start, start_ns + duration_ns AS "end" FROM host_event'
        f" WHERE process IN ({listed}) AND {_of_kinds(store, tuple(kinds))}",
        rows=_ROWS_AT_ONCE,
    )


def _of_kinds(store: Store, kinds: tuple[str, ...]) -> str:
    """Return the condition that a host event has one of the kinds."""
    condition = f"kind IN ({', '.join(map(repr, kinds))})"
    if ("call" in kinds) == ("overhead" in kinds) or "overhead" not in kinds_of(store, "host_event"):
        return condition
    driver_names = store.frame(
        "SELECT id FROM name WHERE id IN (SELECT DISTINCT name FROM host_event WHERE kind = 'overhead') AND regexp_matches(text, ?)",
        [_OF_THE_DRIVER],
    )
    of_the_driver = ", ".join(map(str, driver_names["id"]))
    if not of_the_driver:
        return condition
    if "call" in kinds:
        return f"({condition} OR (kind = 'overhead' AND name IN ({of_the_driver})))"
    return f"({condition} AND NOT (kind = 'overhead' AND name IN ({of_the_driver})))"
