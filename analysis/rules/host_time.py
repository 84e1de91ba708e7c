"""What was the host doing in some stretches of time: data loading, synchronisation, runtime calls, operators?"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

import polars as pl

from ...ingest.store import Store

CALLS: Final = "runtime calls"

# Kinds of host events by activity, in the order in which they claim the time: each gets what the ones before it left.
ACTIVITIES: Final = {
    "profiler overhead": ("overhead",),
    "data loader": ("loader",),
    "synchronisation": ("sync",),
    CALLS: ("launch", "call"),
    "operators": ("operator",),
}
UNRECORDED: Final = "nothing recorded"

# Host events that are held in memory at once.
_ROWS_AT_ONCE: Final = 500_000


def length_inside(intervals: pl.DataFrame, segments: pl.DataFrame, by: str) -> pl.Series:
    """How much of each of ``intervals`` the ``segments`` of its group cover (int64); segments must be disjoint within their group."""
    known = _cumulated(segments, by)

    def until(column: str) -> pl.Series:
        points = intervals.select(by, time=column).with_row_index("number").sort("time")
        return _covered(points, known, by).sort("number")["covered"]

    return until("end") - until("start")


def activities(store: Store, gaps: pl.DataFrame) -> dict[str, int]:
    """Nanoseconds of ``gaps`` (columns process, start, end) by what their process was doing on any thread.

    Every moment counts once, for the first of ACTIVITIES that was going on; what none of them covers is "nothing recorded": Python between
    the operators, or work that the profiler does not see.
    """
    times: dict[str, int] = {}
    before = 0
    ends, starts = (gaps.select("process", time=column).sort("time") for column in ("end", "start"))
    stretches = _merged(gaps.select("process", "start", "end"))
    segments = stretches.clear()
    for name, kinds in ACTIVITIES.items():
        parts = [_merged(part) for part in _events_in(store, stretches, kinds)]
        if any(part.height for part in parts):
            segments = _merged(pl.concat([segments, *parts]))
            known = _cumulated(segments, "process")
            total = sum(sign * int(_covered(points, known, "process")["covered"].sum()) for sign, points in ((1, ends), (-1, starts)))
            times[name] = total - before
            before = total
    times[UNRECORDED] = int((gaps["end"] - gaps["start"]).sum()) - before
    return times


def _cumulated(segments: pl.DataFrame, by: str) -> pl.DataFrame:
    """Disjoint segments by start, each with the length of those before it in its group."""
    length = pl.col("end") - pl.col("start")
    return segments.sort("start").select(by, "start", "end", before=length.cum_sum().over(by) - length)


def _covered(points: pl.DataFrame, known: pl.DataFrame, by: str) -> pl.DataFrame:
    """``points`` (columns ``by`` and time, by time) with ``covered``: how much the segments of the group cover before that time."""
    segments = known.with_columns(time="start")
    found = points.join_asof(segments, on="time", by=by, strategy="backward", check_sortedness=False)
    return found.with_columns(covered=(pl.col("before") + pl.min_horizontal("time", "end") - pl.col("start")).fill_null(0))


def _merged(intervals: pl.DataFrame) -> pl.DataFrame:
    """The union per process, as ``intervals.union``: faster where most rows come in the order of time, as host events do."""
    ordered = intervals.filter(pl.col("end") > pl.col("start")).sort("process", "start")
    reached = ordered.select("process", "start", reach=pl.col("end").cum_max().over("process"))
    new = (pl.col("start") > pl.col("reach").shift(1)) | (pl.col("process") != pl.col("process").shift(1))
    marked = reached.with_columns(new=new.fill_null(True))
    last = marked.filter(pl.col("new").shift(-1).fill_null(True))["reach"]
    return marked.filter("new").select("process", "start", end=last)


def calls_in(store: Store, gaps: pl.DataFrame, kinds: Iterable[str]) -> pl.DataFrame:
    """Host events of these kinds that lie in ``gaps`` (columns process, start, end): per name its count, time in the gaps and longest such
    time, the names with most time first."""
    stretches = _merged(gaps)
    parts = []
    for part in _events_in(store, stretches, kinds):
        found = part.with_columns(inside=length_inside(part, stretches, "process"))
        parts.append(found.group_by("name").agg(count=pl.len(), time=pl.col("inside").sum(), longest=pl.col("inside").max()))
    if not parts:
        return pl.DataFrame(schema={"name": pl.Int32, "count": pl.UInt32, "time": pl.Int64, "longest": pl.Int64})
    summed = pl.concat(parts).group_by("name").agg(pl.col("count", "time").sum(), pl.col("longest").max())
    return summed.sort("time", "name", descending=[True, False])


def _events_in(store: Store, stretches: pl.DataFrame, kinds: Iterable[str]) -> Iterator[pl.DataFrame]:
    """Host events of these kinds that reach into ``stretches`` (disjoint per process) with more than an instant, in parts."""
    ends = stretches.select("process", begin="start", finish="end").sort("finish")
    for part in host_events(store, kinds, stretches["process"].drop_nulls().unique().to_list()):
        # Of the stretches that have not ended when the event starts, the first; one that ends at that instant is left out.
        following = part.with_columns(after=pl.col("start") + 1).sort("after")
        found = following.join_asof(ends, left_on="after", right_on="finish", by="process", strategy="forward", check_sortedness=False)
        yield found.filter(pl.col("begin") < pl.col("end")).select(part.columns)


def host_events(store: Store, kinds: Iterable[str], processes: Iterable[int | None]) -> Iterator[pl.DataFrame]:
    """Host events of these kinds and processes in parts of bounded size: process, tid, name, start, end. A part has at least no rows."""
    listed = ", ".join(str(process) for process in processes if process is not None)
    if not listed:
        return
    condition = f"process IN ({listed}) AND kind IN ({', '.join(repr(kind) for kind in kinds)})"
    first, last = store.frame(f"SELECT min(rowid), max(rowid) FROM host_event WHERE {condition}").row(0)
    for begin in range(first, last + 1, _ROWS_AT_ONCE) if first is not None else ():
        yield store.frame(
            'SELECT process, tid, name, start_ns AS start, start_ns + duration_ns AS "end" FROM host_event'
            f" WHERE {condition} AND rowid BETWEEN {begin} AND {min(begin + _ROWS_AT_ONCE - 1, last)}"
        )
