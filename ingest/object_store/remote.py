"""S3, Google Cloud Storage, Azure and a store in memory as one: obstore sends the requests; retries and checks are here."""

from __future__ import annotations

import heapq
import re
import secrets
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import timedelta
from functools import partial
from itertools import chain, islice
from pathlib import Path
from typing import Any, Final, TypeVar

from .connect import Connection, connect
from .division import of_folders
from .errors import Trouble, message, trouble
from .folder import complete_file
from .listing import ListError, nanoseconds
from .objects import Level, ObjectInfo, Objects, ObjectStoreError, in_order
from .paths import OURS, is_ours, problem
from .prefixes import Prefixes
from .ranges import Part, listing_below, long_listing
from .sides import Side
from .tries import TRIES, CutOffError, Waits, trouble_of
from .urls import StoreUrl

T = TypeVar("T")

_CHUNK: Final = 1 << 20
_PART: Final = 8 << 20
_SETTLE_S: Final = 0.02
_UNPRINTABLE: Final = re.compile("[\x00-\x1f\x7f-\x9f\ud800-\udfff]")
_STALE_LOCK_NS: Final = 120 * 10**9
_FOLDER_PAGES: Final = 5  # that show folders to divide a listing
_LEVEL_PAGES: Final = 100  # that show all that is directly in a folder
_FIRST: Final = 8000  # objects that obstore lists in one go


def open_store(url: StoreUrl, side: Side | None = None) -> Stored:
    return Stored(url, connect(url, side))


