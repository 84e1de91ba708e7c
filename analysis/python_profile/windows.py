"""Which windows of Python profiles belong together: by steps, time, modes, training phase, or phase of the job?

The questions are those of the hosted profiler's analysis of Python profiles. A window is one file of a profile.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final, Literal

from ...ingest.store.store import Store

BEFORE: Final = "prestepzero"
AFTER: Final = "posthookclose"
JOB_PHASES: Final = ("initialization", "training_loop", "finalization")
_POINTS: Final = ("start", "stepstart", "forwardpassend", "stepend", "end")  # The phases in the order in which a step comes to them
_PHASES: Final = {
    ("start", "stepstart"): "before the first step",
    ("stepstart", "stepend"): "the whole step",
    ("stepstart", "stepstart"): "from step to step",
    ("stepend", "stepstart"): "between steps",
    ("stepend", "end"): "after the last step",
}
_FROM: Final = {
    "start": "the start", "stepstart": "the step's start", "forwardpassend": "forward's end", "stepend": "the step's end", "end": "the end",
}  # fmt: skip
_TO: Final = _FROM | {"stepstart": "the next step"}
_JOB_WORDS: Final = {"initialization": "initialization", "training_loop": "training loop", "finalization": "finalization"}


@dataclass(frozen=True, slots=True)
class Window:
    """A row of ``python_window``. ``first_step``, ``last_step``: of the steps of which a part is in it; None before the first and
    after the last."""

    id: int
    process: int
    profiler: str
    timer: str | None
    start_mode: str | None
    start_step: int | None
    start_phase: str | None
    end_mode: str | None
    end_step: int | None
    end_phase: str | None
    start_ns: int | None
    duration_ns: int | None
    functions: int
    calls: int | None
    total_s: float
    first_step: int | None
    last_step: int | None

    @property
    def job_phase(self) -> str | None:
        """Of ``JOB_PHASES``; None where nothing says when it was."""
        if self.start_mode == BEFORE:
            return "initialization"
        if self.start_mode == AFTER:
            return "finalization"
        return "training_loop" if self.start_mode is not None or self.start_step is not None else None


def windows(store: Store) -> tuple[Window, ...]:
    """All windows, by their time and number."""
    rows = store.frame("""
        SELECT w.id, w.process, w.profiler, w.timer, w.start_mode, w.start_step, w.start_phase, w.end_mode, w.end_step, w.end_phase,
            w.start_ns, w.duration_ns, w.functions, w.calls, w.total_s, p.first_step, p.last_step
        FROM python_window AS w LEFT JOIN (
            SELECT "window", any_value(first_step) AS first_step, any_value(last_step) AS last_step FROM python_profile GROUP BY "window"
        ) AS p ON p."window" = w.id ORDER BY w.start_ns NULLS LAST, w.id
    """).rows(named=True)
    return tuple(Window(**row) for row in rows)


def by_step_interval(
    given: Iterable[Window], first: int, last: int, mode: str = "train", start_phase: str = "stepstart", end_phase: str = "stepend"
) -> tuple[Window, ...]:
    """Windows of ``mode`` that lie between the point ``start_phase`` of step ``first`` and the point ``end_phase`` of step ``last``.
    Those whose folder names no phase are told by their steps alone."""
    low, high = (first, _POINTS.index(start_phase)), (last, _POINTS.index(end_phase))

    def inside(window: Window) -> bool:
        if window.start_step is None or window.end_step is None or {window.start_mode, window.end_mode} - {mode, None}:
            return False
        starts = (window.start_step, _POINTS.index(window.start_phase) if window.start_phase in _POINTS else low[1])
        ends = (window.end_step, _POINTS.index(window.end_phase) if window.end_phase in _POINTS else high[1])
        return low <= starts and ends <= high

    return tuple(filter(inside, given))


def by_time(given: Iterable[Window], start_ns: int, end_ns: int) -> tuple[Window, ...]:
    """Windows that share a moment with the time from ``start_ns`` to ``end_ns``."""
    return tuple(w for w in given if w.start_ns is not None and w.start_ns <= end_ns and w.start_ns + (w.duration_ns or 0) >= start_ns)


def between_modes(given: Iterable[Window], start_mode: str, end_mode: str) -> tuple[Window, ...]:
    """Windows that begin in one mode and end in the other (or the same)."""
    return tuple(w for w in given if (w.start_mode, w.end_mode) == (start_mode, end_mode))


def pre_step_zero(given: Iterable[Window]) -> tuple[Window, ...]:
    """Windows that begin before the first step."""
    return tuple(w for w in given if w.start_mode == BEFORE)


def post_hook_close(given: Iterable[Window]) -> tuple[Window, ...]:
    """Windows that begin after the last step."""
    return tuple(w for w in given if w.start_mode == AFTER)


def by_training_phase(given: Iterable[Window]) -> dict[tuple[str, str], tuple[Window, ...]]:
    """Windows by the points of a step at which they begin and end, of those that say it."""
    found: dict[tuple[str, str], tuple[Window, ...]] = {}
    for one in given:
        if one.start_phase is not None and one.end_phase is not None:
            key = one.start_phase, one.end_phase
            found[key] = (*found.get(key, ()), one)
    return found


def by_job_phase(given: Iterable[Window]) -> dict[str, tuple[Window, ...]]:
    """Windows by phase of the job, of those that say it."""
    all_windows = tuple(given)
    found = {phase: tuple(w for w in all_windows if w.job_phase == phase) for phase in JOB_PHASES}
    return {phase: some for phase, some in found.items() if some}


Question = Literal["steps", "training phase", "modes", "job phase"]


def label(window: Window, question: Question) -> str | None:
    """Where the window belongs by one question, in words; None where it does not say."""
    if question == "job phase":
        return None if window.job_phase is None else _JOB_WORDS[window.job_phase]
    if question == "training phase":
        if window.start_phase is None or window.end_phase is None:
            return None
        points = window.start_phase, window.end_phase
        return _PHASES.get(points, f"from {_FROM.get(points[0], points[0])} to {_TO.get(points[1], points[1])}")
    start, end = _mode(window.start_mode), _mode(window.end_mode)
    if question == "modes":
        if start is None or end is None:
            return None
        return start if start == end else f"{start} to {end}"
    return _steps(window, start, end)


def _mode(mode: str | None) -> str | None:
    return {BEFORE: "before the first step", AFTER: "after the last step"}.get(mode or "", mode)


def _steps(window: Window, start: str | None, end: str | None) -> str | None:
    if window.start_mode in (BEFORE, AFTER):
        return start
    first, last = window.first_step, window.last_step
    if first is None:
        return start
    mode = "" if start in (None, "train", "global") else f"{start} "
    if last is None or last == first:
        return f"{mode}step {first}" if start == end or last is None else f"{mode}step {first} to {end}"
    if start != end:
        return f"{mode}step {first} to {end} step {last}"
    return f"{mode}steps {first} to {last}"
