"""Work of the framework in each phase (training, evaluation) and in each part of a step (forward, backward)."""

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
    """Return duration, step parts and CPU operators of each phase and step part.

    They are in order of time. Phases are the named phases of the steps (TRAIN, EVAL, ...). Operators are those that began in the phase, by
    inclusive time. For a part of a step, they are those on the thread of its ranges, without the ranges themselves.
    """
    steps = store.frame("""
        SELECT phase AS name, process, host_start_ns AS start, host_start_ns + host_duration_ns AS "end" FROM step
        WHERE phase IS NOT NULL AND host_duration_ns > 0
    """)
    metrics = []
    for (name,), rows in steps.group_by("name", maintain_order=True):
        inside = [(part, _length(intersection(ranges, rows, ["process"])), 0) for part, (_, ranges) in parts.items()]
        operators = _operators(store, union(rows, ["process"]), None)
        metrics.append(PhaseMetrics("phase", str(name), _together(rows), shares(one for one in inside if one[1]), operators))
    for part, (pattern, ranges) in parts.items():
        metrics.append(PhaseMetrics("part", part, _together(ranges), (), _operators(store, union(ranges, ["process", "tid"]), pattern)))
    metrics.sort(key=lambda one: (one.by != "phase", -one.total_ns, one.name))
    return tuple(one for one in metrics if one.cpu_operators or one.step_parts)


def _together(ranges: pl.DataFrame) -> int:
    return int(union_length(ranges, ["process"])["length"].sum())


def _length(ranges: pl.DataFrame) -> int:
    return int(ranges.select((pl.col("end") - pl.col("start")).sum()).item() or 0)


def _operators(store: Store, ranges: pl.DataFrame, named: str | None) -> tuple[OperatorRow, ...]:
    """Sum the operators in ``ranges``, except those whose names match ``named``."""
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
    total_ns = sum(total for _, _, total in rows)
    return tuple(OperatorRow(name, count, total, percent_of(total, total_ns)) for name, count, total in rows[:TOP])
