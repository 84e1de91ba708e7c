"""When did the job start and end, and how long did it initialise, train and finish?"""

from __future__ import annotations

from typing import Final

import polars as pl

from ...ingest.store.store import Store
from ...ingest.store.tables import MEASURED
from ..report.model import JobStatistics
from ..toolkit import wording
from ..toolkit.windows import gaps_ns

# Times before 2001-09-09 count from an anchor, not from the epoch; they cannot be set against ones that do.
_FIRST_EPOCH_NS: Final = 10**18

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
    """Start and end of the job: those that its recorders say; else the first and the last time of any source, of the files that count
    from an anchor only where no other has times. Never after the first or before the end of the last step.

    The training loop lasts from the start of the first step of any process to the end of the last one (its device work included),
    initialisation before it, finalisation after it; percentages are of the job's duration. Exact nanoseconds: the documented table
    cuts them to whole seconds. Where a process with steps stopped to record before the job ended, the end of the loop is not known.
    """
    started, ended = _limits(store)
    unrecorded = _unrecorded(store)
    steps = store.frame("""
        SELECT host_start_ns AS first,
            greatest(host_start_ns + host_duration_ns, coalesce(device_start_ns + device_duration_ns, host_start_ns)) AS last
        FROM step WHERE host_start_ns IS NOT NULL
    """)
    absent = None
    if started is not None and started >= _FIRST_EPOCH_NS and steps.filter(pl.col("first") >= _FIRST_EPOCH_NS).is_empty() and len(steps):
        steps, absent = steps.clear(), _RELATIVE
    elif started is not None and started >= _FIRST_EPOCH_NS:
        steps = steps.filter(pl.col("first") >= _FIRST_EPOCH_NS)
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
    """When the job began and ended, as its recorders (`postrun record`) say; None where they do not."""
    started, ended = store.frame("SELECT min(job_started_ns), max(job_ended_ns) FROM run").row(0)
    return started, ended


def _captured_only(store: Store) -> bool:
    """Whether nothing tells when the whole job began and ended: its recorders, system samples, timelines of the whole job.

    What a program records of itself, its samples and the timelines of its profiling too, is of the time in which it recorded.
    """
    if None not in job_times(store):
        return False
    whole = store.frame(f"""
        SELECT EXISTS (FROM source WHERE format = 'hosted system metrics')
            OR (NOT EXISTS (FROM recorded_window)
                AND (EXISTS (FROM source WHERE format = 'hosted framework timeline') OR EXISTS (FROM sample WHERE {MEASURED})))
    """)
    return not whole.item()


def _unrecorded(store: Store) -> int:
    """How long the job went on after the last of its processes with steps had stopped to record; 0 where they recorded to their end."""
    sql = """
        SELECT min(r.job_ended_ns) - max(w.last_ns) FROM recorded_window AS w, run AS r
        WHERE w.process IN (SELECT process FROM step) HAVING bool_or(w.stopped)
    """
    found = store.frame(sql)
    return max(0, found.item() or 0) if found.height else 0


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
            first, last = _read(store) if sql is sampled and started >= _FIRST_EPOCH_NS else (None, None)
            started, ended = min(started, first or started), max(ended, last or ended)
            return began or started, ended
    return began, None


def _read(store: Store) -> tuple[int | None, int | None]:
    """First and last time of any file that does not count from an anchor: a log of samples may be shorter than the traces beside it."""
    first, last = store.frame(f"SELECT min(first_ns), max(last_ns) FROM source WHERE first_ns >= {_FIRST_EPOCH_NS}").row(0)
    return first, last
