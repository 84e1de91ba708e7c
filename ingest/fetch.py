"""How do the objects of a run come to local files? The readable ones are downloaded; of the others only what tells their format.

What is unknown keeps its size as a file with a hole, so that it is listed like the rest: a checkpoint of 100 GB costs one megabyte.
"""

from __future__ import annotations

import os
import shutil
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field
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
    """``paths``: where what was given stands now, in its order. ``left_out``: object and reason. Remove ``folder`` at the end."""

    folder: temporary.Folder
    paths: list[Path] = field(default_factory=list)
    left_out: list[tuple[str, str]] = field(default_factory=list)
    schemes: set[str] = field(default_factory=set)

    def local(self, scheme: str, bucket: str, key: str) -> Path:
        self.schemes.add(scheme)
        return Path(self.folder.name, scheme, "run", bucket, key)

    def moves(self) -> list[tuple[str, str]]:
        """What to replace in texts so that they name the URLs: beginning of a local path -> beginning of the URL."""
        return [(f"{self.folder.name}/{scheme}/run/", f"{scheme}://") for scheme in sorted(self.schemes)]

    def local_name(self, name: str) -> str:
        """The local path of what a URL names; any other text as it is."""
        return next((local + name.removeprefix(url) for local, url in self.moves() if name.startswith(url)), name)

    def told(self, text: str) -> str:
        for local, url in self.moves():
            text = text.replace(local, url)
        return text


@dataclass(frozen=True, slots=True)
class _Wanted:
    store: Objects
    one: ObjectInfo
    path: Path
    single: bool


def fetch(places: Sequence[str | Path], progress: Progress) -> Fetched:
    """Local copies of the URLs among ``places``, the other places as they are. Raises InputError where one is empty or too large."""
    try:
        folder = temporary.Folder()
    except OSError as error:
        raise InputError(f"no temporary folder can be made ({error.strerror or error}); set TMPDIR to a folder with space") from error
    fetched = Fetched(folder)
    try:
        wanted: list[_Wanted] = []
        for place in places:
            if not is_url(place) or str(place).lower().startswith("file:"):
                fetched.paths.append(Path("/" + parse(str(place)).prefix) if is_url(place) else Path(place))
            else:
                progress(f"listing {place}", None)
                wanted += _found(str(place), fetched)
        _Fetching(wanted, fetched, progress).all()
    except BaseException:
        folder.cleanup()
        raise
    return fetched


def _found(url: str, fetched: Fetched) -> Iterator[_Wanted]:
    """The objects at ``url``: the one of this name, or all below it that a local folder can hold."""
    place = parse(url)
    above, _, name = place.prefix.rpartition("/")
    fetched.paths.append(fetched.local(place.scheme, place.bucket, place.prefix))
    if name and not url.endswith("/"):
        store = open_objects(f"{place.scheme}://{place.bucket}" + (f"/{above}" if above else ""))
        if (one := store.head(name)) is not None:
            yield _Wanted(store, one, fetched.paths[-1], single=True)
            return
    store = open_objects(url)
    found: list[ObjectInfo] = []
    for one in store.list():
        if any(part.startswith(".") for part in one.path.split("/")):
            continue
        found.append(one)
        if len(found) > MOST_OBJECTS:
            raise InputError(f"{place.url}: more than {MOST_OBJECTS} objects, so not one run; give the place of one run")
    fetched.left_out += [(line.partition(": ")[0], line.partition(": ")[2]) for line in store.left_out]
    folders = {above for one in found for above in _folders(one.path)}
    some = False
    for one in found:
        if one.path in folders:
            fetched.left_out.append((store.place(one.path), "other objects have this name as their folder"))
        elif any(len(part.encode()) > _LONGEST_NAME for part in one.path.split("/")):
            fetched.left_out.append((store.place(one.path), f"a part of the name is longer than {_LONGEST_NAME} bytes"))
        else:
            some = True
            yield _Wanted(store, one, fetched.local(place.scheme, place.bucket, f"{place.prefix}/{one.path}".lstrip("/")), single=False)
    if not some:
        rest = f"; {len(fetched.left_out)} were left out, the first: {': '.join(fetched.left_out[0])}" if fetched.left_out else ""
        raise InputError(f"{place.url}: there is no object of this name, and none below it that can be read{rest}; check the URL")


