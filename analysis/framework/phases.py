"""Work of the framework in each phase (training, evaluation) and in each part of a step (forward, backward)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Final, NamedTuple

import polars as pl

from ...ingest.store.store import Store
from ..report.framework import OperatorRow, PhaseMetrics
from ..steps.part_ranges import PARTS, part_ranges
from ..toolkit.intervals import intersection, union, union_length
from ..toolkit.shares import percent_of, shares
from .operator_times import Stretch

TOP: Final = 10


class Phase(NamedTuple):
    """A phase or a part of a step, without its operators."""

    metrics: PhaseMetrics
    stretch: Stretch


def phases_and_parts(store: Store) -> list[Phase]:
    """Return the named phases of the steps (TRAIN, EVAL, ...) and the parts of a step.

    Operators of a phase are those that began in it; of a part, those on the thread of its ranges, without the ranges themselves.
    """
    steps = store.frame("""
        SELECT phase AS name, process, host_start_ns AS start, host_start_ns + host_duration_ns AS "end" FROM step
        WHERE phase IS NOT NULL AND host_duration_ns > 0
    """)
    steps_of = {str(name): rows for (name,), rows in steps.group_by("name", maintain_order=True)}
    inside: list[tuple[str, str, int]] = []
    together: dict[str, int] = {}
    merged: dict[str, tuple[str, list[pl.DataFrame]]] = {}
    for parts in part_ranges(store):
        for part, (pattern, ranges) in parts.items():
            inside += [(name, part, _length(intersection(ranges, rows, ["process"]))) for name, rows in steps_of.items()]
            together[part] = together.get(part, 0) + _together(ranges)
            merged.setdefault(part, (pattern, []))[1].append(union(ranges, ["process", "tid"]))
    phases = []
    for name, rows in steps_of.items():
        metrics = PhaseMetrics("phase", name, _together(rows), shares((part, ns, 0) for one, part, ns in inside if one == name and ns), ())
        phases.append(Phase(metrics, Stretch(("process",), union(rows, ["process"]), None)))
    for part in PARTS:
        if part in merged:
            pattern, times = merged[part]
            phases.append(Phase(PhaseMetrics("part", part, together[part], (), ()), Stretch(("process", "tid"), pl.concat(times), pattern)))
    return phases


def by_phase(phases: Iterable[Phase], operators: Iterable[pl.DataFrame]) -> tuple[PhaseMetrics, ...]:
    """Return duration, step parts and CPU operators of each phase and step part.

    They are in order of time. ``operators``: those in each phase, by inclusive time; see :class:`.operator_times.OperatorTimes`.
    """
    metrics = [replace(phase.metrics, cpu_operators=_operators(rows)) for phase, rows in zip(phases, operators, strict=True)]
    metrics.sort(key=lambda one: (one.by != "phase", -one.total_ns, one.name))
    return tuple(one for one in metrics if one.cpu_operators or one.step_parts)


def _together(ranges: pl.DataFrame) -> int:
    return int(union_length(ranges, ["process"])["length"].sum())


def _length(ranges: pl.DataFrame) -> int:
    return int(ranges.select((pl.col("end") - pl.col("start")).sum()).item() or 0)


def _operators(rows: pl.DataFrame) -> tuple[OperatorRow, ...]:
    total_ns = int(rows["total"].sum())
    top = rows.select("text", "count", "total").head(TOP).iter_rows()
    return tuple(OperatorRow(name, count, total, percent_of(total, total_ns)) for name, count, total in top)
