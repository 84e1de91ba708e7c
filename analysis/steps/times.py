"""Time of every single step, divided into computation, exposed communication, exposed memory operations and idle time."""

from __future__ import annotations

from typing import Final

import polars as pl

from ...ingest.store.store import Store
from ..device.time_breakdown import EXPOSED
from ..toolkit.intervals import sweep
from ..toolkit.places import process_conditions
from .covered import sums_within
from .data import StepData
from .outside import without_outside

PARTS: Final = ("computation", "exposed_communication", "exposed_memory", "idle")  # they add up to the step
TIMES: Final = ("step", *PARTS, "hidden_communication", "communication")

_CLASSES: Final = ("computation", "communication", "memory")
_DEVICE: Final = ["process", "device"]

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
    if not store.has_rows("step"):
        return _NO_STEP
    there = "EXISTS (FROM step) AND EXISTS (FROM device_run)"
    # If device work is linked, it was launched outside of the steps.
    linked = """EXISTS (FROM device_run AS d JOIN host_event AS h ON h.process = d.process AND h.correlation = d.correlation
        WHERE h.kind IN ('launch', 'call'))"""
    return _NO_LINK if store.frame(f"SELECT {there} AND NOT {linked} AS unlinked").item() else _NO_STEP


def step_times(store: Store, data: StepData | None = None) -> pl.DataFrame:
    """Return :attr:`.data.StepData.main` with each of ``TIMES`` in ns.

    Rows are in order of process and number, with ``device``. A step lasts as in :attr:`.data.StepData.walled`, so that it includes the wait
    for its first work, and the steps of a process do not overlap. All work of the device in that time counts, except work that was launched
    outside of the steps (:attr:`.data.StepData.outside`). The definitions are those of the time breakdown, so ``PARTS`` add up to the step
    exactly. ``computing`` and ``waited`` are computation and communication from ``start`` to ``end`` alone, as
    StragglerRank takes them. If a process has several ``devices``, the times are those of the device that computes most. ``data``: that of
    the store, if known.
    """
    data = data or StepData(store)
    steps = data.walled
    frames = []
    for condition in process_conditions(store) if steps.height else ():
        segments = sweep(without_outside(_events(store, condition), data.outside), _DEVICE, _CLASSES)
        frames.append(_measured(steps, segments))
    if not frames:
        return steps.with_columns(pl.lit(0, pl.Int64).alias(name) for name in ("device", *TIMES, "computing", "waited", "devices")).clear()
    every = pl.concat(frames)
    used = every.group_by(_DEVICE).agg(pl.col("computing", "idle").sum())
    most = used.sort("process", "computing", "idle", "device", descending=[False, False, True, False])
    chosen = most.group_by("process", maintain_order=True).agg(pl.col("device").last(), devices=pl.len().cast(pl.Int64))
    return every.join(chosen, on=_DEVICE, nulls_equal=True).sort("process", "number")


def steps_with_start(times: pl.DataFrame) -> pl.DataFrame:
    """Return the rows whose step before is known; all of a process without such.

    Of the other rows the wait before their first work is not known. Means over steps leave them out, so that the mean parts add up to the
    mean step time.
    """
    return times.filter(pl.col("follows") | ~pl.col("follows").any().over("process"))


def host_time(loads: pl.DataFrame, rows: pl.DataFrame) -> pl.Series:
    """Return the host time of each step that the intervals of its process cover.

    Times are in ns; null for the steps of a process without intervals. ``loads``: ``process``, ``start``, ``end``; disjoint and in order,
    as :attr:`.data.StepData.loads`.
    """
    process = pl.col("process").cast(pl.Int64).fill_null(-1)
    segments = loads.with_columns(process)
    spans = rows.select(process, start="host_start_ns", end=pl.col("host_start_ns") + pl.col("host_duration_ns"))
    known = spans["process"].is_in(segments["process"].unique().to_list())
    return pl.select(pl.when(known).then(sums_within(segments, spans, "process")["covered"])).to_series()


def _measured(steps: pl.DataFrame, segments: pl.DataFrame) -> pl.DataFrame:
    """Add the device and ``TIMES`` to the steps of the processes in ``segments``."""
    measures = {
        **EXPOSED,
        "busy": pl.lit(True),
        "communication": pl.col("communication"),
    }
    tracked = segments.with_columns(track=pl.struct(_DEVICE).rle_id())
    tracks = tracked.group_by("track", maintain_order=True).agg(pl.col(_DEVICE).first())
    rows = steps.join(tracks, on="process", nulls_equal=True)
    spans = pl.concat([rows.select("track", start=first, end=last) for first, last in (("begin", "until"), ("start", "end"))])
    sums = sums_within(tracked, spans, "track", measures)
    walled, work = sums.head(len(rows)), sums.slice(len(rows))
    step = rows["until"] - rows["begin"]
    return rows.drop("track", "device").with_columns(
        step=step,
        computation=walled["computation"],
        exposed_communication=walled["exposed_communication"],
        exposed_memory=walled["exposed_memory"],
        idle=step - walled["busy"],
        hidden_communication=walled["communication"] - walled["exposed_communication"],
        communication=walled["communication"],
        computing=work["computation"],
        waited=work["communication"],
        device=rows["device"].cast(pl.Int64),
    )


def _events(store: Store, condition: str) -> pl.DataFrame:
    return store.frame(f"""
        SELECT e.process, e.device, e.stream, e.start_ns AS start, e.end_ns AS "end", e.computation, e.communication, e.memory
        FROM device_run AS e WHERE {condition}
    """)