class Stored(Objects):
    """The objects of a bucket or container whose keys begin with the prefix of a URL."""

    def __init__(self, url: StoreUrl, connection: Connection) -> None:
        self.url = url.url
        self.left_out = []
        self._prefix = url.prefix
        self._to = connection
        self._base = f"{url.prefix}/" if url.prefix else ""
        self._bucket_seen = threading.Event()
        server = connection.lister or connection.contact
        self._send: Callable[[Callable[[], Any]], Any] = _now if server is None else server.first

    # ------------------------------------------------------------------ reading

    def list(self, prefix: str = "", *, after: str | None = None) -> Iterator[ObjectInfo]:
        if prefix and problem(prefix.strip("/") + "x"):
            return iter(())  # no object can have such a name
        if self._to.lister is None and not prefix and after is None:
            return self._ordered(self._everything(), after)
        pages = self._pages_s3 if self._to.lister is not None else self._pages
        return self._ordered(pages(prefix, after), after)

    def list_below(self, prefixes: Sequence[str]) -> Iterator[ObjectInfo]:
        if self._to.lister is None:
            return super().list_below(prefixes)
        valid = [prefix for prefix in prefixes if not problem(prefix.strip("/") + "x")]
        return self._ordered(self._sound(listing_below(self._page, Prefixes(valid))), None)

    def level(self, folder: str) -> Level | None:
        if (lister := self._to.lister) is None:
            level = self._level_of_obstore(folder)
        else:
            level, complete = self._try(lambda: lister.level(self._base + folder, self._base, _LEVEL_PAGES), self.url)
            if not complete:
                return None
        folders = []
        for inner in level.folders:
            if wrong := problem(inner[:-1]):
                self._leave_out(inner, wrong)
            else:
                folders.append(inner)
        return Level(tuple(folders), tuple(info for info in self._sound(level.files) if not is_ours(info.path)))

    def _level_of_obstore(self, folder: str) -> Level:
        import obstore

        above = (self._base + folder).rstrip("/")
        answer = self._try(lambda: obstore.list_with_delimiter(self._to.once, above or None), self.url)
        infos = (_info(meta["path"].removeprefix(self._base), meta) for meta in answer["objects"])
        files = sorted((info for info in infos if self._is_file(info)), key=lambda info: info.path)
        return Level(tuple(sorted(f"{name.removeprefix(self._base)}/" for name in answer["common_prefixes"])), tuple(files))

    def _ordered(self, infos: Iterable[ObjectInfo], after: str | None) -> Iterator[ObjectInfo]:
        last = after  # texts are in the order of their UTF-8
        for info in infos:
            if last is not None and info.path <= last:
                raise ObjectStoreError(
                    f"{self.url}: {self._to.server or 'the store'} does not list objects in order of their names; use another store"
                )
            last = info.path
            if OURS not in last or not is_ours(last):
                yield info
        self._bucket_seen.set()

    def _pages_s3(self, prefix: str, after: str | None) -> Iterator[ObjectInfo]:
        if after is None:
            return self._sound(long_listing(partial(self._page, prefix), partial(self._folders, prefix)))
        return (info for info in self._sound(self._from(prefix, after)) if _behind(info.path, after))

    def _sound(self, infos: Iterable[ObjectInfo]) -> Iterator[ObjectInfo]:
        """Yield keys below the root that can be paths; leave out markers of folders."""
        for info in infos:
            path = info.path
            if not path or path.endswith("/"):
                if info.size:
                    self._leave_out(path, "a name that ends with a slash")
            elif wrong := problem(path):
                self._leave_out(path, wrong)
            else:
                yield info

    def _from(self, prefix: str, after: str) -> Iterator[ObjectInfo]:
        # Up to a character that no request can contain; the rest is compared later.
        start: str | None = _UNPRINTABLE.split(after, maxsplit=1)[0]
        while start is not None:
            infos, start = self._page(prefix, start)
            yield from infos

    def _page(self, prefix: str, after: str | None) -> Part:
        lister = self._to.lister
        assert lister is not None
        start = None if after is None else self._base + after
        return self._try(lambda: lister.page(self._base + prefix, start, base=self._base), self.url)

    def _folders(self, prefix: str, folder: str) -> Sequence[str]:
        lister = self._to.lister
        assert lister is not None
        if not folder and prefix:  # the names begin with more than whole folders
            folder = prefix.rpartition("/")[0] + "/" if "/" in prefix else ""
        level, _ = self._try(lambda: lister.level(self._base + folder, self._base, _FOLDER_PAGES), self.url)
        return [inner for inner in level.folders if inner.startswith(prefix)]

    def _pages(self, prefix: str, after: str | None) -> Iterator[ObjectInfo]:
        """Yield obstore's listing of whole parts; compare the rest of ``prefix``."""
        full = self._base + prefix
        folder = full.rpartition("/")[0]
        if folder and problem(folder):
            return
        infos = (
            info for info in self._listed(folder, after) if info.path.startswith(prefix) and (after is None or _behind(info.path, after))
        )
        yield from self._files(infos)

    def _files(self, infos: Iterable[ObjectInfo]) -> Iterator[ObjectInfo]:
        return filter(self._is_file, infos if self._to.ordered else sorted(infos, key=lambda info: info.path.encode()))

    def _everything(self) -> Iterator[ObjectInfo]:
        """Yield obstore's listing of all objects.

        If it is long, several folders are listed at a time."""
        listing = self._listed(self._prefix, None)
        first = list(islice(listing, _FIRST))
        division = of_folders(first, self.level) if len(first) == _FIRST else None
        if division is None:
            yield from self._files(chain(first, listing))
            return
        del first
        below = in_order(partial(self._pages, folder, None) for folder in division.folders)
        yield from heapq.merge(division.files, below, key=lambda info: info.path)

    def _is_file(self, info: ObjectInfo) -> bool:
        # A marker of a folder ("folder/") comes without its slash; it cannot be read under that name.
        return bool(info.size) or self.head(info.path) is not None

    def _listed(self, folder: str, after: str | None) -> Iterator[ObjectInfo]:
        import obstore

        offset = self._base + after if after and not problem(self._base + after) else None
        # Only a listing in order can continue behind a name. Any other begins again, so its pages are repeated by obstore first.
        store = self._to.once if self._to.ordered else self._to.patient
        seen = set[str]()
        waits = Waits()
        while True:
            try:
                pages = iter(obstore.list(store, folder or None, offset=offset, chunk_size=1000))
                while page := self._send(lambda pages=pages: next(pages, None)):  # type: ignore[misc]
                    before = len(seen)
                    for meta in page:
                        path = meta["path"].removeprefix(self._base)
                        if meta["path"].startswith(self._base) and path not in seen:
                            yield _info(path, meta)
                        if self._to.ordered:
                            offset = meta["path"]
                        else:
                            seen.add(path)
                    if self._to.ordered or len(seen) > before:
                        waits = Waits()
                return
            except Exception as error:
                if not waits.again(trouble_of(error)):
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
                raise CutOffError
            return data

        return self._try(get, self.place(path))

    def download(self, info: ObjectInfo, target: Path, *, progress: Callable[[int], None] | None = None) -> None:
        self._check(info.path)
        try:
            with complete_file(target) as out:
                for block in self._blocks(info):
                    out.write(block)
                    if progress is not None:
                        progress(out.tell())
        except OSError as error:
            raise ObjectStoreError(f"{target}: {error.strerror or type(error).__name__}; free some space or choose another place") from None

    def _blocks(self, info: ObjectInfo) -> Iterator[bytes]:
        """Yield the bytes of exactly this version; continue after a lost connection."""
        import obstore

        done, waits = 0, Waits()
        while True:
            begun = done
            options: dict[str, Any] = {"if_match": info.etag} if info.etag else {}
            if done:
                options["range"] = {"offset": done}
            try:
                answer = obstore.get(self._to.once, self._base + info.path, options=options or None)  # type: ignore[arg-type]
                if not _same(info, answer.meta):
                    raise self._changed(info)
                if answer.range[0] != done:
                    raise ObjectStoreError(f"{self.place(info.path)}: {self._to.server} answers with another part than asked for")
                for block in answer.stream(min_chunk_size=_CHUNK):
                    done += len(block)
                    if done > info.size:
                        raise self._changed(info)
                    yield bytes(block)
                if done == info.size:
                    return
                raise CutOffError
            except ObjectStoreError:
                raise
            except Exception as error:
                failure = trouble_of(error)
                if failure.kind in {"changed", "missing", "range"}:
                    raise self._changed(info) from None
                if done > begun:
                    waits = Waits()
                if done == info.size and done:
                    return
                if not waits.again(failure):
                    raise self._failed(error, self.place(info.path)) from None

    # ------------------------------------------------------------------ writing

    def write(self, path: str, data: bytes | Path, *, content_type: str | None = None) -> str | None:
        import obstore

        self._check_writable(path)
        if isinstance(data, Path):
            self._source(data, path).close()
        attributes: Any = {"Content-Type": content_type} if content_type else None

        def put() -> Any:
            return obstore.put(
                self._to.patient, self._base + path, data, attributes=attributes, chunk_size=_PART, max_concurrency=4
            )  # fmt: skip

        answer = self._try(put, self.place(path), tries=3)
        return _etag(answer)

    def create(self, path: str, data: bytes) -> bool:
        self._check_writable(path)
        return self._create(path, data)

    def _create(self, path: str, data: bytes) -> bool:
        begun = time.monotonic()
        written = bool(self._conditional(path, data, lambda: "create"))
        if not written or self._to.atomic:
            return written
        # Some stores check for the object when a request begins, and write later: several requests at once all pass, and the last one's
        # bytes stay. So this looks again when the requests that began before this one have ended.
        time.sleep(max(_SETTLE_S, 2 * (time.monotonic() - begun)))
        return self._contains(path, data)

    def replace(self, path: str, data: bytes, etag: str | None) -> bool:
        if etag is None:
            return self.create(path, data)
        self._check_writable(path)

        def mode() -> Any:
            now = self._head(path)
            if now is None or _etag(now) != etag:
                return None
            return {"e_tag": etag} | ({"version": now["version"]} if now["version"] else {})

        written = self._conditional(path, data, mode)
        return self._replace_with_lock(path, data, etag) if written is None else written

    def _conditional(self, path: str, data: bytes, mode: Callable[[], Any]) -> bool | None:
        """Write if ``mode`` returns a condition; return None if it is not supported.

        Each request is sent once: if the answer is lost, the stored bytes show whether it was executed.
        """
        import obstore

        waits, lost = Waits(), False
        while True:
            try:
                condition = mode()
                if condition is None:
                    return lost and self._contains(path, data)
                obstore.put(self._to.once, self._base + path, data, mode=condition, use_multipart=False)
                return True
            except ObjectStoreError:
                raise
            except Exception as error:
                failure = trouble(error)
                if failure.kind in {"exists", "changed"} or (failure.kind == "missing" and condition != "create"):
                    return lost and self._contains(path, data)
                if failure.kind == "unsupported" and condition != "create":
                    return None
                if not waits.again(failure):
                    raise self._failed(error, self.place(path)) from None
                lost = True

    def _contains(self, path: str, data: bytes) -> bool:
        now = self.head(path)
        return now is not None and now.size == len(data) and self.read(path) == data

    def _replace_with_lock(self, path: str, data: bytes, etag: str) -> bool:
        """Replace with a lock object, for stores that only create on a condition.

        Two minutes after its holder left it, a lock is passed over by the next number; one writer only creates a lock.
        """
        folder, slash, name = path.rpartition("/")
        number = 0
        while True:
            lock = f"{folder}{slash}{OURS}{name}.lock{number}"
            if self._create(lock, secrets.token_bytes(16)):
                break
            info = self.head(lock)
            if info is not None and time.time_ns() - info.modified_ns < _STALE_LOCK_NS:
                return False
            number += info is not None
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

    def signed(self, path: str, seconds: int) -> str:
        import obstore

        self._check(path)
        if not isinstance(self._to.once, obstore.store.S3Store | obstore.store.GCSStore | obstore.store.AzureStore):
            return super().signed(path, seconds)
        try:
            return obstore.sign(self._to.once, "GET", self._base + path, timedelta(seconds=seconds))
        except Exception as error:
            raise self._failed(error, self.place(path)) from None

    # ------------------------------------------------------------------ errors

    def _try(self, action: Callable[[], T], name: str, *, tries: int = TRIES, missing: bool = False) -> T:
        """Run ``action``, with retries; ``missing``: raise FileNotFoundError."""
        waits = Waits(tries)
        while True:
            try:
                result: T = self._send(action)
                return result
            except ObjectStoreError:
                raise
            except Exception as error:
                failure = trouble_of(error)
                if missing and failure.kind == "missing":
                    raise FileNotFoundError from None
                if not waits.again(failure):
                    raise self._failed(error, name) from None

    def _failed(self, error: BaseException, name: str) -> ObjectStoreError:
        failure = trouble_of(error)
        if failure.kind == "other" and isinstance(error, OSError) and error.strerror:
            return ObjectStoreError(f"{name}: {error.strerror}: {error.filename or ''}; check the path")
        if failure.code is None and failure.status in {400, 403, 404} and self._to.lister is not None:
            # An answer to HEAD has no text; that of the listing shows the reason.
            try:
                self._to.lister.page(self._base, None, most=1)
            except ListError as listing:
                failure = listing.problem if listing.problem.code else failure
        return self._error(failure, name)

    def _error(self, failure: Trouble, name: str) -> ObjectStoreError:
        return ObjectStoreError(self._to.environment.named(message(failure, name, self.url, self._to.server)))

    def _prove_bucket(self) -> None:
        """Raise ObjectStoreError if an object is missing because its bucket is."""
        import obstore

        if self._bucket_seen.is_set():
            return
        try:
            if self._to.lister is not None:
                self._to.lister.page(self._base, None, most=1)
            else:
                next(iter(obstore.list(self._to.once, self._prefix or None, chunk_size=1)), None)
        except Exception as error:
            failure = trouble_of(error)
            if failure.kind in {"bucket", "secret"}:
                raise self._error(failure, self.url) from None
        self._bucket_seen.set()


def _now(action: Callable[[], T]) -> T:
    return action()


def _info(path: str, meta: Any) -> ObjectInfo:
    return ObjectInfo(path, meta["size"], _etag(meta), nanoseconds(meta["last_modified"]))


def _etag(meta: Any) -> str | None:
    """Return the ETag in quotes, as in HTTP; listings of Azure leave them out."""
    etag: str | None = meta["e_tag"]
    return etag if not etag or etag.endswith('"') else f'"{etag}"'


def _same(info: ObjectInfo, meta: Any) -> bool:
    """Whether an answer is about this version: by ETag, else by size and seconds."""
    if meta["size"] != info.size:
        return False
    if info.etag and meta["e_tag"]:
        return _etag(meta) == info.etag
    return bool(nanoseconds(meta["last_modified"]) // 10**9 == info.modified_ns // 10**9)


def _behind(path: str, after: str) -> bool:
    return path.encode() > after.encode(errors="surrogatepass")
