"""Events that a timeline can show, the launches of device work, and what is known of each event.

Times of all events are read first, in narrow columns; names, correlations, and details only of the events that remain after merging.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

import duckdb
import numpy as np
import polars as pl

from ...ingest.store.store import Store
from ..steps.timed import timed_steps
from ..toolkit.places import batches, one_of
from ..toolkit.wording import size
from .lanes import Columns

NONE: Final = -(2**62)  # a process, device, stream or thread that the source does not name
DEVICE, HOST, ANNOTATION, STEP = range(4)  # source of an event; ``row`` is its number there

ID: Final = "e.id"  # identifies an event ``e`` in its table

PLACES: Final = ("stream", "thread", "annotations", "ranges", "steps")  # kinds of tracks of events; ranges are annotations on a device
SOURCE: Final = (DEVICE, HOST, ANNOTATION, ANNOTATION, STEP)  # of each kind
MEANINGS: Final = ("computation", "communication", "memory", "sync", "launch", "host", "annotation", "step")

_BATCH: Final = 100_000
KEYS: Final = ("place", "node", "process", "device", "number")  # events with the same keys share a track
# For every source: table, kind of track, columns of the key, expression of the meaning.
_SOURCES: Final = (
    (DEVICE, "device_event", "0", ("node", "process", "device", "stream"),
     f"CASE WHEN e.kind = 'sync' THEN {MEANINGS.index('sync')} WHEN e.kind <> 'kernel' THEN {MEANINGS.index('memory')}"
     f" WHEN e.name IN (SELECT id FROM communication_name) THEN {MEANINGS.index('communication')} ELSE 0 END"),
    (HOST, "host_event", "1", ("node", "process", None, "tid"),
     f"CASE WHEN e.kind = 'launch' THEN {MEANINGS.index('launch')} WHEN e.kind = 'sync' THEN {MEANINGS.index('sync')}"
     f" ELSE {MEANINGS.index('host')} END"),
    (ANNOTATION, "annotation", "CASE WHEN e.side = 'device' THEN 3 ELSE 2 END",
     ("node", "process", "CASE WHEN e.side = 'device' THEN e.device END", "CASE WHEN e.side = 'device' THEN e.stream ELSE e.tid END"),
     str(MEANINGS.index("annotation"))),
)  # fmt: skip
_LENGTH: Final = "greatest(coalesce(e.duration_ns, 0), 0)"
# As in launches.py: the first launch of a correlation, and all its runs in the order of their starts.
_PAIRS: Final = f"""
    WITH wanted_key AS (
        SELECT DISTINCT process, correlation FROM host_event AS e SEMI JOIN wanted AS w ON w.row = {ID}
        WHERE kind = 'launch' AND process IS NOT NULL AND correlation IS NOT NULL
    ), call AS (
        SELECT process, correlation, min({{'start': start_ns, 'end': start_ns + duration_ns, 'name': name, 'row': {ID}}}) AS first
        FROM host_event AS e SEMI JOIN wanted_key USING (process, correlation) WHERE kind = 'launch' GROUP BY process, correlation
    )
    SELECT {ID} AS run, call.first."row" AS launch,
        row_number() OVER (
            PARTITION BY e.process, e.correlation ORDER BY e.start_ns, e.node, e.device, e.stream, e.name, {ID}
        ) = 1 AS first
    FROM device_run AS e JOIN call ON call.process = e.process AND call.correlation = e.correlation
