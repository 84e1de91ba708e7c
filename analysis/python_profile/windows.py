"""Windows of Python profiles, grouped by steps, time, modes, training phase, or phase of the job.

The criteria are those of the hosted profiler's analysis of Python profiles. A window is one file of a profile.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

from ...ingest.store.store import Store

BEFORE: Final = "prestepzero"
AFTER: Final = "posthookclose"
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
    """A row of ``python_window``. ``first_step``, ``last_step``: range of the steps that it covers in part or in full; None before the
    first step and after the last."""

    id: int
    process: int
    profiler: str
    timer: str | None
    start_mode: str | None
    start_step: int | None
    start_phase: str | None
    end_mode: str | None
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
        """A key of ``_JOB_WORDS``; None if the time is unknown."""
        if self.start_mode == BEFORE:
            return "initialization"
        if self.start_mode == AFTER:
            return "finalization"
        return "training_loop" if self.start_mode is not None or self.start_step is not None else None


def windows(store: Store) -> tuple[Window, ...]:
    """Return all windows, by their time and number."""
    if not store.has_rows("python_window"):
        return ()
    rows = store.frame("""
        SELECT w.id, w.process, w.profiler, w.timer, w.start_mode, w.start_step, w.start_phase, w.end_mode, w.end_phase,
            w.start_ns, w.duration_ns, w.functions, w.calls, w.total_s, p.first_step, p.last_step
        FROM python_window AS w LEFT JOIN (
            SELECT "window", any_value(first_step) AS first_step, any_value(last_step) AS last_step FROM python_profile GROUP BY "window"
        ) AS p ON p."window" = w.id ORDER BY w.start_ns NULLS LAST, w.id
    """).rows(named=True)
    return tuple(Window(**row) for row in rows)


Question = Literal["steps", "training phase", "modes", "job phase"]


def label(window: Window, question: Question) -> str | None:
    """Word the group of the window by one criterion; None if it is unknown."""
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
