"""What did the framework do in each phase: in training and evaluation, in the forward and the backward pass, ...?"""

from __future__ import annotations

from typing import Final

import polars as pl

from ...ingest.store.store import Store
from ..report.model import OperatorRow, PhaseMetrics
from ..steps.part_ranges import Parts
from ..toolkit.intervals import intersection, union, union_length
from ..toolkit.shares import percent_of, shares

TOP: Final = 10


def by_phase(store: Store, parts: Parts) -> tuple[PhaseMetrics, ...]:
    """Of each named phase of the steps (TRAIN, EVAL, ...) and of each part of a step, most time first: how long it was, which parts of a
    step lay in it, and the CPU operators that began in it, by inclusive time. Of a part they are those on the thread of its ranges, without
    the ranges themselves."""
    steps = store.frame("""
        SELECT phase AS name, process, host_start_ns AS start, host_start_ns + host_duration_ns AS "end" FROM step
        WHERE phase IS NOT NULL AND host_duration_ns > 0
    """)
    found = []
    for (name,), rows in steps.group_by("name", maintain_order=True):
        inside = [(part, _length(intersection(ranges, rows, ["process"])), 0) for part, (_, ranges) in parts.items()]
        operators = _operators(store, union(rows, ["process"]), None)
        found.append(PhaseMetrics("phase", str(name), _together(rows), shares(one for one in inside if one[1]), operators))
    for part, (pattern, ranges) in parts.items():
        found.append(PhaseMetrics("part", part, _together(ranges), (), _operators(store, union(ranges, ["process", "tid"]), pattern)))
    found.sort(key=lambda one: (one.by != "phase", -one.total_ns, one.name))
    return tuple(one for one in found if one.cpu_operators or one.step_parts)


def _together(ranges: pl.DataFrame) -> int:
    return int(union_length(ranges, ["process"])["length"].sum())


def _length(ranges: pl.DataFrame) -> int:
    return int(ranges.select((pl.col("end") - pl.col("start")).sum()).item() or 0)


def _operators(store: Store, ranges: pl.DataFrame, named: str | None) -> tuple[OperatorRow, ...]:
    """Operators that begin in one of the ``ranges``, which do not overlap in a lane. ``named``: the names of the ranges' own operators."""
    if ranges.is_empty():
        return ()
    store.connection.register("phase_ranges", ranges.to_arrow())
    try:
        rows = store.connection.execute(
            f"""
            SELECT n.text, count(*), sum(e.duration_ns)::BIGINT AS total FROM (
                SELECT process, tid, name, start_ns, duration_ns FROM host_event WHERE kind = 'operator'
                UNION ALL SELECT process, tid, name, start_ns, duration_ns FROM annotation WHERE phase = 'cpu_functions'
            ) AS e ASOF JOIN phase_ranges AS r
                ON e.process = r.process {"AND e.tid = r.tid" if "tid" in ranges.columns else ""} AND e.start_ns >= r.start
            JOIN name AS n ON n.id = e.name
            WHERE e.start_ns < r."end" AND NOT regexp_matches(n.text, ?)
            GROUP BY n.text ORDER BY total DESC, n.text
            """,
            [named or "^$^x"],
        ).fetchall()
    finally:
        store.connection.unregister("phase_ranges")
    whole = sum(total for _, _, total in rows)
    return tuple(OperatorRow(name, count, total, percent_of(total, whole)) for name, count, total in rows[:TOP])
