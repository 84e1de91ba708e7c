"""Which events of a run can a timeline show, which run belongs to which launch, and what is known of each?"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import polars as pl

from ..ingest.store import Store
from .steps import timed_steps
from .wording import size

NONE: Final = -(2**62)
"""Stands for a process, device, stream or thread that the source does not name."""
DEVICE, HOST, ANNOTATION, STEP = range(4)
"""Where an event comes from; ``row`` is its number there."""

PLACES: Final = ("stream", "thread", "annotations", "ranges", "steps")
"""Kinds of places of events; ranges are annotations on a device."""
MEANINGS: Final = ("computation", "communication", "memory", "sync", "launch", "host", "annotation", "step")

COLUMNS: Final = {
    "source": pl.Int8, "row": pl.Int64, "place": pl.Int8, "node": pl.Int64, "process": pl.Int64, "device": pl.Int64,
    "number": pl.Int64, "start": pl.Int64, "duration": pl.Int64, "name": pl.Int64, "meaning": pl.Int8,
}  # fmt: skip
"""``place``: in ``PLACES``; ``number``: of the stream or thread; ``name``: id of the run store, of a step its row;
``meaning``: in ``MEANINGS``."""

_EVENTS: Final = f"""
    SELECT {DEVICE}::TINYINT AS source, e.rowid AS row, 0::TINYINT AS place, e.node, e.process, e.device, e.stream AS number,
        e.start_ns AS start, e.duration_ns AS duration, e.name, CASE WHEN e.kind = 'sync' THEN 3 WHEN e.kind <> 'kernel' THEN 2
            WHEN n.category = 'communication' THEN 1 ELSE 0 END::TINYINT AS meaning
    FROM device_event AS e LEFT JOIN name AS n ON n.id = e.name WHERE e.start_ns IS NOT NULL
    UNION ALL
    SELECT {HOST}, rowid, 1, node, process, NULL, tid, start_ns, duration_ns, name,
        CASE WHEN kind = 'launch' THEN 4 WHEN kind = 'sync' THEN 3 ELSE 5 END
    FROM host_event WHERE start_ns IS NOT NULL
    UNION ALL
    SELECT {ANNOTATION}, rowid, CASE WHEN side = 'device' THEN 3 ELSE 2 END, node, process,
        CASE WHEN side = 'device' THEN device END, CASE WHEN side = 'device' THEN stream ELSE tid END, start_ns, duration_ns, name, 6
    FROM annotation WHERE start_ns IS NOT NULL
"""
# As in launches.py: of a correlation the first launch, and all runs, in the order of their first.
_PAIRS: Final = """
    WITH wanted_key AS (
        SELECT DISTINCT process, correlation FROM host_event AS e SEMI JOIN wanted AS w ON w.row = e.rowid
        WHERE kind = 'launch' AND process IS NOT NULL AND correlation IS NOT NULL
    ), call AS (
        SELECT process, correlation, min({'start': start_ns, 'end': start_ns + duration_ns, 'name': name, 'row': e.rowid}) AS first
        FROM host_event AS e SEMI JOIN wanted_key USING (process, correlation) WHERE kind = 'launch' GROUP BY process, correlation
    )
    SELECT e.rowid AS run, call.first."row" AS launch,
        row_number() OVER (
            PARTITION BY e.process, e.correlation ORDER BY e.start_ns, e.node, e.device, e.stream, e.name, e.rowid
        ) = 1 AS first
    FROM device_event AS e JOIN call ON call.process = e.process AND call.correlation = e.correlation WHERE e.kind <> 'sync'
"""
_DETAILS: Final = """
    SELECT e.rowid AS row, grid_x, grid_y, grid_z, block_x, block_y, block_z, registers, shared_memory, bytes, copy_kind, pageable
    FROM device_event AS e SEMI JOIN wanted AS w ON w.row = e.rowid
    WHERE coalesce(grid_x, block_x, registers, shared_memory, bytes) IS NOT NULL OR copy_kind IS NOT NULL OR pageable IS NOT NULL
