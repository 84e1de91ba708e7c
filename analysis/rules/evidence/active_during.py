"""The phases, annotations and operators that were active in a set of time intervals, with their times."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

import polars as pl

from ....ingest.store.store import Store
from ...report.detail_rows import Active, NamedTime
from ...toolkit.intervals import difference, union
from ...toolkit.names import base_name

OUTSIDE: Final = "outside of steps"
_BATCH: Final = 1_000_000

# If a source names phases, only these count: the steps of other sources are the same steps again.
_PHASES: Final = """
    SELECT coalesce(phase, 'step') AS name, node, process, host_start_ns AS start, host_start_ns + host_duration_ns AS "end"
    FROM step AS s QUALIFY s.phase IS NOT NULL OR bool_and(s.phase IS NULL) OVER ()
"""
# A range on the device is the projection of one on the host: only the latter counts.
_ANNOTATIONS: Final = """
    SELECT name, node, process, start_ns AS start, start_ns + duration_ns AS "end" FROM annotation
    WHERE side = 'host' AND complete IS NOT FALSE AND NOT {functions}
"""
_OPERATORS: Final = """
    SELECT name, node, process, start_ns AS start, start_ns + duration_ns AS "end" FROM host_event WHERE kind IN ('operator', 'loader')
    UNION ALL
    SELECT name, node, process, start_ns, start_ns + duration_ns FROM annotation WHERE complete IS NOT FALSE AND {functions}
"""
_FUNCTIONS: Final = "coalesce(phase = 'cpu_functions' OR starts_with(phase, 'gpu_functions'), FALSE)"


def active_during(store: Store, intervals: pl.DataFrame, top: int) -> Active:
    """Return what was active during ``intervals``.

    ``intervals``: columns start, end in ns; node or process, or both, if only events of these count. At most ``top`` of each kind,
    longest first. ``time_ns``: the time of the events of that name inside the intervals. Every event counts once even if intervals
    overlap; events at the same time or inside each other add up (operators are inclusive). ``percent``: of the times of all names of that
    kind, including those that are left out. Annotations are named without a number at their end; phases are those of the steps, and
    "outside of steps" is the rest of the time of each process that has steps."""
    keys = [column for column in ("node", "process") if column in intervals.columns]
    wanted = union(intervals.with_columns(pl.col(keys).cast(pl.Int32).fill_null(-1)), keys)
    if wanted.is_empty():
        return Active()
    names = store.frame("SELECT id AS name, text FROM name")
    annotations = _times(store, _ANNOTATIONS.format(functions=_FUNCTIONS), wanted, keys).join(names, on="name")
    operators = _times(store, _OPERATORS.format(functions=_FUNCTIONS), wanted, keys).join(names, on="name")
    return Active(
        phases=_rows(_phases(store, wanted, keys), top),
        annotations=_rows(annotations.select(base_name(pl.col("text")).alias("name"), "time_ns"), top),
        operators=_rows(operators.select(name="text", time_ns="time_ns"), top),
    )


def _phases(store: Store, wanted: pl.DataFrame, keys: Sequence[str]) -> pl.DataFrame:
    """Return name and time_ns of the phases, and of the time outside of all steps."""
    times = _times(store, _PHASES, wanted, keys)
    steps = store.frame(_PHASES).with_columns(pl.col("node", "process").fill_null(-1))
    workers = steps.select("node", "process").unique()
    steps_of = workers.join(wanted, on=list(keys)) if keys else workers.join(wanted, how="cross")
    rest = difference(steps_of, steps, ["node", "process"]).select((pl.col("end") - pl.col("start")).sum()).item()
    return pl.concat([times, pl.DataFrame({"name": [OUTSIDE], "time_ns": [rest]}, schema=times.schema)])


def _times(store: Store, events: str, wanted: pl.DataFrame, keys: Sequence[str]) -> pl.DataFrame:
    """Return name and time_ns inside ``wanted``, which is disjoint and sorted per key."""
    length = pl.col("end") - pl.col("start")
    before = length.cum_sum().over(keys) if keys else length.cum_sum()
    segments = wanted.select(*keys, "start", length=length, before=before - length).sort("start")
    inside = pl.col("covered_end") - pl.col("covered_start")
    times = pl.DataFrame(schema={"name": pl.String if events is _PHASES else pl.Int32, "time_ns": pl.Int64})
    for batch in _batches(store, events, wanted):
        rows = batch.with_columns(pl.col("node", "process").fill_null(-1))
        for time in ("start", "end"):
            rows = _with_covered(rows, time, segments, keys)
        part = rows.group_by("name").agg(time_ns=inside.sum()).filter(pl.col("time_ns") > 0)
        times = pl.concat([times, part]).group_by("name").agg(pl.col("time_ns").sum())
    return times


def _batches(store: Store, events: str, wanted: pl.DataFrame) -> Iterator[pl.DataFrame]:
    """Return events between the first and the last interval, a million at a time."""
    overlapping = f'SELECT * FROM ({events}) WHERE start < ? AND "end" > ?'
    return store.batches(overlapping, [wanted["end"].max(), wanted["start"].min()], rows=_BATCH)


def _with_covered(rows: pl.DataFrame, time: str, segments: pl.DataFrame, keys: Sequence[str]) -> pl.DataFrame:
    """Add the earlier covered time of a row's key as ``covered_start`` or _end."""
    joined = rows.sort(time).join_asof(
        segments.rename({"start": "segment"}),
        left_on=time,
        right_on="segment",
        by=list(keys) or None,
        strategy="backward",
        check_sortedness=False,
    )
    covered = (pl.col("before") + pl.min_horizontal(pl.col(time) - pl.col("segment"), "length")).fill_null(0)
    return joined.with_columns(covered.alias(f"covered_{time}")).drop("segment", "length", "before")


def _rows(times: pl.DataFrame, top: int) -> tuple[NamedTime, ...]:
    sums = times.group_by("name").agg(pl.col("time_ns").sum()).filter(pl.col("time_ns") > 0)
    total = sums["time_ns"].sum()
    largest = sums.sort("time_ns", "name", descending=[True, False]).head(top)
    return tuple(NamedTime(*row) for row in largest.select("name", "time_ns", percent=100 * pl.col("time_ns") / total).iter_rows())
