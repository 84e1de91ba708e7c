"""Facts of the run that the program states: key and value -> the metadata of the trace files."""

from __future__ import annotations

from . import library as _library


def metadata(key: str, value: object) -> None:
    """Record a fact of the run as text; without a session, keep it for the next."""
    _library.metadata(key, str(value).encode("utf-8", "backslashreplace").decode())
