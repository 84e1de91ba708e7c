"""What did the framework do: phases, forward and backward, operators, collectives?"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import polars as pl

from ..ingest.store import Store
from .intervals import union_length
from .kernels import percent_of, shares
from .loading_names import DATA_LOADING
from .report import Framework, OperatorRow, Share
from .windows import gaps_ns, recorded, windows, with_window
from .wording import duration, whole_percent

OTHER_OPERATORS: Final = "other (< 2 %)"
_LEAST_PERCENT: Final = 2.0
_MUCH_OTHER: Final = 25.0
_ONE_SIDED: Final = 70.0
_NEARLY_ALL: Final = 95.0

_INCLUSIVE: Final = "Times of CPU operators are inclusive: an operator's time contains that of the operators it calls, so the rows overlap."
_ABSENT: Final = (
    "No steps, phases, operators or collectives in this run. PyTorch profiler traces with activities CPU and CUDA, and the hosted"
    " profiler's folder framework/, would supply them."
)

# Parts of a step by the phase or the name of a range. The hosted profiler's hooks name phases Forward, Backward(post-forward),
# ...-SubModuleInternal, DataLoaderIter, DataIterator; TensorFlow markers aws_marker-<part>/; PyTorch names optimizer steps and
# data-loader waits itself, and the functions of the autograd engine.
_PARTS: Final = {
    "forward": (
        r"^Forward\b",
        r"(?i)^(## *)?forward([ _-]?pass)?( *##)?$|^DistributedDataParallel\.forward$|^aws_marker-ForwardPass/",
    ),
    "backward": (
        r"^Backward\b",
        r"(?i)^(## *)?backward([ _-]?pass)?( *##)?$|^autograd::engine::evaluate_function"
        r"|^(torch::autograd::)?(AccumulateGrad|\w+Backward\d*)$|^aws_marker-ComputeGradient/",
    ),
    "optimizer": (
        r"^Optimizer\b",
        r"(?i)^(## *)?optimi[sz]er([ _-]?step)?( *##)?$|^Optimizer\.(step|zero_grad)#|^aws_marker-ApplyGradient/",
    ),
    "data loading": (
        r"^(DataLoaderIter|DataIterator)$",
        DATA_LOADING,
    ),
}

_COLLECTIVE_PHASE: Final = r"^NcclManager$|(?i)horovod"
_COLLECTIVE_NAME: Final = r"^(NEGOTIATE_|NCCL_|MPI_|GLOO_)?(ALLREDUCE|ALLGATHER|BROADCAST|ALLTOALL|REDUCESCATTER)"


def framework(store: Store) -> Framework:
    """Time by phase, part of the step, operator and collective, over all processes.

    ``phases``: union of the steps of each phase and "other", the rest of the span from a process's first step start to its last step
    end; ``percent`` is of that span, averaged over the processes. ``step_parts``: union per process of the ranges that name a part,
    on the host; percent of all parts together. ``cpu_operators``: summed inclusive times. ``gpu_operators``: device time of the work
    that an operator launched itself, and the hosted profiler's gpu_functions. Operators below 2 % are one row. ``collectives``:
    communication kernels by name, and the ranges of Horovod and of NCCL in framework timelines.
    """
    phases = _phases(store)
    parts = _step_parts(store)
    cpu = _rows(_cpu_operators(store))
    by_operator, linked = _gpu_operators(store)
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
        notes=tuple(_notes(phases, parts, inclusive=bool(cpu), linked=linked if cpu else None, gaps=gaps_ns(store))),
        absent=_ABSENT if empty else None,
    )


def _phases(store: Store) -> tuple[Share, ...]:
    # Where a source names phases, these alone count: the steps of other sources are the same ones, found twice, or a window of them.
    steps = store.frame("""
        SELECT process, coalesce(phase, 'step') AS phase, host_start_ns AS start, host_start_ns + host_duration_ns AS "end"
        FROM step AS s QUALIFY s.phase IS NOT NULL OR bool_and(s.phase IS NULL) OVER ()
    """)
    if steps.is_empty():
        return ()
    # The time between two profiles of a process is no part of the span; phases come from sources that record all the time.
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

    found = [share(phase, named.filter(pl.col("phase") == phase), pl.col("length")) for phase in sorted(counts)]
    found.sort(key=lambda one: -one.total_ns)
    return (*found, share("other", rest, pl.col("span") - pl.col("covered")))


def _watched(store: Store) -> pl.DataFrame:
    """When each process was profiled, or, where it was not, recorded."""
    profiled, sessions = windows(store, "process"), recorded(store)
    return pl.concat([profiled, sessions.join(profiled, on="process", how="anti").select(profiled.columns)])


def _step_parts(store: Store) -> tuple[Share, ...]:
    found = []
    for part, (phase, name) in _PARTS.items():
        ranges = store.frame(
            """
            SELECT a.process, a.start_ns AS start, a.start_ns + a.duration_ns AS "end" FROM annotation AS a JOIN name AS n ON n.id = a.name
            WHERE a.side = 'host' AND a.complete IS NOT FALSE
                AND (regexp_matches(coalesce(a.phase, ''), ?) OR regexp_matches(n.text, ?))
            UNION ALL
            SELECT h.process, h.start_ns, h.start_ns + h.duration_ns FROM host_event AS h
            WHERE CASE WHEN h.kind = 'loader' THEN ? ELSE h.kind = 'operator' AND h.name IN (
                SELECT id FROM name WHERE regexp_matches(text, ?)) END
            """,
            [phase, name, part == "data loading", name],
        )
        if len(ranges):
            found.append((part, int(union_length(ranges, ["process"])["length"].sum()), len(ranges)))
    return shares(found)


def _cpu_operators(store: Store) -> pl.DataFrame:
    return store.frame("""
        SELECT n.text AS name, count(*) AS count, sum(duration_ns)::BIGINT AS total FROM (
            SELECT name, duration_ns FROM host_event WHERE kind = 'operator'
            UNION ALL SELECT name, duration_ns FROM annotation WHERE phase = 'cpu_functions'
        ) AS e JOIN name AS n ON n.id = e.name GROUP BY n.text
    """)


def _gpu_operators(store: Store) -> tuple[pl.DataFrame, float | None]:
    """Device time by the operator that launched it, and which percentage of all device time could be given to one (None without any)."""
    # The profiler writes the operator as external id; some versions write the correlation there. So the launch has to lie inside of
    # the operator, and without a launch in the trace an external id that is the correlation too says nothing.
    work = store.frame("""
        WITH operator AS (
            SELECT process, external_id, arg_min(name, (duration_ns, name)) AS name, arg_min(start_ns, (duration_ns, name)) AS start_ns,
                arg_min(start_ns + duration_ns, (duration_ns, name)) AS end_ns
            FROM host_event WHERE kind = 'operator' AND external_id > 0
                AND external_id IN (SELECT external_id FROM device_event)  -- most operators launch nothing: six times as fast
            GROUP BY process, external_id
        ), launch AS (
            SELECT process, correlation, min(start_ns) AS start_ns FROM host_event
            WHERE correlation IS NOT NULL AND kind IN ('launch', 'call') GROUP BY process, correlation
        )
        SELECT CASE WHEN coalesce(l.start_ns BETWEEN o.start_ns AND o.end_ns, d.external_id IS DISTINCT FROM d.correlation) THEN n.text END
            AS name, count(*) AS count, sum(d.duration_ns)::BIGINT AS total
        FROM device_event AS d
        LEFT JOIN operator AS o ON o.process = d.process AND o.external_id = d.external_id
        LEFT JOIN launch AS l ON l.process = d.process AND l.correlation = d.correlation
        LEFT JOIN name AS n ON n.id = o.name
        WHERE d.kind <> 'sync' GROUP BY 1
    """)
    linked = work.filter(pl.col("name").is_not_null())
    share = percent_of(int(linked["total"].sum()), int(work["total"].sum())) if len(work) else None
    functions = store.frame("""
        SELECT n.text AS name, count(*) AS count, sum(duration_ns)::BIGINT AS total
        FROM annotation AS a JOIN name AS n ON n.id = a.name WHERE starts_with(phase, 'gpu_functions') GROUP BY n.text
    """)
    both = pl.concat([linked, functions], how="vertical").group_by("name").agg(pl.col("count").sum(), pl.col("total").sum())
    return both, share


def _rows(operators: pl.DataFrame) -> tuple[OperatorRow, ...]:
    """Longest first; what is below 2 % of all operator time is one row at the end, so that the rows add up to all of it."""
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
    rows = store.frame(
        """
        SELECT coalesce(n.short, n.text) AS name, sum(e.duration_ns)::BIGINT AS total, count(*) AS count
        FROM device_event AS e JOIN name AS n ON n.id = e.name
        WHERE e.kind = 'kernel' AND n.category = 'communication' GROUP BY 1
        UNION ALL
        SELECT CASE WHEN regexp_full_match(n.text, '\\d+') THEN 'rank ' || n.text || ' ready' ELSE n.text END,
            sum(a.duration_ns)::BIGINT, count(*)
        FROM annotation AS a JOIN name AS n ON n.id = a.name
        WHERE a.phase IS NOT NULL AND (regexp_matches(a.phase, ?) OR regexp_matches(n.text, ?)) GROUP BY 1
        """,
        [_COLLECTIVE_PHASE, _COLLECTIVE_NAME],
    )
    return shares(rows.iter_rows())


def _notes(phases: Iterable[Share], parts: Iterable[Share], *, inclusive: bool, linked: float | None, gaps: int) -> Iterable[str]:
    other = next((phase.percent for phase in phases if phase.name == "other"), 0.0)
    if other > _MUCH_OTHER:
        yield f"{whole_percent(other)} of the time from the first to the last step was spent outside of the steps."
    if phases and gaps:
        yield f"Nothing was recorded for {duration(gaps)} between the steps; that time is left out."
    time = {part.name: part.total_ns for part in parts}
    forward, backward = time.get("forward", 0), time.get("backward", 0)
    for name, own in (("forward", forward), ("backward", backward)):
        if forward and backward and percent_of(own, forward + backward) > _ONE_SIDED:
            yield f"{whole_percent(percent_of(own, forward + backward))} of forward and backward time is spent in the {name} pass."
    if inclusive:
        yield _INCLUSIVE
    if linked is not None and linked < _NEARLY_ALL:
        lost = whole_percent(100 - linked)
        yield f"{lost} of the device time cannot be given to an operator by what the trace says; it is not among the GPU operators."
