"""Trace files of the capture library (.prt) as Arrow tables, with what is lost.

Opening checks every block of the file; a damaged file opens, and :meth:`TraceFile.problems` lists what is missing. The rows of a
table are decoded when they are read: a :class:`TraceTable` is an Arrow stream (``__arrow_c_stream__``) that pyarrow, DuckDB and
Polars read without a copy. docs/trace-format.md describes the format.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

from ...errors import InputError
from ..store.limits import METADATA_BYTES, cut_text, unpacked_limit

if TYPE_CHECKING:
    import pyarrow as pa

try:
    from ...native._native import TraceReader as _Reader
except ImportError:  # installed without a compiler
    _Reader = None  # type: ignore[assignment,misc]

MAGIC: Final = b"\x89PRT\r\n\x1a\n"
TABLES: Final = (
    "meta", "strings", "clock", "process", "thread", "annotation", "counter", "api", "kernel", "memcpy", "memset", "sync", "metric", "loss",
    "end", "external",
)  # fmt: skip

_TEXTS: Final = MappingProxyType(
    {
        "damaged": "bytes that are no block",
        "missing_blocks": "blocks are missing",
        "truncated": "the file ends inside a block",
        "no_end": "the recording was not stopped properly, or goes on",
        "bad_header": "the file header is damaged",
        "undecodable": "a block whose columns make no sense",
        "no_zstd": "compressed blocks, and libzstd.so.1 cannot be loaded; install it (Debian, Ubuntu: libzstd1)",
        "unknown_codec": "blocks with a compression that this version does not know",
        "unknown_type": "blocks of a kind that this version does not know",
        "unknown_encoding": "columns in an encoding that this version does not know",
        "out_of_order": "blocks whose numbers go back",
        "row_limit": "blocks left out: they stand for more rows than a file of this size warrants",
        "no_clock": "no clock anchor; times count from when the file was made",
        "bad_clock": "clock anchors that contradict each other are left out",
        "bad_string": "names with an id beyond reason, or with two texts",
        "unresolved_name": "rows whose name is lost; they read ?name#<id>",
        "out_of_range": "numbers beyond the range of their column are left out",
        "unreadable": "the file could not be read to its end",
        "unpacked_limit": "blocks left out: the file unpacks to more than the limit; raise --max-unpacked to read them",
    }
)


@dataclass(frozen=True, slots=True)
class Problem:
    """One loss or repair: its offset in the file, the bytes, blocks and rows if known, and its time."""

    code: str
    offset: int
    bytes: int
    blocks: int
    rows: int
    first_ns: int | None
    last_ns: int | None

    @property
    def message(self) -> str:
        """The meaning of the code, for a user of the report."""
        return _TEXTS[self.code]


@dataclass(frozen=True, slots=True)
class Contents:
    """How many intact blocks a table has, with how many rows, and their bytes in the file and decompressed."""

    blocks: int
    rows: int
    stored_bytes: int
    raw_bytes: int


class TraceTable:
    """The rows of one table: a stream that can be read any number of times."""

    def __init__(self, reader: Any, name: str) -> None:
        self._reader = reader
        self.name = name

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        return self._reader.stream(self.name)

    def arrow(self) -> pa.Table:
        """Return all rows in memory."""
        import pyarrow as pa

        return pa.table(self)


class TraceFile:
    """An open trace file. ``name_ids``: names as int32 indices of :meth:`names` rather than as dictionaries of texts. ``max_unpacked``:
    the value of --max-unpacked."""

    def __init__(self, path: Path, *, row_limit: int = 0, name_ids: bool = False, max_unpacked: str | None = None) -> None:
        if _Reader is None:
            raise InputError(f"{path}: trace files of the capture library need the native part of postrun, which was not built")
        self.path = path
        try:
            if path.is_file() and path.stat().st_size == 0:
                raise InputError(f"{path}: the file is empty; its program ended, or the disk was full, before anything was written")
            self._reader = _Reader(path, row_limit, name_ids, unpacked_limit(path.stat().st_size, max_unpacked))
        except ValueError as error:
            raise InputError(f"{path}: {error}") from error
        except OSError as error:
            raise InputError(f"{path}: {error.strerror or error}") from error

    @property
    def header(self) -> dict[str, Any]:
        """Version, features, session, pid, parent_pid, created_ns, number and size."""
        return self._reader.header()

    @property
    def contents(self) -> dict[str, Contents]:
        """Blocks, rows and bytes of each table."""
        return {name: Contents(*counts) for name, *counts in self._reader.counts()}

    def table(self, name: str) -> TraceTable:
        """Return one of ``TABLES``."""
        if name not in TABLES:
            raise KeyError(name)
        return TraceTable(self._reader, name)

    def names(self) -> list[str]:
        """Return the text of each name id."""
        return self._reader.names()

    def metadata(self) -> dict[str, str]:
        """Return the META rows, limited and cut; of a repeated key, the last value."""
        import pyarrow as pa

        metadata: dict[str, str] = {}
        room = METADATA_BYTES
        with pa.RecordBatchReader.from_stream(self.table("meta")) as batches:
            for batch in batches:
                for row in batch.to_pylist():
                    key, value = (cut_text(row[column] or "") for column in ("key", "value"))
                    room -= len(key) + len(value)
                    if room < 0:
                        return metadata
                    metadata[key] = value
        return metadata

    def problems(self) -> list[Problem]:
        """Return losses; those inside a block are known when its table has been read."""
        return [Problem(*problem) for problem in self._reader.problems()]
