"""What does a file of a run say by itself, and how does that come into the run's store later, maybe on another machine?

:func:`write` reads files one by one, with the readers of ``ingest``, and writes what they say as Parquet files and an entry of JSON
values each: no id in it means anything outside of its file. :class:`Partials` gives that to :func:`.load.load` in place of the files. What
only all files tell (machines and processes, cycles, which files are the same, steps, notes over several files) is found there, by the same
functions in the same order as when the files themselves are read.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from ..errors import InputError
from .checksum import sha256
from .chrome_trace.head import TRACE_HEAD_BYTES, read_head
from .chrome_trace.inflate import over_limit
from .discover import FORMATS, Found
from .store.devices import store_device
from .store.format_names import SYSTEM_METRICS, TIMELINE, TRACE
from .store.identity import Facts, Identity, Placement
from .store.reader_failures import costs_one_file, failure_text
from .store.registry import ReadResult, Registry
from .store.store import Store
from .store.tables import ENUM_VALUES, SCHEMA, native_path
from .store.time_limits import IMPOSSIBLE

if TYPE_CHECKING:
    import duckdb
    import pyarrow as pa

    from .hosted.system_metrics import Lines

FORMAT: Final = 3  # Of the entries and tables; partials of another format are of no use
MAPPED: Final = frozenset({TRACE, TIMELINE, SYSTEM_METRICS})
"""Formats of which :func:`write` makes tables. Recordings are compact tables already, and read as quickly as Parquet."""
ROWS: Final = 300_000  # How many rows go to the store at a time, as the reader of traces does it

ROW_GROUP: Final = 122_880  # How many rows are in a group of a Parquet file, as DuckDB writes it

_EVENTS: Final = ("device_event", "host_event", "annotation", "collective", "allocation")
_OWN: Final = ("node", "process")
_CYCLE_COLUMNS: Final = ("correlation", "external_id")
_NOTE: Final = ("severity", "code", "message", "count", "first_ns", "last_ns")
_FILE: Final = "\0file\0"  # Stands for the path of the file in what is told of an error

Entry = dict[str, Any]
_BY_NAME: Final = {known.name: known for known in FORMATS}


# -- reading files by themselves -------------------------------------------------------------------------------------------


def write(
    found: Sequence[Found],
    folder: Path,
    prefix: str,
    *,
    memory_limit: str = "600MB",
    threads: int | None = None,
    max_unpacked: str | None = None,
) -> list[Entry]:
    """An entry per file, in order; their tables are written below ``folder``, with names that begin with ``prefix``.

    A file whose format is not in ``MAPPED`` has an entry without ``read``. Damage of a file is told in its entry, never raised.
    """
    options: dict[str, Any] = {"memory_limit": memory_limit, "threads": threads}
    entries: list[Entry] = []
    metrics: dict[int, Path] = {}
    for place, one in enumerate(found):
        name = None if one.format is None else one.format.name
        entry: Entry = {"format": name, "bytes": one.bytes, "problem": one.problem}
        entries.append(entry)
        if one.readable:
            entry["sha256"] = sha256(one.path)
        if not one.readable or name not in MAPPED:
            continue
        if name == SYSTEM_METRICS:
            metrics[place] = one.path
            continue
        # Of a timeline only notes go to the store.
        with Store.temporary(**options) if name == TRACE else Store.create(None, **options) as store:
            store.max_unpacked = max_unpacked
            tables = _Tables(store, folder, f"{prefix}{place:04}")
            entry["read"] = (_trace if name == TRACE else _timeline)(store, one.path, tables)
            entry["read"]["tables"] = tables.written
            entry["read"]["notes"] = store.frame(f"SELECT {_quoted(_NOTE)} FROM ingest_note ORDER BY rowid").rows()
    if metrics:
        with Store.temporary(**options) as store:
            for place, path in list(metrics.items()):
                with suppress(InputError, OSError):  # whoever loads it meets that too
                    if (why := over_limit(path, max_unpacked)) is not None:
                        entries[place]["lines"] = {"error": why}
                        del metrics[place]
            _lines(store, metrics, entries, _Tables(store, folder, f"{prefix}metrics"))
    return entries


@dataclass(slots=True)
class _Tables:
    """Parquet files that are written of one store."""

    store: Store
    folder: Path
    prefix: str
    written: dict[str, str]

    def __init__(self, store: Store, folder: Path, prefix: str) -> None:
        self.store, self.folder, self.prefix, self.written = store, folder, prefix, {}

    def path(self, table: str) -> Path:
        self.written[table] = f"{self.prefix}.{table}.parquet"
        return self.folder / self.written[table]

    def copy(self, table: str, query: str) -> None:
        """The rows of ``query``, in its order."""
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

    placement = _Told(Registry(store))
    read: Entry = {"result": None}
    try:
        read["result"] = asdict(read_trace(store, placement, path, 0, read_head(path, TRACE_HEAD_BYTES)))
    except BaseException as error:
        read["error"] = _reason(error, path)
        if not isinstance(error, InputError | OSError):  # nothing of a file whose reader failed
            for table in (*_EVENTS, "device", "profile_window"):
                store.connection.execute(f"DELETE FROM {table}")
    if store.left_out:
        store.note(*IMPOSSIBLE, count=store.left_out)
    read["told"] = [_told_as_json(*one) for one in placement.told]
    tables.copy("name", "SELECT text FROM name ORDER BY id")
    for table in _EVENTS:
        if store.frame(f"SELECT EXISTS (FROM {table})").item():
            columns = ", ".join(
                f'"{c}"{"::VARCHAR" if k in ENUM_VALUES else ""} AS "{c}"' for c, k in SCHEMA[table].items() if c not in _OWN
            )
            tables.copy(table, f"SELECT {columns} FROM {table} ORDER BY rowid")
    read["devices"] = _rows(store, "device")
    read["windows"] = _rows(store, "profile_window")
    return read


def _reason(error: BaseException, path: Path) -> str:
    """Why a file could not be read; raises what is not of this file alone."""
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
    """The lines of files of system metrics, all of them in one table, in which a file is its place."""
    places: dict[str, int] = {}
    for place, path in files.items():
        with suppress(InputError):  # one that the database cannot open; whoever loads it meets that, too
            places[native_path(path)] = place
    read = _parsed(store.connection, list(places), {file: entries[place] for file, place in places.items()})
    if read:
        store.connection.register("place", _places_table([(file, places[file]) for file in read]))
        store.connection.execute("CREATE TABLE line AS SELECT p.place, l.* EXCLUDE (file) FROM all_line AS l JOIN place AS p USING (file)")
        tables.copy("line", "SELECT * FROM line ORDER BY rowid")
        for file in read:
            entries[places[file]]["lines"] = {"table": tables.written["line"], "place": places[file]}


def _parsed(connection: duckdb.DuckDBPyConnection, files: list[str], entries: Mapping[str, Entry]) -> list[str]:
    """Which of the files could be read; their lines are in ``all_line`` then. The entries of the others say why not."""
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


class _Told(Placement):
    """A placement that keeps in mind what it was told of its one file."""

    def __init__(self, registry: Registry) -> None:
        super().__init__(registry)
        self.told: list[tuple[str, Identity | None, Facts | None]] = []

    def place(self, identity: Identity, facts: Facts, source: int, label: str) -> tuple[int, int]:
        self.told.append(("place", identity, facts))
        return super().place(identity, facts, source, label)

    def replace(self, node: int, process: int, identity: Identity, facts: Facts, source: int, label: str) -> tuple[int, int]:
        before = len(self.told)
        now = super().replace(node, process, identity, facts, source, label)
        self.told[before:] = [("replace", identity, facts)]
        return now

    def cycle(self, process: int, source: int) -> int:
        self.told.append(("cycle", None, None))
        return super().cycle(process, source)


def _rows(store: Store, table: str) -> list[Entry]:
    columns = [column for column in SCHEMA[table] if column not in (*_OWN, "source")]
    return store.frame(f"SELECT {_quoted(columns)} FROM {table} ORDER BY rowid").to_dicts()


def _quoted(columns: Any) -> str:
    return ", ".join(f'"{column}"' for column in columns)


def _told_as_json(what: str, identity: Identity | None, facts: Facts | None) -> list[Any]:
    if identity is None or facts is None:
        return [what]
    said = {"device_names": list(facts.device_names.items()), "used": sorted(facts.used_devices), "span": [facts.first_ns, facts.last_ns]}
    return [what, asdict(identity), said]


# -- loading what was read -------------------------------------------------------------------------------------------------


class Partials:
    """What was read of files before: entries of :func:`write` by the path that each file has in this run, and where its tables are."""

    def __init__(self, entries: Mapping[Path, tuple[Entry, Path]]) -> None:
        self._parts = {path: Part(path, entry, folder) for path, (entry, folder) in entries.items()}
        self._native: dict[str, Part] = {}
        for path, part in self._parts.items():
            with suppress(InputError):
                self._native[native_path(path)] = part

    def get(self, path: Path) -> Part | None:
        return self._parts.get(path)

    def found(self) -> list[Found]:
        return [part.found for part in self._parts.values()]

    def checksums(self, found: Sequence[Found]) -> dict[int, str | None]:
        """Of those of the files that were read before, by position."""
        return {i: part.entry.get("sha256") for i, one in enumerate(found) if (part := self._parts.get(one.path)) is not None}

    def lines(self) -> Lines:
        """The lines of files of system metrics."""
        from .hosted.system_metrics import Lines

        return Lines(self._parse, lambda file: self._native[file].entry["bytes"] or 0)

    def _parse(self, connection: duckdb.DuckDBPyConnection, files: Sequence[str]) -> None:
        import duckdb
        import pyarrow as pa
        import pyarrow.parquet as pq

        tables: dict[Path, list[tuple[str, int]]] = {}
        for file in files:
            part = self._native[file]
            said = part.entry["lines"]
            if "error" in said:
                raise duckdb.IOException(said["error"].replace(_FILE, file))
            tables.setdefault(part.folder / said["table"], []).append((file, said["place"]))
        connection.execute("DROP TABLE IF EXISTS system_line")
        for number, (table, places) in enumerate(tables.items()):
            query = "SELECT p.file, l.* EXCLUDE (place) FROM part_line AS l JOIN place AS p USING (place)"
            target = "INSERT INTO system_line" if number else "CREATE TEMP TABLE system_line AS"
            try:
                with pq.ParquetFile(table) as opened:
                    rows = pa.RecordBatchReader.from_batches(opened.schema_arrow, opened.iter_batches(ROW_GROUP))
                    connection.register("place", _places_table(places))
                    connection.register("part_line", rows)
                    connection.execute(f"{target} {query}")
            except (pa.ArrowException, OSError) as error:
                raise duckdb.IOException(str(error)) from error
            finally:
                connection.unregister("place")
                connection.unregister("part_line")


@dataclass(frozen=True, slots=True)
class Part:
    """What was read of one file before."""

    path: Path
    entry: Entry
    folder: Path

    @property
    def found(self) -> Found:
        entry = self.entry
        known = None if entry["format"] is None else _BY_NAME[entry["format"]]
        return Found(self.path, entry["bytes"], known, entry["problem"], given=False)

    def read(self, store: Store, placement: Placement, source: int) -> ReadResult:
        """As the reader of the file, to the same rows. Raises InputError where it did."""
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
        from .store.tables import storable

        read = self.entry["read"]
        self._notes(store, source)
        if "event" in read["tables"]:
            events = pl.read_parquet(self.folder / read["tables"]["event"])
            texts = pl.read_parquet(self.folder / read["tables"]["text"])["text"].to_list()
            append_events(store, placement.registry, events, texts, storable(self.path.name), source)
        return ReadResult(**(read["result"] or {"events": 0, "first_ns": None, "last_ns": None}))

    def _trace(self, store: Store, placement: Placement, source: int) -> ReadResult:
        from .store.result import TraceResult

        read = self.entry["read"]
        where, cycle = self._placed(placement, source)
        names = store.name_ids([text for batch in self._batches("name") for text in batch.column("text").to_pylist()])
        for table in _EVENTS:
            self._events(store, table, names, where, cycle)
        if where is not None:
            node, process = where
            for window in read["windows"]:
                store.insert("profile_window", {"process": process, "source": source, **window})
            for device in read["devices"]:
                store_device(store, node, device["index"], {column: value for column, value in device.items() if column != "index"})
        self._notes(store, source)
        if read["result"] is None:
            return ReadResult(0, None, None)
        return TraceResult(**{**read["result"], "process": None if where is None else where[1]})

    def _placed(self, placement: Placement, source: int) -> tuple[tuple[int, int] | None, int]:
        """Node and process of a trace, told step by step what its reader told; how many files of the process came before."""
        where: tuple[int, int] | None = None
        cycle = 0
        told = self.entry["read"]["told"]
        for what, *said in told:
            if what == "cycle":
                cycle = placement.cycle(where[1], source) if where is not None else 0
            elif where is None:
                where = placement.place(Identity(**said[0]), _facts(said[1]), source, self.path.name)
            else:
                where = placement.replace(*where, Identity(**said[0]), _facts(said[1]), source, self.path.name)
        if where is not None and ["cycle"] in told:
            cycle = placement.cycle(where[1], source)  # of the process that it is now
        return where, cycle

    def _events(self, store: Store, table: str, names: list[int], where: tuple[int, int] | None, cycle: int) -> None:
        import polars as pl

        from .chrome_trace.cycle_ids import of_cycle

        if where is None:
            return
        ids = pl.Series(names, dtype=pl.Int32)
        for batch in self._batches(table):
            rows = pl.DataFrame(batch)
            rows = rows.with_columns(node=pl.lit(where[0], pl.Int32), process=pl.lit(where[1], pl.Int32))
            if "name" in rows.columns:
                rows = rows.with_columns(name=ids.gather(rows["name"]))
            if cycle:
                rows = rows.with_columns(of_cycle(column, cycle) for column in _CYCLE_COLUMNS if column in rows.columns)
            store.append(table, rows)

    def _batches(self, table: str) -> Any:
        """The rows of a table, some hundred thousand at a time."""
        import pyarrow.parquet as pq

        file = self.entry["read"]["tables"].get(table)
        if file is None:
            return
        with pq.ParquetFile(self.folder / file) as opened:
            yield from opened.iter_batches(ROWS)


def _facts(said: Entry) -> Facts:
    first, last = said["span"]
    return Facts(dict(said["device_names"]), frozenset(said["used"]), first, last)


def _places_table(places: Sequence[tuple[str, int]]) -> pa.Table:
    import pyarrow as pa

    files, numbers = zip(*places, strict=True)
    return pa.table({"file": pa.array(files, pa.string()), "place": pa.array(numbers, pa.int32())})
