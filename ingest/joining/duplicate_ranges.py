"""Which ranges of a process count where two tracers recorded the same ones?"""

from __future__ import annotations

from typing import Final

import polars as pl

from .source_rows import SourceRows, Sources, operators, processes, tracer_pairs

_NEAR_NS: Final = 20_000
"""So near are starts and ends of one range in two tracers, which each read the clock; of long ones a hundredth of their duration."""
_NEAR_SHARE: Final = 0.01


def leave_out_ranges(run: Sources) -> None:
    """Ranges of one process with the same name, and nearly the same start and end, that tracers of two formats have count once: those of
    the one that knows the operators. Each range stands for one of the other file at most."""
    pairs = tracer_pairs(run, "annotation")
    ranged = {source.id: processes(run, source, "annotation") for pair in pairs for source in pair}
    for left, right in pairs:
        for process in sorted(ranged[left.id] & ranged[right.id]):
            goes, stays = (left, right) if operators(run, left, process) < operators(run, right, process) else (right, left)
            if twice := _leave_out(run, goes, stays, process):
                text = f"Ranges of the same process, name and time stand in {stays.file}, too; they count once."
                run.store.note("info", "recorded_twice", text, count=twice, source=goes.id, file=goes.file)


def _leave_out(run: Sources, goes: SourceRows, stays: SourceRows, process: int) -> int:
    """Of each range the nearest ones of the other source before and after its start are looked at."""
    mine, theirs = (
        f"SELECT rowid AS id, name, coalesce(side, 'host') AS side, start_ns, start_ns + duration_ns AS end_ns, duration_ns FROM annotation"
        f" WHERE rowid >= {first} AND rowid < {last} AND process = {process} AND complete"
        for first, last in (source.rows["annotation"] for source in (goes, stays))
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
        run.store.connection.execute("DELETE FROM annotation WHERE rowid IN (SELECT id FROM range_gone)")
    finally:
        run.store.connection.unregister("range_gone")
    return rows.height
