"""Ranges of a process that two tracers recorded count once: one of the two is left out, with a note."""

from __future__ import annotations

from typing import Final

import polars as pl

from ..store.schema import RECORDED_TWICE
from .sources import SourceFile, Sources, operators, processes, tracer_pairs

# Highest difference of the starts and ends of a range in two tracers, which each read the clock.
_NEAR_NS: Final = 20_000
_NEAR_SHARE: Final = 0.01  # of the duration of long ranges


def leave_out_ranges(run: Sources) -> None:
    """Count ranges once that two tracers have with the same name and similar times.

    The tracer with more operators is kept. Each range matches at most one of the other file.
    """
    pairs = tracer_pairs(run, "annotation")
    ranged = {source.id: processes(run, source, "annotation") for pair in pairs for source in pair}
    for left, right in pairs:
        for process in sorted(ranged[left.id] & ranged[right.id]):
            goes, stays = (left, right) if operators(run, left, process) < operators(run, right, process) else (right, left)
            if twice := _leave_out(run, goes, stays, process):
                text = f"Ranges of the same process, name and time stand in {stays.file}, too; they count once."
                run.store.note("info", "recorded_twice", text, count=twice, source=goes.id, file=goes.file)


def _leave_out(run: Sources, goes: SourceFile, stays: SourceFile, process: int) -> int:
    """Match each range with the nearest ones of the other source."""
    mine, theirs = (
        "SELECT id, name, coalesce(side, 'host') AS side, start_ns, start_ns + duration_ns AS end_ns, duration_ns"
        f" FROM annotation WHERE source = {source.id} AND process = {process} AND complete"
        for source in (goes, stays)
    )
    near = " UNION ALL ".join(
        f"""
        SELECT a.id, b.id AS other, abs(a.start_ns - b.start_ns) AS before, abs(a.end_ns - b.end_ns) AS after,
            greatest({_NEAR_NS}, {_NEAR_SHARE} * least(a.duration_ns, b.duration_ns)) AS most
        FROM ({mine}) AS a ASOF JOIN ({theirs}) AS b ON a.name = b.name AND a.side = b.side AND a.start_ns {order} b.start_ns
        """
        for order in (">=", "<")
    )
    left = run.store.frame(f"SELECT id, other FROM ({near}) WHERE before <= most AND after <= most ORDER BY before + after, id, other")
    gone: list[pl.Series] = []
    while left.height:  # the nearest two first
        pairs = left.filter(pl.col("id").is_first_distinct() & pl.col("other").is_first_distinct())
        gone.append(pairs["id"])
        left = left.join(pairs, on="id", how="anti", maintain_order="left").join(pairs, on="other", how="anti", maintain_order="left")
    if not gone:
        return 0
    rows = pl.concat(gone).rename("id").to_frame()
    run.store.connection.register("range_gone", rows.to_arrow())
    try:
        run.store.leave_out("annotation", RECORDED_TWICE, "SELECT id FROM range_gone")
    finally:
        run.store.connection.unregister("range_gone")
    return rows.height
