"""Which stretches of a run are worth looking at first: its slowest step, a typical one, and all of it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Final

import polars as pl

from . import wording
from .places import Places
from .report import Step
from .steps import main_steps
from .timeline_data import View

SHORT: Final = 0.25
"""Of a run of which devices were recorded for less than this share, that time is a view of its own."""


def chosen(steps: Sequence[Step]) -> list[tuple[str, Step]]:
    """The slowest of the main steps, then the one among the others whose duration is closest to the median of all; the first of equals."""
    pool = main_steps(steps)
    if not pool:
        return []
    slowest = max(pool, key=lambda step: (step.duration_ns, -step.start_ns))
    middle = median(step.duration_ns for step in pool)
    others = [step for step in pool if step is not slowest]
    typical = min(others, key=lambda step: (abs(step.duration_ns - middle), step.start_ns), default=None)
    return [("slowest", slowest), *([("typical", typical)] if typical else [])]


@dataclass(frozen=True, slots=True)
class Stretch:
    """A view; ``first_ns`` to ``last_ns``: the step with all of its host range, of which the device's part is often the later half."""

    view: View
    first_ns: int
    last_ns: int


def views(
    steps: Sequence[Step],
    timed: pl.DataFrame,
    places: Places,
    track: Callable[[int, int], int | None],
    span_ns: int,
    unrecorded_ns: int = 0,
    devices: tuple[int, int] | None = None,
) -> list[Stretch]:
    """The steps chosen, the slowest first, then the time of the devices where it is short, and then the whole run. ``timed``: the steps,
    their times from the timeline's origin in ``shown_ns``, ``begin`` and ``end``. ``track``: of the steps of a node and process.
    ``unrecorded_ns``: how long nothing was recorded. ``devices``: the first start and the last end of what ran on one."""
    found = []
    for key, step in chosen(steps):
        row = _row(step, timed, places)
        if row is None:
            continue
        node, process, start, begin, end = row
        who = wording.process(step.node, step.rank, step.pid)
        why = "the slowest" if key == "slowest" else "typical"
        phase = f"{step.phase} " if step.phase else ""
        label = f"{phase}step {step.index} of {who}, {wording.duration(step.duration_ns)}: {why}"
        view = View(key, label, start, start + max(step.duration_ns, 1), track(node, process))
        found.append(Stretch(view, begin, max(end, view.end_ns)))
    if devices is not None and 0 < devices[1] - devices[0] < SHORT * span_ns:
        label = f"the {wording.duration(devices[1] - devices[0])} of {wording.duration(span_ns)} in which work of devices was recorded"
        found.append(Stretch(View("devices", label, *devices, None), *devices))
    without = f", of which nothing was recorded for {wording.duration(unrecorded_ns)}" if unrecorded_ns else ""
    whole = View("whole", f"the whole run, {wording.duration(span_ns)}{without}", 0, max(span_ns, 1), None)
    return [*found, Stretch(whole, whole.start_ns, whole.end_ns)]


def _row(step: Step, timed: pl.DataFrame, places: Places) -> tuple[int, int, int, int, int] | None:
    """Node, process, start, begin and end of a step of the report."""
    alike = timed.filter(
        pl.col("number") == step.index,
        pl.col("start") == step.start_ns,
        pl.col("duration") == step.duration_ns,
        pl.col("phase").eq_missing(pl.lit(step.phase, pl.String)),
    )
    for node, process, start, begin, end in alike.select("node", "process", "shown_ns", "begin", "end").iter_rows():
        place = places.process(process, node)
        if (place.node, place.rank, place.pid) == (step.node, step.rank, step.pid):
            return node, process, start, begin, end
    return None
