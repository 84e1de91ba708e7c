"""Start, end and phases of a job: run store -> `JobStatistics`."""

from __future__ import annotations

from typing import Final

import polars as pl

from ...ingest.store.metrics import MEASURED
from ...ingest.store.store import Store
from ..report.run import JobStatistics
from ..toolkit import wording
from ..toolkit.contents import RUN, SOURCES, formats
from ..toolkit.shared import shared
from ..toolkit.windows import gaps_ns
from .run_info import FIRST_EPOCH_NS

_NO_STEPS: Final = (
    "No step information: the training loop cannot be told from initialization and finalization. Steps come from"
    ' `capture.annotate("step", value=i)` around each step in the training script, from `torch.profiler` with schedule and `prof.step()`,'
    " from ranges named step_N, or from the hosted profiler's framework timelines."
)
_STOPPED: Final = "The recording was stopped {} before the job ended: how long the training loop and finalization were is not known."
_GAPS: Final = "In {} of it nothing was recorded."
_APART: Final = "The files are from different times, up to {} apart, so the times of a job are not known."
_LONGEST_PAUSE_NS: Final = 3_600 * 10**9  # between the files of one run
_PAUSE: Final = f"""
    SELECT max(first_ns - until) FROM (
        SELECT first_ns, max(last_ns) OVER (ORDER BY first_ns, last_ns ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS until
        FROM source WHERE first_ns >= {FIRST_EPOCH_NS}
    ) WHERE EXISTS (FROM ingest_note WHERE code = 'several_runs')
"""
_ONE_STEP: Final = "Only one step was recorded; the training loop cannot be told from initialization and finalization with fewer than two."
_RELATIVE: Final = "The steps' times count from an anchor and cannot be set against the rest of the run, which has absolute times."
_STEPS: Final = """
    SELECT host_start_ns AS first,
        greatest(host_start_ns + host_duration_ns, coalesce(device_start_ns + device_duration_ns, host_start_ns)) AS last
    FROM step WHERE host_start_ns IS NOT NULL
"""


def job_statistics(store: Store) -> JobStatistics:
    """Return start and end of the job, and its phases.

    Start and end are those that the recorders state; else the first and last time of any source. Sources that count from an anchor count
    only if no other source has times. The job contains all steps.

    The training loop lasts from the start of the first step of any process to the end of the last one, including its GPU activity.
    Initialization comes before it, finalization after it. Percentages are of the job's duration. If a process with steps stopped
    recording before the job ended, the end of the loop is unknown. Files of several runs with a long pause between them have no job.
    """
    if (apart := store.frame(_PAUSE).item() or 0) > _LONGEST_PAUSE_NS:
        return JobStatistics(*(None,) * 11, _APART.format(wording.duration(apart)), apart_ns=apart)
    started, ended = _limits(store)
    unrecorded = _unrecorded(store)
    steps = store.frame(_STEPS) if store.has_rows("step") else pl.DataFrame(schema={"first": pl.Int64, "last": pl.Int64})
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


@shared
def job_times(store: Store) -> tuple[int | None, int | None]:
    """Return the start and end of the job that its recorders state, or None."""
    started, ended = store.frame(RUN).select(pl.col("job_started_ns").min(), pl.col("job_ended_ns").max()).row(0)
    return started, ended


def _captured_only(store: Store) -> bool:
    """Return whether only the profiled part of the job has known limits.

    The recorder, system samples and timelines of the whole job give the limits of the job. The samples and timelines that a program
    records of itself cover only the time in which it recorded.
    """
    if None not in job_times(store):
        return False
    known = formats(store)
    if "hosted system metrics" in known:
        return False
    if _exists(store, "recorded_window"):
        return True
    return not ("hosted framework timeline" in known or _exists(store, "sample", MEASURED))


def _exists(store: Store, table: str, condition: str = "TRUE") -> bool:
    return store.has_rows(table) and bool(store.frame(f"SELECT EXISTS (FROM {table} WHERE {condition})").item())


def _unrecorded(store: Store) -> int:
    """Return the time after the last record of processes with steps, in ns, or 0."""
    if not store.has_rows("recorded_window"):
        return 0
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
    for started, ended in (_sampled(store), _stated(store), _of_sources(store)):
        if started is not None and ended is not None:
            return began or started, ended
    return began, None


def _sampled(store: Store) -> tuple[int | None, int | None]:
    """Return the times of samplers and recorders, extended to those of the traces."""
    if not store.has_rows("sample", "recorded_window"):
        return None, None
    sql = "SELECT min(first), max(last) FROM (SELECT min(time_ns), max(time_ns) FROM sample UNION ALL"
    started, ended = store.frame(f"{sql} SELECT min(first_ns), max(last_ns) FROM recorded_window) AS t(first, last)").row(0)
    if started is not None and ended is not None and started >= FIRST_EPOCH_NS:  # a log of samples may be shorter than the traces
        first, last = _of_sources(store, FIRST_EPOCH_NS)
        return min(started, first or started), max(ended, last or ended)
    return started, ended


def _stated(store: Store) -> tuple[int | None, int | None]:
    """Return the start and end that the files of the run state."""
    times = store.frame(RUN).select("started_ns", "ended_ns").drop_nulls()
    started, ended = times.select(pl.col("started_ns").min(), pl.col("ended_ns").max()).row(0)
    return started, ended


def _of_sources(store: Store, since: int | None = None) -> tuple[int | None, int | None]:
    """Return the first and last time of the files that begin at ``since`` or later."""
    files = store.frame(SOURCES).filter(pl.col("first_ns") >= since) if since is not None else store.frame(SOURCES)
    first, last = files.select(pl.col("first_ns").min(), pl.col("last_ns").max()).row(0)
    return first, last
