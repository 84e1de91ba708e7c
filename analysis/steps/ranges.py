"""Ranges that a program annotated in its steps, as parts of the average step."""

from __future__ import annotations

from typing import Final

import polars as pl

from ...ingest.store.store import Store
from ..toolkit.intervals import outermost
from ..toolkit.names import base_name
from .loading_names import DATA_LOADING

NAMED: Final = 6  # listed names; the rest with the least time, except data loading, count as other
LOADING: Final = "data_loader"
REMAINDER: Final = "other"


def ranges_on_step_threads(store: Store) -> pl.DataFrame:
    """Return the closed host ranges on the threads of steps, of every process.

    Columns: ``process``, ``tid``, ``text``, ``start``, ``end`` (ns).
    """
    return store.frame("""
        WITH thread AS (
            SELECT DISTINCT o.process, o.tid FROM annotation AS o JOIN step AS s ON s.process IS NOT DISTINCT FROM o.process
                AND s.host_start_ns = o.start_ns AND s.host_duration_ns = o.duration_ns
            WHERE o.side = 'host'
        )
        SELECT a.process, a.tid, a.text, a.start_ns AS start, a.end_ns AS "end"
        FROM annotated AS a SEMI JOIN thread AS t ON t.process IS NOT DISTINCT FROM a.process AND t.tid = a.tid
        WHERE a.side = 'host' AND a.phase IS NULL AND a.complete IS NOT FALSE AND a.duration_ns > 0 AND a.text IS NOT NULL
    """)


def outermost_ranges(ranges: pl.DataFrame, steps: pl.DataFrame) -> dict[str, pl.DataFrame]:
    """Return the ranges that are parts of the steps, by name, in order of first start.

    These are the outermost ranges on the threads of the steps that contain no step. A range that contains a step, such as an epoch, is not
    a part of it. Names lose the number at their end. All names of data loading share a key; the column ``name`` keeps the original name.
    ``ranges``, :func:`ranges_on_step_threads`, and ``steps`` are those of one process. Columns: ``start``, ``end``, ``name``.
    """
    starts = steps.select(step="host_start_ns", step_end=pl.col("host_start_ns") + pl.col("host_duration_ns")).sort("step", "step_end")
    # Steps of one process do not overlap, so a range can only contain a step if it contains the one that begins next.
    inner = ranges.sort("start").join_asof(starts, left_on="start", right_on="step", strategy="forward", check_sortedness=False)
    parts = inner.filter(pl.col("step_end").is_null() | (pl.col("step_end") > pl.col("end")))
    named = outermost(parts, ["tid"]).with_columns(
        key=pl.when(pl.col("text").str.contains(DATA_LOADING)).then(pl.lit(LOADING)).otherwise(base_name(pl.col("text"))),
        name=base_name(pl.col("text")),
    )
    order = named.group_by("key").agg(first=pl.col("start").min()).sort("first", "key")["key"]
    return {key: named.filter(pl.col("key") == key).select("start", "end", "name") for key in order}


def loading_names(ranges: pl.DataFrame, windows: pl.DataFrame) -> tuple[str, ...]:
    """Return the names of data-loading ranges in the windows, in order of start."""
    # Only the last step that begins before a range ends can overlap it.
    ended = ranges.sort("end").join_asof(
        windows.select(step="start", step_end="end"), left_on="end", right_on="step", strategy="backward", allow_exact_matches=False
    )
    return tuple(ended.filter(pl.col("step_end") > pl.col("start")).sort("start", "name")["name"].unique(maintain_order=True))
