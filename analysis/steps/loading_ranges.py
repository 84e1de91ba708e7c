"""Annotated ranges of a process in which it waits for data."""

from __future__ import annotations

import polars as pl

from ...ingest.store.store import Store
from ..toolkit.names import base_name
from .loading_names import DATA_LOADING


def loading_ranges(store: Store, process: int | None) -> pl.DataFrame:
    """Return the ranges of a process that are named as data loading.

    Columns: ``start``, ``end`` (ns) and ``name``, without the number at its end. If steps are annotated, only ranges on their threads
    count: a thread that loads ahead of the step keeps no step waiting. Ranges that never ended are left out, as are those of phases, which
    the hosted profiler recorded in its own way.
    """
    named = store.frame(
        "SELECT id, text FROM name WHERE id IN (SELECT DISTINCT name FROM annotation WHERE process IS NOT DISTINCT FROM ?)"
        " AND regexp_matches(text, ?)",
        [process, DATA_LOADING],
    )
    ranges = store.frame(
        f"""
        WITH threads AS MATERIALIZED (
            SELECT DISTINCT o.tid FROM annotation AS o JOIN step AS s ON s.process IS NOT DISTINCT FROM o.process
                AND s.host_start_ns = o.start_ns AND s.host_duration_ns = o.duration_ns
            WHERE o.process IS NOT DISTINCT FROM ? AND o.side = 'host'
        )
        SELECT start_ns AS start, start_ns + duration_ns AS "end", name AS id FROM annotation
        WHERE process IS NOT DISTINCT FROM ? AND side = 'host' AND phase IS NULL AND complete IS NOT FALSE AND duration_ns > 0
            AND name IN ({", ".join(map(str, named["id"])) or "NULL"})
            AND (NOT EXISTS (FROM threads) OR tid IN (SELECT tid FROM threads))
        ORDER BY start_ns
        """,
        [process, process],
    )
    return ranges.join(named, on="id", how="left", maintain_order="left").select("start", "end", name=base_name(pl.col("text")))


def loading_recorded(store: Store) -> bool:
    """Return whether the run has data-loader events or ranges named as loading."""
    if store.frame("SELECT EXISTS (FROM host_event WHERE kind = 'loader') AS found").item():
        return True
    processes = store.frame("SELECT DISTINCT process FROM annotation WHERE side = 'host' AND phase IS NULL")["process"]
    return any(loading_ranges(store, process).height for process in processes)
