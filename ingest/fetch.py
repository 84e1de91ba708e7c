"""Local copies of the objects of a run: readable objects are downloaded, of the others only the bytes that show their format.

An object of unknown format keeps its size as a sparse file, so that it is listed like the rest: a checkpoint of 100 GB costs one megabyte.
"""

from __future__ import annotations

import os
import shutil
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Final

from .. import temporary
from ..errors import InputError
from .chrome_trace.head import TRACE_HEAD_BYTES
from .discover import format_of
from .object_store.objects import ChangedError, ObjectInfo, Objects, ObjectStoreError
from .object_store.open import open_objects
from .object_store.urls import is_url, parse

MOST_OBJECTS: Final = 100_000  # Objects below one URL; more are not one run
_WORKERS: Final = 8
_TIMES: Final = 3  # How often an object that changes is fetched before it is an error
_LONGEST_NAME: Final = 255
_SHARE_OF_DISK: Final = 0.9

Progress = Callable[[str, float | None], None]


@dataclass(slots=True)
class Fetched:
    """``paths``: local paths of the sources, in their order. ``left_out``: object and reason. Remove ``folder`` at the end."""

    folder: temporary.Folder
    paths: list[Path] = field(default_factory=list)
    left_out: list[tuple[str, str]] = field(default_factory=list)
    schemes: set[str] = field(default_factory=set)

    def local(self, scheme: str, bucket: str, key: str) -> Path:
        self.schemes.add(scheme)
        return Path(self.folder.name, scheme, "run", bucket, key)

    def moves(self) -> list[tuple[str, str]]:
        """Map beginnings of local paths to those of the URLs that they replace."""
        return [(f"{self.folder.name}/{scheme}/run/", f"{scheme}://") for scheme in sorted(self.schemes)]

    def local_name(self, name: str) -> str:
        """Return the local path of a URL; any other text as it is."""
        return next((local + name.removeprefix(url) for local, url in self.moves() if name.startswith(url)), name)

    def with_urls(self, text: str) -> str:
        for local, url in self.moves():
            text = text.replace(local, url)
        return text


@dataclass(frozen=True, slots=True)
class _Wanted:
    store: Objects
    info: ObjectInfo
    path: Path
    single: bool


def fetch(sources: Sequence[str | Path], progress: Progress) -> Fetched:
    """Copy the URLs among ``sources``; InputError if one is empty or too large."""
    try:
        folder = temporary.Folder()
    except OSError as error:
        raise InputError(f"no temporary folder can be made ({error.strerror or error}); set TMPDIR to a folder with space") from error
    fetched = Fetched(folder)
    try:
        wanted: list[_Wanted] = []
        for source in sources:
            if not is_url(source) or str(source).lower().startswith("file:"):
                fetched.paths.append(Path("/" + parse(str(source)).prefix) if is_url(source) else Path(source))
            else:
                progress(f"listing {source}", None)
                wanted += _objects_at(str(source), fetched)
        _Fetching(wanted, fetched, progress).all()
    except BaseException:
        folder.cleanup()
        raise
    return fetched


def _objects_at(source: str, fetched: Fetched) -> Iterator[_Wanted]:
    """Yield the object of this name, or all below it that a local folder can contain."""
    url = parse(source)
    above, _, name = url.prefix.rpartition("/")
    fetched.paths.append(fetched.local(url.scheme, url.bucket, url.prefix))
    if name and not source.endswith("/"):
        store = open_objects(f"{url.scheme}://{url.bucket}" + (f"/{above}" if above else ""))
        if (info := store.head(name)) is not None:
            yield _Wanted(store, info, fetched.paths[-1], single=True)
            return
    store = open_objects(source)
    visible = (info for info in store.list() if not any(part.startswith(".") for part in info.path.split("/")))
    infos = list(islice(visible, MOST_OBJECTS + 1))
    if len(infos) > MOST_OBJECTS:
        raise InputError(f"{url.url}: more than {MOST_OBJECTS} objects, so not one run; give the place of one run")
    fetched.left_out += [(line.partition(": ")[0], line.partition(": ")[2]) for line in store.left_out]
    folders = {above for info in infos for above in _folders(info.path)}
    empty = True
    for info in infos:
        if info.path in folders:
            fetched.left_out.append((store.place(info.path), "other objects have this name as their folder"))
        elif any(len(part.encode()) > _LONGEST_NAME for part in info.path.split("/")):
            fetched.left_out.append((store.place(info.path), f"a part of the name is longer than {_LONGEST_NAME} bytes"))
        else:
            empty = False
            yield _Wanted(store, info, fetched.local(url.scheme, url.bucket, f"{url.prefix}/{info.path}".lstrip("/")), single=False)
    if empty:
        rest = f"; {len(fetched.left_out)} were left out, the first: {': '.join(fetched.left_out[0])}" if fetched.left_out else ""
        raise InputError(f"{url.url}: there is no object of this name, and none below it that can be read{rest}; check the URL")


