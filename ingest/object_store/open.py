"""Opens the objects below a URL or a folder: text -> Objects."""

from __future__ import annotations

from pathlib import Path

from ...errors import UsageError
from .objects import Objects
from .urls import is_url


def open_objects(url: str | Path, *, links: bool = True) -> Objects:
    """s3://bucket/prefix, gs://bucket/prefix, az://container/prefix, memory://name (in this process, for tests), file:///..., or a folder.

    Credentials come from where the store's own tools take them. ``links``: whether links below a local folder are followed. UsageError
    for another scheme."""
    from .folder import Folder
    from .urls import parse

    if not is_url(url):
        if not str(url):
            raise UsageError("an empty path; give a folder or a URL such as s3://bucket/prefix")
        return Folder(Path(url), links=links)
    place = parse(str(url))
    if place.scheme == "file":
        return Folder(Path("/" + place.prefix), links=links)
    from .remote import open_store

    return open_store(place)
