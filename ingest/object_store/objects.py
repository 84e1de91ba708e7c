"""Files of runs and reports in a local folder or an object store, with one small interface."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import BinaryIO, Final

from ...errors import InputError, UsageError
from .paths import OURS, is_ours, problem, shortened

MOST_LEFT_OUT: Final = 1000  # lines about objects that a listing left out
_AT_ONCE: Final = 8  # listings


class ObjectStoreError(InputError):
    """The store cannot be used: missing, refused, or unreachable. Names the place and the next step, never a secret."""


class ChangedError(ObjectStoreError):
    """An object was replaced, grew or disappeared while it was read."""


class OccupiedError(ObjectStoreError):
    """Something other than an object has this name: a folder, a pipe, or a link of another user."""


@dataclass(frozen=True, slots=True)
class ObjectInfo:
    """One object. ``path``: below the root, with slashes. ``etag``: from the store; of local files from inode, size and time."""

    path: str
    size: int
    etag: str | None
    modified_ns: int


@dataclass(frozen=True, slots=True)
class Level:
    """The content of a folder without that of its folders, in order. ``folders``: their paths, ending in a slash."""

    folders: tuple[str, ...]
    files: tuple[ObjectInfo, ...]


def in_order(listings: Iterable[Callable[[], Iterator[ObjectInfo]]]) -> Iterator[ObjectInfo]:
    """Yield the objects of listings, one after the other, which are read in parallel."""
    with ThreadPoolExecutor(_AT_ONCE, thread_name_prefix="postrun-listing") as pool:
        pending: deque[Future[list[ObjectInfo]]] = deque()
        try:
            for listing in listings:
                pending.append(pool.submit(lambda listing=listing: list(listing())))  # type: ignore[misc]
                if len(pending) == _AT_ONCE:
                    yield from pending.popleft().result()
            while pending:
                yield from pending.popleft().result()
        finally:
            pool.shutdown(wait=False, cancel_futures=True)


class Objects:
    """All objects below one URL or folder. Errors that may pass are retried with backoff; others are ObjectStoreError.

    Safe to use from several threads. ``left_out``: files that the listings so far could not list, with the reason; the first thousand.
    """

    url: str
    left_out: list[str]

    def list(self, prefix: str = "", *, after: str | None = None) -> Iterator[ObjectInfo]:
        """Yield objects whose path begins with ``prefix``, in UTF-8 order, from ``after``."""
        raise NotImplementedError

    def list_below(self, prefixes: Sequence[str]) -> Iterator[ObjectInfo]:
        """Yield objects whose path has one of some beginnings, in UTF-8 order.

        ``prefixes``: in order; none begins with another."""
        return in_order([partial(self.list, prefix) for prefix in prefixes])

    def level(self, folder: str) -> Level | None:
        """Return the content of ``folder`` ("" or ending in a slash).

        None for a folder with too many names to be worth it."""
        raise NotImplementedError

    def head(self, path: str) -> ObjectInfo | None:
        raise NotImplementedError

    def read(self, path: str, *, first: int = 0, count: int | None = None) -> bytes:
        """Return all bytes, or ``count`` from ``first``; ObjectStoreError if missing."""
        raise NotImplementedError

    def download(self, info: ObjectInfo, target: Path, *, progress: Callable[[int], None] | None = None) -> None:
        """Copy exactly this version to a local file; ChangedError if it has changed.

        ``progress``: called with the bytes so far; its exception ends the download and is passed on. ``target`` is complete or absent.
        """
        raise NotImplementedError

    def write(self, path: str, data: bytes | Path, *, content_type: str | None = None) -> str | None:
        """Write or replace an object, completely or not at all; return its ETag."""
        raise NotImplementedError

    def create(self, path: str, data: bytes) -> bool:
        """Write an object unless it exists (conditional put); return whether it did so.

        ``data`` should contain a random number: if the store's answer is lost, the bytes show whether this writer wrote them."""
        raise NotImplementedError

    def replace(self, path: str, data: bytes, etag: str | None) -> bool:
        """Write if the object still has this ETag (None: is missing); ``data`` as above."""
        raise NotImplementedError

    def delete(self, path: str) -> None:
        """Delete an object; no error if it does not exist."""
        raise NotImplementedError

    def remove_empty(self, folder: str) -> None:
        """Remove ``folder`` and those above it up to the root that contain nothing.

        Object stores have no folders."""

    def signed(self, path: str, seconds: int) -> str:
        """Return an address that opens an object without credentials for ``seconds``.

        It is a secret until then: never write it to a log. UsageError if the store has none."""
        raise UsageError(f"{self.url}: presigned links need an object store; leave out --presign, or give --base-url")

    def place(self, path: str) -> str:
        """Return the URL or path of an object, for messages."""
        return f"{self.url}/{shortened(path)}"

    def _check(self, path: str) -> None:
        if wrong := problem(path):
            raise ObjectStoreError(f"{self.place(path)}: {wrong}; such an object cannot be read or written, give it another name")

    def _check_writable(self, path: str) -> None:
        self._check(path)
        if is_ours(path):
            raise ObjectStoreError(f"{self.place(path)}: names that begin with {OURS} are kept for temporary files; give it another name")

    def _source(self, data: Path, path: str) -> BinaryIO:
        """Open a file that is to become the object ``path``."""
        try:
            return data.open("rb")
        except OSError as error:
            raise ObjectStoreError(f"{data}: {error.strerror}; it was to become {self.place(path)}") from None

    def _changed(self, info: ObjectInfo) -> ChangedError:
        return ChangedError(
            f"{self.place(info.path)}: replaced, changed or removed since it was listed; run again when it is written to no more"
        )

    def _leave_out(self, path: str, why: str) -> None:
        line = f"{self.place(path)}: {why}"
        if len(self.left_out) < MOST_LEFT_OUT and line not in self.left_out:
            self.left_out.append(line)
