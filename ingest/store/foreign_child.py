"""Streams the tables of a run store to standard output, in a process of its own with limits, without the package.

    python -I -S foreign_child.py

A DuckDB file is a program as much as data: its views and macros run when they are read, and a damaged file can crash the library. Standard
input: a JSON object (``path``, ``parent``, ``module_paths``, ``script``, ``tables``, ``version``, ``settings``, ``limits``).
Standard output: frames of 8 bytes length, a byte of kind and a payload; see ``foreign.py``. No table is read before the catalog of
the file equals the one that ``script`` creates.
"""

import contextlib
import ctypes
import json
import math
import os
import resource
import signal
import struct
import sys
from typing import Any, Final

FOREIGN: Final = "foreign_store"
REFERENCE: Final = "memory"
OTHERS: Final = 20  # How many entries of a catalog are listed in an error message
PROBED: Final = 200_000  # How many entries of a catalog are read
TEXT: Final = 200
PR_SET_PDEATHSIG: Final = 1  # Of linux/prctl.h

# Kind of entry -> catalog function, its column with the name. Views come first: other functions bind the queries of views.
CATALOG: Final = (
    ("view", "duckdb_views", "view_name"),
    ("function or macro", "duckdb_functions", "function_name"),
    ("sequence", "duckdb_sequences", "sequence_name"),
    ("index", "duckdb_indexes", "index_name"),
    ("trigger", "duckdb_triggers", "trigger_name"),
    ("schema", "duckdb_schemas", "schema_name"),
    ("type", "duckdb_types", "type_name"),
    ("table", "duckdb_tables", "table_name"),
)
COLUMN: Final = "schema_name, table_name, column_name, column_index, data_type, column_default, is_nullable, is_generated"

Frame = tuple[bytes, bytes]


class RefusedError(Exception):
    """Why the file is not copied: ``kind`` and text, as ``foreign.py`` knows them."""


def main() -> None:
    _end_with_parent()
    order = json.loads(sys.stdin.buffer.read())
    if os.getppid() != order["parent"]:
        sys.exit(1)  # it was killed before
    for name, value in order["limits"].items():
        _limit(getattr(resource, name), value)
    sys.path[:] = order["module_paths"]
    sys.modules["numpy"] = None  # type: ignore[assignment]  # PyArrow would load it, and its OpenBLAS ends a process without threads
    try:
        _copy(order)
        _send(b"E", b"")
    except RefusedError as error:
        _send(b"X", json.dumps(error.args).encode())
    except MemoryError:
        os.write(1, struct.pack("=q", 12) + b'X["memory"]')


def _copy(order: dict[str, Any]) -> None:
    import duckdb
    import pyarrow as pa

    connection = duckdb.connect(":memory:", config=order["settings"])
    path = order["path"]
    connection.execute("; ".join(["BEGIN", *order["script"], "COMMIT"]))
    files = [path, f"{path}.wal", f"{path}.wal.recovery", f"{path}.wal.checkpoint"]
    connection.execute("SET allowed_paths = [?, ?, ?, ?]", files)
    connection.execute("SET enable_external_access = false; SET lock_configuration = true")
    quoted = path.replace("'", "''")
    try:
        connection.execute(f"ATTACH '{quoted}' AS {FOREIGN} (READ_ONLY, TYPE duckdb)")
        _check_version(connection, order["version"])
        _check_catalog(connection)
        # The file is open and all modules are loaded: nothing else is opened from here.
        _load_writer(pa)
        _limit(resource.RLIMIT_NOFILE, 0)
        for table in order["tables"]:
            _copy_table(connection, table, order["tables"][table])
    except duckdb.OutOfMemoryException as error:
        raise RefusedError("memory") from error
    except duckdb.Error as error:
        raise RefusedError("database", (str(error).splitlines() or [""])[0][:1000]) from error


def _check_version(connection: Any, version: str) -> None:
    """Raise if the file has our table of the format version with another version."""
    of_foreign = _rows(connection, "duckdb_tables", "table_name, sql", FOREIGN)
    of_views = {name for (name,) in _rows(connection, "duckdb_views", "view_name", FOREIGN)}
    if "store_info" not in {name for name, _ in of_foreign} | of_views:
        raise RefusedError("lacking", "")
    expected = [row for row in _rows(connection, "duckdb_tables", "table_name, sql", REFERENCE) if row[0] == "store_info"]
    if expected[0] not in of_foreign or "store_info" in of_views:
        return  # the check of the catalog names it
    rows = connection.execute(f'SELECT "key", "value" FROM {FOREIGN}.main.store_info').fetchmany(OTHERS)
    versions = [value for key, value in rows if key == "format_version"]
    if versions != [version]:
        raise RefusedError("version", str(versions[0] if versions else None)[:OTHERS])


