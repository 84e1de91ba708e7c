"""Which phases, annotations and operators were active in a set of time intervals, and for how long?"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

import polars as pl

from ....ingest.store.store import Store
from ...report.rule_details import Active, NamedTime
from ...toolkit.intervals import difference, union
from ...toolkit.names import base_name

OUTSIDE: Final = "outside of steps"
_BATCH: Final = 1_000_000

# Where a source names phases, only these count: the steps of other sources are the same ones, found twice.
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
    """What was active during ``intervals`` (columns start, end in ns; node or process, or both, where only events of these count).

    At most ``top`` of each kind, longest first. ``time_ns``: how much of the events of that name lies inside of the intervals, every event
    once, however many intervals overlap it or each other; events at the same time or inside of each other add up (operators are inclusive).
    ``percent``: of the times of all names of that kind, also of those that are left out. Annotations are named without a number at their
    end; phases are those of the steps, and "outside of steps" the rest of the time of each process that has steps.
    """
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
    """name, time_ns of the phases, and the part of the intervals that no step of a process covers, summed over the processes."""
    times = _times(store, _PHASES, wanted, keys)
    steps = store.frame(_PHASES).with_columns(pl.col("node", "process").fill_null(-1))
    workers = steps.select("node", "process").unique()
    own = workers.join(wanted, on=list(keys)) if keys else workers.join(wanted, how="cross")
    rest = difference(own, steps, ["node", "process"]).select((pl.col("end") - pl.col("start")).sum()).item()
    return pl.concat([times, pl.DataFrame({"name": [OUTSIDE], "time_ns": [rest]}, schema=times.schema)])


def _times(store: Store, events: str, wanted: pl.DataFrame, keys: Sequence[str]) -> pl.DataFrame:
    """name, time_ns: how much of the events of each name lies inside of ``wanted``, which is disjoint per key and in order."""
    length = pl.col("end") - pl.col("start")
    before = length.cum_sum().over(keys) if keys else length.cum_sum()
    segments = wanted.select(*keys, "start", length=length, before=before - length).sort("start")
    inside = pl.col("covered_end") - pl.col("covered_start")
    found = pl.DataFrame(schema={"name": pl.String if events is _PHASES else pl.Int32, "time_ns": pl.Int64})
    for batch in _batches(store, events, wanted):
        rows = batch.with_columns(pl.col("node", "process").fill_null(-1))
        for time in ("start", "end"):
            rows = _with_covered(rows, time, segments, keys)
        part = rows.group_by("name").agg(time_ns=inside.sum()).filter(pl.col("time_ns") > 0)
        found = pl.concat([found, part]).group_by("name").agg(pl.col("time_ns").sum())
    return found


def _batches(store: Store, events: str, wanted: pl.DataFrame) -> Iterator[pl.DataFrame]:
    """Events that reach between the first and the last interval, a million at a time."""
    found = store.connection.cursor().sql(
        f'SELECT * FROM ({events}) WHERE start < ? AND "end" > ?', params=[wanted["end"].max(), wanted["start"].min()]
    )
    for batch in found.to_arrow_reader(_BATCH):
        frame = pl.from_arrow(batch)
        assert isinstance(frame, pl.DataFrame)
        yield frame


def _with_covered(rows: pl.DataFrame, time: str, segments: pl.DataFrame, keys: Sequence[str]) -> pl.DataFrame:
    """``rows`` with ``covered_start`` or ``covered_end``: length of the segments of its key that lies before that time."""
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
    found = times.group_by("name").agg(pl.col("time_ns").sum()).filter(pl.col("time_ns") > 0)
    total = found["time_ns"].sum()
    shown = found.sort("time_ns", "name", descending=[True, False]).head(top)
    return tuple(NamedTime(*row) for row in shown.select("name", "time_ns", percent=100 * pl.col("time_ns") / total).iter_rows())