def _folders(path: str) -> Iterator[str]:
    while "/" in path:
        path = path.rpartition("/")[0]
        yield path


class _Fetching:
    """First a look at the large objects, then all that is to be read; by several threads, whose bytes are counted together."""

    def __init__(self, wanted: list[_Wanted], fetched: Fetched, progress: Progress) -> None:
        self._wanted = list({one.path: one for one in wanted}.values())
        self._fetched = fetched
        self._progress = progress
        self._lock = threading.Lock()
        self._bytes = 0
        self._stop = False

    def all(self) -> None:
        if not self._wanted:
            return
        for folder in {one.path.parent for one in self._wanted}:
            folder.mkdir(parents=True, exist_ok=True)
        small = [one for one in self._wanted if one.one.size <= TRACE_HEAD_BYTES]
        large = [one for one in self._wanted if one.one.size > TRACE_HEAD_BYTES]
        self._check_space(len(small), sum(one.one.size for one in small) + len(large) * TRACE_HEAD_BYTES)
        self._each(self._look, large, "looking at", None)
        self._bytes = 0
        wanted = small + [one for one in large if one.path.exists() and self._to_read(one)]
        total = sum(one.one.size for one in wanted)
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
                for one in finished:
                    one.result()
                done += len(finished)
                size = f" ({_size(self._bytes)} of {_size(total)})" if total is not None else ""
                self._progress(f"{doing} {done} of {len(wanted)} objects{size}", self._bytes / total if total else None)
        finally:
            self._stop = True
            pool.shutdown(cancel_futures=True)
            self._stop = False

    def _look(self, wanted: _Wanted) -> None:
        """The beginning of a large object, in a file of its size."""
        try:
            head = wanted.store.read(wanted.one.path, count=TRACE_HEAD_BYTES)
        except ChangedError:
            raise
        except ObjectStoreError:
            if wanted.single or wanted.store.head(wanted.one.path) is not None:
                raise
            self._leave_out(wanted, "removed since it was listed")
            return
        try:
            with wanted.path.open("wb") as file:
                file.write(head)
                file.truncate(wanted.one.size)
        except OSError as error:
            wanted.path.unlink(missing_ok=True)
            self._leave_out(wanted, f"too large for the temporary folder ({error.strerror})")

    @staticmethod
    def _to_read(wanted: _Wanted) -> bool:
        known = format_of(wanted.path)
        return known is not None and known.not_read is None

    def _download(self, wanted: _Wanted) -> None:
        one = wanted.one
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
                wanted.store.download(one, wanted.path, progress=count)
            except ChangedError:
                now = wanted.store.head(one.path)
                with self._lock:
                    self._bytes -= counted
                if now is None and not wanted.single:
                    wanted.path.unlink(missing_ok=True)
                    self._leave_out(wanted, "removed since it was listed")
                    return
                if now is None or not left:
                    raise
                one = now
                continue
            os.utime(wanted.path, ns=(one.modified_ns, one.modified_ns))
            return

    def _leave_out(self, wanted: _Wanted, why: str) -> None:
        with self._lock:
            self._fetched.left_out.append((wanted.store.place(wanted.one.path), why))


class _StoppedError(Exception):
    """Another object could not be fetched, or the user does not wait."""


def _size(count: int) -> str:
    for unit, size in (("GB", 10**9), ("MB", 10**6), ("kB", 10**3)):
        if count >= size:
            return f"{count / size:.1f} {unit}"
    return f"{count} bytes"
