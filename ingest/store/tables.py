"""Tables of a run store: creating, filling, and reading them.

A run store is one DuckDB file (or an in-memory database) with the tables of ``schema.sql`` and the views of ``views.sql``.
Loading is bulk Arrow only; reading returns Polars frames.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal, Self

from ...errors import InputError, UsageError
from ...temporary import Folder
from .database import (
    LOCKED,
    NOT_PACKED,
    connect,
    database_settings,
    files_of,
    first_line,
    is_unexpected,
    make_way,
    native_path,
    temporary_folder,
    who_has_it_open,
)
from .limits import LEFT_OUT, NAME_TEXT_BYTES, NAMES, cut_columns, cut_text
from .metrics import COUNTER
from .queries import Queries
from .schema import EVENTS, SCHEMA, STORED, TEXTS, comment_script, stored_name, table_script
from .signatures import Signatures
from .texts import storable
from .views import event_script, faster_events, view_comment_script, views_script

if TYPE_CHECKING:
    import duckdb
    import polars as pl
    import pyarrow as pa

FORMAT_VERSION: Final = 9

Severity = Literal["info", "warning", "error"]

_JSON_COLUMNS: Final = frozenset({"resources", "hyperparameters", "labels", "metadata"})  # of `run`; run_row.py cuts their values


class Tables(Queries):
    """The tables of an open run store. Use :meth:`create` or :meth:`temporary`; close it or use it as a context manager."""

    def __init__(self, connection: duckdb.DuckDBPyConnection, path: Path | None) -> None:
        super().__init__()
        self.connection = connection
        self.path = path
        self._names: dict[str, int] = {}
        self._name_bytes = 0
        self.max_unpacked: str | None = None
        self.limited = Counter[str]()  # texts and names that met a bound (limits.py), by kind
        self.signatures = Signatures(self.append)
        self._next: dict[str, int] = {"node": 0, "process": 0, "source": 0, "source_map": 0, "text": 0}
        self._next_event = dict.fromkeys(EVENTS, 0)
        self._mapped: dict[tuple[int | None, int | None, int | None], int] = {}  # source, node, process -> row of source_map
        self._shifts: dict[int, int] = {}  # shift_ns of rows of source_map
        self._settled = False  # the views of events are valid for the present rows only
        self._folder: Folder | None = None  # spilled rows, and the file of a temporary store
        self._in_folder = False
        self.copied_from: str | None = None  # the run store that a temporary store is a copy of
        self.left_out = 0
        """Rows of impossible times or values that :meth:`append` left out since a reader last noted them."""
        self.changes = 0  # rows that were added so far

    # -- opening -------------------------------------------------------------------------------------------------------

    @classmethod
    def create(
        cls,
        path: Path | None,
        *,
        memory_limit: str = "600MB",
        threads: int | None = None,
        temp_directory: Path | None = None,
        packed: bool = True,
    ) -> Self:
        """Create an empty store at ``path`` (replacing a file), or in memory for None.

        ``memory_limit`` bounds DuckDB's buffers; beyond it DuckDB spills to ``temp_directory`` (default: the
        system's temporary folder). Rows that are not ``packed`` are written in half the time and take three times the space.
        Raises InputError if the path cannot be written or another program has the file open,
        UsageError for a size or number that the database does not take.
        """
        import duckdb

        settings = database_settings(memory_limit, threads)
        folder = None if temp_directory is not None else temporary_folder()
        spill = temp_directory or Path(folder.name if folder is not None else "")
        database = ":memory:" if path is None else native_path(path)
        try:
            if path is not None:
                make_way(path)
            last = LOCKED if packed else {**NOT_PACKED, **LOCKED}
            connection = connect(database, settings, spill, last, temporary=temp_directory is not None)
        except BaseException as error:
            if folder is not None:
                folder.cleanup()
            if not isinstance(error, duckdb.Error):
                raise
            if user := who_has_it_open(error):
                raise InputError(f"{path}: {user}; wait for it or choose another place with -o") from error
            if path is None or not isinstance(error, duckdb.IOException):
                raise UsageError(f"--memory-limit {memory_limit}: not possible ({first_line(error)})") from error
            if temp_directory is not None:
                raise  # a temporary store: its place is not the user's choice
            raise InputError(f"{path}: cannot create the run store ({first_line(error)}); choose another place with -o") from error
        store = cls(connection, path)
        store._folder = folder
        try:
            # In one transaction: a commit of its own for each table would write to the disk each time.
            connection.execute(";\n".join(["BEGIN", *schema_script(), "COMMIT"]))
            connection.execute("INSERT INTO store_info VALUES ('format', 'postrun'), ('format_version', ?)", [str(FORMAT_VERSION)])
        except BaseException:
            store.close()
            store.remove()
            raise
        return store

    @classmethod
    def temporary(cls, *, memory_limit: str = "600MB", threads: int | None = None, packed: bool = True) -> Self:
        """Create an empty store in a temporary file (TMPDIR) that closing it removes."""
        folder = temporary_folder()
        try:
            store = cls.create(
                Path(folder.name) / "run.duckdb",
                memory_limit=memory_limit,
                threads=threads,
                temp_directory=Path(folder.name),
                packed=packed,
            )
        except BaseException:
            folder.cleanup()
            raise
        store._folder = folder
        store._in_folder = True
        return store

    def emptied(self) -> Self:
        """Return an empty store in the database of this one, which must not be used again."""
        self._unsettle_views()
        rows = [f"DELETE FROM {table}" for table in STORED if table != "store_info"]
        self.connection.execute(";\n".join(["BEGIN", *rows, "COMMIT"]))
        store = type(self)(self.connection, self.path)
        store._folder, store._in_folder = self._folder, self._in_folder
        return store

    def close(self) -> None:
        """Close the database for good, and remove a temporary store."""
        self.connection.close()
        if self._folder is not None:
            self._folder.cleanup()

    def private_folder(self) -> Path:
        """Return a folder for files of this process, which closing the store removes."""
        assert self._folder is not None
        return Path(self._folder.name)

    def checkpoint(self) -> None:
        """Write everything to the file of the store, if it has one that stays.

        Its tables, views and columns get their meanings as comments.

        Closing would also do it, but would not report a full disk. Raises duckdb.Error.
        """
        if self.path is not None and not self._in_folder:
            self.connection.execute(";\n".join(["BEGIN", *comment_script(), *view_comment_script(), "COMMIT"]))
            self.connection.execute("CHECKPOINT")

    def remove(self) -> None:
        """Delete the file of a closed store, if it has one."""
        if self.path is not None:
            for file in files_of(self.path):
                file.unlink(missing_ok=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        """Close the store; report an unexpected error from a copied store as InputError."""
        self.close()
        if error is not None and self.copied_from is not None and is_unexpected(error):
            raise InputError(
                f"{self.copied_from}: the run store has contradictory contents ({type(error).__name__}: {first_line(error)[:200]});"
                " ingest the sources again"
            ) from error

    # -- filling -------------------------------------------------------------------------------------------------------

    def append(
        self, table: str, data: pa.Table | pa.RecordBatch | pl.DataFrame, *, source: int | None = None, source_id: int | None = None
    ) -> None:
        """Add rows in bulk; missing columns become null, unknown columns are an error.

        Rows of impossible times or values are left out and counted in ``left_out``. Events belong to one row of ``source_map``,
        ``source_id`` (:meth:`map_source`), or have columns ``node`` and ``process`` and belong to the file ``source``. The ids of events
        count rows in the order of ``data``; they are stored in the order of their times.
        """
        import pyarrow as pa

        from .time_limits import storable_rows

        shift_ns = 0 if source_id is None else self._shifts.get(source_id, 0)
        rows, dropped = storable_rows(data if isinstance(data, pa.Table | pa.RecordBatch) else data.to_arrow(), shift_ns)
        self.left_out += dropped
        columns = SCHEMA[table] if table in EVENTS else STORED[table]
        unknown = [column for column in rows.schema.names if column not in columns]
        if unknown:
            raise ValueError(f"table {table} has no column {unknown}")
        rows, cut = cut_columns(rows)
        self.limited["text_cut"] += cut
        if table in EVENTS:
            if rows.num_rows:
                self._append_events(table, rows, source, source_id)
        else:
            self.append_unchanged(table, rows)

    def append_unchanged(self, table: str, rows: pa.Table | pa.RecordBatch) -> None:
        """Add rows of a table of another store: nothing is cut or left out."""
        names = ", ".join(f'"{column}"' for column in rows.schema.names)
        self.connection.register("incoming_rows", rows)
        try:
            self.connection.execute(f"INSERT INTO {table} ({names}) SELECT {names} FROM incoming_rows")
        finally:
            self.connection.unregister("incoming_rows")
        self.changes += rows.num_rows

    def _append_events(self, table: str, rows: pa.Table | pa.RecordBatch, source: int | None, source_id: int | None) -> None:
        import polars as pl
        import pyarrow as pa

        self._unsettle_views()
        if isinstance(rows, pa.RecordBatch):
            rows = pa.Table.from_batches([rows])
        if table in TEXTS and TEXTS[table][0] in rows.schema.names:
            rows = self._with_text_ids(rows, *TEXTS[table])
        owners = [column for column in ("node", "process") if column in rows.schema.names]
        if source_id is not None:
            source_ids = pl.Series([source_id], dtype=pl.Int32).new_from_index(0, rows.num_rows)
        else:
            source_ids = self._source_ids(rows.select(owners), source)
        first = self._next_event[table]
        self._next_event[table] += rows.num_rows
        ids = pl.int_range(first, first + rows.num_rows, eager=True)
        rows = rows.drop_columns(owners).append_column("id", ids.to_arrow()).append_column("source_id", source_ids.to_arrow())
        self.append_unchanged(stored_name(table), _by_time(rows))

    def _with_text_ids(self, rows: pa.Table, column: str, stored: str) -> pa.Table:
        """Put texts into table ``text``; return the rows with their ids in ``stored``.

        Of metrics, these are the names of counters; others stay.
        """
        import polars as pl
        import pyarrow as pa

        texts = pl.Series(column, rows.column(column)).cast(pl.String)
        if column != stored:
            counters = texts.str.starts_with(COUNTER)
            if not counters.any():
                return rows
            rest = texts.set(counters, None).to_arrow()
            rows = rows.set_column(rows.schema.names.index(column), column, rest)
            texts = texts.set(~counters, None)
        else:
            rows = rows.drop_columns([column])
        distinct = texts.drop_nulls().unique(maintain_order=True)
        first = self._next["text"]
        self._next["text"] += len(distinct)
        numbers = pl.int_range(first, self._next["text"], dtype=pl.Int32, eager=True)
        if len(distinct):
            self.append_unchanged("text", pa.table({"id": numbers.to_arrow(), "text": distinct.to_arrow()}))
        return rows.append_column(stored, texts.replace_strict(distinct, numbers, default=None, return_dtype=pl.Int32).to_arrow())

    def _source_ids(self, owners: pa.Table, source: int | None) -> pl.Series:
        import polars as pl

        frame = pl.DataFrame(owners) if owners.num_columns else pl.DataFrame({"node": [None] * owners.num_rows})
        frame = frame.select(
            pl.lit(source, pl.Int32).alias("source"),
            *((pl.col(key) if key in frame.columns else pl.lit(None)).cast(pl.Int32).alias(key) for key in ("node", "process")),
        )
        keys = frame.unique(maintain_order=True)
        ids = keys.with_columns(source_id=self.mapped(keys))
        if ids.height == 1:
            return ids["source_id"].new_from_index(0, frame.height)
        return frame.join(ids, on=["source", "node", "process"], how="left", nulls_equal=True, maintain_order="left")["source_id"]

    def mapped(self, keys: pl.DataFrame) -> pl.Series:
        """Return the rows of ``source_map`` for sources, nodes and processes; add them."""
        import polars as pl

        known = [self._mapped.get(key) for key in keys.select("source", "node", "process").rows()]
        new = keys.filter(pl.Series([number is None for number in known], dtype=pl.Boolean))
        if new.height:
            first = self._next["source_map"]
            self._next["source_map"] += new.height
            numbers = pl.int_range(first, first + new.height, dtype=pl.Int32)
            zero = pl.lit(0, pl.Int64)
            rows = new.select("source", "node", "process", source_id=numbers, shift_ns=zero, id_offset=zero)
            self.append("source_map", rows)
            self._mapped.update(zip(new.select("source", "node", "process").rows(), rows["source_id"], strict=True))
        return pl.Series([self._mapped[key] for key in keys.select("source", "node", "process").rows()], dtype=pl.Int32)

    def append_samples(self, query: str, parameters: Sequence[Any] = ()) -> int:
        """Add the samples of a query; return how many.

        It has all columns of the table but ``id``, and no counters.
        """
        self._unsettle_views()
        ids = f"{self._next_event['sample']} - 1 + row_number() OVER () AS id"
        insert = f"INSERT INTO raw.sample BY NAME SELECT {ids}, * FROM ({query})"
        count = int(self.connection.execute(insert, list(parameters)).fetchall()[0][0])
        self._next_event["sample"] += count
        self.changes += count
        return count

    def map_source(
        self,
        source: int | None,
        *,
        process: int | None = None,
        node: int | None = None,
        shift_ns: int = 0,
        id_offset: int = 0,
        device: int | None = None,
    ) -> int:
        """Add a row to ``source_map``, and return its number for :meth:`append`."""
        source_id = self.next_id("source_map")
        self._shifts[source_id] = shift_ns
        row = {"source_id": source_id, "source": source, "process": process, "node": node, "shift_ns": shift_ns}
        self.insert("source_map", {**row, "id_offset": id_offset, "device": device})
        return source_id

    def change_source(self, source_id: int, **facts: int | None) -> None:
        """Change columns of a row of ``source_map``: all events of it, at once."""
        self._unsettle_views()
        changes = ", ".join(f"{column} = ?" for column in facts)
        self.connection.execute(f"UPDATE source_map SET {changes} WHERE source_id = ?", [*facts.values(), source_id])
        self._shifts[source_id] = facts.get("shift_ns", self._shifts.get(source_id)) or 0

    def sources_changed(self) -> None:
        """Let later rows get rows of ``source_map`` of their own, as it was changed."""
        self._mapped.clear()

    def leave_out(self, table: str, reason: str, ids: str, parameters: Sequence[Any] = ()) -> int:
        """Leave out the events whose ids a query returns; return how many."""
        self._unsettle_views()
        query = f"INSERT INTO left_out SELECT ?, id, ? FROM ({ids})"
        return int(self.connection.execute(query, [table, reason, *parameters]).fetchall()[0][0])

    def remove_source(self, source: int) -> None:
        """Remove the events of a file whose reader failed."""
        for table in EVENTS:
            of_source = f"source_id IN (SELECT source_id FROM source_map WHERE source = {int(source)})"
            self.connection.execute(f"DELETE FROM {stored_name(table)} WHERE {of_source}")
        self.connection.execute("DELETE FROM source_map WHERE source = ?", [source])
        self._mapped = {key: number for key, number in self._mapped.items() if key[0] != source}

    def next_event(self, table: str) -> int:
        """Return the id of the next row of a table of events."""
        return self._next_event[table]

    def settle_views(self) -> None:
        """Make the views of events of a temporary store faster, once it is complete.

        Methods that change what the views show undo it; a statement that changes source_map, left_out or an alias does not.
        """
        if self.path is None or self._in_folder:
            self._unsettle_views()
            self.connection.execute(";\n".join(faster_events(lambda query: self.connection.execute(query).fetchall())))
            self._settled = True

    def _unsettle_views(self) -> None:
        if self._settled:
            self.connection.execute(";\n".join(event_script()))
            self._settled = False

    def insert(self, table: str, row: dict[str, Any]) -> None:
        """Add one row, to a small table (run, source, node, process, device, ingest_note).

        Texts that no database can store are escaped: see :func:`storable`. A number that does not fit its column becomes null.
        """
        kinds = SCHEMA[table] if table in EVENTS else STORED[table]
        values = {
            column: self._cut(fitting) if isinstance(fitting, str) and column not in _JSON_COLUMNS else fitting
            for column, value in row.items()
            for fitting in [_storable(value, kinds[column])]
        }
        if table in EVENTS:
            import pyarrow as pa

            self._append_events(table, pa.Table.from_pylist([values]), None, None)
            return
        names = ", ".join(f'"{column}"' for column in row)
        self.connection.execute(f"INSERT INTO {table} ({names}) VALUES ({', '.join('?' * len(row))})", list(values.values()))
        self.changes += 1

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """Insert many rows of small tables at once; :meth:`frame` sees them at the end."""
        self.connection.execute("BEGIN")
        try:
            yield
        except BaseException:
            self.connection.execute("ROLLBACK")
            raise
        self.connection.execute("COMMIT")

    def next_id(self, table: str) -> int:
        """Return the next free id of a node, process, source or row of ``source_map``."""
        self._next[table] += 1
        return self._next[table] - 1

    def peek_id(self, table: str) -> int:
        """Return the id that :meth:`next_id` will return."""
        return self._next[table]

    def name_ids(self, texts: Sequence[str]) -> list[int]:
        """Return store-wide ids of strings, in their order; add new ones to ``name``."""
        fresh: dict[str, int] = {}
        ids = []
        for text in map(self._cut, map(storable, texts)):
            known = self._names.get(text)
            if known is None and self._has_room(text):
                known = len(self._names)
                self._names[text] = known
                fresh[text] = known
            elif known is None:
                self.limited[LEFT_OUT] += 1
                known = self._names.get(LEFT_OUT)
                if known is None:
                    known = self._names[LEFT_OUT] = fresh[LEFT_OUT] = len(self._names)
            ids.append(known)
        if fresh:
            import pyarrow as pa

            self.append(
                "name",
                pa.table({"id": pa.array(list(fresh.values()), pa.int32()), "text": pa.array(list(fresh), pa.string())}),
            )
        return ids

    def _cut(self, text: str) -> str:
        short = cut_text(text)
        self.limited["text_cut"] += short is not text
        return short

    def _has_room(self, text: str) -> bool:
        """Whether a new name is within the limits of the run; if so, count it."""
        size = len(text) if text.isascii() else len(text.encode())
        if len(self._names) >= NAMES or self._name_bytes + size > NAME_TEXT_BYTES:
            return False
        self._name_bytes += size
        return True

    def note(
        self, severity: Severity, code: str, message: str, *, count: int = 1, source: int | None = None, file: str | None = None,
        first_ns: int | None = None, last_ns: int | None = None,
    ) -> None:  # fmt: skip
        """Record a repair, loss or guess; ``message`` is a sentence for the report."""
        row = {"source": source, "file": file, "severity": severity, "code": code, "message": message, "count": count}
        self.insert("ingest_note", {**row, "first_ns": first_ns, "last_ns": last_ns})


def _by_time(rows: pa.Table) -> pa.Table:
    """Return events in the order of their starts; equal ones keep their order."""
    import pyarrow.compute as pc

    if "start_ns" not in rows.schema.names or rows.num_rows < 2:
        return rows
    starts = rows.column("start_ns").combine_chunks()
    if starts.null_count or pc.all(pc.less_equal(starts.slice(0, len(starts) - 1), starts.slice(1))).as_py():
        return rows
    return rows.take(pc.sort_indices(starts))


def _storable(value: Any, kind: str) -> Any:
    """Return a value that fits a column of the type; None for a number beyond it."""
    from .time_limits import clamped

    if isinstance(value, str):
        return storable(value)
    if isinstance(value, int) and kind in ("INTEGER", "BIGINT"):
        return clamped(value, 2**31 - 1 if kind == "INTEGER" else 2**63 - 1)
    return value


def schema_script() -> list[str]:
    """Return the SQL statements that create the types, tables and views of a store."""
    return [*table_script(), *views_script()]
