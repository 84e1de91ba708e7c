"""Compilations by torch.compile of a run: those of its traces, with what the logs have of them, and those of the logs alone."""

from __future__ import annotations

from typing import Final

import polars as pl

from ....ingest.store.store import Store
from .compile_ranges import compile_ranges
from .run_data import RunData

_FACTS: Final = ("function", "file", "line", "reason", "graph_breaks", "graph_break", "limit_reached")
_LOG: Final = f"""
    SELECT process::BIGINT AS process, frame, version, backward, start_ns AS start, start_ns + duration_ns AS "end", {", ".join(_FACTS)}
    FROM compilation WHERE process IS NOT NULL ORDER BY process, start_ns, frame, version, backward
"""
_STEPS: Final = """
    SELECT process::BIGINT AS process, "index" AS number, host_start_ns AS start, host_start_ns + host_duration_ns AS "end" FROM step
    WHERE process IS NOT NULL ORDER BY process, host_start_ns, "index"
"""
_TOLERANCE: Final = 5_000_000  # ns from the start of a compilation in the log to that in the trace; both belong to one function call


def logged(store: Store) -> pl.DataFrame:
    """Return the compilations of logs: columns of :func:`profiled` but tid and late.

    ``start``, ``end``: null if unknown."""
    return store.frame(_LOG)


def host_steps(store: Store) -> pl.DataFrame:
    """Return the steps on the host: process, number, start, end (ns)."""
    return store.frame(_STEPS)


def profiled(run: RunData, first_steps: float) -> pl.DataFrame:
    """Return the compilations within the profile.

    Columns: process, tid, start, end (ns), frame, version (null: unknown), backward, function, file, line, reason, graph_breaks,
    graph_break, limit_reached; ``module`` and ``caller`` (file:line) of the call, "" if unknown; and ``late``: a recompilation after
    the first steps.
    Without steps the first recompilation of a function is not late, because torch.compile makes sizes dynamic by it.
    """
    log = logged(run.store)
    ranges = _with_log(compile_ranges(run.store), log)
    alone = _in_windows(run.store, log.join(ranges, on="process", how="anti"))
    rows = pl.concat([ranges, alone.select(ranges.columns)]).sort("process", "start", "frame", "version")
    sites = run.sites.at(rows.select("process", "tid", "start"))
    late = _late(rows, host_steps(run.store), first_steps)
    return rows.with_columns(module=sites["module"], caller=sites["line"], late=late)


def _with_log(ranges: pl.DataFrame, log: pl.DataFrame) -> pl.DataFrame:
    """Add the facts of the log to each range: by id and time, else by time alone."""
    facts = log.drop("end").with_columns(pl.col("start").fill_null(0)).sort("start")
    known = ranges.filter(pl.col("version").is_not_null()).sort("start")
    by_id = known.join_asof(facts, on="start", by=["process", "frame", "version", "backward"], strategy="nearest", check_sortedness=False)
    unknown = ranges.filter(pl.col("version").is_null()).drop("frame", "version").sort("start")
    by = ["process", "backward"]
    by_time = unknown.join_asof(facts, on="start", by=by, strategy="nearest", tolerance=_TOLERANCE, check_sortedness=False)
    return pl.concat([by_id, by_time.select(by_id.columns)])


def _in_windows(store: Store, log: pl.DataFrame) -> pl.DataFrame:
    """Return the compilations of logs within profiles, cut to them."""
    windows = store.frame("SELECT process::BIGINT AS process, first_ns, last_ns FROM profile_window ORDER BY ALL")
    rows = log.drop_nulls("end").join(windows, on="process").filter(
        pl.col("start") < pl.col("last_ns"), pl.col("end") > pl.col("first_ns")
    )  # fmt: skip
    return rows.with_columns(
        pl.max_horizontal("start", "first_ns").alias("start"), pl.min_horizontal("end", "last_ns").alias("end"), tid=pl.lit(None, pl.Int64)
    ).drop("first_ns", "last_ns")


def _late(rows: pl.DataFrame, steps: pl.DataFrame, first_steps: float) -> pl.Series:
    """Return whether each compilation is a recompilation after the first steps."""
    counted = steps.select("process", "start", "number", before=pl.int_range(pl.len()).over("process"))
    stepped = rows["process"].is_in(steps["process"].unique().to_list())
    step = rows.select("process", "start").join_asof(counted, on="start", by="process", check_sortedness=False)
    after = step.select(pl.max_horizontal("number", "before") >= first_steps).to_series().fill_null(False)
    version, limited = rows["version"].fill_null(0), rows["limit_reached"].fill_null(False)
    return (version >= 1) & ~limited & ((stepped & after) | (~stepped & (version >= 2)))
