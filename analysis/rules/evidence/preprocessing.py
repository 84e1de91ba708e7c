"""The work of a training process that loads its data itself: time by line of the program, else by operator."""

from __future__ import annotations

from typing import Final

import polars as pl

from ....ingest.store.store import Store
from ...efficiency.frames import LIBRARY, USER, frames
from ...toolkit.contents import kinds
from ...toolkit.intervals import nested, union

_ROWS: Final = """
    WITH load AS (SELECT process, tid, start_ns, start_ns + duration_ns AS end_ns FROM host_event WHERE kind = 'loader')
    SELECT h.process, h.tid, h.kind::VARCHAR AS kind, h.name, h.start_ns AS start, h.start_ns + h.duration_ns AS "end"
    FROM host_event AS h ASOF JOIN load AS l ON l.process = h.process AND l.tid = h.tid AND l.start_ns <= h.start_ns
    WHERE h.kind IN ('loader', 'python', 'operator') AND h.start_ns + h.duration_ns <= l.end_ns
    ORDER BY process, tid, start, "end" DESC, CASE kind WHEN 'loader' THEN 0 WHEN 'python' THEN 1 ELSE 2 END
"""
_RANK: Final = {USER: 3, LIBRARY: 2}
_SCHEMA: Final = {"process": pl.Int32, "what": pl.String, "line": pl.Boolean, "calls": pl.UInt32, "time": pl.Int64}


def loading_calls(store: Store) -> pl.DataFrame:
    """Return the loader's calls of every process: process, start, end (ns)."""
    if "loader" not in kinds(store, "host_event"):
        return pl.DataFrame(schema={"process": pl.Int64, "start": pl.Int64, "end": pl.Int64})
    rows = store.frame("""SELECT process::BIGINT AS process, start_ns AS start, start_ns + duration_ns AS "end" FROM host_event
                          WHERE kind = 'loader' AND process IS NOT NULL AND duration_ns > 0""")
    return union(rows, ["process"])


def loading_work(store: Store) -> pl.DataFrame:
    """Sum the time within calls of data loaders by what ran there.

    Columns: process, what, line (whether ``what`` is a line of the program; else an operator), calls, time (ns). Every moment counts for
    the innermost frame of the program that is open, else for that of a library, else for the outermost operator; other moments are left
    out. Longest first.
    """
    if kinds(store, "host_event").isdisjoint(("python", "operator")) or "loader" not in kinds(store, "host_event"):
        return pl.DataFrame(schema=_SCHEMA)
    rows = store.frame(_ROWS)
    tree = nested(rows, ["process", "tid"])
    rows = rows.with_columns(tree).with_row_index("row")
    length = pl.col("end") - pl.col("start")
    children = rows.drop_nulls("parent").group_by(row="parent").agg(inner=length.sum())
    rows = rows.join(children, on="row", how="left", maintain_order="left").with_columns(own=length - pl.col("inner").fill_null(0))
    texts = dict(store.frame("SELECT id, text FROM name WHERE list_contains(?, id)", [rows["name"].unique().to_list()]).rows())
    called = pl.Series("text", [texts.get(name, "") for name in rows["name"].unique(maintain_order=True)], dtype=pl.String)
    origins = dict(zip(rows["name"].unique(maintain_order=True), frames(called)["origin"], strict=True))
    origin = rows["name"].replace_strict(origins, return_dtype=pl.String)
    owners, of_frame = _owners(rows["parent"], rows["kind"], origin)
    owned = rows.with_columns(owner=owners).drop_nulls("owner")
    owner = owned["owner"]
    summed = (
        owned.select("process", "own", called=pl.col("row") == owner, name=rows["name"].gather(owner), line=of_frame.gather(owner))
        .group_by("process", "name", "line")
        .agg(calls=pl.col("called").sum(), time=pl.col("own").sum())
        .with_columns(what=pl.col("name").replace_strict(texts, default="", return_dtype=pl.String))
    )
    named = summed.select(pl.col(column).cast(kind) for column, kind in _SCHEMA.items())
    return named.sort("time", "process", "what", descending=[True, False, False])


def _owners(parents: pl.Series, kinds: pl.Series, origins: pl.Series) -> tuple[pl.Series, pl.Series]:
    """Return the row that each row counts for, and which rows are lines of code.

    The owner follows from that of the parent. A frame of the program comes before one of a library, and this before an operator."""
    owners: list[int | None] = []
    ranks: list[int] = []
    for row, (parent, kind, origin) in enumerate(zip(parents, kinds, origins, strict=True)):
        owner, rank = (None, 0) if parent is None else (owners[parent], ranks[parent])
        level = _RANK.get(origin, 0) if kind == "python" else int(kind == "operator")
        if level > rank or level == rank > 1:  # the innermost frame of a kind, the outermost operator
            owner, rank = row, level
        owners.append(owner)
        ranks.append(rank)
    return pl.Series(owners, dtype=pl.UInt32), kinds == "python"
