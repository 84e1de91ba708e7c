"""How do S3, Google Cloud Storage, Azure and the store in memory serve as one? obstore does the requests; repeats and proofs are here."""

from __future__ import annotations

import random
import re
import secrets
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, Final, TypeVar

from .connect import Connection, connect
from .errors import Trouble, message, trouble
from .folder import whole_file
from .listing import ListError, nanoseconds
from .objects import ChangedError, ObjectInfo, Objects, ObjectStoreError
from .paths import OURS, is_ours, problem
from .urls import Place

T = TypeVar("T")

TRIES: Final = 8
FIRST_WAIT_S: Final = 0.2
_LONGEST_WAIT_S: Final = 10.0
_GIVE_UP_S: Final = 120.0
_CHUNK: Final = 1 << 20
_PART: Final = 8 << 20
_SETTLE_S: Final = 0.02
_UNPRINTABLE: Final = re.compile("[\x00-\x1f\x7f-\x9f\ud800-\udfff]")
_STALE_LOCK_NS: Final = 120 * 10**9


def open_store(place: Place) -> Stored:
    return Stored(place, connect(place))


class Stored(Objects):
    """The objects of a bucket or container whose keys begin with the prefix of ``place``."""

    def __init__(self, place: Place, connection: Connection) -> None:
        self.url = place.url
        self.left_out = []
        self._place = place
        self._to = connection
        self._base = f"{place.prefix}/" if place.prefix else ""
        self._bucket_seen = threading.Event()

    # ------------------------------------------------------------------ reading

    def list(self, prefix: str = "", *, after: str | None = None) -> Iterator[ObjectInfo]:
        if prefix and problem(prefix.strip("/") + "x"):
            return  # no object can have such a name
        pages = self._pages_s3 if self._to.lister is not None else self._pages
        last = None if after is None else after.encode(errors="surrogatepass")
        for one in pages(prefix, after):
            key = one.path.encode(errors="surrogatepass")
            if last is not None and key <= last:
                raise ObjectStoreError(
                    f"{self.url}: {self._to.server or 'the store'} does not list objects in order of their names; use another store"
                )
            last = key
            if not is_ours(one.path):
                yield one
        self._bucket_seen.set()

    def _pages_s3(self, prefix: str, after: str | None) -> Iterator[ObjectInfo]:
        """Raw keys below the root; those that cannot be paths are left out, and markers of folders."""
        lister = self._to.lister
        assert lister is not None
        # Up to a character that no request can hold; the rest is compared here.
        start = None if after is None else self._base + _UNPRINTABLE.split(after, maxsplit=1)[0]
        while True:
            keys, start = self._try(partial(lister.page, self._base + prefix, start), self.url)
            for one in keys:
                path = one.key.removeprefix(self._base)
                if not path or path.endswith("/"):
                    if one.size:
                        self._leave_out(path, "a name that ends with a slash")
                elif wrong := problem(path):
                    self._leave_out(path, wrong)
                elif after is None or _behind(path, after):
                    yield ObjectInfo(path, one.size, one.etag, one.modified_ns)
            if start is None:
                return

    def _pages(self, prefix: str, after: str | None) -> Iterator[ObjectInfo]:
        """obstore's listing: by whole parts of the name, so the rest of ``prefix`` is compared here."""
        full = self._base + prefix
        folder = full.rpartition("/")[0]
        if folder and problem(folder):
            return
        found: Iterator[ObjectInfo] = (
            one for one in self._listed(folder, after) if one.path.startswith(prefix) and (after is None or _behind(one.path, after))
        )
        if not self._to.ordered:
            found = iter(sorted(found, key=lambda one: one.path.encode()))
        for one in found:
            # A marker of a folder ("folder/") comes without its slash; it cannot be read under that name.
            if one.size or self.head(one.path) is not None:
                yield one

    def _listed(self, folder: str, after: str | None) -> Iterator[ObjectInfo]:
        import obstore

        offset = self._base + after if after and not problem(self._base + after) else None
        waits = _Waits()
        while True:
            try:
                for page in obstore.list(self._to.once, folder or None, offset=offset, chunk_size=1000):
                    for meta in page:
                        if meta["path"].startswith(self._base):
                            yield _info(meta["path"].removeprefix(self._base), meta)
                        if self._to.ordered:
                            offset = meta["path"]
                    waits = _Waits()
                return
            except Exception as error:
                if not self._to.ordered or not waits.again(trouble(error)):
                    raise self._failed(error, self.url) from None

    def head(self, path: str) -> ObjectInfo | None:
        meta = self._head(path)
        return None if meta is None else _info(path, meta)

    def _head(self, path: str) -> Any:
        import obstore

        self._check(path)
        try:
            return self._try(lambda: obstore.head(self._to.once, self._base + path), self.place(path), missing=True)
        except FileNotFoundError:
            self._prove_bucket()
            return None

    def read(self, path: str, *, first: int = 0, count: int | None = None) -> bytes:
        import obstore

        self._check(path)
        options: dict[str, Any] = {}
        if count == 0:
            self._try(lambda: obstore.head(self._to.once, self._base + path), self.place(path))
            return b""
        if count is not None:
            options["range"] = (first, first + count)
        elif first:
            options["range"] = {"offset": first}

        def get() -> bytes:
            try:
                answer = obstore.get(self._to.once, self._base + path, options=options or None)  # type: ignore[arg-type]
            except Exception as error:
                if options and trouble(error).kind == "range":  # behind the end
                    return b""
                raise
            start, end = answer.range
            data = bytes(answer.bytes())
            if len(data) != end - start or (options and start != first):
                raise _CutOff
            return data

        return self._try(get, self.place(path))

    def download(self, one: ObjectInfo, target: Path, *, progress: Callable[[int], None] | None = None) -> None:
        self._check(one.path)
        try:
            with whole_file(target) as out:
                for block in self._blocks(one):
                    out.write(block)
                    if progress is not None:
                        progress(out.tell())
        except OSError as error:
            raise ObjectStoreError(f"{target}: {error.strerror or type(error).__name__}; free some space or choose another place") from None

    def _blocks(self, one: ObjectInfo) -> Iterator[bytes]:
        """The bytes of exactly this version; where a connection is cut off, the next goes on from there."""
        import obstore

        done, waits = 0, _Waits()
        while True:
            begun = done
            options: dict[str, Any] = {"if_match": one.etag} if one.etag else {}
            if done:
                options["range"] = {"offset": done}
            try:
                answer = obstore.get(self._to.once, self._base + one.path, options=options or None)  # type: ignore[arg-type]
                if not _same(one, answer.meta):
                    raise self._changed(one)
                if answer.range[0] != done:
                    raise ObjectStoreError(f"{self.place(one.path)}: {self._to.server} answers with another part than asked for")
                for block in answer.stream(min_chunk_size=_CHUNK):
                    done += len(block)
                    if done > one.size:
                        raise self._changed(one)
                    yield bytes(block)
                if done == one.size:
                    return
                raise _CutOff
            except ObjectStoreError:
                raise
            except Exception as error:
                found = _trouble(error)
                if found.kind in {"changed", "missing", "range"}:
                    raise self._changed(one) from None
                if done > begun:
                    waits = _Waits()
                if done == one.size and done:
                    return
                if not waits.again(found):
                    raise self._failed(error, self.place(one.path)) from None

    def _changed(self, one: ObjectInfo) -> ChangedError:
        return ChangedError(
            f"{self.place(one.path)}: replaced, changed or removed since it was listed; run again when it is written to no more"
        )

    # ------------------------------------------------------------------ writing

    def write(self, path: str, data: bytes | Path, *, content_type: str | None = None) -> str | None:
        import obstore

        self._check_own(path)
        if isinstance(data, Path):
            try:
                data.open("rb").close()
            except OSError as error:
                raise ObjectStoreError(f"{data}: {error.strerror}; it was to become {self.place(path)}") from None
        attributes: Any = {"Content-Type": content_type} if content_type else None

        def put() -> Any:
            return obstore.put(
                self._to.patient, self._base + path, data, attributes=attributes, chunk_size=_PART, max_concurrency=4
            )  # fmt: skip

        answer = self._try(put, self.place(path), tries=3)
        return _etag(answer)

    def create(self, path: str, data: bytes) -> bool:
        self._check_own(path)
        return self._create(path, data)

    def _create(self, path: str, data: bytes) -> bool:
        begun = time.monotonic()
        written = bool(self._conditional(path, data, lambda: "create"))
        if not written or self._to.atomic:
            return written
        # Some stores look whether it is there when a request begins, and write later: of several at once all pass, and the last one's
        # bytes stay. So look again when the others have ended that began before this one did.
        time.sleep(max(_SETTLE_S, 2 * (time.monotonic() - begun)))
        return self._holds(path, data)

    def replace(self, path: str, data: bytes, etag: str | None) -> bool:
        if etag is None:
            return self.create(path, data)
        self._check_own(path)

        def mode() -> Any:
            now = self._head(path)
            if now is None or _etag(now) != etag:
                return None
            return {"e_tag": etag} | ({"version": now["version"]} if now["version"] else {})

        written = self._conditional(path, data, mode)
        return self._replace_with_lock(path, data, etag) if written is None else written

    def _conditional(self, path: str, data: bytes, mode: Callable[[], Any]) -> bool | None:
        """Whether it was written; None where the store has no such condition. ``mode``: None where the condition does not hold.

        Each request is sent once: where the answer to one is lost, the bytes that stand there tell whether it was carried out.
        """
        import obstore

        waits, lost = _Waits(), False
        while True:
            try:
                condition = mode()
                if condition is None:
                    return lost and self._holds(path, data)
                obstore.put(self._to.once, self._base + path, data, mode=condition, use_multipart=False)
                return True
            except ObjectStoreError:
                raise
            except Exception as error:
                found = trouble(error)
                if found.kind in {"exists", "changed"} or (found.kind == "missing" and condition != "create"):
                    return lost and self._holds(path, data)
                if found.kind == "unsupported" and condition != "create":
                    return None
                if not waits.again(found):
                    raise self._failed(error, self.place(path)) from None
                lost = True

    def _holds(self, path: str, data: bytes) -> bool:
        now = self.head(path)
        return now is not None and now.size == len(data) and self.read(path) == data

    def _replace_with_lock(self, path: str, data: bytes, etag: str) -> bool:
        """For stores that create on a condition but do not replace on one: an object of ours is the lock.

        A lock that its holder left behind is passed over after two minutes by the next number; ``created`` once is of one writer only.
        """
        folder, slash, name = path.rpartition("/")
        number = 0
        while True:
            lock = f"{folder}{slash}{OURS}{name}.lock{number}"
            if self._create(lock, secrets.token_bytes(16)):
                break
            held = self.head(lock)
            if held is not None and time.time_ns() - held.modified_ns < _STALE_LOCK_NS:
                return False
            number += held is not None
        try:
            now = self.head(path)
            if now is None or now.etag != etag:
                return False
            self.write(path, data)
            return True
        finally:
            for passed in range(number + 1):
                self.delete(f"{folder}{slash}{OURS}{name}.lock{passed}")

    def delete(self, path: str) -> None:
        import obstore

        self._check(path)
        try:
            self._try(lambda: obstore.delete(self._to.once, self._base + path), self.place(path), missing=True)
        except FileNotFoundError:
            return

    def _check_own(self, path: str) -> None:
        self._check(path)
        if is_ours(path):
            raise ObjectStoreError(f"{self.place(path)}: names that begin with {OURS} are kept for temporary files; give it another name")

    # ------------------------------------------------------------------ errors

    def _try(self, action: Callable[[], T], place: str, *, tries: int = TRIES, missing: bool = False) -> T:
        """What ``action`` gives; again after errors that may pass. ``missing``: a missing object is raised as FileNotFoundError."""
        waits = _Waits(tries)
        while True:
            try:
                return action()
            except ObjectStoreError:
                raise
            except Exception as error:
                found = _trouble(error)
                if missing and found.kind == "missing":
                    raise FileNotFoundError from None
                if not waits.again(found):
                    raise self._failed(error, place) from None

    def _failed(self, error: BaseException, place: str) -> ObjectStoreError:
        found = _trouble(error)
        if found.kind == "other" and isinstance(error, OSError) and error.strerror:
            return ObjectStoreError(f"{place}: {error.strerror}: {error.filename or ''}; check the path")
        if found.code is None and found.status in {400, 403, 404} and self._to.lister is not None:
            # An answer to HEAD has no text: the listing's says what is wrong.
            try:
                self._to.lister.page(self._base, None, most=1)
            except ListError as said:
                found = said.found if said.found.code else found
        return ObjectStoreError(message(found, place, self.url, self._to.server))

    def _prove_bucket(self) -> None:
        """An object is not there: is the bucket? Asked once."""
        import obstore

        if self._bucket_seen.is_set():
            return
        try:
            if self._to.lister is not None:
                self._to.lister.page(self._base, None, most=1)
            else:
                next(iter(obstore.list(self._to.once, self._place.prefix or None, chunk_size=1)), None)
        except Exception as error:
            found = _trouble(error)
            if found.kind in {"bucket", "secret"}:
                raise ObjectStoreError(message(found, self.url, self.url, self._to.server)) from None
        self._bucket_seen.set()


