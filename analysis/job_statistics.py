"""When did the job start and end, and how long did it initialise, train and finish?"""

from __future__ import annotations

from typing import Final

import polars as pl

from ..ingest.store import MEASURED, Store
from .report import JobStatistics

# Times before 2001-09-09 count from an anchor, not from the epoch; they cannot be set against ones that do.
_FIRST_EPOCH_NS: Final = 10**18

_NO_STEPS: Final = (
    "No step information: the training loop cannot be told from initialisation and finalisation. Steps come from"
    " `torch.profiler` with schedule and `prof.step()`, from ranges named step_N, or from the hosted profiler's framework timelines."
)
_ONE_STEP: Final = "Only one step was recorded; the training loop cannot be told from initialisation and finalisation with fewer than two."
_RELATIVE: Final = "The steps' times count from an anchor and cannot be set against the rest of the run, which has absolute times."


def job_statistics(store: Store) -> JobStatistics:
    """Start and end of the job: first and last system sample, else of the run; never after the first or before the end of the last step.

    The training loop lasts from the start of the first step of any process to the end of the last one (its device work included),
    initialisation before it, finalisation after it; percentages are of the job's duration. Exact nanoseconds: the documented table
    cuts them to whole seconds.
    """
    started, ended = _limits(store)
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
    duration, initialization, loop, finalization = ended - started, first - started, last - first, ended - last

    def percent(part: int) -> float | None:
        return 100 * part / duration if duration else None

    return JobStatistics(
        started_at_ns=started,
        ended_at_ns=ended,
        duration_ns=duration,
        loop_started_at_ns=first,
        loop_ended_at_ns=last,
        loop_ns=loop,
        initialization_ns=initialization,
        finalization_ns=finalization,
        initialization_percent=percent(initialization),
        loop_percent=percent(loop),
        finalization_percent=percent(finalization),
        absent=None,
        captured_only=_captured_only(store),
    )


def _captured_only(store: Store) -> bool:
    """Whether neither system samples nor timelines of the whole job tell when it began and ended."""
    whole = store.frame(f"SELECT EXISTS (FROM sample WHERE {MEASURED}) OR EXISTS (FROM source WHERE format = 'hosted framework timeline')")
    return not whole.item()


def _limits(store: Store) -> tuple[int | None, int | None]:
    for sql in (
        "SELECT min(time_ns), max(time_ns) FROM sample",
        "SELECT min(started_ns), max(ended_ns) FROM run WHERE started_ns IS NOT NULL AND ended_ns IS NOT NULL",
        "SELECT min(first_ns), max(last_ns) FROM source",
    ):
        started, ended = store.frame(sql).row(0)
        if started is not None and ended is not None:
            return started, ended
    return None, None
