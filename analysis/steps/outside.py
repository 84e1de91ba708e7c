"""Device work that no recorded step launched: launches before, between and after the steps -> the events, and their sums.

The device works through its queue while the host runs ahead, so work that was launched before the first recorded step, such as in a
warm-up step of the profiler, often executes during it. It belongs to no step, and no figure per step contains it.
"""

from __future__ import annotations

from typing import Final

import polars as pl

from ...ingest.store.store import Store
from ..report.steps import WorkOutsideSteps
from ..toolkit.intervals import union_length
from ..toolkit.places import Places

BEFORE: Final = "before"
BETWEEN: Final = "between"
AFTER: Final = "after"

_SCHEMA: Final = {
    "process": pl.Int32, "device": pl.Int32, "stream": pl.Int64, "name": pl.Int32, "start": pl.Int64, "end": pl.Int64, "when": pl.String,
    "run": pl.Int64,
}  # fmt: skip

# Of each process: device work beyond that of the steps, by the number of events.
_NUMBER: Final = "SELECT process, count(*) AS events FROM device_run WHERE process IS NOT NULL GROUP BY process"

# Work that may have been launched outside of the steps: in a gap before the steps of a run what starts until the end of its first step,
# and in the gap after the last one what starts once the host has finished it. ``launched``: start of the first launch call, or null.
_WORK: Final = """
    WITH edge(process, run, "from", host, until) AS (VALUES {edges}),
    work AS (
        SELECT e.run, e."from", e.host, d.process, d.device, d.context, d.stream, d.name, d.correlation, d.start_ns, d.end_ns
        FROM device_run AS d JOIN edge AS e ON e.process = d.process AND d.start_ns >= e."from" AND d.start_ns < e.until
    ),
    launch AS (
        SELECT h.process, h.correlation, min(h.start_ns) AS start_ns FROM host_event AS h
        SEMI JOIN work AS w ON w.process = h.process AND w.correlation = h.correlation
        WHERE h.kind IN ('launch', 'call', 'sync') GROUP BY h.process, h.correlation
    )
    SELECT w.process, w.run, w."from", w.host, w.device, w.context, w.stream, w.name, w.start_ns AS start, w.end_ns AS "end",
        l.start_ns AS launched
    FROM work AS w LEFT JOIN launch AS l ON l.process = w.process AND l.correlation = w.correlation
"""
_FOREVER: Final = 2**62


def disjoint_steps(main: pl.DataFrame) -> pl.DataFrame:
    """Add disjoint ``begin`` and ``until``, and ``follows``: the one before was N - 1."""
    before = pl.col("until").shift(1).over("process")
    follows = (pl.col("number") == pl.col("number").shift(1).over("process") + 1).fill_null(False)
    return (
        main.lazy()
        .sort("process", "host_start_ns", "start", "end")
        .with_columns(until=pl.col("end").cum_max().over("process"))
        .with_columns(begin=pl.when(follows).then(before).otherwise(pl.max_horizontal("start", before)), follows=follows)
        .collect()
    )


def begun_after(steps: pl.DataFrame, outside: pl.DataFrame) -> pl.DataFrame:
    """Let the first step of a run begin when the work launched before it ended.

    That is the end of the step before it, had it been recorded. Adds ``ahead``, that end, null for other steps and if that work lasts
    longer than the step, on another stream.
    """
    if outside.is_empty():
        return steps.with_columns(ahead=pl.lit(None, pl.Int64))
    ended = outside.filter(pl.col("when") != AFTER).group_by("process", "run").agg(ahead=pl.col("end").max())
    runs = steps.with_columns(run=_run()).join(ended, on=["process", "run"], how="left", maintain_order="left")
    ahead = pl.when(~pl.col("follows"), pl.col("ahead") < pl.col("until")).then("ahead")
    return runs.with_columns(ahead=ahead).with_columns(begin=pl.max_horizontal("begin", "ahead")).drop("run")


def without_outside(events: pl.DataFrame, outside: pl.DataFrame) -> pl.DataFrame:
    """Remove ``outside`` from events with the columns of its key and times."""
    if outside.is_empty():
        return events
    key = ["process", "device", "stream", "start", "end"]
    return events.join(outside.select(pl.col(name).cast(events.schema[name]) for name in key), on=key, how="anti", nulls_equal=True)


def _run() -> pl.Expr:
    """Number the runs of consecutive steps of each process, from 0."""
    return (~pl.col("follows")).cum_sum().over("process").cast(pl.Int64) - 1


