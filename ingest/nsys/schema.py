"""Which tables and columns does an Nsight Systems export have, and how are they read without trusting the file?

The exporter creates a table only where it has rows for it, and its schema changed over the years. So tables and columns are looked up
under every name they had, and whatever is absent is null.
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

from ..store.limits import cut_text

HEAD: Final = b"SQLite format 3\0"
BATCH_ROWS: Final = 32_768  # How many rows of a table are held at a time
LONGEST_TEXT: Final = 16_384  # Names are cut to this many bytes; real ones reach 4,000
LONGEST_ROW: Final = 64 << 20  # A row beyond this is taken for damage
MOST_ROWS: Final = 100_000  # Of tables that describe the machine and the session, and of strings that are looked up, no more rows are read

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

_OWN: Final = (*KERNEL, *MEMCPY, *MEMSET, *SYNC, *GRAPH, *RUNTIME, *NVTX, *SESSION, *EXPORT, *CAPTURE, *SYSTEM, "ANALYSIS_DETAILS")
# What else has events, and is not read: the report tells how many.
OTHER_EVENTS: Final = (
    "OSRT_API", "SCHED_EVENTS", "COMPOSITE_EVENTS", "CUDNN_EVENTS", "CUBLAS_EVENTS", "MPI_P2P_EVENTS", "MPI_COLLECTIVES_EVENTS",
    "MPI_OTHER_EVENTS", "MPI_START_WAIT_EVENTS", "NCCL_EVENTS", "UCP_EVENTS", "OPENMP_EVENT_KIND_PARALLEL", "OPENACC_LAUNCH_EVENTS",
    "GPU_CONTEXT_SWITCH_EVENTS", "CUDA_GPU_MEMORY_USAGE_EVENTS", "CUDA_UM_CPU_PAGE_FAULT_EVENTS", "CUDA_UM_GPU_PAGE_FAULT_EVENTS",
    "CUPTI_ACTIVITY_KIND_CUDA_EVENT", "GENERIC_EVENTS", "NET_NIC_METRIC", "NIC_METRICS", "SYSCALL",
)  # fmt: skip
_CUT: Final = "postrun_cut"
_FUNCTIONS: Final = frozenset({"substr", "min", "max", "count", "typeof", "length", _CUT})
# Newest major number of the schema that this reader was written for.
KNOWN_MAJOR: Final = 3


@contextmanager
def open_database(path: Path) -> Iterator[sqlite3.Connection]:
    """The file, for reading alone: nothing beside it is read or written, nothing that its schema defines is carried out."""
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
    """Reading tables, looking at their columns, and a few functions; a view, trigger or computed column can do no more."""
    if action in (sqlite3.SQLITE_READ, sqlite3.SQLITE_SELECT):
        return sqlite3.SQLITE_OK
    if action == sqlite3.SQLITE_FUNCTION and second in _FUNCTIONS:
        return sqlite3.SQLITE_OK
    if action == sqlite3.SQLITE_PRAGMA and first == "table_info":
        return sqlite3.SQLITE_OK
    return sqlite3.SQLITE_DENY


def tables_of(connection: sqlite3.Connection) -> dict[str, str]:
    """The plain tables by their names in capitals: views and virtual tables are none. Raises sqlite3.Error."""
    rows = connection.execute(
        "SELECT substr(name, 1, 200), substr(sql, 1, 20) FROM sqlite_master WHERE type = 'table' AND rootpage > 0 LIMIT 10000"
    )
    return {
        str(name).upper(): str(name) for name, sql in rows if "VIRTUAL" not in str(sql).upper() and not str(name).startswith("sqlite_")
    }


def pages_missing(head: bytes, size: int) -> int:
    """How many pages a database lacks at its end, by the first 100 bytes of the file and its size; 0 where it does not say."""
    pages, counter, valid = (int.from_bytes(head[at : at + 4]) for at in (28, 24, 92))
    each = int.from_bytes(head[16:18])
    return max(pages - size // (65_536 if each == 1 else each or 1), 0) if len(head) == 100 and counter == valid else 0


def is_export(tables: dict[str, str]) -> bool:
    """Whether these are tables of an export."""
    return any(name.upper() in tables for name in _OWN)


def other_database(head: bytes, path: str) -> bool:
    """Whether a file is an SQLite database that can be read and is no export; not where it is cut off or damaged."""
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
    """An open export. ``damaged``: tables of which not all could be read, with the reason. ``cut``: those of which a survey found
    that an end is missing. ``truncated``: pages at the end of the file are missing."""

    connection: sqlite3.Connection
    tables: dict[str, str]
    truncated: bool = False
    damaged: dict[str, str] = field(default_factory=dict)
    cut: set[str] = field(default_factory=set)
    _columns: dict[str, dict[str, str]] = field(default_factory=dict)

    def table(self, names: Sequence[str]) -> str | None:
        """The first of these tables that there is."""
        return next((self.tables[name.upper()] for name in names if name.upper() in self.tables), None)

    def columns(self, table: str) -> dict[str, str]:
        """Names of a table's columns, by their names in lower case."""
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
        """About how many rows a table has, without counting them; 0 where that cannot be told."""
        try:
            row = self.connection.execute(f"SELECT max(rowid) FROM {_quoted(table)}").fetchone()
        except sqlite3.Error:
            return 0
        return row[0] if row and isinstance(row[0], int) else 0

    def batches(
        self, table: str, columns: Sequence[str | tuple[str, ...]], limit: int | None = None, only: tuple[str, int] | None = None
    ) -> Iterator[list[tuple[Any, ...]]]:
        """The rows of a table as columns, one tuple each, a batch at a time; of several names for a column the first that there is.

        ``only``: a column and the number that it must have. A column that is absent is a tuple of None, texts are cut. What
        cannot be read ends the table and is kept in ``damaged``.
        """
        known = self.columns(table)
        wanted = []
        for column in columns:
            names = (column,) if isinstance(column, str) else column
            real = next((known[name.lower()] for name in names if name.lower() in known), None)
            wanted.append("NULL" if real is None else self._cut(real))
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
        """Rows of a table, its first start, its last end, and the distinct values of ``columns`` (None for absent ones)."""
        known = self.columns(table)
        wanted = ", ".join(_quoted(known[one.lower()]) if one.lower() in known else "NULL" for one in columns)
        name = _quoted(table)
        try:
            first, last = (f"{of}({_quoted(known[one])})" if one in known else "NULL" for of, one in (("min", "start"), ("max", "end")))
            begun = f"count({_quoted(known['start'])})" if "start" in known else "count(*)"
            count, filled, start, end = self.connection.execute(f"SELECT count(*), {begun}, {first}, {last} FROM {name}").fetchone()
            distinct = self.connection.execute(f"SELECT DISTINCT {wanted} FROM {name} LIMIT {MOST_ROWS}").fetchall()
        except sqlite3.Error:
            self.cut.add(table)
            return self.last_row(table), None, None, []  # reading it row by row will tell what is wrong
        if self.truncated and filled < count:  # of a page that is cut within, what is missing reads as nothing
            self.cut.add(table)
        return count, start if type(start) is int else None, end if type(end) is int else None, distinct

    @staticmethod
    def _cut(column: str) -> str:
        name = _quoted(column)
        return _short(name) if column in _TEXTS else name

    def rows(self, names: Sequence[str], columns: Sequence[str | tuple[str, ...]]) -> list[tuple[Any, ...]]:
        """The rows of a small table, none where it is absent."""
        table = self.table(names)
        if table is None:
            return []
        return [row for batch in self.batches(table, columns, MOST_ROWS) for row in zip(*batch, strict=True)]

    def strings(self, ids: Sequence[int]) -> dict[int, str]:
        """What the table of strings has under these numbers."""
        table = self.table(STRINGS)
        if table is None or not (self.has(table, "id") and self.has(table, "value")):
            return {}
        texts: dict[int, str] = {}
        try:
            for start in range(0, len(ids), 500):
                some = ", ".join(str(int(one)) for one in ids[start : start + 500])
                sql = f"SELECT id, {_short('value')} FROM {_quoted(table)} WHERE id IN ({some})"
                texts.update((key, value) for key, value in self.connection.execute(sql) if type(key) is int and isinstance(value, str))
        except sqlite3.Error as error:
            self.damaged[table] = _reason(error)
        return texts


# Columns whose values are texts of any length; the others are numbers, which need no cutting.
_TEXTS: Final = frozenset({"text", "value", "name", "demangledName", "shortName", "mangledName", "uuid", "metricName"})


def _short(column: str) -> str:
    """A column whose long texts are cut, so that two different ones stay two."""
    long = f"typeof({column}) = 'text' AND length(CAST({column} AS BLOB)) > {LONGEST_TEXT}"
    return f"CASE WHEN {long} THEN {_CUT}(CAST({column} AS BLOB)) ELSE {column} END"


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _reason(error: BaseException) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0][:200]
