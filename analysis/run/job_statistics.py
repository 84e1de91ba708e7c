"""Start, end and phases of a job: run store -> `JobStatistics`."""

from __future__ import annotations

from typing import Final

import polars as pl

from ...ingest.store.store import Store
from ...ingest.store.tables import MEASURED
from ..report.model import JobStatistics
from ..toolkit import wording
from ..toolkit.windows import gaps_ns
from .run_info import FIRST_EPOCH_NS

_NO_STEPS: Final = (
    "No step information: the training loop cannot be told from initialisation and finalisation. Steps come from"
    ' `capture.annotate("step", value=i)` around each step in the training script, from `torch.profiler` with schedule and `prof.step()`,'
    " from ranges named step_N, or from the hosted profiler's framework timelines."
)
_STOPPED: Final = "The recording was stopped {} before the job ended: how long the training loop and finalization were is not known."
_GAPS: Final = "In {} of it nothing was recorded."
_ONE_STEP: Final = "Only one step was recorded; the training loop cannot be told from initialisation and finalisation with fewer than two."
_RELATIVE: Final = "The steps' times count from an anchor and cannot be set against the rest of the run, which has absolute times."


def job_statistics(store: Store) -> JobStatistics:
    """Return start and end of the job, and its phases.

    Start and end are those that the recorders state; else the first and last time of any source. Sources that count from an anchor count
    only if no other source has times. The job contains all steps.

    The training loop lasts from the start of the first step of any process to the end of the last one, including its GPU activity.
    Initialization comes before it, finalization after it. Percentages are of the job's duration. If a process with steps stopped
    recording before the job ended, the end of the loop is unknown.
    """
    started, ended = _limits(store)
    unrecorded = _unrecorded(store)
    steps = store.frame("""
        SELECT host_start_ns AS first,
            greatest(host_start_ns + host_duration_ns, coalesce(device_start_ns + device_duration_ns, host_start_ns)) AS last
        FROM step WHERE host_start_ns IS NOT NULL
    """)
    absent = None
    if started is not None and started >= FIRST_EPOCH_NS:
        absolute = steps.filter(pl.col("first") >= FIRST_EPOCH_NS)
        absent = _RELATIVE if len(steps) and absolute.is_empty() else None
        steps = absolute
    if len(steps) < 2:
        absent = absent or (_ONE_STEP if len(steps) else _NO_STEPS)
        duration = ended - started if started is not None and ended is not None else None
        return JobStatistics(started, ended, duration, *(None,) * 8, absent, _captured_only(store))
    first, last = steps.select(pl.col("first").min(), pl.col("last").max()).row(0)
    started = first if started is None else min(started, first)
    ended = last if ended is None else max(ended, last)
    duration, initialization = ended - started, first - started
    loop, finalization = (None, None) if unrecorded else (last - first, ended - last)
    gaps = gaps_ns(store)

    def percent(part: int | None) -> float | None:
        return 100 * part / duration if duration and part is not None else None

    return JobStatistics(
        started_at_ns=started,
        ended_at_ns=ended,
        duration_ns=duration,
        loop_started_at_ns=first,
        loop_ended_at_ns=None if unrecorded else last,
        loop_ns=loop,
        initialization_ns=initialization,
        finalization_ns=finalization,
        initialization_percent=percent(initialization),
        loop_percent=percent(loop),
        finalization_percent=percent(finalization),
        absent=_STOPPED.format(wording.duration(unrecorded)) if unrecorded else _GAPS.format(wording.duration(gaps)) if gaps else None,
        captured_only=_captured_only(store),
    )


def job_times(store: Store) -> tuple[int | None, int | None]:
    """Return the start and end of the job that its recorders state, or None."""
    started, ended = store.frame("SELECT min(job_started_ns), max(job_ended_ns) FROM run").row(0)
    return started, ended


def _captured_only(store: Store) -> bool:
    """Return whether only the profiled part of the job has known limits.

    The recorder, system samples and timelines of the whole job give the limits of the job. The samples and timelines that a program
    records of itself cover only the time in which it recorded.
    """
    if None not in job_times(store):
        return False
    job_evidence = store.frame(f"""
        SELECT EXISTS (FROM source WHERE format = 'hosted system metrics')
            OR (NOT EXISTS (FROM recorded_window)
                AND (EXISTS (FROM source WHERE format = 'hosted framework timeline') OR EXISTS (FROM sample WHERE {MEASURED})))
    """)
    return not job_evidence.item()


def _unrecorded(store: Store) -> int:
    """Return the time after the last record of processes with steps, in ns, or 0."""
    sql = """
        SELECT min(r.job_ended_ns) - max(w.last_ns) FROM recorded_window AS w, run AS r
        WHERE w.process IN (SELECT process FROM step) HAVING bool_or(w.stopped)
    """
    row = store.frame(sql)
    return max(0, row.item() or 0) if row.height else 0


def _limits(store: Store) -> tuple[int | None, int | None]:
    began, over = job_times(store)
    if began is not None and over is not None:
        return began, over
    sampled = "SELECT min(first), max(last) FROM (SELECT min(time_ns), max(time_ns) FROM sample UNION ALL"
    sampled += " SELECT min(first_ns), max(last_ns) FROM recorded_window) AS t(first, last)"
    for sql in (
        sampled,
        "SELECT min(started_ns), max(ended_ns) FROM run WHERE started_ns IS NOT NULL AND ended_ns IS NOT NULL",
        "SELECT min(first_ns), max(last_ns) FROM source",
    ):
        started, ended = store.frame(sql).row(0)
        if started is not None and ended is not None:
            if sql is sampled and started >= FIRST_EPOCH_NS:  # a log of samples may be shorter than the traces next to it
                traced = f"SELECT min(first_ns), max(last_ns) FROM source WHERE first_ns >= {FIRST_EPOCH_NS}"
                first, last = store.frame(traced).row(0)
                started, ended = min(started, first or started), max(ended, last or ended)
            return began or started, ended
    return began, None