def outside_steps(store: Store, steps: pl.DataFrame, every: pl.DataFrame) -> pl.DataFrame:
    """Return the device work that was launched outside of the steps of its process.

    ``steps``: :func:`disjoint_steps`. ``every``: steps of all phases, and of repeated numbers; what one of them launched is not outside.
    Steps of consecutive numbers form a run; the time between two of its steps belongs to the later one. Columns: ``process``, ``device``,
    ``stream``, ``name``, ``start``, ``end``, ``run`` (number of the run of steps that follows) and ``when`` (BEFORE, BETWEEN, AFTER). Work
    without a launch in the trace counts if it precedes all work of the steps on its stream, because a stream keeps the order of the
    launches. Empty for a process whose launches are not known.
    """
    none = pl.DataFrame(schema=_SCHEMA)
    if steps.is_empty():
        return none
    number = store.frame(_NUMBER).join(steps.group_by("process").agg(pl.col("device_events").sum()), on="process")
    more = number.filter(pl.col("events") > pl.col("device_events"))["process"].implode()
    runs = _runs(steps.filter(pl.col("process").is_in(more)))
    if runs.is_empty():
        return none
    edges = ", ".join(f"({gap[0]}, {gap[1]}, {', '.join(f'{time}::BIGINT' for time in gap[2:])})" for gap in _edges(runs))
    work = store.frame(_WORK.format(edges=edges))
    last = runs.group_by("process").agg(last=pl.col("run").max() + 1)
    stream = ["process", "run", "device", "context", "stream"]
    inside = pl.col("launched") >= pl.col("host")
    first = pl.col("start").filter(inside).min()
    # The gap after the last run ends nowhere: there only a launch after the steps proves that work is not theirs.
    known = pl.col("launched").is_between("from", "host", closed="left")
    ahead = pl.col("launched").is_null() & (pl.col("start") < first.over(stream).fill_null(first.over("process", "run")))
    return (
        _launched_in_none(work.filter(known | ahead), every)
        .join(last, on="process")
        .with_columns(
            when=pl.when(pl.col("run") == 0).then(pl.lit(BEFORE)).when(pl.col("run") == pl.col("last")).then(pl.lit(AFTER))
            .otherwise(pl.lit(BETWEEN))
        )
        .select(pl.col(name).cast(kind) for name, kind in _SCHEMA.items())
        .sort("process", "run", "start", "stream")
    )  # fmt: skip


def _launched_in_none(work: pl.DataFrame, every: pl.DataFrame) -> pl.DataFrame:
    """Remove the work whose launch call began in one of the steps."""
    if work.is_empty():
        return work
    ends = every.select("process", step="host_start_ns", step_end=pl.col("host_start_ns") + pl.col("host_duration_ns")).drop_nulls()
    last = ends.sort("step").with_columns(step_end=pl.col("step_end").cum_max().over("process")).cast({"process": work.schema["process"]})
    around = work.sort("launched").join_asof(
        last, left_on="launched", right_on="step", by="process", strategy="backward", check_sortedness=False
    )  # fmt: skip
    return around.filter((pl.col("launched") < pl.col("step_end")).fill_null(False).not_())


def _runs(steps: pl.DataFrame) -> pl.DataFrame:
    """Return the runs of consecutive steps: process, run, host, host_end, until, end."""
    host_end = pl.col("host_start_ns") + pl.col("host_duration_ns")
    return (
        steps.with_columns(run=_run())
        .group_by("process", "run", maintain_order=True)
        .agg(host=pl.col("host_start_ns").min(), host_end=host_end.max(), until=pl.col("until").first(), end=pl.col("until").last())
        .sort("process", "run")
    )


def _edges(runs: pl.DataFrame) -> list[tuple[int, int, int, int, int]]:
    """Return the gaps before, between and after the runs.

    Each has the process, the number of the run after it, the end of the run before it on the host, the start of the run after it on the
    host, and the end of the first step of that run on the device.
    """
    edges = []
    for (process,), rows in runs.group_by("process", maintain_order=True):
        low = -_FOREVER
        for run, host, host_end, until in rows.select("run", "host", "host_end", "until").iter_rows():
            edges.append((process, run, low, host, until))
            low = host_end
        edges.append((process, rows.height, low, _FOREVER, _FOREVER))
    return edges


def sums_outside(store: Store, places: Places, outside: pl.DataFrame) -> tuple[WorkOutsideSteps, ...]:
    """Return the sums of :func:`outside_steps`, by process, device and ``when``."""
    if outside.is_empty():
        return ()
    key = ["process", "device", "when"]
    busy = union_length(outside, key)
    length = pl.col("end") - pl.col("start")
    longest = (
        outside.group_by(*key, "name")
        .agg(time=length.sum())
        .sort("time", "name", descending=[True, False])
        .group_by(key, maintain_order=True)
        .agg(pl.col("name").first())
    )
    runs = outside.group_by(key).agg(runs=pl.len(), first=pl.col("start").min(), last=pl.col("end").max())
    ids = longest["name"].drop_nulls().unique().to_list()
    names = store.frame("SELECT id AS name, coalesce(short, text) AS text FROM name WHERE list_contains(?, id)", [ids])
    rows = []
    joined = runs.join(busy, on=key).join(longest, on=key).join(names, on="name", how="left")
    for row in joined.iter_rows(named=True):
        location = places.process(row["process"])
        order = (BEFORE, BETWEEN, AFTER).index(row["when"])
        sums = WorkOutsideSteps(*location, row["device"], row["when"], row["runs"], row["length"], row["first"], row["last"], row["text"])
        rows.append(((location.order, row["device"], order), sums))
    return tuple(sums for _, sums in sorted(rows, key=lambda item: item[0]))
