"""Temporary folders that a later process of the same user removes if their owner was killed.

:class:`Folder` is a ``tempfile.TemporaryDirectory`` with a lock file, which its process keeps locked while it lives. The first folder that
a process creates in a parent folder removes the folders there whose lock is free. flock(2) is released however a process ends, and works
across containers that share a file system; process ids do not.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import shutil
import stat
import tempfile
import threading
import weakref
from pathlib import Path
from typing import Final

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

PREFIX: Final = "postrun-"  # of folders in the temporary folder; those in an output folder begin with a dot
LOCK: Final = ".postrun-owner"  # file in each folder; its content marks the folder as one of postrun's
_MARK: Final = b"postrun: temporary files; the next run removes them when their process has ended\n"
_MOST_ENTRIES: Final = 100_000  # entries of a folder that are searched; more are not worth the time
_swept: Final[set[str]] = set()
_held: Final[set[int]] = set()
_guard: Final = threading.Lock()


class Folder(tempfile.TemporaryDirectory[str]):
    """A new folder in ``parent`` (default: TMPDIR) for this user only; removed at the end, or by a later process."""

    def __init__(self, parent: Path | None = None, *, prefix: str = PREFIX) -> None:
        super().__init__(prefix=prefix, dir=parent, ignore_cleanup_errors=True)
        self._unlock = weakref.finalize(self, _release, _locked(self.name))
        with _guard:
            parent_path = str(Path(self.name).parent)
            known = parent_path in _swept
            _swept.add(parent_path)
        if not known:
            sweep(parent_path)

    def cleanup(self) -> None:
        """Remove the folder, then release its lock."""
        super().cleanup()
        self._unlock()


def sweep(parent: str) -> None:
    """Remove folders of this user's ended processes; never follow links."""
    if fcntl is None:
        return
    with contextlib.suppress(OSError), os.scandir(parent) as entries:
        for entry in itertools.islice(entries, _MOST_ENTRIES):
            if entry.name.removeprefix(".").startswith(PREFIX):
                with contextlib.suppress(OSError):
                    _remove(entry)


def _remove(entry: os.DirEntry[str]) -> None:
    """Remove a folder with our mark whose lock is free."""
    status = entry.stat(follow_symlinks=False)
    if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.geteuid():
        return
    folder = os.open(entry.path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        lock = os.open(LOCK, os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=folder)
        try:
            mark = os.fstat(lock)
            if not stat.S_ISREG(mark.st_mode) or mark.st_uid != os.geteuid() or os.read(lock, len(_MARK) + 1) != _MARK:
                return
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(entry.path, ignore_errors=True)
        finally:
            os.close(lock)
    finally:
        os.close(folder)


def _locked(folder: str) -> int | None:
    """Lock a new file, then name it; None if the file system has no locks."""
    if fcntl is None:
        return None
    descriptor: int | None = None
    new = Path(folder, f"{LOCK}.new")
    try:
        descriptor = os.open(new, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        os.write(descriptor, _MARK)
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        new.rename(Path(folder, LOCK))
    except OSError:
        if descriptor is not None:
            os.close(descriptor)
            with contextlib.suppress(OSError):
                new.unlink()
        return None
    _held.add(descriptor)
    return descriptor


def _release(descriptor: int | None) -> None:
    if descriptor is not None and descriptor in _held:
        _held.discard(descriptor)
        with contextlib.suppress(OSError):
            os.close(descriptor)


def _forget() -> None:
    """Close the locks in a child after fork(2): they belong to the parent."""
    for descriptor in tuple(_held):
        _release(descriptor)
    _swept.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget)
