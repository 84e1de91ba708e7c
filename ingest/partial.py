"""Contents of one file of a run, read by itself, and their way into the run's store later, maybe on another machine.

:func:`write` reads files one by one, with the readers of ``ingest``, and writes their rows as Parquet files and the rest as an entry of
JSON values: no id in it has a meaning outside of its file. :class:`Partials` gives this to :func:`.load.load` instead of the files. Facts
that depend on all files (nodes and processes, cycles, equal files, steps, notes about several files) are derived there, by the same
functions in the same order as from the files themselves.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from ..errors import InputError
from .checksum import sha256
from .chrome_trace.head import TRACE_HEAD_BYTES, read_head
from .chrome_trace.inflate import over_limit
from .discover import FORMATS, InputFile
from .store.database import native_path
from .store.devices import store_devices
from .store.format_names import SYSTEM_METRICS, TIMELINE, TRACE
from .store.identity import Facts, Identity, Placement
from .store.reader_failures import costs_one_file, failure_text
from .store.registry import ReadResult, Registry
from .store.schema import ENUM_VALUES, SCHEMA
from .store.signatures import COLUMNS as SIGNATURE_COLUMNS
from .store.store import Store
from .store.time_limits import IMPOSSIBLE

if TYPE_CHECKING:
    import duckdb
    import polars as pl
    import pyarrow as pa

    from .hosted.system_metrics import Lines

FORMAT: Final = 5  # of the entries and tables; partials of another format cannot be used
MAPPED: Final = frozenset({TRACE, TIMELINE, SYSTEM_METRICS})
"""Formats that :func:`write` converts to tables. Recordings are compact tables already, and read as quickly as Parquet."""
ROWS: Final = 300_000  # rows that go to the store at a time, as in the reader of traces
ROW_GROUP: Final = 122_880  # rows in a group of a Parquet file, as DuckDB writes it

_FEW_EVENTS: Final = 100_000  # a database that held more is not used for the next file
_EVENTS: Final = ("device_event", "host_event", "annotation", "collective", "allocation")
_KEYS: Final = ("node", "process")
_NOTE: Final = ("severity", "code", "message", "count", "first_ns", "last_ns")
_AS_ADDED: Final = "ORDER BY rowid"  # order, not a key: rows that this process added itself to small tables without ids
_FILE: Final = "\0file\0"  # Placeholder for the path of the file in an error message

Entry = dict[str, Any]
_BY_NAME: Final = {known.name: known for known in FORMATS}


# -- reading files by themselves -------------------------------------------------------------------------------------------


def write(
    files: Sequence[InputFile],
    folder: Path,
    prefix: str,
    *,
    memory_limit: str = "600MB",
    threads: int | None = None,
    max_unpacked: str | None = None,
) -> list[Entry]:
    """Return an entry per file, in order, and write the tables of the files.

    The names of tables below ``folder`` begin with ``prefix``. A file whose format is not in ``MAPPED`` has an entry without ``read``.
    Damage of a file is recorded in its entry, never raised.
    """
    options: dict[str, Any] = {"memory_limit": memory_limit, "threads": threads}
    entries: list[Entry] = []
    metrics: dict[int, Path] = {}
    with closing(_Stores(options)) as stores:
        for number, file in enumerate(files):
            name = None if file.format is None else file.format.name
            entry: Entry = {"format": name, "bytes": file.bytes, "problem": file.problem}
            entries.append(entry)
            if file.readable:
                entry["sha256"] = sha256(file.path)
            if not file.readable or name not in MAPPED:
                continue
            if name == SYSTEM_METRICS:
                metrics[number] = file.path
                continue
            store = stores.empty()
            store.max_unpacked = max_unpacked
            tables = _Tables(store, folder, f"{prefix}{number:04}")
            entry["read"] = read = (_trace if name == TRACE else _timeline)(store, file.path, tables)
            read["tables"] = tables.written
            read["notes"] = store.frame(f"SELECT {_quoted(_NOTE)} FROM ingest_note {_AS_ADDED}").rows()
            # A reader that failed can have left the database in any state, and DuckDB keeps the memory of rows that are gone.
            if "error" in read or read["result"]["events"] > _FEW_EVENTS:
                stores.close()
    if metrics:
        with Store.temporary(**options) as store:
            for number, path in list(metrics.items()):
                with suppress(InputError, OSError):  # loading meets the same error
                    if (why := over_limit(path, max_unpacked)) is not None:
                        entries[number]["lines"] = {"error": why}
                        del metrics[number]
            _lines(store, metrics, entries, _Tables(store, folder, f"{prefix}metrics"))
    return entries


@dataclass(slots=True)
class _Stores:
    """Empty stores, one after the other, in one database: creating one takes longer than reading a small file."""

    options: Mapping[str, Any]
    last: Store | None = None

    def empty(self) -> Store:
        """Return an empty store; the one before must not be used any more."""
        self.last = Store.temporary(**self.options) if self.last is None else self.last.emptied()
        return self.last

    def close(self) -> None:
        if self.last is not None:
            self.last.close()
        self.last = None


@dataclass(slots=True)
class _Tables:
    """Parquet files that are written of one store."""

    store: Store
    folder: Path
    prefix: str
    written: dict[str, str] = field(default_factory=dict)

    def path(self, table: str) -> Path:
        self.written[table] = f"{self.prefix}.{table}.parquet"
        return self.folder / self.written[table]

    def copy(self, table: str, query: str) -> None:
        """Write the rows of ``query``, in its order."""
        import pyarrow as pa
        import pyarrow.parquet as pq

        rows = self.store.connection.sql(query).to_arrow_reader(ROW_GROUP)
        # Differences of times and ids take a fraction of the space of their values.
        numbers = [field.name for field in rows.schema if pa.types.is_integer(field.type)]
        others = [field.name for field in rows.schema if field.name not in numbers]
        encodings = dict.fromkeys(numbers, "DELTA_BINARY_PACKED")
        with pq.ParquetWriter(self.path(table), rows.schema, compression="zstd", use_dictionary=others, column_encoding=encodings) as file:
            for batch in rows:
                file.write_batch(batch)


def _trace(store: Store, path: Path, tables: _Tables) -> Entry:
    from .kineto.reader import read_trace

    placement = _RecordedPlacement(Registry(store))
    read: Entry = {"result": None}
    try:
        read["result"] = asdict(read_trace(store, placement, path, 0, read_head(path, TRACE_HEAD_BYTES)))
    except BaseException as error:
        read["error"] = _reason(error, path)
        if not isinstance(error, InputError | OSError):  # a file whose reader failed has no rows
            store.remove_source(0)
            for table in ("device", "profile_window"):
                store.connection.execute(f"DELETE FROM {table}")
    if store.left_out:
        store.note(*IMPOSSIBLE, count=store.left_out)
    read["told"] = placement.calls
    tables.copy("name", "SELECT text FROM name ORDER BY id")
    if store.frame("SELECT EXISTS (FROM signature)").item():
        tables.copy("signature", f"SELECT {_quoted(SIGNATURE_COLUMNS)} FROM signature ORDER BY id")
    for table in _EVENTS:
        if store.frame(f"SELECT EXISTS (FROM {table})").item():
            columns = ", ".join(
                f'"{c}"{"::VARCHAR" if k in ENUM_VALUES else ""} AS "{c}"' for c, k in SCHEMA[table].items() if c not in _KEYS
            )
            tables.copy(table, f"SELECT {columns} FROM {table} ORDER BY id")
    read["devices"] = _rows(store, "device")
    read["windows"] = _rows(store, "profile_window")
    return read


def _reason(error: BaseException, path: Path) -> str:
    """Return why a file could not be read; raise errors that affect other files too."""
    if not isinstance(error, InputError | OSError) and not costs_one_file(error):
        raise error
    text = str(error) if isinstance(error, InputError | OSError) else failure_text(error)
    return text.replace(str(path), _FILE)


def _timeline(store: Store, path: Path, tables: _Tables) -> Entry:
    import polars as pl

    from .hosted.timelines import read_events

    read: Entry = {"result": None}
    try:
        result, events, texts = read_events(store, path, 0)
    except BaseException as error:
        read["error"] = _reason(error, path)
        return read
    read["result"] = asdict(result)
    if events is not None:
        events.write_parquet(tables.path("event"), compression="zstd")
        pl.DataFrame({"text": texts}, schema={"text": pl.String}).write_parquet(tables.path("text"), compression="zstd")
    return read


def _lines(store: Store, files: Mapping[int, Path], entries: list[Entry], tables: _Tables) -> None:
    """Store the lines of all files of system metrics in one table, with their number."""
    numbers: dict[str, int] = {}
    for number, path in files.items():
        with suppress(InputError):  # DuckDB cannot open the file; loading meets the same error
            numbers[native_path(path)] = number
    read = _parsed(store.connection, list(numbers), {file: entries[number] for file, number in numbers.items()})
    if read:
        store.connection.register("place", _numbers_table([(file, numbers[file]) for file in read]))
        store.connection.execute("CREATE TABLE line AS SELECT p.place, l.* EXCLUDE (file) FROM all_line AS l JOIN place AS p USING (file)")
        tables.copy("line", f"SELECT * FROM line {_AS_ADDED}")
        for file in read:
            entries[numbers[file]]["lines"] = {"table": tables.written["line"], "place": numbers[file]}


def _parsed(connection: duckdb.DuckDBPyConnection, files: list[str], entries: Mapping[str, Entry]) -> list[str]:
    """Return the files whose lines are in ``all_line``; other entries get an error."""
    import duckdb

    from .hosted.system_metrics import parse_lines

    if not files:
        return []
    try:
        parse_lines(connection, files)
    except duckdb.Error as error:
        if len(files) == 1:
            entries[files[0]]["lines"] = {"error": str(error).splitlines()[0].replace(files[0], _FILE)}
            return []
        half = len(files) // 2
        return _parsed(connection, files[:half], entries) + _parsed(connection, files[half:], entries)
    connection.execute("CREATE TABLE IF NOT EXISTS all_line AS FROM system_line LIMIT 0")
    connection.execute("INSERT INTO all_line FROM system_line")
    return files


class _RecordedPlacement(Placement):
    """A placement that records its calls for one file, as JSON values."""

    def __init__(self, registry: Registry) -> None:
        super().__init__(registry)
        self.calls: list[list[Any]] = []

    def assign(self, identity: Identity, facts: Facts, source: int, label: str) -> tuple[int, int]:
        self.calls.append(["place", asdict(identity), _facts_as_json(facts)])
        return super().assign(identity, facts, source, label)

    def replace(self, node: int, process: int, identity: Identity, facts: Facts, source: int, label: str) -> tuple[int, int]:
        before = len(self.calls)
        result = super().replace(node, process, identity, facts, source, label)
        self.calls[before:] = [["replace", asdict(identity), _facts_as_json(facts)]]
        return result

    def cycle(self, process: int, source: int) -> int:
        self.calls.append(["cycle"])
        return super().cycle(process, source)


def _rows(store: Store, table: str) -> list[Entry]:
    columns = [column for column in SCHEMA[table] if column not in (*_KEYS, "source")]
    return store.frame(f"SELECT {_quoted(columns)} FROM {table} {_AS_ADDED}").to_dicts()


def _quoted(columns: Any) -> str:
    return ", ".join(f'"{column}"' for column in columns)


def _facts_as_json(facts: Facts) -> Entry:
    return {"device_names": list(facts.device_names.items()), "used": sorted(facts.used_devices), "span": [facts.first_ns, facts.last_ns]}


# -- loading what was read -------------------------------------------------------------------------------------------------


class Partials:
    """Files that were read before: entries of :func:`write` by the path of a file in this run, with the folders of their tables."""

    def __init__(self, entries: Mapping[Path, tuple[Entry, Path]]) -> None:
        self._parts = {path: Part(path, entry, folder) for path, (entry, folder) in entries.items()}
        self._native: dict[str, Part] = {}
        for path, part in self._parts.items():
            with suppress(InputError):
                self._native[native_path(path)] = part

    def get(self, path: Path) -> Part | None:
        return self._parts.get(path)

    def files(self) -> list[InputFile]:
        return [part.file for part in self._parts.values()]

    def checksums(self, files: Sequence[InputFile]) -> dict[int, str | None]:
        """Return the checksums of the files that were read before, by position."""
        return {i: part.entry.get("sha256") for i, file in enumerate(files) if (part := self._parts.get(file.path)) is not None}

    def lines(self) -> Lines:
        """Return access to the lines of files of system metrics."""
        from .hosted.system_metrics import Lines

        return Lines(self._parse, lambda file: self._native[file].entry["bytes"] or 0)

    def _parse(self, connection: duckdb.DuckDBPyConnection, files: Sequence[str]) -> None:
        import duckdb
        import pyarrow as pa
        import pyarrow.parquet as pq

        tables: dict[Path, list[tuple[str, int]]] = {}
        for file in files:
            part = self._native[file]
            lines = part.entry["lines"]
            if "error" in lines:
                raise duckdb.IOException(lines["error"].replace(_FILE, file))
            tables.setdefault(part.folder / lines["table"], []).append((file, lines["place"]))
        connection.execute("DROP TABLE IF EXISTS system_line")
        for index, (table, numbers) in enumerate(tables.items()):
            query = "SELECT p.file, l.* EXCLUDE (place) FROM part_line AS l JOIN place AS p USING (place)"
            target = "INSERT INTO system_line" if index else "CREATE TEMP TABLE system_line AS"
            try:
                with pq.ParquetFile(table) as opened:
                    rows = pa.RecordBatchReader.from_batches(opened.schema_arrow, opened.iter_batches(ROW_GROUP))
                    connection.register("place", _numbers_table(numbers))
                    connection.register("part_line", rows)
                    connection.execute(f"{target} {query}")
            except (pa.ArrowException, OSError) as error:
                raise duckdb.IOException(str(error)) from error
            finally:
                connection.unregister("place")
                connection.unregister("part_line")


@dataclass(frozen=True, slots=True)
class Part:
    """One file that was read before."""

    path: Path
    entry: Entry
    folder: Path

    @property
    def file(self) -> InputFile:
        name = self.entry["format"]
        return InputFile(self.path, self.entry["bytes"], None if name is None else _BY_NAME[name], self.entry["problem"], by_path=False)

    def read(self, store: Store, placement: Placement, source: int) -> ReadResult:
        """Store the rows that the reader of the file would store; InputError if it failed."""
        read = self.entry["read"]
        result = self._trace(store, placement, source) if self.entry["format"] == TRACE else self._timeline(store, placement, source)
        if "error" in read:
            raise InputError(read["error"].replace(_FILE, str(self.path)))
        for file in read["tables"].values():
            with suppress(OSError):
                (self.folder / file).unlink()
        return result

    def _notes(self, store: Store, source: int) -> None:
        for note in self.entry["read"]["notes"]:
            store.insert("ingest_note", {"source": source, "file": self.path.name, **dict(zip(_NOTE, note, strict=True))})

    def _timeline(self, store: Store, placement: Placement, source: int) -> ReadResult:
        import polars as pl

        from .hosted.timelines import append_events
        from .store.texts import storable

        read = self.entry["read"]
        self._notes(store, source)
        if "event" in read["tables"]:
            events = pl.read_parquet(self.folder / read["tables"]["event"])
            texts = pl.read_parquet(self.folder / read["tables"]["text"])["text"].to_list()
            append_events(store, placement.registry, events, texts, storable(self.path.name), source)
        return ReadResult(**(read["result"] or {"events": 0, "first_ns": None, "last_ns": None}))

    def _trace(self, store: Store, placement: Placement, source: int) -> ReadResult:
        from .chrome_trace.cycle_ids import CYCLE_IDS
        from .store.result import TraceResult

        read = self.entry["read"]
        ids, cycle = self._placed(placement, source)
        names = store.name_ids([text for batch in self._batches("name") for text in batch.column("text").to_pylist()])
        signatures = self._signatures(store)
        if ids is not None:
            node, process = ids
            if tables := [table for table in _EVENTS if table in read["tables"]]:
                source_id = store.map_source(source, node=node, process=process, id_offset=cycle * CYCLE_IDS)
                for table in tables:
                    self._events(store, table, names, signatures, source_id)
            for window in read["windows"]:
                store.insert("profile_window", {"process": process, "source": source, **window})
            devices = read["devices"]
            facts = {device["index"]: {column: value for column, value in device.items() if column != "index"} for device in devices}
            store_devices(store, node, facts)
        self._notes(store, source)
        if read["result"] is None:
            return ReadResult(0, None, None)
        return TraceResult(**{**read["result"], "process": None if ids is None else ids[1]})

    def _placed(self, placement: Placement, source: int) -> tuple[tuple[int, int] | None, int]:
        """Repeat the calls of the reader; return node and process, and the cycle."""
        ids: tuple[int, int] | None = None
        cycle = 0
        calls = self.entry["read"]["told"]
        for method, *arguments in calls:
            if method == "cycle":
                cycle = placement.cycle(ids[1], source) if ids is not None else 0
                continue
            identity, facts = Identity(**arguments[0]), _facts(arguments[1])
            if ids is None:
                ids = placement.assign(identity, facts, source, self.path.name)
            else:
                ids = placement.replace(*ids, identity, facts, source, self.path.name)
        if ids is not None and ["cycle"] in calls:
            cycle = placement.cycle(ids[1], source)  # of the process that it is now
        return ids, cycle

    def _signatures(self, store: Store) -> pl.Series:
        """Return the ids of the signatures of the file in the store, in their order."""
        import polars as pl

        ids = [store.signatures.ids(pl.DataFrame(batch)) for batch in self._batches("signature")]
        return pl.concat(ids) if ids else pl.Series(dtype=pl.Int32)

    def _events(self, store: Store, table: str, names: list[int], signatures: pl.Series, source_id: int) -> None:
        import polars as pl

        ids = pl.Series(names, dtype=pl.Int32)
        for batch in self._batches(table):
            rows = pl.DataFrame(batch)
            if "name" in rows.columns:
                rows = rows.with_columns(name=ids.gather(rows["name"]))
            if "signature" in rows.columns:
                rows = rows.with_columns(signature=signatures.gather(rows["signature"]))
            store.append(table, rows, source_id=source_id)

    def _batches(self, table: str) -> Any:
        """Yield the rows of a table, some hundred thousand at a time."""
        import pyarrow.parquet as pq

        file = self.entry["read"]["tables"].get(table)
        if file is None:
            return
        with pq.ParquetFile(self.folder / file) as opened:
            yield from opened.iter_batches(ROWS)


def _facts(entry: Entry) -> Facts:
    first, last = entry["span"]
    return Facts(dict(entry["device_names"]), frozenset(entry["used"]), first, last)


def _numbers_table(numbers: Sequence[tuple[str, int]]) -> pa.Table:
    import pyarrow as pa

    files, places = zip(*numbers, strict=True)
    return pa.table({"file": pa.array(files, pa.string()), "place": pa.array(places, pa.int32())})
