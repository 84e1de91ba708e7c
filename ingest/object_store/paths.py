"""Which names can an object have? Hostile ones are refused here, for every kind of place."""

from __future__ import annotations

from typing import Final

OURS: Final = ".postrun-"  # How the names of our own temporary files, folders and locks begin; listings leave them out
MARKS: Final = ".postrun-run"  # But for the folder in which recorders note that they began and ended

_LONGEST: Final = 1024  # Bytes that S3 and GCS allow of a key


def problem(path: str) -> str | None:
    """Why this cannot be the path of an object, None where it can. What is allowed stays below any folder that it is joined to."""
    if not path:
        return "an empty name"
    try:
        size = len(path.encode())
    except UnicodeEncodeError:
        return "a name that is not UTF-8"
    if size > _LONGEST:
        return f"a name longer than {_LONGEST} bytes"
    if any(ord(character) < 32 or 127 <= ord(character) < 160 for character in path):
        return "a control character in the name"
    segments = path.split("/")
    if "" in segments:
        return "an empty part in the name"
    if ".." in segments or "." in segments:
        return "a part . or .. in the name"
    return None


def is_ours(path: str) -> bool:
    return path.rpartition("/")[2].startswith(OURS)


def shown(path: str) -> str:
    """A name as it can stand in a message: one line, printable, not too long."""
    text = path if path.isprintable() else ascii(path)[1:-1]
    return text if len(text) <= 200 else f"{text[:100]}...{text[-90:]}"
