"""Where are the files of runs and reports: a local folder or an object store, behind one small interface?"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from ...errors import InputError
from .paths import problem, shown


class ObjectStoreError(InputError):
    """The place cannot be used: not there, refused, or not to be reached. Names the place and the next step, never a secret."""


class ChangedError(ObjectStoreError):
    """An object was replaced, grew or went while it was read."""


class OccupiedError(ObjectStoreError):
    """Something other than an object has this name: a folder, a pipe, or a link of another user."""


@dataclass(frozen=True, slots=True)
class ObjectInfo:
    """One object. ``path``: below the root, with slashes. ``etag``: as the store says; of local files from inode, size and time."""

    path: str
    size: int
    etag: str | None
    modified_ns: int


class Objects:
    """All objects below one URL or folder. Errors that may pass are retried with backoff; others are ObjectStoreError.

    Safe to use from several threads. ``left_out``: what the listings so far could not give, each with its reason; the first thousand.
    """

    url: str
    left_out: list[str]

    def list(self, prefix: str = "", *, after: str | None = None) -> Iterator[ObjectInfo]:
        """Objects whose path begins with ``prefix``, ordered by path (as UTF-8); ``after``: only those behind this path."""
        raise NotImplementedError

    def head(self, path: str) -> ObjectInfo | None:
        raise NotImplementedError

    def read(self, path: str, *, first: int = 0, count: int | None = None) -> bytes:
        """Its bytes, or ``count`` of them from ``first``; fewer where it ends. ObjectStoreError where it is not there."""
        raise NotImplementedError

    def download(self, one: ObjectInfo, target: Path, *, progress: Callable[[int], None] | None = None) -> None:
        """Exactly that version to a local file, in a stream. ChangedError where it is another one by now, or none.

        ``progress``: called with the bytes so far; what it raises ends the download and is passed on. ``target`` is there whole or not.
        """
        raise NotImplementedError

    def write(self, path: str, data: bytes | Path, *, content_type: str | None = None) -> str | None:
        """Whole or not at all; replaces. -> its ETag."""
        raise NotImplementedError

    def create(self, path: str, data: bytes) -> bool:
        """Writes unless it is there already (conditional put). Whether it was written.

        ``data`` should tell its writer (a random number in it): where the answer of a store is lost, its bytes say who wrote it."""
        raise NotImplementedError

    def replace(self, path: str, data: bytes, etag: str | None) -> bool:
        """Writes where the object still has this ETag (None: where there is no object). Whether it was written. ``data``: as in create."""
        raise NotImplementedError

    def delete(self, path: str) -> None:
        """Gone afterwards, also if it was before."""
        raise NotImplementedError

    def place(self, path: str) -> str:
        """How an object is named to people: its URL, or its path in the file system."""
        return f"{self.url}/{shown(path)}"

    def _check(self, path: str) -> None:
        if wrong := problem(path):
            raise ObjectStoreError(f"{self.place(path)}: {wrong}; such an object cannot be read or written, give it another name")

    def _leave_out(self, path: str, why: str) -> None:
        line = f"{self.place(path)}: {why}"
        if len(self.left_out) < 1000 and line not in self.left_out:
            self.left_out.append(line)
