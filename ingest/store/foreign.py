"""Copies of run stores of unknown origin: path -> checked temporary :class:`.store.Store`.

This process never opens the given file with DuckDB. It opens the file once and copies the bytes into a private folder, without the log
next to it. A child process (``foreign_child.py``) with limits on memory, processor time and file size compares the catalog of this
copy with that of an empty store and sends the rows as Arrow data, which are checked here before they are stored. Views are those of the
new store.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import selectors
import struct
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeVar

from ...errors import InputError
from . import files as store_files
from . import isolated_process
from .database import NO_EXTENSIONS, native_path, who_has_it_open
from .limits import TEXT_BYTES, unpacked_limit
from .schema import ENUM_VALUES, STORED
from .tables import FORMAT_VERSION, Tables, schema_script
from .texts import storable

if TYPE_CHECKING:
    import subprocess

    import pyarrow as pa

S = TypeVar("S", bound=Tables)
CHILD: Final = Path(__file__).with_name("foreign_child.py")
_FRAME: Final = 64 << 20  # Most bytes of a frame: the child sends at most half of it, except for a row with very long texts
_PIPE: Final = 1 << 20  # Bytes of the pipe from the child: the most that Linux gives any account; the default is 64 KiB
_JSON_BYTES: Final = 16 << 20
"""Most bytes of a text in table run: hyperparameters and metadata. Other texts have at most ``TEXT_BYTES``, as readers write them."""
_AGAIN: Final = "ingest the sources again"


@dataclass(frozen=True, slots=True)
class Limits:
    """Of the child: bytes of address space and of data, seconds of processor time (and per GB of the file), seconds without an answer."""

    address_space: int = 4 << 30
    data: int = 1 << 30
    cpu_seconds: int = 60
    cpu_seconds_per_gb: int = 300
    idle_seconds: float = 300.0
    database: str = "256MB"


def copied(
    kind: type[S],
    path: Path,
    *,
    memory_limit: str = "600MB",
    threads: int | None = None,
    max_unpacked: str | None = None,
    limits: Limits | None = None,
    child: Path = CHILD,
) -> S:
    """Copy the rows of a run store, in their order, to a temporary store.

    ``max_unpacked``: how much data it may have (:func:`.limits.unpacked_limit`).
    Raises InputError for a file that is not a run store, has another format, contains anything but its tables, is damaged, or has values
    that no run store has.
    """
    from .values import check

    name = storable(str(path))
    source = path.resolve()
    store_files.check_finished(source, name)
    store = kind.temporary(memory_limit=memory_limit, threads=threads, packed=False)
    try:
        assert store.path is not None
        copy = store.path.with_name("given.duckdb")
        size = store_files.copy(source, copy, name)
        most = unpacked_limit(size, max_unpacked)
        with _Child(copy, source, name, size, limits or Limits(), child) as process:
            left = most
            for table, batch in process.batches():
                left -= batch.nbytes
                if left < 0:
                    raise InputError(
                        f"{name}: the run store has more than {most / 1e9:.3g} GB of data; {_AGAIN}, or report fewer at a time"
                    )
                if table != "store_info":  # checked by the child; ours is written already
                    store.append_unchanged(table, batch)
        copy.unlink()
        check(store, name)
        store.settle_views()
    except BaseException:
        store.close()
        raise
    store.copied_from = name
    return store


class _Child:
    """The process that reads the file. Its end closes the context; an exception in it ends the process."""

    def __init__(self, copy: Path, source: Path, name: str, size: int, limits: Limits, script: Path) -> None:
        self._copy, self._source = native_path(copy), storable(str(source))
        self._name = name
        self._limits = limits
        self._script = script
        self._process: subprocess.Popen[bytes] | None = None
        self._buffer = memoryview(b"")
        self._order = {
            "path": self._copy,
            "parent": os.getpid(),
            "module_paths": [path for path in sys.path if Path(path).is_absolute()],
            "script": schema_script(),
            "tables": {table: list(columns) for table, columns in STORED.items()},
            "version": str(FORMAT_VERSION),
            "settings": {**NO_EXTENSIONS, "threads": 1, "memory_limit": limits.database, "temp_directory": ""},
            "limits": {
                "RLIMIT_AS": limits.address_space,
                "RLIMIT_DATA": limits.data,
                "RLIMIT_CPU": limits.cpu_seconds + int(limits.cpu_seconds_per_gb * size / 1e9),
                "RLIMIT_FSIZE": 0,
                "RLIMIT_CORE": 0,
                "RLIMIT_NPROC": 0,
            },
        }

    def __enter__(self) -> _Child:
        return self

    def __exit__(self, *exception: object) -> None:
        if self._process is not None:
            isolated_process.stop(self._process)

    def batches(self) -> Iterator[tuple[str, pa.RecordBatch]]:
        """Yield table and rows, as the child sends them; InputError."""
        self._start()
        tables = iter(STORED)
        table = None
        while True:
            kind, payload = self._frame()
            if kind == b"T":
                if bytes(payload) != (table := next(tables, "")).encode():
                    raise self._refused()
            elif kind == b"R" and table is not None:
                yield table, self._batch(table, payload)
            elif kind == b"E" and next(tables, None) is None:
                return
            elif kind == b"X":
                raise self._error(bytes(payload))
            else:
                raise self._refused()

    def _start(self) -> None:
        try:
            self._process = isolated_process.start(self._script)
        except OSError as error:
            text = f"the process that reads run stores does not start ({error.strerror or error})"
            raise InputError(f"{self._name}: {text}; check the limits of this account (ulimit -a)") from error
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        try:
            # Some kB, which fit into a pipe.
            self._process.stdin.write(json.dumps(self._order).encode())
            self._process.stdin.close()
        except BrokenPipeError:
            pass  # the missing answer is the error
        os.set_blocking(self._process.stdout.fileno(), False)
        if hasattr(fcntl, "F_SETPIPE_SZ"):  # Linux; an account with many pipes gets no larger one
            with contextlib.suppress(OSError):
                fcntl.fcntl(self._process.stdout, fcntl.F_SETPIPE_SZ, _PIPE)

    def _frame(self) -> tuple[bytes, memoryview]:
        """Return kind and payload of the next frame, valid until the next call."""
        length, kind = struct.unpack("=qc", self._bytes(9))
        if not 1 <= length <= _FRAME:
            raise self._refused()
        return kind, self._bytes(length - 1)

    def _bytes(self, count: int) -> memoryview:
        """Return the next bytes of the child, in memory that the next call uses again."""
        assert self._process is not None
        assert self._process.stdout is not None
        if len(self._buffer) < count:
            self._buffer = memoryview(bytearray(count))
        data, size = self._buffer[:count], 0
        end = time.monotonic() + self._limits.idle_seconds
        with selectors.DefaultSelector() as ready:
            ready.register(self._process.stdout, selectors.EVENT_READ)
            while size < count:
                if not ready.select(end - time.monotonic()):
                    raise self._refused(f"gave no answer for {self._limits.idle_seconds:g} s")
                piece = self._process.stdout.readinto(data[size:])  # type: ignore[attr-defined]  # unbuffered: a FileIO
                if not piece:
                    raise self._ended()
                size += piece
        return data

    def _ended(self) -> InputError:
        assert self._process is not None
        end = isolated_process.end_of(self._process)
        if end == "SIGXCPU":
            return self._refused("used too much processor time")
        return self._refused(None if end is None else f"ended with {end}")

    def _refused(self, why: str | None = None) -> InputError:
        text = why or "gave an answer that is not valid"
        return InputError(f"{self._name}: the run store is damaged or hostile: the process that reads it {text}; {_AGAIN}")

    def _error(self, payload: bytes) -> InputError:
        try:
            kind, *texts = json.loads(payload)
            text = storable("".join(map(str, texts)).replace(self._copy, self._source))[:4000]
        except ValueError:
            return self._refused()
        if kind == "memory":
            return self._refused("needed too much memory")
        if kind == "catalog":
            return InputError(f"{self._name}: contains something that no run store of postrun contains: {text}; {_AGAIN}")
        make = f"make one with `postrun ingest SOURCE -o {Path(self._name).name}`"
        if kind == "lacking":
            lacking = f" ({text} is missing)" if text else ""
            return InputError(f"{self._name}: a DuckDB file, but no run store of postrun{lacking}; {make}")
        if kind == "version":
            return InputError(
                f"{self._name}: run store of format {text}, this postrun reads format {FORMAT_VERSION};"
                " ingest the sources again with this version"
            )
        if user := who_has_it_open(text):
            return InputError(f"{self._name}: {user}; wait for it")
        return InputError(f"{self._name}: cannot be opened as a run store ({text}); {make}")

    def _batch(self, table: str, payload: memoryview) -> pa.RecordBatch:
        """Return the rows of a frame, checked as data of unknown origin."""
        import pyarrow as pa

        try:
            with pa.ipc.open_stream(pa.py_buffer(payload)) as reader:
                batches = list(reader)
            for batch in batches:
                batch.validate(full=True)
        except (pa.ArrowException, ValueError, OSError) as error:
            raise self._refused() from error
        if len(batches) != 1 or batches[0].schema != _schema(table):
            raise self._refused()
        self._check_texts(table, batches[0])
        return batches[0]

    def _check_texts(self, table: str, batch: pa.RecordBatch) -> None:
        import pyarrow as pa
        import pyarrow.compute as pc

        for column, kind in STORED[table].items():
            values = batch.column(column)
            if kind in ENUM_VALUES and values.dictionary.to_pylist() != list(ENUM_VALUES[kind]):
                raise self._refused()
            most = _JSON_BYTES if table == "run" else TEXT_BYTES
            if values.type == pa.string() and (pc.max(pc.binary_length(values)).as_py() or 0) > most:
                raise InputError(f"{self._name}: a text in column {column} of table {table} is longer than {most >> 10} KiB; {_AGAIN}")


def _schema(table: str) -> pa.Schema:
    import pyarrow as pa

    kinds = {"INTEGER": pa.int32(), "BIGINT": pa.int64(), "VARCHAR": pa.string(), "DOUBLE": pa.float64(), "BOOLEAN": pa.bool_()}
    text = pa.dictionary(pa.uint8(), pa.string())
    return pa.schema([(column, text if kind in ENUM_VALUES else kinds[kind]) for column, kind in STORED[table].items()])
