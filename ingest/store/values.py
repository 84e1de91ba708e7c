"""Checks the values of a run store whose writer is unknown: store -> InputError that names the table and the column.

Readers of trace files keep the same rules, and the analysis relies on them: ids that exist, times that can be subtracted, JSON that parses.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final

from ...errors import InputError
from .limits import DEVICES, METRICS, NAMES, NODES, PARAMETERS, PROCESSES, UNITS_PER_NODE
from .tables import SCHEMA
from .time_limits import EARLIEST_NS, LATEST_NS, LONGEST_NS

if TYPE_CHECKING:
    from .tables import Tables

# Table -> columns that are never null.
REQUIRED: Final[dict[str, tuple[str, ...]]] = {
    "run": ("status",),
    "source": ("id", "path", "format", "events"),
    "node": ("id", "hostname"),
    "process": ("id", "node"),
    "profile_window": ("process", "source", "first_ns", "last_ns"),
    "recorded_window": ("process", "first_ns", "last_ns"),
    "device": ("node", "index"),
    "name": ("id", "text"),
    "device_event": ("node", "process", "device", "kind", "name", "start_ns", "duration_ns"),
    "collective": ("node", "process", "on_device", "start_ns", "duration_ns"),
    "allocation": ("node", "process", "device", "start_ns", "bytes"),
    "host_event": ("node", "process", "tid", "kind", "name", "start_ns", "duration_ns"),
    "annotation": ("node", "process", "side", "name", "start_ns", "duration_ns"),
    "step": ("node", "process", "index", "host_start_ns", "host_duration_ns"),
    "sample": ("node", "metric", "time_ns", "value"),
    "python_window": ("id", "source", "node"),
    "python_profile": ("node", "window", "id", "function"),
    "python_call": ("window", "caller", "callee"),
    "python_frame": ("window", "id"),
    "ingest_note": ("severity", "code", "message", "count"),
}
# Column -> table whose ids it contains.
REFERENCES: Final = {"node": "node", "process": "process", "source": "source", "name": "name", "window": "python_window"}
JSON_OF_RUN: Final = ("resources", "hyperparameters", "labels", "metadata")
WORDS: Final[dict[tuple[str, str], tuple[str, ...]]] = {
    ("ingest_note", "severity"): ("info", "warning", "error"),
    ("annotation", "side"): ("host", "device"),
}
MOST_ROWS: Final = {
    "run": 1,
    "node": NODES,
    "process": PROCESSES,
    "device": DEVICES,
    "name": NAMES + 2,
    "source": 100_000,
    "step": 1_000_000,
    "profile_window": 100_000,
    "recorded_window": 100_000,
    "python_window": 100_000,
    "ingest_note": 500_000,
}
"""Rows of tables that a report goes through one by one. ``name``: with the two for names beyond a limit. ``source``: 12 files of
each of 8,000 processes. ``step``: 125 of each of 8,000 processes, or weeks of one."""
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

Check = tuple[str, str, str]  # Column, SQL condition for an invalid row, and the property of such a row, for the message


def check(store: Tables, name: str) -> None:
    """Raise InputError if the store at ``name`` has a value that no reader writes."""
    for table in SCHEMA:
        checks = [*_checks(table)]
        counted = ", ".join(f"count(*) FILTER ({condition})" for _, condition, _ in checks)
        [(rows, *counts)] = store.connection.execute(f"SELECT count(*), {counted or 'NULL'} FROM {table}").fetchall()
        if rows > MOST_ROWS.get(table, rows):
            raise InputError(_text(name, f"table {table} has {rows:,} rows, more than {MOST_ROWS[table]:,}"))
        for (column, _, what), count in zip(checks, counts, strict=False):
            if count:
                raise InputError(_text(name, f"column {column} of table {table} has {what} ({count:,} of {rows:,} rows)"))
        if rows:
            _check_ids(store, name, table)
    for (table, columns), most in MOST_DISTINCT.items():
        distinct = f"SELECT DISTINCT {', '.join(columns)} FROM {table} LIMIT {most + 1}"
        if store.connection.execute(f"SELECT count(*) FROM ({distinct})").fetchall() == [(most + 1,)]:
            raise InputError(_text(name, f"columns {', '.join(columns)} of table {table} have more than {most:,} values"))
    for (table, owner, column), most in MOST_PER.items():
        counts_of = f"SELECT count(DISTINCT {column}) AS n FROM {table} GROUP BY {', '.join(owner)}"
        if store.connection.execute(f"SELECT count(*) FROM ({counts_of}) WHERE n > {most}").fetchall() != [(0,)]:
            raise InputError(_text(name, f"column {column} of table {table} has more than {most:,} values for one {', '.join(owner)}"))
    _check_run(store, name)


def _checks(table: str) -> Iterator[Check]:
    for column in REQUIRED.get(table, ()):
        yield column, f'"{column}" IS NULL', "no value"
    for column, kind in SCHEMA[table].items():
        if column.endswith("duration_ns"):
            # Of ranges also absurd durations are kept; start and duration can be added.
            longest = LONGEST_NS if table in ("device_event", "collective") else LATEST_NS - 1
            yield column, f'"{column}" NOT BETWEEN 0 AND {longest}', "durations that are not possible"
        elif column.endswith("_ns") and table != "ingest_note":
            yield column, f'"{column}" NOT BETWEEN {EARLIEST_NS} AND {LATEST_NS}', "times that are not possible"
        elif column in ("device", "index") and kind == "INTEGER":
            yield column, f'"{column}" NOT BETWEEN 0 AND {HIGHEST_DEVICE}', "numbers that no GPU has"
        elif kind == "DOUBLE":
            yield column, f'NOT isfinite("{column}")', "values that are not finite"
    if table == "annotation":
        yield "arguments", "NOT json_valid(arguments)", "text that is not JSON"
    for (of, column), words in WORDS.items():
        if of == table:
            yield column, f'"{column}" NOT IN {words}', "words that are not known"


def _check_ids(store: Tables, name: str, table: str) -> None:
    if "id" in SCHEMA[table] and table in REFERENCES.values():
        [(repeated,)] = store.connection.execute(f"SELECT count(*) - count(DISTINCT id) FROM {table}").fetchall()
        if repeated:
            raise InputError(_text(name, f"column id of table {table} has the same id in several rows"))
    for column, target in REFERENCES.items():
        if SCHEMA[table].get(column) == "INTEGER":
            unknown = f'SELECT count(*) FROM {table} WHERE "{column}" IS NOT NULL AND "{column}" NOT IN (SELECT id FROM {target})'
            [(count,)] = store.connection.execute(unknown).fetchall()
            if count:
                raise InputError(_text(name, f"column {column} of table {table} has ids that table {target} has not ({count:,} rows)"))


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
