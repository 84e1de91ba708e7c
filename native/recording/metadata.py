"""Facts of the run that the program states: key and value -> the metadata of the trace files."""

from __future__ import annotations

from . import library as _library


def metadata(key: str, value: object) -> None:
    """A fact of the run, written as text; kept for the next session where none is recording."""
    _library.metadata(key, str(value).encode("utf-8", "backslashreplace").decode())
