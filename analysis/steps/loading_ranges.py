"""Annotated ranges by name, on the threads of the steps: those in which a process waits for data, and others."""

from __future__ import annotations

from typing import Final

import polars as pl

from ...ingest.store.store import Store
from ..toolkit.contents import kinds
from ..toolkit.names import base_name
from .loading_names import DATA_LOADING

_RANGES = """
    WITH named AS MATERIALIZED (
        SELECT id, text FROM name WHERE id IN (SELECT DISTINCT name FROM annotation WHERE side = 'host') AND regexp_matches(text, $1)
    ),
    thread AS MATERIALIZED (
        SELECT DISTINCT o.process, o.tid FROM annotation AS o JOIN step AS s ON s.process IS NOT DISTINCT FROM o.process
            AND s.host_start_ns = o.start_ns AND s.host_duration_ns = o.duration_ns
        WHERE o.side = 'host' AND EXISTS (FROM named)
    )
    SELECT a.process, a.start_ns AS start, a.start_ns + a.duration_ns AS "end", n.text FROM annotation AS a JOIN named AS n ON n.id = a.name
    WHERE a.side = 'host' AND a.phase IS NULL AND a.complete IS NOT FALSE AND a.duration_ns > 0
        AND (NOT EXISTS (FROM thread AS t WHERE t.process IS NOT DISTINCT FROM a.process)
            OR EXISTS (FROM thread AS t WHERE t.process IS NOT DISTINCT FROM a.process AND t.tid = a.tid))
    ORDER BY a.process, a.start_ns
"""
_SCHEMA: Final = {"process": pl.Int32, "start": pl.Int64, "end": pl.Int64, "name": pl.String}


def loading_ranges(store: Store) -> pl.DataFrame:
    """Return the ranges of every process that are named as data loading.

    Columns: ``process``, ``start``, ``end`` (ns) and ``name``, without the number at its end. If steps of a process are annotated, only
    ranges on their threads count: a thread that loads ahead of the step keeps no step waiting. Ranges that never ended are left out, as are
    those of phases, which the hosted profiler recorded in its own way.
    """
    return named_ranges(store, DATA_LOADING)


def named_ranges(store: Store, pattern: str) -> pl.DataFrame:
    """Return the ranges whose name has a match of ``pattern``.

    The columns and the ranges that are left out are those of :func:`loading_ranges`.
    """
    if not store.has_rows("annotation"):
        return pl.DataFrame(schema=_SCHEMA)
    return store.frame(_RANGES, [pattern]).select("process", "start", "end", name=base_name(pl.col("text")))


def loading_recorded(store: Store, loading: pl.DataFrame | None = None) -> bool:
    """Return whether the run has data-loader events or ranges named as loading.

    ``loading``: :func:`loading_ranges` of the store, if known.
    """
    if "loader" in kinds(store, "host_event"):
        return True
    return not (loading_ranges(store) if loading is None else loading).is_empty()