class _CutOffError(Exception):
    """The connection ended before the body."""


_CutOff: Final = _CutOffError("incomplete")


class _Waits:
    """How long to wait before the next try: exponential, with chance in it, so that many workers do not come back together."""

    def __init__(self, tries: int = TRIES) -> None:
        self._left = tries
        self._tried = 0
        self._until = time.monotonic() + _GIVE_UP_S

    def again(self, found: Trouble) -> bool:
        """Whether to try again, after a wait."""
        self._tried += 1
        most = min(self._left, 3) if found.kind == "host" else self._left
        if not found.passing or self._tried >= most or time.monotonic() > self._until:
            return False
        time.sleep(min(FIRST_WAIT_S * 2 ** (self._tried - 1), _LONGEST_WAIT_S) * random.uniform(0.5, 1.0))
        return True


def _trouble(error: BaseException) -> Trouble:
    if isinstance(error, _CutOffError):
        return Trouble("network")
    return error.found if isinstance(error, ListError) else trouble(error)


def _info(path: str, meta: Any) -> ObjectInfo:
    return ObjectInfo(path, meta["size"], _etag(meta), nanoseconds(meta["last_modified"]))


def _etag(meta: Any) -> str | None:
    """In quotes, as HTTP writes it: listings of Azure leave them out."""
    etag: str | None = meta["e_tag"]
    return etag if not etag or etag.endswith('"') else f'"{etag}"'


def _same(one: ObjectInfo, meta: Any) -> bool:
    """Whether an answer is about this version. Without an ETag, size and time (to the second, as HTTP says it) have to do."""
    if meta["size"] != one.size:
        return False
    if one.etag and meta["e_tag"]:
        return _etag(meta) == one.etag
    return bool(nanoseconds(meta["last_modified"]) // 10**9 == one.modified_ns // 10**9)


def _behind(path: str, after: str) -> bool:
    return path.encode() > after.encode(errors="surrogatepass")
