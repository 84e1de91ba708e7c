"""Permissions of what postrun writes: files that only their user can read, unless a mode widens them.

A command sets the umask of its process, so that every file and folder it makes, in its worker processes also, has the mode. A program that
is recorded keeps its own umask; there each file and folder of postrun is made with its mode.
"""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from .errors import UsageError

PRIVATE: Final = 0o600
VARIABLE: Final = "POSTRUN_MODE"
_OCTAL: Final = re.compile(r"0?o?[0-7]{3}")


def parsed(text: str) -> int:
    """The file mode of an octal text such as 0640. Raises UsageError."""
    mode = int(text.lower().replace("o", ""), 8) if _OCTAL.fullmatch(text.lower()) else -1
    if not is_file_mode(mode):
        raise UsageError(f"{text!r} is not a file mode; write it like 0640 or 0644 (read and write for you, no execute permission)")
    return mode


def reset(umask: int) -> None:
    """Undo :func:`set_umask` and :func:`of_session` at the end of a command."""
    global _of_user
    os.umask(umask)
    _of_user = None
    of_session(None)


def is_file_mode(mode: int) -> bool:
    """Read and write for the user, and no execute permission."""
    return 0 <= mode <= 0o666 and mode & 0o600 == 0o600 and not mode & 0o111


def folder_mode(mode: int) -> int:
    """The mode of folders for a mode of files: whoever can read a file can search its folder."""
    return mode | (mode & 0o444) >> 2


_of_user: int | None = None


def set_umask(mode: int = PRIVATE) -> int:
    """Give everything that this process and its children make this mode; the umask before."""
    global _of_user
    before = os.umask(0o777 & ~folder_mode(mode))
    if _of_user is None:
        _of_user = before
    return before


@contextmanager
def umask_of_user() -> Iterator[None]:
    """The umask that this process was started with, for the duration of a block: for programs of the user."""
    if _of_user is None:
        yield
        return
    ours = os.umask(_of_user)
    try:
        yield
    finally:
        os.umask(ours)


@contextmanager
def umask_for(mode: int = PRIVATE) -> Iterator[None]:
    """As :func:`set_umask`, for the duration of a block."""
    before = set_umask(mode)
    try:
        yield
    finally:
        os.umask(before)


# -- in a program that is recorded -----------------------------------------------------------------------------------------

_of_session: int | None = None


def of_session(mode: int | None) -> None:
    """The mode that the program chose for its session; None: that of the environment."""
    global _of_session
    _of_session = mode


def current() -> int:
    """The mode of the files of this recording: the session's, else $POSTRUN_MODE, else 0600."""
    if _of_session is not None:
        return _of_session
    try:
        return parsed(os.environ.get(VARIABLE) or "0600")
    except UsageError:
        return PRIVATE


def make_folder(path: str | os.PathLike[str]) -> None:
    """Make a folder and those above it that are missing; one that exists keeps its mode. Raises OSError."""
    path = wanted = Path(path)
    mode = folder_mode(current())
    missing: list[Path] = []
    while not path.is_dir() and path != path.parent:
        missing.append(path)
        path = path.parent
    for folder in reversed(missing):
        try:
            folder.mkdir(mode=mode)
        except FileExistsError:
            if folder != wanted and not folder.is_dir():
                raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), str(wanted)) from None
            if not folder.is_dir():
                raise
        else:
            if mode != 0o700:
                folder.chmod(mode)


def opener(path: str, flags: int) -> int:
    """For ``open(..., opener=...)``: a new file has the mode of this recording."""
    mode = current()
    descriptor = os.open(path, flags | os.O_CLOEXEC, mode)
    if flags & os.O_CREAT:
        with suppress(OSError):
            os.fchmod(descriptor, mode)
    return descriptor


def close_to_others(path: str | os.PathLike[str]) -> None:
    """Give a file that another library wrote the mode of this recording."""
    with suppress(OSError):
        Path(path).chmod(current())