def _check_catalog(connection: Any) -> None:
    """Raise if the catalog of the file differs from that of the reference."""
    for kind, function, name in CATALOG:
        ours = {row[0] for row in _rows(connection, function, name, REFERENCE)}
        names = {row[0] for row in _rows(connection, function, name, FOREIGN)}
        if names - ours:
            raise RefusedError("catalog", f"{kind} {_listed(names - ours)}")
        if ours - names:
            raise RefusedError("lacking", f"{kind} {_listed(ours - names)}")
        if kind == "view":
            _check_entries(connection, "definition of view", "duckdb_views", "view_name, sql")
    for what, function, columns in (
        ("type", "duckdb_types", "type_name, logical_type, labels"),
        ("column", "duckdb_columns", COLUMN),
        ("constraint", "duckdb_constraints", "table_name, constraint_type, constraint_text"),
        ("definition of table", "duckdb_tables", "table_name, sql"),
    ):
        _check_entries(connection, what, function, columns)


def _check_entries(connection: Any, what: str, function: str, columns: str) -> None:
    """Raise if entries of a catalog function differ from those of the reference."""
    expected = {repr(row): row for row in _rows(connection, function, columns, REFERENCE)}
    actual = {repr(row): row for row in _rows(connection, function, columns, FOREIGN)}
    if unexpected := [actual[row] for row in sorted(actual.keys() - expected.keys())]:
        raise RefusedError("catalog", f"{what} {_listed(_described(what, row) for row in unexpected)}")
    if lacking := [expected[row] for row in sorted(expected.keys() - actual.keys())]:
        raise RefusedError("lacking", f"{what} {_listed(_described(what, row) for row in lacking)}")


def _rows(connection: Any, function: str, columns: str, database: str) -> list[tuple[Any, ...]]:
    """Return the rows of a catalog function; no name is looked up in the file."""
    internal = "internal" if function not in ("duckdb_sequences", "duckdb_indexes", "duckdb_constraints", "duckdb_triggers") else "false"
    query = f"SELECT database_name, {internal}, {columns} FROM system.main.{function}()"
    rows = connection.execute(query).fetchmany(PROBED)
    if len(rows) == PROBED:
        raise RefusedError("catalog", f"more than {PROBED} entries")
    return [tuple(row[2:]) for row in rows if row[0] == database and not row[1]]


def _described(what: str, row: tuple[Any, ...]) -> str:
    if what != "column":
        return " ".join(str(value) for value in row)
    schema, table, column, _, kind, default, nullable, generated = row
    more = " GENERATED" if generated else "" if default is None else f" DEFAULT {default}"
    return f"{'' if schema == 'main' else f'{schema}.'}{table}.{column} {kind}{more}{'' if nullable else ' NOT NULL'}"


def _listed(entries: Any) -> str:
    texts = sorted(str(entry)[:TEXT] for entry in entries)
    return ", ".join(texts[:OTHERS]) + (f" and {len(texts) - OTHERS} more" if len(texts) > OTHERS else "")


def _load_writer(pa: Any) -> None:
    _write(pa, pa.MockOutputStream(), pa.record_batch({"a": pa.array(["x"])}))


def _write(pa: Any, sink: Any, batch: Any) -> None:
    with pa.ipc.new_stream(sink, batch.schema) as writer:
        writer.write_batch(batch)


def _copy_table(connection: Any, table: str, columns: list[str]) -> None:
    """Send the rows of a table in their order, some at a time."""
    import pyarrow as pa

    names = ", ".join(f'"{column}"' for column in columns)
    _send(b"T", table.encode())
    reader = connection.sql(f"SELECT {names} FROM {FOREIGN}.{table if '.' in table else f'main.{table}'}").to_arrow_reader(ROWS)
    for batch in reader:
        _send_batch(pa, batch)


ROWS: Final = 122_880  # How many rows are sent at a time: a row group of DuckDB
FRAME: Final = 32 << 20  # Bytes above which rows are sent in several parts


def _send_batch(pa: Any, batch: Any) -> None:
    if batch.nbytes > FRAME and batch.num_rows > 1:
        half = batch.num_rows // 2
        _send_batch(pa, batch.slice(0, half))
        _send_batch(pa, batch.slice(half))
    elif batch.num_rows:
        size = pa.MockOutputStream()
        _write(pa, size, batch)
        _begin(b"R", size.size())
        _write(pa, pa.PythonFile(sys.stdout.buffer, mode="w"), batch)


def _send(kind: bytes, payload: bytes) -> None:
    _begin(kind, len(payload))
    sys.stdout.buffer.write(payload)
    sys.stdout.buffer.flush()


def _begin(kind: bytes, size: int) -> None:
    sys.stdout.buffer.write(struct.pack("=qc", 1 + size, kind))


def _end_with_parent() -> None:
    """Let the kernel kill this process once its parent is killed. Only Linux does."""
    with contextlib.suppress(AttributeError, OSError):
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)


def _limit(what: int, value: int) -> None:
    hard = resource.getrlimit(what)[1]
    if what == resource.RLIMIT_CPU:
        used = resource.getrusage(resource.RUSAGE_SELF)
        value += math.ceil(used.ru_utime + used.ru_stime)
    limit = value if hard == resource.RLIM_INFINITY else min(value, hard)
    with contextlib.suppress(OSError, ValueError):  # not on this system
        resource.setrlimit(what, (limit, hard if what == resource.RLIMIT_CPU else limit))


if __name__ == "__main__":
    main()
