"""The times at which the profiler recorded: a schedule with several cycles writes a trace file for each, with nothing between them."""

from __future__ import annotations

from typing import Final, Literal

import polars as pl

from ...ingest.store.store import Store
from .intervals import union
from .shared import shared

_NONE: Final = pl.DataFrame(schema={"process": pl.Int32, "start": pl.Int64, "end": pl.Int64, "window": pl.Int64})


@shared
def windows(store: Store, by: Literal["process", "node"]) -> pl.DataFrame:
    """Return when each process, or any process of each node, was profiled.

    Columns ``by``, ``start``, ``end`` and ``window``, its number from 0. Windows that overlap or touch are one. Sources that record all
    the time have none."""
    if not store.has_rows("profile_window"):
        return _NONE.rename({"process": by})
    rows = store.frame(f"""
        SELECT {"w.process" if by == "process" else "p.node"} AS {by}, w.first_ns AS start, w.last_ns + 1 AS "end"
        FROM profile_window AS w JOIN process AS p ON p.id = w.process
    """)
    return union(rows, [by]).with_columns(window=pl.int_range(pl.len()).over(by))


def with_window(rows: pl.DataFrame, windows: pl.DataFrame) -> pl.DataFrame:
    """Add the number of the window in which each row starts; 0 if none is known."""
    if windows["window"].max() in (None, 0):
        return rows.with_columns(window=pl.lit(0, pl.Int64))
    key = windows.columns[0]
    numbered = windows.select(key, "start", "window").sort("start")
    numbers = rows.sort("start").join_asof(numbered, on="start", by=key, strategy="backward", check_sortedness=False)
    return numbers.with_columns(pl.col("window").fill_null(0))


def pauses_ns(windows: pl.DataFrame) -> int:
    """Return how long (ns) no window covered the time between the first and the last."""
    spans = union(windows)
    if spans.is_empty():
        return 0
    first, last, covered = spans.select(pl.col("start").min(), pl.col("end").max(), covered=(pl.col("end") - pl.col("start")).sum()).row(0)
    return int(last - first - covered)


@shared
def recorded(store: Store) -> pl.DataFrame:
    """Return when the recorder was active in each process, in the form of ``windows``."""
    if not store.has_rows("recorded_window"):
        return _NONE
    rows = store.frame('SELECT process, first_ns AS start, last_ns + 1 AS "end" FROM recorded_window')
    return union(rows, ["process"]).with_columns(window=pl.int_range(pl.len()).over("process"))


def gaps_ns(store: Store) -> int:
    """Return how long (ns) no process with steps was recorded between recordings."""
    if not store.has_rows("recorded_window"):
        return 0
    return pauses_ns(
        recorded(store).join(store.frame("SELECT DISTINCT process FROM step"), on="process", how="semi").select("start", "end")
    )
