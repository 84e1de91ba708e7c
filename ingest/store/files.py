"""Files of run stores without the database: path -> who writes it, a leftover log, a private copy of its bytes.

The database opens a path and the log next to it by name. Another user who can write the folder can replace either between a check and the
opening, by a link or a pipe. Here a file is opened once, and only this descriptor is checked and read.
"""

from __future__ import annotations

import errno
import fcntl
import os
import shutil
import stat
import struct
import sys
from contextlib import suppress
from pathlib import Path
from typing import Final

from ...errors import InputError

_CHUNK: Final = 1 << 20
_SHARE_OF_DISK: Final = 0.9
_FLOCK: Final = "hhqqi4x"  # ``struct flock`` of 64-bit Linux: type, whence, start, length, PID


def writer(path: Path) -> str | None:
    """Return the program that has a database open for writing, if it is known."""
    with suppress(OSError):
        if _locked_here(path.stat()):
            return f"this program has it open already (PID {os.getpid()})"
        descriptor = _opened(path)
        try:
            if stat.S_ISREG(os.fstat(descriptor).st_mode):
                return _lock_of(descriptor)
        finally:
            os.close(descriptor)
    return None


def check_finished(path: Path, name: str) -> None:
    """Raise InputError if the store ``name`` is being written or was not closed."""
    if user := writer(path):
        raise InputError(f"{name}: {user}; wait for it")
    log = path.with_name(path.name + ".wal")
    with suppress(OSError):
        status = log.lstat()
        if not stat.S_ISREG(status.st_mode) or status.st_size:
            raise InputError(
                f"{name}: has a write-ahead log next to it ({log.name}), so it is being written or its writer was killed;"
                " ingest the sources again"
            )


def copy(path: Path, target: Path, name: str) -> int:
    """Copy a regular file with its holes to a new file; return its size; InputError."""
    try:
        descriptor = _opened(path)
    except OSError as error:
        raise InputError(f"{name}: cannot be read ({error.strerror or error}); check the path") from error
    try:
        before = os.fstat(descriptor)
        if not stat.S_ISREG(before.st_mode):
            raise InputError(f"{name}: not a regular file; give the run store itself")
        free = shutil.disk_usage(target.parent).free
        if before.st_size > free * _SHARE_OF_DISK:
            raise InputError(
                f"{name}: {before.st_size / 1e6:.0f} MB are to be copied, but only {free / 1e6:.0f} MB are free in {target.parent.parent};"
                " set TMPDIR to a folder with more space"
            )
        _copy_data(descriptor, before.st_size, target)
        after = os.fstat(descriptor)
    except OSError as error:
        raise InputError(
            f"{name}: cannot be copied to {target.parent.parent} ({error.strerror or error}); set TMPDIR to a folder with more space"
        ) from error
    finally:
        os.close(descriptor)
    if (after.st_size, after.st_mtime_ns) != (before.st_size, before.st_mtime_ns):
        raise InputError(f"{name}: changed while it was read; wait until it is written")
    return before.st_size


def _opened(path: Path) -> int:
    return os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)  # O_NONBLOCK: a pipe does not wait for its writer


def _copy_data(descriptor: int, size: int, target: Path) -> None:
    with target.open("xb") as out:
        offset = 0
        while offset < size:
            try:
                offset = os.lseek(descriptor, offset, os.SEEK_DATA)
            except OSError as error:
                if error.errno == errno.ENXIO:  # only a hole is left
                    break
            block = os.pread(descriptor, min(_CHUNK, max(size - offset, 0)), offset)
            if not block:
                break
            out.seek(offset)
            out.write(block)
            offset += len(block)
        out.truncate(size)


def _locked_here(status: os.stat_result) -> bool:
    """Whether this process has a lock on the file, which F_GETLK does not show."""
    folder = Path("/proc/self/fd")
    for entry in folder.iterdir() if folder.is_dir() else ():
        with suppress(OSError):
            same = os.path.samestat(os.fstat(int(entry.name)), status)
            if same and "\nlock:" in Path("/proc/self/fdinfo", entry.name).read_text("ascii", "replace"):
                return True
    return False


def _lock_of(descriptor: int) -> str | None:
    """Whether another process holds a lock that keeps readers away."""
    if not sys.platform.startswith("linux") or struct.calcsize("P") != 8:
        try:
            fcntl.lockf(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except (BlockingIOError, PermissionError):
            return "another program has it open"
        return None
    asked = struct.pack(_FLOCK, fcntl.F_RDLCK, os.SEEK_SET, 0, 0, 0)
    kind, _, _, _, pid = struct.unpack(_FLOCK, fcntl.fcntl(descriptor, fcntl.F_GETLK, asked))
    if kind == fcntl.F_UNLCK:
        return None
    return "another program has it open" + (f" (PID {pid})" if pid > 0 else "")
