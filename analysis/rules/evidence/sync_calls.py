"""The calls that blocked the host until the device was done, with the operator that made each."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Final

import polars as pl

from ....ingest.store.store import Store
from ...efficiency.frames import LIBRARY, USER, frames
from .host_time import host_events

_DEPTH: Final = 64  # operators inside of operators are looked through to this depth

# Calls of copies between host and device that returned after the copy had ended, or that read host memory that is not pinned.
_COPIES: Final = """
    SELECT h.process, h.tid, h.name, h.start_ns AS start, h.start_ns + h.duration_ns AS "end", max(d.bytes) AS bytes,
        coalesce(bool_or(d.pageable AND d.copy_kind = 'HtoD'), FALSE) AS upload
    FROM host_event AS h JOIN device_event AS d ON d.process = h.process AND d.correlation = h.correlation
    WHERE h.kind = 'launch' AND h.process IN ({}) AND d.kind = 'memcpy' AND d.copy_kind IN ('HtoD', 'DtoH')
        AND (d.start_ns + d.duration_ns <= h.start_ns + h.duration_ns OR d.pageable AND d.start_ns <= h.start_ns + h.duration_ns)
    GROUP BY ALL
"""
# Python functions and ranges of parts of a step that were open on a thread at a time, the innermost first.
_OPEN: Final = """
    WITH w(number, process, tid, moment) AS (VALUES {})
    SELECT w.number, t.python, n.text FROM w JOIN (
        SELECT process, tid, name, start_ns, duration_ns, true AS python FROM host_event WHERE kind = 'python'
        UNION ALL SELECT a.process, a.tid, a.name, a.start_ns, a.duration_ns, false FROM annotation AS a
        WHERE a.side = 'host' AND a.complete IS NOT FALSE AND NOT EXISTS (FROM step AS s WHERE s.process = a.process
            AND s.host_start_ns = a.start_ns AND s.host_duration_ns = a.duration_ns)
    ) AS t ON t.process = w.process AND t.tid = w.tid AND t.start_ns <= w.moment AND t.start_ns + t.duration_ns > w.moment
    JOIN name AS n ON n.id = t.name ORDER BY w.number, t.python DESC, t.start_ns DESC, t.duration_ns, n.text
