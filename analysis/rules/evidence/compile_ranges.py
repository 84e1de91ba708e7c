"""Compilations by torch.compile in a trace: ranges of the compiler -> process, thread, time and id of each compilation.

Ids are "frame/version": the number of the function and of its compilation. Later versions of PyTorch name the id in a range of its own
within the compilation. Some name it in the region of compiled code alone: the region that runs next on the thread, without another call of
a compiled function before it, belongs to the compilation. Earlier versions name no id.
"""

from __future__ import annotations

import re
from typing import Final

import polars as pl

from ....ingest.store.store import Store
from ...toolkit.intervals import outermost
from ...toolkit.shared import shared

_FORWARD: Final = r"^(entire_frame_compile|_compile \(dynamo_timed\)|(_compile\.)?(<locals>\.)?_?compile_inner \(dynamo_timed\))$"
_BACKWARD: Final = r"^(entire_backward_compile|(backward\._backward_impl|compile_fx\.<locals>\.bw_compiler(_base)?) \(dynamo_timed\))$"
_REGION: Final = r"^Torch-Compiled Region: "
_LOOKUP: Final = r"^TorchDynamo Cache Lookup$"
_DATA: Final = r"^(entire_frame_compile|entire_backward_compile)_data: .*compile_id="
_COMPILED: Final = r"^(Torch-Compiled Region|## Call CompiledFxGraph|CompiledFunction$|CompiledFxGraph)"
_ID: Final = re.compile(r"(?:compile_id=|Region: )((?:!\d{1,9}/)?\d{1,9})/(\d{1,9})(?:_\d+)?\b")
_THREAD: Final = ["process", "tid"]
_RANGES: Final = """
    SELECT e.process::BIGINT AS process, e.tid, e.name, e.start_ns AS start, e.start_ns + e.duration_ns AS "end" FROM (
        SELECT process, tid, name, start_ns, duration_ns FROM host_event WHERE kind = 'operator'
        UNION ALL SELECT process, tid, name, start_ns, duration_ns FROM annotation WHERE side = 'host' AND complete IS NOT FALSE
    ) AS e WHERE e.process IS NOT NULL AND e.name IN (SELECT unnest(?::INTEGER[])) ORDER BY ALL
"""
_RANGE: Final = {"process": pl.Int64, "tid": pl.Int64, "start": pl.Int64, "end": pl.Int64}
_WITH_ID: Final = _RANGE | {"frame": pl.String, "version": pl.Int64}
SCHEMA: Final = _WITH_ID | {"backward": pl.Boolean}


@shared
def runs_compiled_code(store: Store) -> bool:
    """Return whether the run has a name of compiled code."""
    return not store.frame("SELECT id FROM name WHERE regexp_matches(text, ?) LIMIT 1", [_COMPILED]).is_empty()


@shared
def compile_ranges(store: Store) -> pl.DataFrame:
    """Return the compilations in traces, by process and time.

    Columns: process, tid, start, end (ns), frame, version (null: unknown), backward (whether it is of the backward pass)."""
    kinds = ((_FORWARD, False), (_BACKWARD, True))
    ranges = pl.concat([_named(store, pattern).select(*_RANGE, backward=pl.lit(backward)) for pattern, backward in kinds])
    if ranges.is_empty():
        return pl.DataFrame(schema=SCHEMA)
    ranges = outermost(ranges, _THREAD).sort(*_THREAD, "start")
    ids = _within(ranges, _named(store, _DATA))
    if ids["version"].null_count():
        following = _following(ranges, _named(store, _REGION), _named(store, _LOOKUP))
        ids = pl.DataFrame({column: ids[column].zip_with(ids["version"].is_not_null(), following[column]) for column in ids.columns})
    return ranges.hstack(ids).select(*SCHEMA).sort("process", "start", "tid")


def _named(store: Store, pattern: str) -> pl.DataFrame:
    """Return the ranges with names of a pattern, with the ids that the names have."""
    names = store.frame("SELECT id, text FROM name WHERE regexp_matches(text, ?) ORDER BY id", [pattern])
    if names.is_empty():
        return pl.DataFrame(schema=_WITH_ID)
    matches = [_ID.search(text) for text in names["text"]]
    ids = pl.DataFrame(
        {
            "name": names["id"],
            "frame": [match and match[1] for match in matches],
            "version": [match and int(match[2]) for match in matches],
        },
        schema={"name": names["id"].dtype, "frame": pl.String, "version": pl.Int64},
    )
    rows = store.frame(_RANGES, [names["id"].to_list()])
    return rows.join(ids, on="name", how="left", maintain_order="left").select(pl.col(name).cast(kind) for name, kind in _WITH_ID.items())


def _within(ranges: pl.DataFrame, named: pl.DataFrame) -> pl.DataFrame:
    """Return frame and version of the first named range that starts in each range."""
    first = ranges.join_asof(
        named.sort("start").select(*_THREAD, "start", "frame", "version", at="start"),
        on="start", by=_THREAD, strategy="forward", check_sortedness=False,
    )  # fmt: skip
    inside = pl.col("at") < pl.col("end")
    return first.select(pl.when(inside).then("frame").alias("frame"), pl.when(inside).then("version").alias("version"))


def _following(ranges: pl.DataFrame, regions: pl.DataFrame, lookups: pl.DataFrame) -> pl.DataFrame:
    """Return frame and version of the new code that runs after each compilation.

    A region that ran before the compilation began is not of new code; one behind another lookup is of another call."""
    regions, lookups = regions.sort("start"), lookups.sort("start")
    points = ranges.select(*_THREAD, began="start", start="end", backward="backward")
    after = points.join_asof(
        regions.select(*_THREAD, "start", "frame", "version", at="start"),
        on="start",
        by=_THREAD,
        strategy="forward",
        check_sortedness=False,
    ).join_asof(lookups.select(*_THREAD, "start", looked="start"), on="start", by=_THREAD, strategy="forward", check_sortedness=False)
    again = points.select(*_THREAD, start=pl.col("start")).join_asof(
        ranges.select(*_THREAD, "start", next="start"), on="start", by=_THREAD, strategy="forward", check_sortedness=False
    )["next"]
    seen = regions.group_by("process", "frame", "version").agg(seen=pl.col("start").min())
    rows = after.with_columns(again).join(seen, on=["process", "frame", "version"], how="left", maintain_order="left")
    directly = (
        ~pl.col("backward") & (pl.col("seen") >= pl.col("began"))
        & (pl.col("looked").is_null() | (pl.col("at") <= pl.col("looked")))
        & (pl.col("next").is_null() | (pl.col("at") <= pl.col("next")))
    )  # fmt: skip
    return rows.select(pl.when(directly).then("frame").alias("frame"), pl.when(directly).then("version").alias("version"))
