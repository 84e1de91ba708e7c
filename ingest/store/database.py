"""The database of a run store: its settings, its file and its connection, and errors of opening it."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from ...errors import InputError, PostrunError, UsageError
from ...temporary import Folder
from .limits import size_in_bytes
from .texts import storable

if TYPE_CHECKING:
    import duckdb

NO_EXTENSIONS: Final = {
    "autoinstall_known_extensions": "false",
    "autoload_known_extensions": "false",
    "allow_community_extensions": "false",
}
NOT_PACKED: Final = {"disabled_compression_methods": "'bitpacking'"}  # The one that takes time; runs of equal values are still packed
LOCKED: Final = {"enable_external_access": "false", "lock_configuration": "true"}
"""A database with these settings reads and writes its own file and its spill folder only, and no statement can change that."""


def database_settings(memory_limit: str, threads: int | None) -> dict[str, str | bool | int | float | list[str]]:
    """Return the settings of DuckDB for the options; UsageError for impossible ones."""
    try:
        size_in_bytes(memory_limit)
    except UsageError as error:
        raise UsageError(f"--memory-limit {error}") from None
    if threads is not None and threads < 1:
        raise UsageError(f"--threads {threads}: at least 1 is needed")
    return {
        "memory_limit": memory_limit,
        "threads": threads or min(os.cpu_count() or 1, 8),
        "preserve_insertion_order": "false",
        "checkpoint_threshold": "1GB",  # of the log; bulk rows hardly use it, and with less a store in memory also stops for checkpoints
        **NO_EXTENSIONS,
    }


def connect(
    database: str, settings: dict[str, Any], spill: Path, last: Mapping[str, str], *, temporary: bool = False
) -> duckdb.DuckDBPyConnection:
    """Connect, then set the ``last`` settings, which DuckDB does not take in one call.

    ``temporary``: the file is removed when it is closed, so closing it does not write everything to it, which takes seconds."""
    import duckdb

    connection = duckdb.connect(database, config={**settings, "temp_directory": native_path(spill / "spill")})
    try:
        # On for a long query if Python runs without a script: in a notebook, or with -c.
        first = ["SET enable_progress_bar = false", *(["PRAGMA disable_checkpoint_on_shutdown"] if temporary else [])]
        connection.execute("; ".join([*first, *(f"SET {name} = {value}" for name, value in last.items())]))
    except BaseException:
        connection.close()
        raise
    return connection


def native_path(path: Path) -> str:
    """Return ``path`` as DuckDB opens it in any locale; UsageError if it is not UTF-8."""
    try:
        return os.fsencode(path).decode()
    except UnicodeDecodeError as error:
        raise UsageError(f"{storable(str(path))}: the database opens no name that is not UTF-8; rename it, or choose another") from error


def files_of(path: Path) -> tuple[Path, Path]:
    """Return the file of a run store and its log, which exists during writing."""
    return path, path.with_name(path.name + ".wal")


def make_way(path: Path) -> None:
    """Make the folder of a new store and remove an old one that no program is writing."""
    from .files import writer

    if path.is_file() and (user := writer(path)):
        raise InputError(f"{path}: {user}; wait for it or choose another place with -o")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        for old in files_of(path):
            old.unlink(missing_ok=True)
    except OSError as error:
        raise InputError(f"{path}: cannot write the run store there ({error.strerror}); choose another place with -o") from error


def who_has_it_open(error: Exception | str) -> str | None:
    """Return the program that has the database open, if ``error`` reports one."""
    text = str(error)
    if "Could not set lock" in text:
        pid = re.search(r"\(PID (\d+)\)", text)
        if pid and int(pid[1]) == os.getpid():
            return f"this program has it open already (PID {pid[1]})"
        return "another program has it open" + (f" (PID {pid[1]})" if pid else "")
    if "same database file with a different configuration" in text:
        return f"this program has it open already (PID {os.getpid()})"
    return None


def temporary_folder() -> Folder:
    """Create a private folder with an unpredictable name, or raise InputError."""
    try:
        return Folder()
    except OSError as error:
        raise InputError(f"no temporary folder can be made ({error.strerror or error}); set TMPDIR to a folder with space") from error


def is_unexpected(error: BaseException) -> bool:
    """Whether no caller handles an exception (messages, exits, the system)."""
    if type(error).__name__ == "PanicException":  # of Polars; derives from BaseException
        return True
    if not isinstance(error, Exception) or isinstance(error, PostrunError | OSError | MemoryError):
        return False
    if type(error).__module__.partition(".")[0] == "click" or type(error).__name__ in {"OutOfMemoryException", "IOException"}:
        return False
    return not (type(error) is RuntimeError and "interrupted" in str(error))  # how DuckDB answers to Ctrl-C


def first_line(error: BaseException) -> str:
    """Return the first line of the message of an error, or its type."""
    return str(error).splitlines()[0] if str(error) else type(error).__name__