"""
_CUT_OFF: Final = (("ended", "not within the recording"),)


def events(store: Store, timed: pl.DataFrame) -> pl.DataFrame:
    """Every event with the columns of ``COLUMNS``; durations below 0 count as 0. ``timed``: the steps, as :func:`steps_of` orders them."""
    keys = [pl.col(column).fill_null(NONE) for column in ("node", "process", "device", "number", "name")]
    rows = store.frame(_EVENTS).select(pl.col(column).cast(kind) for column, kind in COLUMNS.items())
    ranges = timed.select(
        source=pl.lit(STEP, pl.Int8), row="row", place=pl.lit(4), node="node", process="process", device=pl.lit(None, pl.Int64),
        number=pl.lit(None, pl.Int64), start="start", duration="duration", name="row", meaning=pl.lit(7),
    )  # fmt: skip
    both = pl.concat([rows, ranges.select(pl.col(column).cast(kind) for column, kind in COLUMNS.items())])
    return both.with_columns(*keys, pl.col("duration").fill_null(0).clip(lower_bound=0)).filter(pl.col("start").is_not_null())


def steps_of(store: Store) -> pl.DataFrame:
    """The steps as they are timed, with ``row``, and ``begin`` and ``end``: of the host range and the device work together."""
    begin = pl.min_horizontal("start", "host_start_ns")
    ends = (pl.col("start") + pl.col("duration"), pl.col("host_start_ns") + pl.col("host_duration_ns"))
    return (
        timed_steps(store)
        .sort("node", "process", "phase", "number", "host_start_ns", "start", "duration")
        .with_row_index("row")
        .with_columns(begin=begin, end=pl.max_horizontal(*ends))
    )


def pairs(store: Store, kept: pl.DataFrame) -> pl.DataFrame:
    """``run`` and ``launch``: rows of device and host events of one process and correlation; ``first``: the first run of its launch.

    Of the launches among the kept events (``source`` and ``row``).
    """
    return _of(store, _PAIRS, kept, HOST)


def details(store: Store, kept: pl.DataFrame) -> tuple[pl.DataFrame, tuple[tuple[tuple[str, str], ...], ...]]:
    """``source``, ``row`` and ``detail`` of the kept events of which something is known, and the distinct details: words and values."""
    found = _of(store, _DETAILS, kept, DEVICE)
    open_ended = _of(store, "SELECT a.rowid AS row FROM annotation AS a SEMI JOIN wanted AS w ON w.row = a.rowid WHERE a.complete IS FALSE",
                     kept, ANNOTATION)  # fmt: skip
    columns = [column for column in found.columns if column != "row"]
    distinct = found.select(columns).unique().sort(columns).with_row_index("detail")
    texts = [_words(row) for row in distinct.iter_rows(named=True)]
    parts = [
        found.join(distinct, on=columns, nulls_equal=True).select(
            pl.lit(DEVICE, pl.Int8).alias("source"), "row", pl.col("detail").cast(pl.Int32)
        )
    ]
    if open_ended.height:
        parts.append(open_ended.select(pl.lit(ANNOTATION, pl.Int8).alias("source"), "row", pl.lit(len(texts), pl.Int32).alias("detail")))
        texts.append(_CUT_OFF)
    return pl.concat(parts), tuple(texts)


def _of(store: Store, query: str, kept: pl.DataFrame, source: int) -> pl.DataFrame:
    cursor = store.connection.cursor()
    cursor.register("wanted", kept.filter(pl.col("source") == source).select("row").to_arrow())
    try:
        found: pl.DataFrame = cursor.sql(query).pl()
    finally:
        cursor.unregister("wanted")
    return found


def _words(row: dict[str, int | str | bool | None]) -> tuple[tuple[str, str], ...]:
    """What is known of a kernel run or a copy, as words and values."""

    def extent(what: str) -> str | None:
        lengths = [row[f"{what}_{axis}"] for axis in "xyz"]
        return None if lengths[0] is None else " x ".join("1" if length is None else str(length) for length in lengths)

    def of(column: str, say: Callable[[int], str]) -> str | None:
        value = row[column]
        return None if value is None else say(int(value))

    said = {
        "grid": extent("grid"),
        "block": extent("block"),
        "registers": of("registers", str),
        "shared memory": of("shared_memory", size),
        "size": of("bytes", size),
        "copy": row["copy_kind"],
        "host memory": of("pageable", lambda pageable: "pageable" if pageable else "pinned"),
    }
    return tuple((word, str(value)) for word, value in said.items() if value is not None)
