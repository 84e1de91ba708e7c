"""Time of every single step, divided into computation, exposed communication, exposed memory operations and idle time."""

from __future__ import annotations

from typing import Final

import polars as pl

from ...ingest.store.store import Store
from ..device.coverage import covered_between
from ..device.time_breakdown import COMMUNICATION, COMPUTATION
from ..toolkit.intervals import sweep, union
from ..toolkit.places import process_conditions
from .loading_ranges import loading_ranges
from .steps import timed_steps

PARTS: Final = ("computation", "exposed_communication", "exposed_memory", "idle")  # they add up to the step
TIMES: Final = ("step", *PARTS, "hidden_communication", "communication")

_CLASSES: Final = ("computation", "communication", "memory")

_NO_STEP: Final = (
    "No step with device work: profile with CUDA activity and call step() of the profiler once per training step, or record the job with"
    " postrun record and mark its steps."
)
_NO_LINK: Final = (
    "Steps and device work, but no launch call within a step has the correlation of device work: what a step launched is not known. Profile"
    " with CPU and CUDA activity."
)


def no_device_steps(store: Store) -> str:
    """Explain why no step has device work, and how to record it."""
    there = "EXISTS (FROM step) AND EXISTS (FROM device_event WHERE kind <> 'sync')"
    # If device work is linked, it was launched outside of the steps.
    linked = """EXISTS (FROM device_event AS d JOIN host_event AS h ON h.process = d.process AND h.correlation = d.correlation
        WHERE h.kind IN ('launch', 'call') AND d.kind <> 'sync')"""
    return _NO_LINK if store.frame(f"SELECT {there} AND NOT {linked} AS unlinked").item() else _NO_STEP


def main_device_steps(store: Store) -> pl.DataFrame:
    """Return the main :func:`timed_steps` with device work, with their ``end``.

    These are the steps of each process without a phase, else those of the phase with the longest device time, each number once.
    """
    rows = timed_steps(store).filter("on_device")
    weights = rows.group_by("process", "phase").agg(pl.col("duration").sum())
    main = (
        weights.sort(pl.col("phase").is_not_null(), "duration", "phase", descending=[False, True, False])
        .group_by("process", maintain_order=True)
        .first()
    )
    return (
        rows.join(main.select("process", "phase"), on=["process", "phase"], how="semi", nulls_equal=True)
        .sort("process", "number", "start")
        .unique(["process", "number"], keep="first", maintain_order=True)
        .with_columns(end=pl.col("start") + pl.col("duration"))
    )


def step_times(store: Store) -> pl.DataFrame:
    """Return :func:`main_device_steps` with each of ``TIMES`` in ns.

    Rows are in order of process and number, with ``device``. Here a step lasts from the ``end`` of the step before it, if their numbers are
    consecutive, else from its own ``start``, to its own ``end``. So it includes the wait for its first work, and the steps of a process do
    not overlap. All work of the device in that time counts, whatever launched it. The definitions are those of the time breakdown, so
    ``PARTS`` add up to the step exactly. ``computing`` and ``waited`` are computation and communication from ``start`` to ``end`` alone, as
    StragglerRank takes them. If a process has several ``devices``, the times are those of the device that computes most.
    """
    steps = whole_steps(store)
    by_process: dict[object, pl.DataFrame] = {key[0]: part for key, part in steps.partition_by("process", as_dict=True).items()}
    frames = []
    for condition in process_conditions(store) if by_process else ():
        segments = sweep(_events(store, condition), ["process", "device"], _CLASSES)
        for (process, device), part in segments.partition_by("process", "device", as_dict=True).items():
            if process in by_process:
                frames.append(_measured(by_process[process], part).with_columns(device=pl.lit(device, pl.Int64)))
    if not frames:
        return steps.with_columns(pl.lit(0, pl.Int64).alias(name) for name in ("device", *TIMES, "computing", "waited", "devices")).clear()
    every = pl.concat(frames)
    used = every.group_by("process", "device").agg(pl.col("computing", "idle").sum())
    most = used.sort("process", "computing", "idle", "device", descending=[False, False, True, False])
    chosen = most.group_by("process", maintain_order=True).agg(pl.col("device").last(), devices=pl.len().cast(pl.Int64))
    return every.join(chosen, on=["process", "device"], nulls_equal=True).sort("process", "number")


def whole_steps(store: Store) -> pl.DataFrame:
    """Add disjoint ``begin`` and ``until``, and ``follows``: the one before was N - 1."""
    ordered = main_device_steps(store).sort("process", "start", "end").with_columns(until=pl.col("end").cum_max().over("process"))
    before = pl.col("until").shift(1).over("process")
    follows = (pl.col("number") == pl.col("number").shift(1).over("process") + 1).fill_null(False)
    begin = pl.when(follows).then(before).otherwise(pl.max_horizontal("start", before))
    return ordered.with_columns(begin=begin, follows=follows)


def covered_within(segments: pl.DataFrame, where: pl.Expr, starts: pl.Series, ends: pl.Series) -> pl.Series:
    """Return the time of each interval that segments satisfying ``where`` cover.

    Times are in ns. Segments (``start``, ``end``) are disjoint and in order; intervals may overlap.
    """
    known = segments.filter(where)
    if known.is_empty() or starts.is_empty():
        return pl.zeros(len(starts), dtype=pl.Int64, eager=True)
    return covered_between(known, starts, ends)


def host_time(store: Store, kind: str, rows: pl.DataFrame) -> pl.Series | None:
    """Return the time that host events of ``kind`` cover in each step of a process.

    Events on all threads count. None if the process has none. "loader" includes the ranges named as data loading.
    """
    process = rows["process"][0]
    covering = store.frame(
        'SELECT start_ns AS start, start_ns + duration_ns AS "end" FROM host_event WHERE kind = ? AND process IS NOT DISTINCT FROM ?',
        [kind, process],
    )
    if kind == "loader":
        covering = pl.concat([covering, loading_ranges(store, process).select("start", "end")])
    segments = union(covering)
    if segments.is_empty():
        return None
    return covered_within(segments, pl.lit(True), rows["host_start_ns"], rows["host_start_ns"] + rows["host_duration_ns"])


def _measured(steps: pl.DataFrame, segments: pl.DataFrame) -> pl.DataFrame:
    computation, communication = pl.col("computation"), pl.col("communication")

    def covered(where: pl.Expr) -> pl.Series:
        return covered_within(segments, where, steps["begin"], steps["until"])

    def inside(where: pl.Expr) -> pl.Series:
        return covered_within(segments, where, steps["start"], steps["end"])

    step, exposed, communicated = steps["until"] - steps["begin"], covered(communication & ~computation), covered(communication)
    return steps.with_columns(
        step=step,
        computation=covered(computation),
        exposed_communication=exposed,
        exposed_memory=covered(pl.col("memory") & ~computation & ~communication),
        idle=step - covered(pl.lit(True)),
        hidden_communication=communicated - exposed,
        communication=communicated,
        computing=inside(computation),
        waited=inside(communication),
    )


def _events(store: Store, condition: str) -> pl.DataFrame:
    return store.frame(f"""
        SELECT e.process, e.device, e.start_ns AS start, e.start_ns + e.duration_ns AS "end",
               {COMPUTATION} AS computation, {COMMUNICATION} AS communication,
               e.kind IN ('memcpy', 'memset') AS memory
        FROM device_event AS e LEFT JOIN name AS n ON n.id = e.name
        WHERE e.kind <> 'sync' AND {condition}
    """)