def _folders(path: str) -> Iterator[str]:
    while "/" in path:
        path = path.rpartition("/")[0]
        yield path


class _Fetching:
    """Downloads by several threads with a common count of bytes: first the beginnings of large objects, then the readable objects."""

    def __init__(self, wanted: list[_Wanted], fetched: Fetched, progress: Progress) -> None:
        self._wanted = list({item.path: item for item in wanted}.values())
        self._fetched = fetched
        self._progress = progress
        self._lock = threading.Lock()
        self._bytes = 0
        self._stop = False

    def all(self) -> None:
        if not self._wanted:
            return
        for folder in {item.path.parent for item in self._wanted}:
            folder.mkdir(parents=True, exist_ok=True)
        small = [item for item in self._wanted if item.info.size <= TRACE_HEAD_BYTES]
        large = [item for item in self._wanted if item.info.size > TRACE_HEAD_BYTES]
        self._check_space(len(small), sum(item.info.size for item in small) + len(large) * TRACE_HEAD_BYTES)
        self._each(self._look, large, "looking at", None)
        self._bytes = 0
        wanted = small + [item for item in large if item.path.exists() and self._is_readable(item)]
        total = sum(item.info.size for item in wanted)
        self._check_space(len(wanted), total)
        self._each(self._download, wanted, "downloading", total)

    def _check_space(self, files: int, size: int) -> None:
        free = shutil.disk_usage(self._fetched.folder.name).free
        if size > free * _SHARE_OF_DISK:
            raise InputError(
                f"{files} objects with {_size(size)} are to be downloaded, but {self._fetched.folder.name} has {_size(free)} free;"
                " set TMPDIR to a folder with more space, or give the place of one run"
            )

    def _each(self, action: Callable[[_Wanted], None], wanted: list[_Wanted], doing: str, total: int | None) -> None:
        done = 0
        pool = ThreadPoolExecutor(_WORKERS, thread_name_prefix="fetch")
        try:
            waiting: set[Future[None]] = {pool.submit(action, one) for one in wanted}
            while waiting:
                finished, waiting = wait(waiting, timeout=0.2, return_when=FIRST_COMPLETED)
                for future in finished:
                    future.result()
                done += len(finished)
                size = f" ({_size(self._bytes)} of {_size(total)})" if total is not None else ""
                self._progress(f"{doing} {done} of {len(wanted)} objects{size}", self._bytes / total if total else None)
        finally:
            self._stop = True
            pool.shutdown(cancel_futures=True)
            self._stop = False

    def _look(self, wanted: _Wanted) -> None:
        """Store the beginning of a large object in a file of its size."""
        try:
            head = wanted.store.read(wanted.info.path, count=TRACE_HEAD_BYTES)
        except ChangedError:
            raise
        except ObjectStoreError:
            if wanted.single or wanted.store.head(wanted.info.path) is not None:
                raise
            self._leave_out(wanted, "removed since it was listed")
            return
        try:
            with wanted.path.open("wb") as file:
                file.write(head)
                file.truncate(wanted.info.size)
        except OSError as error:
            wanted.path.unlink(missing_ok=True)
            self._leave_out(wanted, f"too large for the temporary folder ({error.strerror})")

    @staticmethod
    def _is_readable(wanted: _Wanted) -> bool:
        known = format_of(wanted.path)
        return known is not None and known.not_read is None

    def _download(self, wanted: _Wanted) -> None:
        info = wanted.info
        for left in reversed(range(_TIMES)):
            counted = 0

            def count(done: int) -> None:
                nonlocal counted
                if self._stop:
                    raise _StoppedError
                with self._lock:
                    self._bytes += done - counted
                counted = done

            try:
                wanted.store.download(info, wanted.path, progress=count)
            except ChangedError:
                now = wanted.store.head(info.path)
                with self._lock:
                    self._bytes -= counted
                if now is None and not wanted.single:
                    wanted.path.unlink(missing_ok=True)
                    self._leave_out(wanted, "removed since it was listed")
                    return
                if now is None or not left:
                    raise
                info = now
                continue
            os.utime(wanted.path, ns=(info.modified_ns, info.modified_ns))
            return

    def _leave_out(self, wanted: _Wanted, why: str) -> None:
        with self._lock:
            self._fetched.left_out.append((wanted.store.place(wanted.info.path), why))


class _StoppedError(Exception):
    """Another object could not be fetched, or the user canceled."""


def _size(count: int) -> str:
    for unit, size in (("GB", 10**9), ("MB", 10**6), ("kB", 10**3)):
        if count >= size:
            return f"{count / size:.1f} {unit}"
    return f"{count} bytes"
