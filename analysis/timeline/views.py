"""Which stretches of a run are worth looking at first: its slowest step, a typical one, and all of it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any, Final

import polars as pl

from ..report.model import SlowSteps, Step
from ..steps.steps import main_steps
from ..toolkit import wording
from ..toolkit.places import Places
from .events import NONE
from .model import View

SHORT: Final = 0.25  # Of a run of which devices were recorded for less than this share, that time is a view of its own


@dataclass(frozen=True, slots=True)
class _Found:
    """A step by the columns that tell it from the others; ``first_ns`` to ``last_ns``: its time, on the clock of ``start``; ``measured``:
    words on what that time is of."""

    number: int
    phase: str | None
    process: int | None
    start: int
    duration: int
    first_ns: int
    last_ns: int
    measured: str = ""


def on_host(steps: Sequence[Step]) -> list[tuple[str, Step]]:
    """The slowest of the main steps, then the one among the others whose duration is closest to the median of all; the first of equals.
    Of the steps without a profiler that makes them longer, where there are any."""
    every = main_steps(steps)
    pool = [step for step in every if step.profiled is None] or every
    if not pool:
        return []
    slowest = max(pool, key=lambda step: (step.duration_ns, -step.start_ns))
    middle = median(step.duration_ns for step in pool)
    others = [step for step in pool if step is not slowest]
    typical = min(others, key=lambda step: (abs(step.duration_ns - middle), step.start_ns), default=None)
    return [("slowest", slowest), *([("typical", typical)] if typical else [])]


def on_device(whole: pl.DataFrame, places: Places, slow: SlowSteps) -> list[tuple[str, _Found]]:
    """The step that lasts longest on any process, from the end of the one before it, on the process whose slow steps ``slow`` tells of, if
    it has it, else where it lasts longest; then the other step of that process whose time is closest to the median of them all, the first
    of equals. ``whole``: :func:`..step_times.whole_steps`; of these the steps without a profiler that makes them longer, where there are
    any."""
    plain = whole.filter(pl.col("profiled").is_null())
    times = (
        (whole if plain.is_empty() else plain)
        .with_columns(time=pl.col("until") - pl.col("begin"))
        .sort("time", "number", "process", descending=[True, False, False])
    )
    if times.is_empty():
        return []
    slowest = times.row(0, named=True)
    if slowest["number"] in slow.slow:
        alike = times.filter(pl.col("number") == slowest["number"]).iter_rows(named=True)
        slowest = next((row for row in alike if _of_process(row, places) == (slow.node, slow.rank, slow.pid)), slowest)
    own = times.filter(pl.col("process").eq_missing(slowest["process"]))
    away = (pl.col("time") - own["time"].median()).abs()
    others = own.with_columns(away=away).filter(pl.col("number") != slowest["number"]).sort("away", "number")
    return [("slowest", _found(slowest)), *([("typical", _found(others.row(0, named=True)))] if len(others) else [])]


def _of_process(row: dict[str, Any], places: Places) -> tuple[str | None, int | None, int | None]:
    place = places.process(row["process"], row["node"])
    return place.node, place.rank, place.pid


def _found(row: dict[str, Any]) -> _Found:
    measured = "from the end of the step before it" if row["begin"] > row["start"] else "from its first to its last device work"
    if row["follows"]:
        measured = f"from the end of step {row['number'] - 1}"
    times = (row["start"], row["duration"], row["begin"], row["until"])
    return _Found(row["number"], row["phase"], row["process"], *times, measured)


@dataclass(frozen=True, slots=True)
class Stretch:
    """A view; ``first_ns`` to ``last_ns``: the step with all of its host range, of which the device's part is often the later half."""

    view: View
    first_ns: int
    last_ns: int


def views(
    steps: Sequence[Step],
    slow: SlowSteps,
    whole: pl.DataFrame,
    timed: pl.DataFrame,
    places: Places,
    track: Callable[[int, int], int | None],
    span_ns: int,
    unrecorded_ns: int = 0,
    devices: tuple[int, int] | None = None,
) -> list[Stretch]:
    """The steps chosen, the slowest first, then the time of the devices where it is short, and then the whole run. ``slow`` and ``whole``:
    see :func:`on_device`; without a step there, those of ``steps`` count, as the report times them. ``timed``: the steps, their times from
    the timeline's origin in ``shown_ns``, ``begin`` and ``end``. ``track``: of the steps of a node and process. ``unrecorded_ns``: how long
    nothing was recorded. ``devices``: the first start and the last end of what ran on one."""
    found = []
    chosen: Sequence[tuple[str, _Found | None]] = on_device(whole, places, slow)
    profiled = whole["profiled"].to_list() if chosen else [step.profiled for step in main_steps(steps)]
    without_profiled = ", without profiled steps" if None in profiled and any(profiled) else ""
    for key, step in chosen or [(key, _as_reported(step, timed, places)) for key, step in on_host(steps)]:
        row = None if step is None else _row(step, timed)
        if step is None or row is None:
            continue
        place = places.process(step.process, None if row["node"] == NONE else row["node"])
        who = wording.process(place.node, place.rank, place.pid)
        why = ("the slowest" if key == "slowest" else "typical") + without_profiled
        phase = f"{step.phase} " if step.phase else ""
        measured = f" {step.measured}" if step.measured else ""
        label = f"{phase}step {step.number} of {who}, {wording.duration(step.last_ns - step.first_ns)}{measured}: {why}"
        moved = row["shown_ns"] - step.start
        first, last = step.first_ns + moved, max(step.last_ns, step.first_ns + 1) + moved
        view = View(key, label, first, last, track(row["node"], row["process"]))
        found.append(Stretch(view, min(row["begin"], first), max(row["end"], last)))
    if devices is not None and 0 < devices[1] - devices[0] < SHORT * span_ns:
        label = f"the {wording.duration(devices[1] - devices[0])} of {wording.duration(span_ns)} in which work of devices was recorded"
        found.append(Stretch(View("devices", label, *devices, None), *devices))
    without = f", of which nothing was recorded for {wording.duration(unrecorded_ns)}" if unrecorded_ns else ""
    all_of_it = View("whole", f"the whole run, {wording.duration(span_ns)}{without}", 0, max(span_ns, 1), None)
    return [*found, Stretch(all_of_it, all_of_it.start_ns, all_of_it.end_ns)]


def _row(step: _Found, timed: pl.DataFrame) -> dict[str, Any] | None:
    """The step in ``timed``."""
    alike = _alike(timed, step.number, step.phase, step.start, step.duration)
    own = alike.filter(pl.col("process") == (NONE if step.process is None else step.process))
    return own.row(0, named=True) if len(own) else None


def _as_reported(step: Step, timed: pl.DataFrame, places: Places) -> _Found | None:
    for row in _alike(timed, step.index, step.phase, step.start_ns, step.duration_ns).iter_rows(named=True):
        process, node = (None if row[key] == NONE else row[key] for key in ("process", "node"))
        if _of_process({"process": process, "node": node}, places) == (step.node, step.rank, step.pid):
            times = (step.start_ns, step.duration_ns, step.start_ns, step.start_ns + step.duration_ns)
            return _Found(step.index, step.phase, process, *times)
    return None


def _alike(timed: pl.DataFrame, number: int, phase: str | None, start: int, duration: int) -> pl.DataFrame:
    return timed.filter(
        pl.col("number") == number,
        pl.col("start") == start,
        pl.col("duration") == duration,
        pl.col("phase").eq_missing(pl.lit(phase, pl.String)),
    )
