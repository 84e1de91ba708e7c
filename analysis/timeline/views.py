"""Time ranges of a run to look at first: its slowest step, a typical one, and all of it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any, Final

import polars as pl

from ..report.steps import SlowSteps, Step
from ..steps.step_time import main_steps
from ..toolkit import wording
from ..toolkit.places import Places
from .events import NONE
from .model import View

SHORT: Final = 0.25  # largest share of the run with recorded devices for which that time gets a view of its own


@dataclass(frozen=True, slots=True)
class _StepTime:
    """A step, by the columns that identify it. ``first_ns`` to ``last_ns``: its time, on the clock of ``start``; ``measured``: the
    definition of that time in words."""

    number: int
    phase: str | None
    process: int | None
    start: int
    duration: int
    first_ns: int
    last_ns: int
    measured: str = ""


def on_host(steps: Sequence[Step]) -> list[tuple[str, Step]]:
    """Return the slowest main step and the typical one, the first of equals.

    The typical step is closest to the median. Steps that a profiler made longer count only if there are no others.
    """
    every = main_steps(steps)
    pool = [step for step in every if step.profiled is None] or every
    if not pool:
        return []
    slowest = max(pool, key=lambda step: (step.duration_ns, -step.start_ns))
    middle = median(step.duration_ns for step in pool)
    others = [step for step in pool if step is not slowest]
    typical = min(others, key=lambda step: (abs(step.duration_ns - middle), step.start_ns), default=None)
    return [("slowest", slowest), *([("typical", typical)] if typical else [])]


def on_device(steps: pl.DataFrame, places: Places, slow: SlowSteps) -> list[tuple[str, _StepTime]]:
    """Return the slowest step on any process, and a typical one of that process.

    Steps last from the end of the step before. Of the processes with the slowest step number, the one of ``slow`` is preferred. The typical
    step is closest to the median, the first of equals. ``steps``: :attr:`..steps.data.StepData.walled`; those that a profiler made longer
    count only if there are no others.
    """
    plain = steps.filter(pl.col("profiled").is_null())
    times = (
        (steps if plain.is_empty() else plain)
        .with_columns(time=pl.col("until") - pl.col("begin"))
        .sort("time", "number", "process", descending=[True, False, False])
    )
    if times.is_empty():
        return []
    slowest = times.row(0, named=True)
    if slowest["number"] in slow.slow:
        alike = times.filter(pl.col("number") == slowest["number"]).iter_rows(named=True)
        slowest = next((row for row in alike if places.process(row["process"], row["node"]) == (slow.node, slow.rank, slow.pid)), slowest)
    same_process = times.filter(pl.col("process").eq_missing(slowest["process"]))
    away = (pl.col("time") - same_process["time"].median()).abs()
    others = same_process.with_columns(away=away).filter(pl.col("number") != slowest["number"]).sort("away", "number")
    return [("slowest", _step_time(slowest)), *([("typical", _step_time(others.row(0, named=True)))] if len(others) else [])]


def _step_time(row: dict[str, Any]) -> _StepTime:
    measured = "from the end of the step before it" if row["begin"] > row["start"] else "from its first to its last device work"
    if row["follows"]:
        measured = f"from the end of step {row['number'] - 1}"
    times = (row["start"], row["duration"], row["begin"], row["until"])
    return _StepTime(row["number"], row["phase"], row["process"], *times, measured)


@dataclass(frozen=True, slots=True)
class Stretch:
    """A view; ``first_ns`` to ``last_ns``: the step with all of its host range; the device's part is often the later half."""

    view: View
    first_ns: int
    last_ns: int


def views(
    steps: Sequence[Step],
    slow: SlowSteps,
    device_steps: pl.DataFrame,
    timed: pl.DataFrame,
    places: Places,
    track: Callable[[int, int], int | None],
    span_ns: int,
    unrecorded_ns: int = 0,
    devices: tuple[int, int] | None = None,
) -> list[Stretch]:
    """Return the views: chosen steps, short device time, and the whole run.

    The slowest step comes first. ``slow`` and ``device_steps``: see :func:`on_device`. If that finds no step, ``steps`` are used as the
    report times them. ``timed``: the steps, with times from the timeline's origin in ``shown_ns``, ``begin`` and ``end``. ``track``: of the
    steps of a node and process. ``unrecorded_ns``: time without a recording. ``devices``: the first start and the last end of device
    activity.
    """
    stretches = []
    chosen: Sequence[tuple[str, _StepTime | None]] = on_device(device_steps, places, slow)
    profiled = device_steps["profiled"].to_list() if chosen else [step.profiled for step in main_steps(steps)]
    without_profiled = ", without profiled steps" if None in profiled and any(profiled) else ""
    for key, step in chosen or [(key, _as_reported(step, timed, places)) for key, step in on_host(steps)]:
        row = None if step is None else _row(step, timed)
        if step is None or row is None:
            continue
        location = places.process(step.process, None if row["node"] == NONE else row["node"])
        who = wording.process(*location)
        why = ("the slowest" if key == "slowest" else "typical") + without_profiled
        phase = f"{step.phase} " if step.phase else ""
        measured = f" {step.measured}" if step.measured else ""
        label = f"{phase}step {step.number} of {who}, {wording.duration(step.last_ns - step.first_ns)}{measured}: {why}"
        moved = row["shown_ns"] - step.start
        first, last = step.first_ns + moved, max(step.last_ns, step.first_ns + 1) + moved
        view = View(key, label, first, last, track(row["node"], row["process"]))
        stretches.append(Stretch(view, min(row["begin"], first), max(row["end"], last)))
    if devices is not None and 0 < devices[1] - devices[0] < SHORT * span_ns:
        label = f"the {wording.duration(devices[1] - devices[0])} of {wording.duration(span_ns)} in which work of devices was recorded"
        stretches.append(Stretch(View("devices", label, *devices, None), *devices))
    without = f", of which nothing was recorded for {wording.duration(unrecorded_ns)}" if unrecorded_ns else ""
    all_of_it = View("whole", f"the whole run, {wording.duration(span_ns)}{without}", 0, max(span_ns, 1), None)
    return [*stretches, Stretch(all_of_it, all_of_it.start_ns, all_of_it.end_ns)]


def _row(step: _StepTime, timed: pl.DataFrame) -> dict[str, Any] | None:
    """Find the step in ``timed``."""
    alike = _alike(timed, step.number, step.phase, step.start, step.duration)
    rows = alike.filter(pl.col("process") == (NONE if step.process is None else step.process))
    return rows.row(0, named=True) if len(rows) else None


def _as_reported(step: Step, timed: pl.DataFrame, places: Places) -> _StepTime | None:
    for row in _alike(timed, step.index, step.phase, step.start_ns, step.duration_ns).iter_rows(named=True):
        process, node = (None if row[key] == NONE else row[key] for key in ("process", "node"))
        if places.process(process, node) == (step.node, step.rank, step.pid):
            times = (step.start_ns, step.duration_ns, step.start_ns, step.start_ns + step.duration_ns)
            return _StepTime(step.index, step.phase, process, *times)
    return None


def _alike(timed: pl.DataFrame, number: int, phase: str | None, start: int, duration: int) -> pl.DataFrame:
    return timed.filter(
        pl.col("number") == number,
        pl.col("start") == start,
        pl.col("duration") == duration,
        pl.col("phase").eq_missing(pl.lit(phase, pl.String)),
    )
