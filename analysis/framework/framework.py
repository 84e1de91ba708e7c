"""Work of the framework: phases, forward and backward, operators, collectives."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

import polars as pl

from ...ingest.store.store import Store
from ..device.operators import ALL_WORK
from ..report.framework import Framework, OperatorRow
from ..report.rows import Share
from ..steps.parts import step_parts
from ..toolkit.contents import communicates
from ..toolkit.intervals import union_length
from ..toolkit.shares import percent_of, shares
from ..toolkit.windows import gaps_ns, recorded, windows, with_window
from ..toolkit.wording import duration, whole_percent
from .operator_times import OperatorTimes, operator_times
from .phases import by_phase, phases_and_parts

OTHER_OPERATORS: Final = "other (< 2%)"
_LEAST_PERCENT: Final = 2.0
_MUCH_OTHER: Final = 25.0
_ONE_SIDED: Final = 70.0
_NEARLY_ALL: Final = 95.0

_INCLUSIVE: Final = (
    "Times of CPU operators are inclusive: an operator's time contains that of the operators it calls, so the rows overlap and their sum"
    " counts nested calls again{}."
)
_LAUNCHED: Final = " Times of GPU operators are not: each is of the device work that the operator launched itself."
_ABSENT: Final = (
    "No steps, phases, operators or collectives in this run. PyTorch profiler traces with activities CPU and CUDA, and the hosted"
    " profiler's folder framework/, would supply them."
)

COLLECTIVE_PHASE: Final = r"^NcclManager$|(?i)horovod|smdataparallel|smddp"
COLLECTIVE_NAME: Final = r"^(NEGOTIATE_|NCCL_|MPI_|GLOO_)?(ALLREDUCE|ALLGATHER|BROADCAST|ALLTOALL|REDUCESCATTER)"


def framework(store: Store, attributed_work: pl.DataFrame | None = None) -> Framework:
    """Sum time by phase, step part, operator and collective, over all processes.

    ``phases``: union of the steps of each phase and "other", the rest of the span from a process's first step start to its last step end;
    ``percent`` is of that span, averaged over the processes. ``step_parts``: union per process of the host ranges that name a part; percent
    of all parts together. ``cpu_operators``: summed inclusive times. ``gpu_operators``: device time of the work that an operator launched
    itself (``attributed_work``, as :func:`.operators.operators` takes it), and the hosted profiler's gpu_functions.
    Operators below 2% are one row. ``collectives``: communication kernels by name, and the ranges of Horovod, smdataparallel and NCCL in
    framework timelines.
    """
    phases, processes = _phases(store)
    parts, windows_differ = step_parts(store)
    named_phases = phases_and_parts(store)
    times = operator_times(store, [phase.stretch for phase in named_phases])
    cpu = _rows(times.all.rename({"text": "name"}))
    by_operator, linked = _gpu_operators(store, attributed_work)
    gpu = _rows(by_operator)
    collectives = _collectives(store)
    kinds = (("CPU operators", cpu), ("GPU operators", gpu))
    operators = [(kind, sum(row.total_ns for row in rows), sum(row.count for row in rows)) for kind, rows in kinds]
    operator_time = shares(one for one in operators if one[2])
    empty = not (phases or parts or operator_time or collectives)
    return Framework(
        phases=phases,
        step_parts=parts,
        cpu_operators=cpu,
        gpu_operators=gpu,
        operator_time=operator_time,
        collectives=collectives,
        notes=(
            *([windows_differ] if windows_differ else []),
            *_notes(phases, parts, inclusive=_inclusive(times, cpu, gpu), linked=linked if cpu else None, gaps=gaps_ns(store)),
        ),
        absent=_ABSENT if empty else None,
        by_phase=by_phase(named_phases, times.inside),
        processes=processes,
        parts_of_mean_step=windows_differ is not None,
    )


def _phases(store: Store) -> tuple[tuple[Share, ...], int | None]:
    """Return the phases, and the number of processes over which they are summed."""
    if not store.has_rows("step"):
        return (), None
    # If a source names phases, only these count: the steps of other sources are the same steps again, or a window of them.
    steps = store.frame("""
        SELECT process, coalesce(phase, 'step') AS phase, host_start_ns AS start, host_start_ns + host_duration_ns AS "end"
        FROM step AS s QUALIFY s.phase IS NOT NULL OR bool_and(s.phase IS NULL) OVER ()
    """)
    if steps.is_empty():
        return (), None
    # The span excludes the time between two profiles of a process; phases come from sources that record all the time.
    profiled = _watched(store) if (steps["phase"] == "step").all() else windows(store, "process").clear()
    profiles = with_window(steps, profiled).group_by("process", "window").agg(span=pl.col("end").max() - pl.col("start").min())
    span = profiles.group_by("process").agg(pl.col("span").sum())
    every = union_length(steps, ["process"]).rename({"length": "covered"})
    rest = span.join(every, on="process", nulls_equal=True)
    named = union_length(steps, ["process", "phase"]).join(span, on="process", nulls_equal=True)
    counts = dict(steps.group_by("phase").len().rows())
    workers = len(span)

    def share(name: str, rows: pl.DataFrame, time: pl.Expr) -> Share:
        part = rows.select(time=time, percent=pl.when(pl.col("span") > 0).then(100 * time / pl.col("span")).otherwise(0.0)).sort("percent")
        return Share(name, int(part["time"].sum()), counts.get(name, 0), float(part["percent"].sum()) / workers)

    times = [share(phase, named.filter(pl.col("phase") == phase), pl.col("length")) for phase in sorted(counts)]
    times.sort(key=lambda share: -share.total_ns)
    return (*times, share("other", rest, pl.col("span") - pl.col("covered"))), workers


def _watched(store: Store) -> pl.DataFrame:
    """Return the profile windows of each process, else its recordings."""
    profiled, sessions = windows(store, "process"), recorded(store)
    return pl.concat([profiled, sessions.join(profiled, on="process", how="anti").select(profiled.columns)])


def _inclusive(times: OperatorTimes, cpu: Sequence[OperatorRow], gpu: Sequence[OperatorRow]) -> str | None:
    """Explain the times of CPU operators, with the time of their threads if known."""
    if not cpu:
        return None
    total = sum(row.total_ns for row in cpu)
    counted_once = times.recorded == sum(row.count for row in cpu) and times.ran_ns < total
    return _INCLUSIVE.format(
        f": {duration(total)}, while operators ran for {duration(times.ran_ns)} of the threads' time" if counted_once else ""
    ) + (_LAUNCHED if gpu else "")


def _gpu_operators(store: Store, attributed_work: pl.DataFrame | None) -> tuple[pl.DataFrame, float | None]:
    """Return device time by operator, and the linked percentage of all device time."""
    work = store.frame(ALL_WORK).row(0)
    linked = pl.DataFrame(schema={"name": pl.String, "count": pl.Int64, "total": pl.Int64})
    if attributed_work is not None:
        linked = attributed_work.select(name="operator", count=pl.col("count").cast(pl.Int64), total=pl.col("total").cast(pl.Int64))
    share = percent_of(int(linked["total"].sum()), work[1]) if work[0] else None
    functions = linked.clear()
    if store.has_rows("annotation"):
        functions = store.frame("""
        SELECT n.text AS name, count(*) AS count, sum(duration_ns)::BIGINT AS total
        FROM annotation AS a JOIN name AS n ON n.id = a.name WHERE starts_with(phase, 'gpu_functions') GROUP BY n.text
    """)
    times = pl.concat([linked, functions], how="vertical_relaxed").group_by("name").agg(pl.col("count").sum(), pl.col("total").sum())
    return times, share


def _rows(operators: pl.DataFrame) -> tuple[OperatorRow, ...]:
    """Order operators by time, and merge those below 2% into a last row."""
    total = int(operators["total"].sum()) if len(operators) else 0
    rows = [
        OperatorRow(name, count, time, percent_of(time, total))
        for name, count, time in operators.sort("total", "name", descending=[True, False]).select("name", "count", "total").iter_rows()
    ]
    kept = [row for row in rows if row.percent >= _LEAST_PERCENT]
    small = rows[len(kept) :]
    if small:
        time = sum(row.total_ns for row in small)
        kept.append(OperatorRow(OTHER_OPERATORS, sum(row.count for row in small), time, percent_of(time, total)))
    return tuple(kept)


def _collectives(store: Store) -> tuple[Share, ...]:
    if not communicates(store) and not store.has_rows("annotation"):
        return ()
    rows = store.frame(
        """
        SELECT coalesce(n.short, n.text) AS name, sum(e.duration_ns)::BIGINT AS total, count(*) AS count
        FROM device_run AS e JOIN name AS n ON n.id = e.name WHERE e.communication GROUP BY 1
        UNION ALL
        SELECT CASE WHEN regexp_full_match(text, '\\d+') THEN 'rank ' || text || ' ready' ELSE text END,
            sum(duration_ns)::BIGINT AS total, count(*)
        FROM (
            -- A range inside of another range of its tensor is a part of that range: NCCL_ALLREDUCE of ALLREDUCE.
            SELECT n.text, a.duration_ns, a.start_ns + a.duration_ns AS stop, max(a.start_ns + a.duration_ns) OVER (
                PARTITION BY a.process, a.phase ORDER BY a.start_ns, a.duration_ns DESC ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
            ) AS before
            FROM annotation AS a JOIN name AS n ON n.id = a.name
            WHERE a.phase IS NOT NULL AND (regexp_matches(a.phase, ?) OR regexp_matches(n.text, ?))
        ) WHERE before IS NULL OR stop > before GROUP BY 1 HAVING total > 0
        """,
        [COLLECTIVE_PHASE, COLLECTIVE_NAME],
    )
    return shares(rows.iter_rows())


def _notes(phases: Iterable[Share], parts: Iterable[Share], *, inclusive: str | None, linked: float | None, gaps: int) -> Iterable[str]:
    other_percent = next((phase.percent for phase in phases if phase.name == "other"), 0.0)
    if other_percent > _MUCH_OTHER:
        yield f"{whole_percent(other_percent)} of the time from the first to the last step was spent outside of the steps."
    if phases and gaps:
        yield f"Nothing was recorded for {duration(gaps)} between the steps; that time is left out."
    share = {part.name: part.percent for part in parts}
    forward, backward = share.get("forward", 0.0), share.get("backward", 0.0)
    for name, time in (("forward", forward), ("backward", backward)):
        if forward and backward and 100 * time / (forward + backward) > _ONE_SIDED:
            yield f"{whole_percent(100 * time / (forward + backward))} of forward and backward time is spent in the {name} pass."
    if inclusive:
        yield inclusive
    if linked is not None and linked < _NEARLY_ALL:
        lost = whole_percent(100 - linked)
        yield f"{lost} of the device time cannot be given to an operator by what the trace says; it is not among the GPU operators."