"""
_SCHEMA: Final = {"process": pl.Int32, "tid": pl.Int64, "name": pl.Int32, "start": pl.Int64, "end": pl.Int64}


def sync_calls(store: Store, processes: Iterable[int | None]) -> pl.DataFrame:
    """Return the blocking synchronization calls: process, tid, name, start, end."""
    parts = list(host_events(store, ("sync",), processes))
    return (pl.concat(parts) if parts else pl.DataFrame(schema=_SCHEMA)).sort("start", "end")


def blocking_calls(store: Store, processes: Iterable[int | None]) -> pl.DataFrame:
    """Return the calls in which the launching threads waited for a device.

    Synchronizations, and copies that block; columns as of :func:`sync_calls`, and ``bytes`` of the copy. ``upload``: it copies pageable
    memory to the device. Of processes whose launch calls are known, calls on threads that launch nothing are left out: they hold up no
    launch."""
    known = [process for process in processes if process is not None]
    calls = sync_calls(store, known).with_columns(bytes=pl.lit(None, pl.Int64), upload=pl.lit(False))
    if not known:
        return calls
    listed = ", ".join(map(str, known))
    calls = pl.concat([calls, store.frame(_COPIES.format(listed)).cast(calls.schema)]).sort("start", "end", "tid", "name")
    if calls.is_empty():
        return calls
    threads = store.frame(f"""
        SELECT DISTINCT process, tid FROM host_event WHERE kind = 'launch' AND correlation IS NOT NULL AND process IN ({listed})
    """).cast({"process": calls.schema["process"], "tid": calls.schema["tid"]})
    launching = calls.join(threads, on=["process", "tid"], how="semi", nulls_equal=True)
    return pl.concat([launching, calls.join(threads, on="process", how="anti")]).sort("start", "end", "tid", "name")


def begun_inside(gaps: pl.DataFrame, calls: pl.DataFrame, by: str) -> pl.DataFrame:
    """Return the gaps that begin during a call of their group."""
    reach = calls.sort("start").select(by, "start", reach=pl.col("end").cum_max().over(by))  # when all calls so far end
    last_calls = gaps.sort("start").join_asof(reach, on="start", by=by, strategy="backward", check_sortedness=False)
    return last_calls.filter(pl.col("reach") >= pl.col("start")).drop("reach")


def with_operator(store: Store, calls: pl.DataFrame, without: Collection[int] = ()) -> pl.DataFrame:
    """Add ``operator``: name id of the innermost operator of each call, or null.

    Operators of the name ids ``without`` do not count."""
    numbered = calls.with_row_index("number")
    points = numbered.select("number", "process", "tid", "start").sort("start")
    around = _around(store, points)
    if around.is_empty():
        return calls.with_columns(operator=pl.lit(None, pl.Int32))
    depth = _depth(around)
    inner = points.select("number", operator=pl.lit(None, pl.Int32))
    for level in range(1, _DEPTH + 1):
        if not (depth >= level).any():
            break
        outer = around.filter(depth == level).sort("start").select("process", "tid", "start", "end", "name")
        candidates = points.join_asof(outer, on="start", by=["process", "tid"], strategy="backward", check_sortedness=False)
        counts = (pl.col("end") >= pl.col("start")) & ~pl.col("name").is_in(list(without))
        inside = candidates.select("number", name=pl.when(counts).then("name"))
        inner = inner.join(inside, on="number").select("number", operator=pl.coalesce("name", "operator"))
    return numbered.join(inner, on="number").sort("number").drop("number")


def call_sites(store: Store, calls: pl.DataFrame) -> dict[int, str]:
    """Return the code around some calls by their ``number``: process, tid, start.

    The innermost Python function outside of libraries, else the innermost in one, else the innermost annotated range."""
    if calls.is_empty():
        return {}
    values = ", ".join(map(str, calls.select("number", "process", "tid", "start").drop_nulls().rows()))
    around: dict[int, list[tuple[bool, str]]] = {}
    for number, python, text in store.frame(_OPEN.format(values)).rows() if values else ():
        around.setdefault(number, []).append((python, text))
    return {number: _site(code) for number, code in around.items()}


def _site(code: list[tuple[bool, str]]) -> str:
    functions = pl.Series([text for python, text in code if python], dtype=pl.String)
    origins = frames(functions)["origin"]
    for chosen in (origins == USER, origins == LIBRARY, ~functions.str.starts_with("<built-in")):
        if chosen.any():
            return str(functions.filter(chosen)[0])
    return code[0][1]


def _around(store: Store, points: pl.DataFrame) -> pl.DataFrame:
    """Return the operators that contain one of ``points`` (process, tid, start)."""
    marks = points.select("process", "tid", "start", point="start")
    operators = []
    for part in host_events(store, ("operator",), points["process"].unique().to_list()):
        next_point = part.sort("start").join_asof(marks, on="start", by=["process", "tid"], strategy="forward", check_sortedness=False)
        operators.append(next_point.filter(pl.col("point") <= pl.col("end"), pl.col("end") > pl.col("start")).drop("point"))
    return pl.concat(operators) if operators else pl.DataFrame(schema=_SCHEMA)


def _depth(operators: pl.DataFrame) -> pl.Series:
    """Return the nesting depth of each operator on its thread, from 1."""
    rows = operators.with_row_index("number")
    points = pl.concat(
        [
            rows.select("process", "tid", "name", "number", time="start", delta=pl.lit(1), length=pl.col("start") - pl.col("end")),
            rows.select("process", "tid", "name", "number", time="end", delta=pl.lit(-1), length=pl.lit(0, pl.Int64)),
        ]
    )
    # At one time: ends first, then the starts of the longest operators; of two that are alike, the one with the lower name id is outside.
    ordered = points.sort("process", "tid", "time", "delta", "length", "name", "number").with_columns(depth=pl.col("delta").cum_sum())
    return ordered.filter(pl.col("delta") == 1).sort("number")["depth"]
