"""The tables and columns of an Nsight Systems export, and access to them that does not trust the file.

The exporter creates a table only if it has rows for it, and its schema changed over the years. So tables and columns are looked up under
every name they had, and absent columns are null.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

from ..chrome_trace.unpacked import database_pages
from ..store.limits import cut_text

HEAD: Final = b"SQLite format 3\0"
BATCH_ROWS: Final = 32_768  # rows of a table in memory at a time
LONGEST_TEXT: Final = 16_384  # bytes to which names are cut; real ones reach 4,000
LONGEST_ROW: Final = 64 << 20  # bytes; a longer row is damage
MOST_ROWS: Final = 100_000  # read from a table that describes the machine or the session, or of strings that are looked up

# Names of each table, newest first.
KERNEL: Final = ("CUPTI_ACTIVITY_KIND_KERNEL", "CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL")
MEMCPY: Final = ("CUPTI_ACTIVITY_KIND_MEMCPY",)
MEMSET: Final = ("CUPTI_ACTIVITY_KIND_MEMSET",)
SYNC: Final = ("CUPTI_ACTIVITY_KIND_SYNCHRONIZATION",)
GRAPH: Final = ("CUPTI_ACTIVITY_KIND_GRAPH_TRACE",)
RUNTIME: Final = ("CUPTI_ACTIVITY_KIND_RUNTIME",)
DRIVER: Final = ("CUPTI_ACTIVITY_KIND_DRIVER",)
NVTX: Final = ("NVTX_EVENTS", "NVTX_EVENTS_V2")
OVERHEAD: Final = ("CUPTI_ACTIVITY_KIND_OVERHEAD",)
PROFILER_OVERHEAD: Final = ("PROFILER_OVERHEAD",)
STRINGS: Final = ("StringIds",)
PROCESSES: Final = ("PROCESSES",)
GPUS: Final = ("TARGET_INFO_GPU", "TARGET_INFO_CUDA_GPU")
CUDA_DEVICES: Final = ("TARGET_INFO_CUDA_DEVICE",)
CONTEXTS: Final = ("TARGET_INFO_CUDA_CONTEXT_INFO", "TARGET_INFO_CUDA_CONTEXT")
SYSTEM: Final = ("TARGET_INFO_SYSTEM_ENV",)
SESSION: Final = ("TARGET_INFO_SESSION_START_TIME",)
EXPORT: Final = ("META_DATA_EXPORT", "EXPORT_META_DATA")
CAPTURE: Final = ("META_DATA_CAPTURE", "CAPTURE_META_DATA")
DIAGNOSTICS: Final = ("DIAGNOSTIC_EVENT",)
MPI_RANKS: Final = ("MPI_RANKS",)
GPU_METRICS: Final = ("GPU_METRICS",)
METRIC_NAMES: Final = ("TARGET_INFO_GPU_METRICS",)
COPY_KINDS: Final = ("ENUM_CUDA_MEMCPY_OPER",)
MEMORY_KINDS: Final = ("ENUM_CUDA_MEM_KIND",)
SYNC_KINDS: Final = ("ENUM_CUPTI_SYNC_TYPE",)

_OF_EXPORT: Final = (*KERNEL, *MEMCPY, *MEMSET, *SYNC, *GRAPH, *RUNTIME, *NVTX, *SESSION, *EXPORT, *CAPTURE, *SYSTEM, "ANALYSIS_DETAILS")
# Other tables of events, which are not read; the report shows their numbers of rows.
OTHER_EVENTS: Final = (
    "OSRT_API", "SCHED_EVENTS", "COMPOSITE_EVENTS", "CUDNN_EVENTS", "CUBLAS_EVENTS", "MPI_P2P_EVENTS", "MPI_COLLECTIVES_EVENTS",
    "MPI_OTHER_EVENTS", "MPI_START_WAIT_EVENTS", "NCCL_EVENTS", "UCP_EVENTS", "OPENMP_EVENT_KIND_PARALLEL", "OPENACC_LAUNCH_EVENTS",
    "GPU_CONTEXT_SWITCH_EVENTS", "CUDA_GPU_MEMORY_USAGE_EVENTS", "CUDA_UM_CPU_PAGE_FAULT_EVENTS", "CUDA_UM_GPU_PAGE_FAULT_EVENTS",
    "CUPTI_ACTIVITY_KIND_CUDA_EVENT", "GENERIC_EVENTS", "NET_NIC_METRIC", "NIC_METRICS", "SYSCALL",
)  # fmt: skip
_CUT: Final = "postrun_cut"
_FUNCTIONS: Final = frozenset({"substr", "min", "max", "count", "typeof", "length", _CUT})
KNOWN_MAJOR: Final = 3  # newest major number of the schema that this reader was written for


@contextmanager
def open_database(path: Path) -> Iterator[sqlite3.Connection]:
    """Open the file read-only; nothing that its schema defines is executed."""
    uri = f"file:{quote(str(path.absolute()), errors='surrogateescape')}?mode=ro&immutable=1"
    connection = sqlite3.connect(uri, uri=True, isolation_level=None)
    try:
        connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, LONGEST_ROW)
        connection.setlimit(sqlite3.SQLITE_LIMIT_ATTACHED, 0)
        # A file that is cut off is opened with writable_schema alone; nothing can be written all the same.
        for setting in (
            "writable_schema = ON",
            "query_only = ON",
            "trusted_schema = OFF",
            "cell_size_check = ON",
            "mmap_size = 0",
            "cache_size = -16384",
        ):
            connection.execute(f"PRAGMA {setting}")
        connection.text_factory = _text
        connection.create_function(_CUT, 1, lambda raw: cut_text(_text(raw), LONGEST_TEXT), deterministic=True)
        connection.set_authorizer(_allowed)
        yield connection
    finally:
        connection.close()


def _text(raw: bytes) -> str:
    return raw.decode("utf-8", "replace")


def _allowed(action: int, first: str | None, second: str | None, database: str | None, source: str | None) -> int:
    """Allow reading and a few functions, also in views and computed columns."""
    allowed = (
        action in (sqlite3.SQLITE_READ, sqlite3.SQLITE_SELECT)
        or (action == sqlite3.SQLITE_FUNCTION and second in _FUNCTIONS)
        or (action == sqlite3.SQLITE_PRAGMA and first == "table_info")
    )
    return sqlite3.SQLITE_OK if allowed else sqlite3.SQLITE_DENY


def tables_of(connection: sqlite3.Connection) -> dict[str, str]:
    """Return the tables, without views and virtual tables, by their names in capitals."""
    rows = connection.execute(
        "SELECT substr(name, 1, 200), substr(sql, 1, 20) FROM sqlite_master WHERE type = 'table' AND rootpage > 0 LIMIT 10000"
    )
    return {str(name).upper(): str(name) for name, sql in rows if "VIRTUAL" not in str(sql).upper() and not str(name).startswith("sqlite_")}


def pages_missing(path: Path) -> int:
    """Return how many pages a database lacks at its end according to its header."""
    with path.open("rb") as file:
        pages, page_bytes = database_pages(file.read(100))
    return max(pages - path.stat().st_size // page_bytes, 0)


def is_export(tables: dict[str, str]) -> bool:
    return any(name in tables for name in _OF_EXPORT)


def other_database(head: bytes, path: str) -> bool:
    """Return whether a file is a readable SQLite database but not an export."""
    if not head.startswith(HEAD):
        return False
    try:
        with open_database(Path(path)) as connection:
            tables = tables_of(connection)
    except (sqlite3.Error, OSError, ValueError):
        return False
    return bool(tables) and not is_export(tables)


@dataclass(slots=True)
class Export:
    """An open export. ``truncated``: pages at the end of the file are missing.

    ``damaged``: tables that could not be read completely, with the reason. ``cut``: tables that a survey found to be incomplete.
    """

    connection: sqlite3.Connection
    tables: dict[str, str]
    truncated: bool = False
    damaged: dict[str, str] = field(default_factory=dict)
    cut: set[str] = field(default_factory=set)
    _columns: dict[str, dict[str, str]] = field(default_factory=dict)

    def table(self, names: Sequence[str]) -> str | None:
        """Return the first of these tables that exists."""
        return next((self.tables[name.upper()] for name in names if name.upper() in self.tables), None)

    def columns(self, table: str) -> dict[str, str]:
        """Return the names of a table's columns by their names in lower case."""
        if table not in self._columns:
            try:
                rows = self.connection.execute(f"PRAGMA table_info({_quoted(table)})").fetchall()
                self._columns[table] = {str(row[1]).lower(): str(row[1]) for row in rows}
            except sqlite3.Error as error:
                self.damaged[table] = _reason(error)
                self._columns[table] = {}
        return self._columns[table]

    def has(self, table: str, column: str) -> bool:
        return column.lower() in self.columns(table)

    def last_row(self, table: str) -> int:
        """Return the highest row id as an estimate of the number of rows; 0 if unknown."""
        try:
            row = self.connection.execute(f"SELECT max(rowid) FROM {_quoted(table)}").fetchone()
        except sqlite3.Error:
            return 0
        return row[0] if row and isinstance(row[0], int) else 0

    def batches(
        self, table: str, columns: Sequence[str | tuple[str, ...]], limit: int | None = None, only: tuple[str, int] | None = None
    ) -> Iterator[list[tuple[Any, ...]]]:
        """Yield the rows of a table in batches, as one tuple per column.

        A column can have several names; the first that exists is read. Absent columns are tuples of None, and texts are cut. ``only``: a
        column and the number that it must have. An error ends the table; its reason is kept in ``damaged``.
        """
        known = self.columns(table)
        wanted = []
        for column in columns:
            names = (column,) if isinstance(column, str) else column
            real = next((known[name.lower()] for name in names if name.lower() in known), None)
            wanted.append("NULL" if real is None else _short(_quoted(real)) if real in _TEXTS else _quoted(real))
        sql = f"SELECT {', '.join(wanted)} FROM {_quoted(table)}"
        if only is not None:
            sql += f" WHERE {_quoted(known[only[0].lower()])} = {only[1]}"
        if limit is not None:
            sql += f" LIMIT {limit}"
        try:
            cursor = self.connection.execute(sql)
        except sqlite3.Error as error:
            self.damaged[table] = _reason(error)
            return
        while table not in self.damaged:
            rows: list[tuple[Any, ...]] = []
            try:
                rows.extend(islice(cursor, BATCH_ROWS))  # keeps the rows before a damaged page, which fetchmany would lose
            except (sqlite3.Error, MemoryError, OverflowError) as error:
                self.damaged[table] = _reason(error)
            if not rows:
                return
            yield list(zip(*rows, strict=True))

    def survey(self, table: str, columns: Sequence[str]) -> tuple[int, int | None, int | None, list[tuple[Any, ...]]]:
        """Return number of rows, first start, last end and distinct values of ``columns``."""
        known = self.columns(table)
        wanted = ", ".join(_quoted(known[column.lower()]) if column.lower() in known else "NULL" for column in columns)
        name = _quoted(table)
        first = f"min({_quoted(known['start'])})" if "start" in known else "NULL"
        last = f"max({_quoted(known['end'])})" if "end" in known else "NULL"
        begun = f"count({_quoted(known['start'])})" if "start" in known else "count(*)"
        try:
            count, filled, start, end = self.connection.execute(f"SELECT count(*), {begun}, {first}, {last} FROM {name}").fetchone()
            distinct = self.connection.execute(f"SELECT DISTINCT {wanted} FROM {name} LIMIT {MOST_ROWS}").fetchall()
        except sqlite3.Error:
            self.cut.add(table)
            return self.last_row(table), None, None, []  # reading it row by row will show the reason
        if self.truncated and filled < count:  # the missing part of a cut page reads as nulls
            self.cut.add(table)
        return count, start if type(start) is int else None, end if type(end) is int else None, distinct

    def rows(self, names: Sequence[str], columns: Sequence[str | tuple[str, ...]]) -> list[tuple[Any, ...]]:
        """Return the rows of a small table; [] if it is absent."""
        table = self.table(names)
        if table is None:
            return []
        return [row for batch in self.batches(table, columns, MOST_ROWS) for row in zip(*batch, strict=True)]

    def strings(self, ids: Sequence[int]) -> dict[int, str]:
        """Return the strings with these numbers."""
        table = self.table(STRINGS)
        if table is None or not (self.has(table, "id") and self.has(table, "value")):
            return {}
        texts: dict[int, str] = {}
        try:
            for start in range(0, len(ids), 500):
                some = ", ".join(str(int(number)) for number in ids[start : start + 500])
                sql = f"SELECT id, {_short('value')} FROM {_quoted(table)} WHERE id IN ({some})"
                texts.update((key, value) for key, value in self.connection.execute(sql) if type(key) is int and isinstance(value, str))
        except sqlite3.Error as error:
            self.damaged[table] = _reason(error)
        return texts


# Columns with texts of any length, which are cut.
_TEXTS: Final = frozenset({"text", "value", "name", "demangledName", "shortName", "mangledName", "uuid", "metricName"})


def _short(column: str) -> str:
    """Return an expression that cuts long texts; different texts stay different."""
    long = f"typeof({column}) = 'text' AND length(CAST({column} AS BLOB)) > {LONGEST_TEXT}"
    return f"CASE WHEN {long} THEN {_CUT}(CAST({column} AS BLOB)) ELSE {column} END"


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _reason(error: BaseException) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0][:200]
