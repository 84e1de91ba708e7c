"""Names that an object can have; hostile ones are refused here, for every kind of store."""

from __future__ import annotations

import re
from typing import Final

OURS: Final = ".postrun-"  # Prefix of our own temporary files, folders and locks; listings leave them out
MARKS: Final = ".postrun-run"  # The exception: the folder in which recorders note that they began and ended

_LONGEST: Final = 1024  # Bytes that S3 and GCS allow of a key
_CONTROL: Final = re.compile("[\x00-\x1f\x7f-\x9f]")
_SOUND: Final = re.compile(r"[ -\-0-~][ -.0-~]*(?:/[ -\-0-~][ -.0-~]*)*")  # ASCII parts that do not begin with a dot


def problem(path: str) -> str | None:
    """Return why this cannot be an object's path, or None. A valid path has no way up."""
    if not path:
        return "an empty name"
    if _SOUND.fullmatch(path) is not None and len(path) <= _LONGEST:  # most paths
        return None
    try:
        size = len(path.encode())
    except UnicodeEncodeError:
        return "a name that is not UTF-8"
    if size > _LONGEST:
        return f"a name longer than {_LONGEST} bytes"
    if _CONTROL.search(path):
        return "a control character in the name"
    segments = path.split("/")
    if "" in segments:
        return "an empty part in the name"
    if ".." in segments or "." in segments:
        return "a part . or .. in the name"
    return None


def is_ours(path: str) -> bool:
    return path.rpartition("/")[2].startswith(OURS)


def shortened(path: str) -> str:
    """Return a name for a message: one line, printable, not too long."""
    text = path if path.isprintable() else ascii(path)[1:-1]
    return text if len(text) <= 200 else f"{text[:100]}...{text[-90:]}"