"""
_DETAILS: Final = (
    "grid_x", "grid_y", "grid_z", "block_x", "block_y", "block_z", "registers", "shared_memory", "bytes", "copy_kind", "pageable",
)  # fmt: skip
_KNOWN: Final = ("grid_x", "block_x", "registers", "shared_memory", "bytes", "copy_kind", "pageable")  # one of them, if any is
_FACTS: Final = {
    DEVICE: ("CASE WHEN correlation > 0 THEN correlation END AS correlation", *_DETAILS),
    HOST: ("CASE WHEN correlation > 0 THEN correlation END AS correlation",),
    ANNOTATION: ("complete IS FALSE AS cut_off",),
}
_CUT_OFF: Final = (("ended", "not within the recording"),)


def places(store: Store, timed: pl.DataFrame) -> pl.DataFrame:
    """Return the keys of all tracks, with count and times of their events.

    Columns: ``KEYS``, ``events``, ``first`` and ``last`` (starts) and ``end``. ``timed``: the steps in the order of :func:`steps_of`.
    """
    queries = [
        f"SELECT {', '.join(f'{value} AS {key}' for key, value in zip(KEYS, _keys(place, keys), strict=True))}, count(*) AS events,"
        f' min(e.start_ns) AS first, max(e.start_ns) AS last, max(e.start_ns + {_LENGTH}) AS "end"'
        f" FROM {table} AS e WHERE e.start_ns IS NOT NULL GROUP BY ALL"
        for _, table, place, keys, _ in _SOURCES
    ]
    kinds = dict.fromkeys((*KEYS, "events", "first", "last", "end"), pl.Int64)
    counted: pl.DataFrame = store.frame(" UNION ALL ".join(queries)).cast(kinds)  # type: ignore[arg-type]
    start, length = pl.col("start"), pl.col("duration").fill_null(0).clip(lower_bound=0)
    ranges = (
        _step_keys(timed)
        .filter(pl.col("start").is_not_null())
        .group_by(KEYS)
        .agg(events=pl.len(), first=start.min(), last=start.max(), end=(start + length).max())
    )
    every: pl.DataFrame = pl.concat([counted, ranges.select(*kinds).cast(kinds)]).sort(KEYS)  # type: ignore[arg-type]
    return every


def events(store: Store, timed: pl.DataFrame, tracks: pl.DataFrame) -> Iterator[Columns]:
    """Yield the events of each source in turn, of some processes at a time.

    Negative durations are 0. Columns: ``row``, ``track``, ``start`` and ``duration``. ``tracks``: the keys and ``events`` of
    :func:`places`, ``track``, and ``moved``, the offset of its events' times.
    Each track has events of one source, and all of them are in one part.
    """
    integer, sql_integer = (np.int16, "SMALLINT") if (tracks["track"] < 2**15).all() else (np.int32, "INTEGER")
    for source, table, kind, keys, _ in _SOURCES:
        placed = tracks.filter(pl.col("place").is_in([place for place, other in enumerate(SOURCE) if other == source]))
        # Keys that all tracks of the table share need no comparison.
        same = [f"p.{key} = {value}" for key, value in zip(KEYS, _keys(kind, keys), strict=True) if placed[key].n_unique() > 1]
        sizes: list[tuple[int, int]] = placed.group_by("process").agg(pl.col("events").sum()).sort("process").rows()
        for processes in batches(sizes):
            some = placed.filter(pl.col("process").is_in(processes))
            condition = "true" if some.height == placed.height else one_of("e.process", [None if p == NONE else p for p in processes])
            with registered(store, "placed", some) as cursor:
                result = cursor.sql(
                    f"SELECT {ID} AS row, p.track::{sql_integer} AS track, e.start_ns + p.moved AS start, {_LENGTH} AS duration"
                    f" FROM {table} AS e JOIN placed AS p ON {' AND '.join(same) or 'true'} WHERE e.start_ns IS NOT NULL AND {condition}"
                )
                columns = {"row": np.int64, "track": integer, "start": np.int64, "duration": np.int64}
                part = {column: np.empty(int(some["events"].sum()), dtype) for column, dtype in columns.items()}
                first = 0
                for batch in result.to_arrow_reader(_BATCH):  # all rows at once would be in memory twice
                    last = first + len(batch)
                    for column, values in part.items():
                        values[first:last] = batch.column(column).to_numpy()
                    first = last
            yield part
    ranges = (
        _step_keys(timed)
        .join(tracks, on=KEYS)
        .select(
            "row",
            "track",
            start=pl.col("start") + pl.col("moved"),
            duration=pl.col("duration").fill_null(0).clip(lower_bound=0),
        )
        .filter(pl.col("start").is_not_null())
    )
    yield {column: ranges[column].to_numpy().astype(integer if column == "track" else np.int64) for column in ranges.columns}


def _keys(kind: str, keys: tuple[str | None, ...]) -> list[str]:
    columns = [None if key is None else key if " " in key else f"e.{key}" for key in keys]
    return [kind, *(str(NONE) if key is None else f"coalesce({key}, {NONE})" for key in columns)]


def _step_keys(timed: pl.DataFrame) -> pl.DataFrame:
    none = pl.lit(NONE, pl.Int64)
    keys = [pl.col(key).cast(pl.Int64).fill_null(NONE) for key in ("node", "process")]
    return timed.with_columns(*keys, place=pl.lit(PLACES.index("steps"), pl.Int64), device=none, number=none)


def steps_of(store: Store) -> pl.DataFrame:
    """Return the steps as they are timed, with ``row``, ``begin`` and ``end``.

    ``begin`` and ``end`` enclose the host range and the device work.
    """
    begin = pl.min_horizontal("start", "host_start_ns")
    ends = (pl.col("start") + pl.col("duration"), pl.col("host_start_ns") + pl.col("host_duration_ns"))
    return (
        timed_steps(store)
        .sort("node", "process", "phase", "number", "host_start_ns", "start", "duration")
        .with_row_index("row")
        .with_columns(begin=begin, end=pl.max_horizontal(*ends))
    )


def pairs(store: Store, kept: pl.DataFrame) -> pl.DataFrame:
    """Match the launches among the kept events with device work.

    ``run`` and ``launch``: rows of device and host events of one process and correlation; ``first``: the first run of its launch.
    ``kept``: ``source`` and ``row``.
    """
    return _of(store, _PAIRS, kept, HOST)


def facts(store: Store, alone: pl.DataFrame) -> tuple[pl.DataFrame, tuple[tuple[tuple[str, str], ...], ...]]:
    """Return what is known of the events ``alone``, and the distinct details in words.

    Columns: ``source``, ``row``, ``name`` (id of the run store, or row of a step), ``meaning`` (an index in ``MEANINGS``), ``correlation``,
    and ``detail``, an index of the distinct details, which are words and values. ``alone``: ``source`` and ``row``.
    """
    source = pl.col("source")
    parts = {
        number: _of(
            store, f"SELECT {number}::TINYINT AS source, {ID} AS row, coalesce(e.name, {NONE})::BIGINT AS name,"
            f" ({meaning})::TINYINT AS meaning, {', '.join(_FACTS[number])} FROM {table} AS e SEMI JOIN wanted AS w ON w.row = {ID}",
            alone, number,
        )
        for number, table, _, _, meaning in _SOURCES
    }  # fmt: skip
    ran = parts[DEVICE]
    distinct = ran.select(_DETAILS).filter(pl.any_horizontal(pl.col(_KNOWN).is_not_null())).unique().sort(_DETAILS)
    texts = [_words(row) for row in distinct.iter_rows(named=True)]
    numbered = distinct.with_columns(detail=pl.int_range(len(texts), dtype=pl.Int32))
    parts[DEVICE] = ran.join(numbered, on=_DETAILS, how="left", nulls_equal=True).drop(_DETAILS)
    cut_off = pl.when("cut_off").then(pl.lit(len(texts), pl.Int32)).alias("detail")
    if parts[ANNOTATION]["cut_off"].any():
        texts.append(_CUT_OFF)
    parts[ANNOTATION] = parts[ANNOTATION].with_columns(cut_off).drop("cut_off")
    step = alone.filter(source == STEP).select("source", "row", name="row", meaning=pl.lit(MEANINGS.index("step"), pl.Int8))
    return pl.concat([*parts.values(), step], how="diagonal"), tuple(texts)


@contextmanager
def registered(store: Store, name: str, rows: pl.DataFrame) -> Iterator[duckdb.DuckDBPyConnection]:
    """Give a cursor of the store in which ``rows`` are the table ``name``."""
    cursor = store.connection.cursor()
    cursor.register(name, rows.to_arrow())
    try:
        yield cursor
    finally:
        cursor.unregister(name)


def _of(store: Store, query: str, kept: pl.DataFrame, source: int) -> pl.DataFrame:
    with registered(store, "wanted", kept.filter(pl.col("source") == source).select("row")) as cursor:
        rows: pl.DataFrame = cursor.sql(query).pl()
    return rows


def _words(row: dict[str, int | str | bool | None]) -> tuple[tuple[str, str], ...]:
    """Describe kernel work or a copy in words and values."""

    def extent(what: str) -> str | None:
        lengths = [row[f"{what}_{axis}"] for axis in "xyz"]
        return None if lengths[0] is None else " x ".join("1" if length is None else str(length) for length in lengths)

    def of(column: str, say: Callable[[int], str]) -> str | None:
        value = row[column]
        return None if value is None else say(int(value))

    words = {
        "grid": extent("grid"),
        "block": extent("block"),
        "registers": of("registers", str),
        "shared memory": of("shared_memory", size),
        "size": of("bytes", size),
        "bytes": of("bytes", str),
        "copy": row["copy_kind"],
        "host memory": of("pageable", lambda pageable: "pageable" if pageable else "pinned"),
    }
    return tuple((word, str(value)) for word, value in words.items() if value is not None)
