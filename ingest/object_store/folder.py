"""A local folder as an object store: atomic writes by rename, conditional ones by link and lock, ordered listings."""

from __future__ import annotations

import errno
import os
import secrets
import stat
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO, Final

from .objects import Level, ObjectInfo, Objects, ObjectStoreError, OccupiedError
from .paths import MARKS, OURS, problem
from .prefixes import Prefixes

_LINKS: Final = 3  # How many links to folders are followed one inside the other
_CHUNK: Final = 1 << 20
_SINGLE_PREFIXES: Final = 64  # beginnings of paths that are listed one by one
_GONE: Final = (FileNotFoundError, NotADirectoryError)
LINK: Final = "a symbolic link (not followed); replace it with the file itself"  # Why a link below a root without links is left out


class Folder(Objects):
    """The regular files below ``root``. A folder that does not exist has no objects; writing creates it.

    Links are followed, except to folders that contain the root or are below it: their files are listed there, if at all.
    With ``links`` false, no link below the root is followed: listings leave links out, and a link that replaces a folder or file of a
    listing is not an object.
    """

    def __init__(self, root: Path, *, links: bool = True) -> None:
        self._root = root.absolute()
        self._links = links
        self.url = str(root)
        self.left_out = []

    def place(self, path: str) -> str:
        return super().place(path) if self.url != "/" else f"/{path}"

    # ------------------------------------------------------------------ reading

    def list(self, prefix: str = "", *, after: str | None = None) -> Iterator[ObjectInfo]:
        return self._listed(Prefixes([prefix]), after)

    def list_below(self, prefixes: Sequence[str]) -> Iterator[ObjectInfo]:
        # Several listings at a time hide the latency of network file systems, but each searches all folders above.
        return super().list_below(prefixes) if len(prefixes) <= _SINGLE_PREFIXES else self._listed(Prefixes(prefixes), None)

    def level(self, folder: str) -> Level | None:
        folders: list[str] = []

        def noted(inner: str, _: tuple[str, ...]) -> Iterator[ObjectInfo]:
            folders.append(inner)
            return iter(())

        files = tuple(self._in(folder, Prefixes([""]), None, (), noted))
        return Level(tuple(folders), files)

    def _listed(self, prefixes: Prefixes, after: str | None) -> Iterator[ObjectInfo]:
        try:
            if not stat.S_ISDIR(self._root.stat().st_mode):
                raise ObjectStoreError(f"{self.url}: this is a file; give the folder that it is in")
        except FileNotFoundError:
            return
        except OSError as error:
            raise self._failed("", error) from None
        yield from self._below("", prefixes, None if after is None else after.encode(errors="surrogatepass"), ())

    def _below(self, folder: str, prefixes: Prefixes, after: bytes | None, links: tuple[str, ...]) -> Iterator[ObjectInfo]:
        """List ``folder`` ("" or ending in a slash); ``links``: real paths of links above."""
        return self._in(folder, prefixes, after, links, lambda inner, links: self._below(inner, prefixes, after, links))

    def _in(
        self,
        folder: str,
        prefixes: Prefixes,
        after: bytes | None,
        links: tuple[str, ...],
        enter: Callable[[str, tuple[str, ...]], Iterator[ObjectInfo]],
    ) -> Iterator[ObjectInfo]:
        """List the files in ``folder``, and what ``enter`` yields for each folder in it."""
        try:
            with self._scanned(folder) as entries:
                named = sorted((self._key(entry), entry) for entry in entries if not _hidden(entry))
        except _GONE:
            return
        except OSError as error:
            self._leave_out(folder, f"the folder cannot be searched ({error.strerror})")
            return
        for key, entry in named:
            path = folder + entry.name
            if not self._links and entry.is_symlink():
                if prefixes.of(path) is not None and self._hides_something(path):
                    self._leave_out(path, problem(path) or LINK)
                continue
            if key.endswith(b"/"):
                if not prefixes.below(path + "/"):
                    continue
                if after is not None and (full := folder.encode() + key) < after and not after.startswith(full):
                    continue
                if wrong := problem(path):
                    self._leave_out(path, wrong)
                elif not entry.is_symlink():
                    yield from enter(path + "/", links)
                elif (real := os.path.realpath(entry.path)) and self._to_follow(path, real, links):
                    yield from enter(path + "/", (*links, real))
            else:
                if prefixes.of(path) is None or (after is not None and folder.encode() + key <= after):
                    continue
                try:
                    status = entry.stat(follow_symlinks=self._links)
                except OSError:  # a link to nothing, or gone
                    continue
                if not stat.S_ISREG(status.st_mode):
                    continue
                if wrong := problem(path):
                    self._leave_out(path, wrong)
                else:
                    yield _info(path, status)

    @contextmanager
    def _scanned(self, folder: str) -> Iterator[Iterator[os.DirEntry[str]]]:
        if self._links:
            with os.scandir(self._root / folder) as entries:
                yield entries
            return
        descriptor = self._descriptor(folder.rstrip("/"), os.O_DIRECTORY)
        try:
            with os.scandir(descriptor) as entries:
                # The status of an entry needs the open folder; the entries remember it.
                yield iter([entry for entry in entries if entry.is_symlink() or _known(entry)])
        finally:
            os.close(descriptor)

    def _descriptor(self, path: str, flags: int = 0) -> int:
        """Open a file below the root without following a link; OSError if there is one."""
        descriptor = os.open(self._root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        *folders, last = path.split("/") if path else ["."]
        for part, kind in [*((name, os.O_DIRECTORY) for name in folders), (last, flags)]:
            above = descriptor
            try:
                # O_NONBLOCK: a pipe does not wait for its writer.
                descriptor = os.open(part, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC | kind, dir_fd=above)
            finally:
                os.close(above)
        return descriptor

    def _open(self, path: str) -> BinaryIO:
        if self._links:
            return (self._root / path).open("rb")
        return os.fdopen(self._descriptor(path), "rb")

    def _status(self, path: str) -> os.stat_result:
        if self._links:
            return (self._root / path).stat()
        *folders, name = path.split("/")
        descriptor = self._descriptor("/".join(folders), os.O_DIRECTORY)
        try:
            return os.stat(name, dir_fd=descriptor, follow_symlinks=False)
        finally:
            os.close(descriptor)

    def _hides_something(self, path: str) -> bool:
        """Whether a link leads to a file, or to a folder outside of the root."""
        real = os.path.realpath(self._root / path)
        return os.path.isfile(real) or (os.path.isdir(real) and not _contains(os.path.realpath(self._root), real))  # noqa: PTH112, PTH113

    def _key(self, entry: os.DirEntry[str]) -> bytes:
        """Return the key that orders entries by path: a folder sorts with its slash."""
        try:
            folder = entry.is_dir(follow_symlinks=self._links)
        except OSError:  # a loop of links
            folder = False
        return os.fsencode(entry.name) + (b"/" if folder else b"")

    def _to_follow(self, path: str, real: str, links: tuple[str, ...]) -> bool:
        root = os.path.realpath(self._root)
        for known in (root, *links):
            if _contains(real, known) or _contains(known, real):
                return False
        if len(links) >= _LINKS:
            self._leave_out(path, f"more than {_LINKS} links to folders one inside the other")
            return False
        return True

    def head(self, path: str) -> ObjectInfo | None:
        self._check(path)
        try:
            status = self._status(path)
        except _GONE:
            return None
        except OSError as error:
            raise self._failed(path, error) from None
        return _info(path, status) if stat.S_ISREG(status.st_mode) else None

    def read(self, path: str, *, first: int = 0, count: int | None = None) -> bytes:
        self._check(path)
        try:
            with self._open(path) as file:
                file.seek(first)
                return file.read(-1 if count is None else count)
        except OSError as error:
            raise self._failed(path, error) from None

    def download(self, info: ObjectInfo, target: Path, *, progress: Callable[[int], None] | None = None) -> None:
        self._check(info.path)
        try:
            file = self._open(info.path)
        except _GONE:
            raise self._changed(info) from None
        except OSError as error:
            raise self._failed(info.path, error) from None
        with file:
            if _etag(os.fstat(file.fileno())) != info.etag:
                raise self._changed(info)
            try:
                with complete_file(target) as out:
                    while block := file.read(_CHUNK):
                        out.write(block)
                        if progress is not None:
                            progress(out.tell())
                    if _etag(os.fstat(file.fileno())) != info.etag or out.tell() != info.size:
                        raise self._changed(info)
            except OSError as error:
                reason = error.strerror or type(error).__name__
                raise ObjectStoreError(f"{self.place(info.path)}: cannot be copied to {target} ({reason}); free some space there") from None

    # ------------------------------------------------------------------ writing

    def write(self, path: str, data: bytes | Path, *, content_type: str | None = None) -> str | None:
        with self._temporary(path, data) as temporary, self._lock(needed=False):
            etag = _etag(temporary.stat())
            self._no_folder(path)
            temporary.replace(self._root / path)
            return etag

    def create(self, path: str, data: bytes) -> bool:
        with self._temporary(path, data) as temporary:
            target = self._root / path
            try:
                os.link(temporary, target)  # complete or not at all, and never over another file
            except FileExistsError:
                self._no_folder(path)
                return False
            except OSError as error:
                if error.errno not in {errno.EPERM, errno.ENOTSUP, errno.ENOSYS, errno.EMLINK}:
                    raise
                return self._create_without_links(target, data)
            return True

    @staticmethod
    def _create_without_links(target: Path, data: bytes) -> bool:
        try:
            with target.open("xb") as file:
                file.write(data)
        except FileExistsError:
            return False
        return True

    def replace(self, path: str, data: bytes, etag: str | None) -> bool:
        if etag is None:
            return self.create(path, data)
        with self._temporary(path, data) as temporary, self._lock(needed=True):
            now = self.head(path)
            if now is None or now.etag != etag:
                return False
            temporary.replace(self._root / path)
            return True

    def delete(self, path: str) -> None:
        self._check(path)
        if not self._root.is_dir():
            return
        try:
            with self._lock(needed=False):
                (self._root / path).unlink()
        except _GONE:
            return
        except OSError as error:
            raise self._failed(path, error) from None

    def remove_empty(self, folder: str) -> None:
        self._check(folder)
        with suppress(OSError):  # the first that contains something, is a link, or is gone
            while folder:
                (self._root / folder).rmdir()
                folder = folder.rpartition("/")[0]

    @contextmanager
    def _temporary(self, path: str, data: bytes | Path) -> Iterator[Path]:
        """Yield a temporary file with the data, next to the target; it may be moved."""
        self._check_writable(path)
        target = self._root / path
        temporary = target.parent / f"{OURS}{secrets.token_hex(8)}.tmp"
        try:
            target.parent.mkdir(parents=True, exist_ok=True)
            try:
                with temporary.open("xb") as out:
                    if isinstance(data, Path):
                        with self._source(data, path) as file:
                            while block := file.read(_CHUNK):
                                out.write(block)
                    else:
                        out.write(data)
                # The clock that stamps files is coarse; with the exact time two versions never share their ETag.
                now = time.time_ns()
                os.utime(temporary, ns=(now, now))
                yield temporary
            finally:
                temporary.unlink(missing_ok=True)
        except OSError as error:
            if os.path.lexists(self._root):
                raise self._failed(path, error) from None
            reason = error.strerror or type(error).__name__
            raise ObjectStoreError(f"{self.url}: the folder cannot be created ({reason}); choose another place") from None

    @contextmanager
    def _lock(self, *, needed: bool) -> Iterator[None]:
        """Allow one writer at a time below this root, also among processes."""
        import fcntl

        self._root.mkdir(parents=True, exist_ok=True)
        file = self._root / f"{OURS}lock"
        try:
            descriptor = os.open(file, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o666)
        except OSError as error:
            if error.errno == errno.ELOOP:
                raise OccupiedError(f"{file}: a link, which is not followed; remove it") from None
            raise
        try:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX)
            except OSError:  # a network file system without locks
                if needed:
                    raise
            yield
        finally:
            os.close(descriptor)

    def _no_folder(self, path: str) -> None:
        if (self._root / path).is_dir():
            raise OccupiedError(f"{self.place(path)}: there is a folder of this name; choose another place")

    def _check(self, path: str) -> None:
        """Check the name, and refuse pipes, devices, and links of other users."""
        super()._check(path)
        target = self._root
        for part in path.split("/"):
            target = target / part
            try:
                status = target.lstat()
            except OSError:
                return
            if stat.S_ISLNK(status.st_mode) and status.st_uid not in (0, os.geteuid()) and status.st_uid != self._root.stat().st_uid:
                raise OccupiedError(f"{target}: a link of another user, which is not followed; remove it")
        if not (stat.S_ISREG(status.st_mode) or stat.S_ISDIR(status.st_mode) or stat.S_ISLNK(status.st_mode)):
            raise OccupiedError(f"{target}: not a file; remove it")

    def _failed(self, path: str, error: OSError) -> ObjectStoreError:
        name = self.place(path) if path else self.url
        if isinstance(error, FileNotFoundError):
            return ObjectStoreError(f"{name}: no such file or folder; check the path")
        if isinstance(error, PermissionError):
            return ObjectStoreError(f"{name}: no permission; change its rights or choose another place")
        if error.errno == errno.ELOOP and not self._links:
            return ObjectStoreError(f"{name}: {LINK}")
        if error.errno in {errno.ENOSPC, errno.EDQUOT}:
            return ObjectStoreError(f"{name}: {error.strerror}; free some space or choose another place")
        return ObjectStoreError(f"{name}: {error.strerror or type(error).__name__}; check the path")


