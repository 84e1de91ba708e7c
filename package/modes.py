"""Permissions of the files that postrun writes: only their user can read them, unless a mode widens them.

A command sets the umask of its process, so that each file and folder that it or its worker processes create has the mode. A recorded
program keeps its own umask; there postrun sets the mode of each file and folder.
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
    """Whether a mode lets the user read and write, and nobody execute."""
    return 0 <= mode <= 0o666 and mode & 0o600 == 0o600 and not mode & 0o111


def folder_mode(mode: int) -> int:
    """Return the folder mode for a file mode: readers can search the folder."""
    return mode | (mode & 0o444) >> 2


_of_user: int | None = None


def set_umask(mode: int = PRIVATE) -> int:
    """Set the umask of this process and its children by ``mode``; return the old one."""
    global _of_user
    before = os.umask(0o777 & ~folder_mode(mode))
    if _of_user is None:
        _of_user = before
    return before


@contextmanager
def umask_of_user() -> Iterator[None]:
    """Run a block, which starts a user's program, with the initial umask."""
    ours = None if _of_user is None else os.umask(_of_user)
    try:
        yield
    finally:
        if ours is not None:
            os.umask(ours)


@contextmanager
def umask_for(mode: int = PRIVATE) -> Iterator[None]:
    """Like :func:`set_umask`, for the duration of a block."""
    before = set_umask(mode)
    try:
        yield
    finally:
        os.umask(before)


# -- in a program that is recorded -----------------------------------------------------------------------------------------

_of_session: int | None = None


def of_session(mode: int | None) -> None:
    """Set the mode of the program's session; None: that of the environment."""
    global _of_session
    _of_session = mode


def current() -> int:
    """Return the mode of files: the session's, else $POSTRUN_MODE, else 0600."""
    if _of_session is not None:
        return _of_session
    try:
        return parsed(os.environ.get(VARIABLE) or "0600")
    except UsageError:
        return PRIVATE


def make_folder(path: str | os.PathLike[str]) -> None:
    """Create a folder and its missing parents with the mode. Raise OSError."""
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
    """Open a file, as an ``opener`` of ``open()``; set the mode of a new file."""
    mode = current()
    descriptor = os.open(path, flags | os.O_CLOEXEC, mode)
    if flags & os.O_CREAT:
        with suppress(OSError):
            os.fchmod(descriptor, mode)
    return descriptor


def close_to_others(path: str | os.PathLike[str]) -> None:
    """Set the recording's mode on a file that another library wrote."""
    with suppress(OSError):
        Path(path).chmod(current())
