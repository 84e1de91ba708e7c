"""Checks the values of a run store whose writer is unknown: store -> InputError that names the table and the column.

Readers of trace files keep the same rules, and the analysis relies on them: ids that exist, times that can be subtracted, JSON that parses.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from ...errors import InputError
from .limits import DEVICES, METRICS, NAMES, NODES, PARAMETERS, PROCESSES, SIGNATURES, UNITS_PER_NODE
from .metrics import COUNTER
from .schema import EVENTS, OF_EVENTS, SCHEMA, STORED, stored_name
from .time_limits import EARLIEST_NS, LATEST_NS, LONGEST_NS

if TYPE_CHECKING:
    from .tables import Tables

# Table -> columns that are never null.
REQUIRED: Final[dict[str, tuple[str, ...]]] = {
    "source_map": ("source_id", "shift_ns", "id_offset"),
    "left_out": ("table_name", "id", "reason"),
    "text": ("id", "text"),
    "run": ("status",),
    "source": ("id", "path", "format", "events"),
    "node": ("id", "hostname"),
    "process": ("id", "node"),
    "profile_window": ("process", "source", "first_ns", "last_ns"),
    "recorded_window": ("process", "first_ns", "last_ns"),
    "device": ("node", "index"),
    "name": ("id", "text"),
    "signature": ("id",),
    "device_event": ("node", "process", "device", "kind", "name", "start_ns", "duration_ns"),
    "collective": ("node", "process", "on_device", "start_ns", "duration_ns"),
    "allocation": ("node", "process", "device", "start_ns", "bytes"),
    "host_event": ("node", "process", "kind", "name", "start_ns", "duration_ns"),
    "annotation": ("node", "process", "side", "name", "start_ns", "duration_ns"),
    "step": ("node", "process", "index", "host_start_ns", "host_duration_ns"),
    "sample": ("node", "metric", "time_ns", "value"),
    "python_window": ("id", "source", "node"),
    "python_profile": ("node", "window", "id", "function"),
    "python_call": ("window", "caller", "callee"),
    "python_frame": ("window", "id"),
    "compilation": ("node", "process", "source", "frame", "version", "backward", "graph_breaks", "limit_reached", "finished"),
    "ingest_note": ("severity", "code", "message", "count"),
}
# Table -> columns whose values together belong to one row.
UNIQUE: Final = {
    "source_map": "source_id",
    "thread_alias": "source_id, tid",
    "device_alias": "source_id, device",
    "name_alias": "name",
    "text": "id",
}
# Column -> table whose ids it contains.
REFERENCES: Final = {
    "node": "node", "process": "process", "source": "source", "name": "name", "signature": "signature", "window": "python_window",
}  # fmt: skip
JSON_OF_RUN: Final = ("resources", "hyperparameters", "labels", "metadata")
WORDS: Final[dict[tuple[str, str], tuple[str, ...]]] = {
    ("ingest_note", "severity"): ("info", "warning", "error"),
    ("annotation", "side"): ("host", "device"),
    ("left_out", "table_name"): tuple(EVENTS),
}
MOST_ROWS: Final = {
    "run": 1,
    "node": NODES,
    "process": PROCESSES,
    "device": DEVICES,
    "name": NAMES + 2,
    "signature": SIGNATURES,
    "source": 100_000,
    "source_map": 500_000,
    "step": 1_000_000,
    "profile_window": 100_000,
    "recorded_window": 100_000,
    "python_window": 100_000,
    "compilation": 200_000,
    "ingest_note": 500_000,
}
"""Rows of tables that a report goes through one by one. ``name``: with the two for names beyond a limit. ``source``: 12 files of
each of 8,000 processes; ``source_map``: their processes and nodes. ``step``: 125 of each of 8,000 processes, or weeks of one."""
MOST_DISTINCT: Final[dict[tuple[str, tuple[str, ...]], int]] = {
    ("device_event", ("node", "device")): 16_384,
    ("device_event", ("node", "process", "device", "context", "stream")): 262_144,
    ("device_event", ("copy_kind",)): 100,
    ("host_event", ("process", "tid")): 1_048_576,
    ("sample", ("metric",)): METRICS,
    ("sample", ("node", "metric", "unit")): 262_144,
    ("step", ("phase",)): 1_000,
}
"""Distinct values of columns that a report goes through one by one. Samples: 1,000 nodes with 260 series each."""
MOST_PER: Final[dict[tuple[str, tuple[str, ...], str], int]] = {
    ("sample", ("node",), "unit"): UNITS_PER_NODE,
}
"""Distinct values of the last column for each value of the others, as of the rows of traces."""
MOST_DEPTH: Final = 64  # Objects and arrays inside each other in the JSON of a run; the configuration of a job has some 10
HIGHEST_DEVICE: Final = 1 << 20  # Above the index of any GPU of a node

HIGHEST_OFFSET: Final = 2**62  # of ids: the sum of an id below and an offset has 63 bits
_COLUMNS: Final = {table: STORED[table] for table in OF_EVENTS} | SCHEMA
_LONGEST_BITSTRING: Final = 1 << 29  # DuckDB makes none for ids that are 10^9 apart; 64 MiB
_SHARE: Final = " ({count:,} of {rows:,} rows)"


class Check(NamedTuple):
    """``suspect``: an expression of aggregates that is true if rows are invalid. ``invalid``: the condition for such a row.

    ``text``: what the column then has, with the number of invalid rows as ``{count}``, for the message.
    """

    column: str
    suspect: str
    invalid: str
    text: str


class _Ids(NamedTuple):
    """The ids of a table. ``dense``: all numbers from first to last."""

    unique: bool
    first: int | None
    last: int | None
    dense: bool


def check(store: Tables, name: str) -> None:
    """Raise InputError if the store at ``name`` has a value that no reader writes."""
    ids = {table: _ids(store, table) for table in {*REFERENCES.values()}}
    rows = {table: _check_table(store, name, table, ids) for table in _COLUMNS}
    for (table, columns), most in MOST_DISTINCT.items():
        distinct = f"SELECT DISTINCT {', '.join(columns)} FROM {table} LIMIT {most + 1}"
        if rows[table] > most and store.connection.execute(f"SELECT count(*) FROM ({distinct})").fetchall() == [(most + 1,)]:
            raise InputError(_text(name, f"columns {', '.join(columns)} of table {table} have more than {most:,} values"))
    for (table, owner, column), most in MOST_PER.items():
        counts_of = f"SELECT count(DISTINCT {column}) AS n FROM {table} GROUP BY {', '.join(owner)}"
        if rows[table] > most and store.connection.execute(f"SELECT count(*) FROM ({counts_of}) WHERE n > {most}").fetchall() != [(0,)]:
            raise InputError(_text(name, f"column {column} of table {table} has more than {most:,} values for one {', '.join(owner)}"))
    _check_run(store, name)


def _check_table(store: Tables, name: str, table: str, ids: Mapping[str, _Ids]) -> int:
    """Check the values of a table in one pass; return the number of its rows."""
    if table in EVENTS:
        _check_events(store, name, table)
    checks = [*_checks(table), *_id_checks(table, ids)]
    suspects = ", ".join(check.suspect for check in checks)
    [(rows, *suspect)] = store.connection.execute(f"SELECT count(*), {suspects or 'NULL'} FROM {table}").fetchall()
    if rows > MOST_ROWS.get(table, rows):
        raise InputError(_text(name, f"table {table} has {rows:,} rows, more than {MOST_ROWS[table]:,}"))
    for check, is_suspect in zip(checks, suspect, strict=False):
        if is_suspect:
            [(count,)] = store.connection.execute(f"SELECT count(*) FILTER ({check.invalid}) FROM {table}").fetchall()
            raise InputError(_text(name, f"column {check.column} of table {table} has {check.text.format(count=count, rows=rows)}"))
    return int(rows)


def _ids(store: Tables, table: str) -> _Ids:
    [row] = store.connection.execute(
        f"SELECT count(id) = count(DISTINCT id), min(id), max(id), max(id)::BIGINT - min(id) + 1 = count(DISTINCT id) FROM {table}"
    ).fetchall()
    return _Ids(*row)


def _checks(table: str) -> Iterator[Check]:
    for column in REQUIRED.get(table, ()):
        yield Check(column, f'count("{column}") < count(*)', f'"{column}" IS NULL', f"no value{_SHARE}")
    if table == "source_map":
        yield _beyond("id_offset", 0, HIGHEST_OFFSET, f"offsets that are not possible{_SHARE}")
    for column, kind in _COLUMNS[table].items():
        if column.endswith("duration_ns"):
            # Of ranges also absurd durations are kept; start and duration can be added.
            longest = LONGEST_NS if table in ("device_event", "collective") else LATEST_NS - 1
            yield _beyond(column, 0, longest, f"durations that are not possible{_SHARE}")
        elif column == "shift_ns":
            yield _beyond(column, -LATEST_NS, LATEST_NS, f"times that are not possible{_SHARE}")
        elif column.endswith("_ns") and table != "ingest_note":
            yield _beyond(column, EARLIEST_NS, LATEST_NS, f"times that are not possible{_SHARE}")
        elif kind == "INTEGER" and (column in ("device", "index") or (table, column) == ("device_alias", "alias")):
            yield _beyond(column, 0, HIGHEST_DEVICE, f"numbers that no GPU has{_SHARE}")
        elif column == "occupancy":
            yield _beyond(column, 0, 100, f"percentages that are not possible{_SHARE}")
        elif column == "multiprocessors":
            yield _beyond(column, 1, HIGHEST_DEVICE, f"numbers that no GPU has{_SHARE}")
        elif kind == "DOUBLE":  # infinity is the largest number but NaN
            finite = f'isfinite(min("{column}")) AND isfinite(max("{column}"))'
            yield Check(column, f"NOT ({finite})", f'NOT isfinite("{column}")', f"values that are not finite{_SHARE}")
    if table == "annotation":
        yield _each("arguments", "NOT json_valid(arguments)", f"text that is not JSON{_SHARE}")
    for (of, column), words in WORDS.items():
        if of == table:
            yield _each(column, f'"{column}" NOT IN {words}', f"words that are not known{_SHARE}")


def _check_events(store: Tables, name: str, table: str) -> None:
    """Check what a view of events relies on, also in rows that it leaves out."""
    rows, time = stored_name(table), "time_ns" if table == "sample" else "start_ns"
    [(count, first, last)] = store.connection.execute(f"SELECT count(*), min(id), max(id) FROM {rows}").fetchall()
    dense = count and first is not None and last - first < min(64 * count, _LONGEST_BITSTRING)
    distinct = f"bit_count(bitstring_agg(id, {first}, {last}))" if dense else "count(DISTINCT id)"
    if store.connection.execute(f"SELECT {distinct} FROM {rows}").fetchall() != [(count,)]:
        raise InputError(_text(name, f"column id of table {rows} has the same id in several rows"))
    if table == "sample":  # redaction changes the names of counters in table text
        counters = f"SELECT 1 FROM {rows} WHERE starts_with(metric, '{COUNTER}') LIMIT 1"
        if store.connection.execute(counters).fetchall():
            raise InputError(_text(name, f"column metric of table {rows} has names of counters"))
    query = (
        f"SELECT m.shift_ns, min({time}), max({time}) FROM {rows} LEFT JOIN source_map AS m USING (source_id)"
        " GROUP BY source_id, m.shift_ns"
    )
    for shift_ns, first, last in store.connection.execute(query).fetchall():
        if shift_ns is None:
            raise InputError(_text(name, f"column source_id of table {rows} has ids that table source_map has not"))
        if first is not None and (first + shift_ns < EARLIEST_NS or last + shift_ns > LATEST_NS):
            raise InputError(_text(name, f"column {time} of table {table} has times that are not possible"))


def _id_checks(table: str, ids: Mapping[str, _Ids]) -> Iterator[Check]:
    if table in ids:
        yield Check("id", str(not ids[table].unique), "true", "the same id in several rows")
    if table in UNIQUE:
        yield Check(UNIQUE[table], f"count(DISTINCT ({UNIQUE[table]})) < count(*)", "true", "the same id in several rows")
    for column, target in REFERENCES.items():
        if _COLUMNS[table].get(column) == "INTEGER":
            known, text = ids[target], f"ids that table {target} has not ({{count:,}} rows)"
            if known.dense and known.first is not None and known.last is not None:
                yield _beyond(column, known.first, known.last, text)
            else:
                yield _each(column, f'"{column}" IS NOT NULL AND "{column}" NOT IN (SELECT id FROM {target})', text)


def _beyond(column: str, first: int, last: int, text: str) -> Check:
    beyond = f'min("{column}") < {first} OR max("{column}") > {last}'
    return Check(column, beyond, f'"{column}" NOT BETWEEN {first} AND {last}', text)


def _each(column: str, invalid: str, text: str) -> Check:
    return Check(column, f"count(*) FILTER ({invalid}) > 0", invalid, text)


def _check_run(store: Tables, name: str) -> None:
    rows = store.connection.execute(f"SELECT {', '.join(JSON_OF_RUN)} FROM run").fetchall()
    if not rows:
        raise InputError(_text(name, "table run has no row"))
    for column, text in zip(JSON_OF_RUN, rows[0], strict=True):
        try:
            value = json.loads(text or "null")
        except (ValueError, RecursionError) as error:
            raise InputError(_text(name, f"column {column} of table run has text that is not JSON")) from error
        if _is_deeper(value, MOST_DEPTH):
            raise InputError(_text(name, f"column {column} of table run has JSON with more than {MOST_DEPTH} levels"))
        if isinstance(value, dict | list) and len(value) > PARAMETERS:
            raise InputError(_text(name, f"column {column} of table run has {len(value):,} values, more than {PARAMETERS:,}"))


def _is_deeper(value: Any, levels: int) -> bool:
    """Whether arrays and objects are inside each other on more levels than that."""
    inside = [value]
    for _ in range(levels):
        inside = [
            one for outer in inside if isinstance(outer, dict | list) for one in (outer.values() if isinstance(outer, dict) else outer)
        ]
    return any(isinstance(one, dict | list) for one in inside)


def _text(name: str, what: str) -> str:
    return f"{name}: the run store has contents that no postrun writes: {what}; ingest the sources again"