@contextmanager
def complete_file(target: Path) -> Iterator[BinaryIO]:
    """Open a file that becomes ``target`` at the end, or is removed after an error."""
    temporary = target.parent / f"{OURS}{secrets.token_hex(8)}.tmp"
    try:
        with temporary.open("x+b") as out:
            yield out
        temporary.replace(target)
    finally:
        temporary.unlink(missing_ok=True)


def _etag(status: os.stat_result) -> str:
    return f'"{status.st_ino:x}-{status.st_size:x}-{status.st_mtime_ns:x}"'


def is_local(info: ObjectInfo) -> bool:
    """Decide whether an object is a local file, by its ETag."""
    etag = info.etag or ""
    return etag.count("-") == 2 and etag.endswith(f'-{info.size:x}-{info.modified_ns:x}"')


def _hidden(entry: os.DirEntry[str]) -> bool:
    return entry.name.startswith(OURS) and not (entry.name == MARKS and entry.is_dir(follow_symlinks=False))


def _known(entry: os.DirEntry[str]) -> bool:
    """Read the status of an entry, which then remembers it; False if it is gone."""
    try:
        entry.stat(follow_symlinks=False)
    except OSError:
        return False
    return True


def _info(path: str, status: os.stat_result) -> ObjectInfo:
    return ObjectInfo(path, status.st_size, _etag(status), status.st_mtime_ns)


def _contains(outer: str, inner: str) -> bool:
    return inner == outer or inner.startswith(outer.rstrip("/") + "/")
