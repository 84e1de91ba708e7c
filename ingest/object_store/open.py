"""Opens the objects below a URL or a folder: text -> Objects."""

from __future__ import annotations

from pathlib import Path

from ...errors import UsageError
from .objects import Objects
from .sides import Side
from .urls import is_url


def open_objects(url: str | Path, *, links: bool = True, side: Side | None = None) -> Objects:
    """Open s3://, gs://, az://, memory:// (in this process), file:///, or a folder.

    Credentials are those of the store's own tools. ``links``: whether links below a local folder are followed. ``side``: of a night, whose
    variables (sides.py) come before the plain ones. UsageError for another scheme.
    """
    from .folder import Folder
    from .urls import parse

    if not is_url(url):
        if not str(url):
            raise UsageError("an empty path; give a folder or a URL such as s3://bucket/prefix")
        return Folder(Path(url), links=links)
    parts = parse(str(url))
    if parts.scheme == "file":
        return Folder(Path("/" + parts.prefix), links=links)
    from .remote import open_store

    return open_store(parts, side)
