"""Reports of runs that are too large for one machine: many tasks read the files of a run, and one task combines their tables.

Map: :func:`read_part` reads some files of the run by themselves, writes their content as Parquet below the output, and a marker last.
Reduce: :func:`report_parts` loads all parts into one run store, with the code that loads files, and reports it with the same analysis. The
files below ``runs/<id>/partial/`` are removed when the run is reported:

runs/<id>/partial/<16 digits>-<12 digits>/00003.json                the content of part 3's files, and its tables; written last
runs/<id>/partial/<16 digits>-<12 digits>/00003-<random>-*.parquet  its tables

A part that is read twice, by a repeated task or by two nights, counts once: the first marker counts, and only the tables that it names are
read.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import re
import shutil
import tempfile
import threading
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_EXCEPTION, BrokenExecutor, Executor, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from importlib.metadata import version
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, Any, Final, ParamSpec, TypeVar

from .. import modes
from ..errors import InputError
from ..ingest.object_store.objects import ObjectInfo, Objects, ObjectStoreError
from ..ingest.object_store.urls import is_url
from . import places
from .model import FoundRun, Row, Task
from .night import kill
from .work import check_unchanged, fetch, linked, opened, report_run, source_of, workplace

if TYPE_CHECKING:
    from ..ingest.discover import InputFile
    from ..ingest.partial import Entry
    from ..ingest.store.store import Store

P = ParamSpec("P")
T = TypeVar("T")

Tell = Callable[[str, int], None]  # receives the id of each run that is read in parts, and their number

PART_BYTES: Final = 64_000_000
"""Smaller files are read together up to this size, or up to the size above which runs are split if that is smaller."""
PART_FILES: Final = 500
_AT_ONCE: Final = 8
_FOLDER: Final = "partial"
_PART_FILE: Final = re.compile(r"[0-9a-f]{16}-[0-9a-f]{12}/\d{5}(?:\.json|-[0-9a-f]{12}-.*\.parquet)")
_TABLE_NAME: Final = re.compile(r"(?:\d{4,6}|metrics)\.[a-z_]+\.parquet")  # after the prefix of its part
_MOST_MARKER: Final = 64 << 20  # bytes of a marker, which describes at most PART_FILES files
_SHARE_OF_DISK: Final = 0.9
_TABLE: Final = "application/vnd.apache.parquet"


@dataclass(frozen=True, slots=True)
class Part:
    """Files of a run that one task reads. ``task``: of the entire run, but with the objects of this part only. ``most``: bytes of files
    that are read together."""

    task: Task
    number: int
    of: int
    most: int

    @property
    def objects(self) -> tuple[ObjectInfo, ...]:
        return self.task.run.objects

    @property
    def marker(self) -> str:
        return f"{self.folder}/{self.number:05}.json"

    @property
    def folder(self) -> str:
        return f"{places.run_folder(self.task.run.id)}/{_FOLDER}/{self.task.run.fingerprint[:16]}-{_digest(self.most)}"


def parts(task: Task, most: int = PART_BYTES) -> list[Part]:
    """Split the files of a run into parts, in the same way on every machine.

    Recordings are left out, because reading them is as quick as reading their tables, and so is the description of the job. ``most``: bytes
    of files that are read together."""
    groups: list[list[ObjectInfo]] = []
    size = 0
    for file in task.run.objects:
        if _read_at_the_end(file):
            continue
        if not groups or size + file.size > most or len(groups[-1]) >= PART_FILES:
            groups.append([])
            size = 0
        groups[-1].append(file)
        size += file.size
    return [Part(replace(task, run=replace(task.run, objects=tuple(group))), i, len(groups), most) for i, group in enumerate(groups)]


def _read_at_the_end(file: ObjectInfo) -> bool:
    name = file.path.rpartition("/")[2]
    return name == "job.json" or name.lower().endswith((".prt", ".sqlite"))


@lru_cache(8)
def _digest(most: int) -> str:
    """Return a digest of the way in which parts are split and read."""
    from ..ingest.partial import FORMAT

    return hashlib.sha256(json.dumps([version("postrun"), FORMAT, most, PART_FILES]).encode()).hexdigest()[:12]


# -- map -------------------------------------------------------------------------------------------------------------------


def read_part(part: Part) -> str:
    """Read the files of a part, write their tables and the marker; return its path.

    Do nothing if the marker exists. Raise ObjectStoreError if the store fails or a file is being written: another attempt may succeed."""
    from ..ingest.discover import find_files
    from ..ingest.partial import write

    task = part.task
    modes.set_umask(task.options.mode)
    out, source = opened(task.out), source_of(task)
    if out.head(part.marker) is not None:
        return part.marker
    with workplace() as work:
        root = fetch(task, source, work)
        found_files = {one.path: one for one in find_files([root], linked=linked(task))}
        files = [(one, found_files[path]) for one in part.objects if (path := _path(root, task.run, one)) in found_files]
        tables = work / "tables"
        tables.mkdir()
        prefix = f"{part.number:05}-{uuid.uuid4().hex[:12]}-"
        options = task.options
        entries = write([file for _, file in files], tables, prefix, **options.of_reading)
        check_unchanged(task, source)
        table_files = sorted(tables.iterdir())
        for path in table_files:
            out.write(f"{part.folder}/{path.name}", path, content_type=_TABLE)
        marker = {
            "files": [{"path": one.path, **entry} for (one, _), entry in zip(files, entries, strict=True)],
            "tables": {path.name: path.stat().st_size for path in table_files},
            "prefix": prefix,
        }
        if not out.create(part.marker, json.dumps(marker).encode()):
            for path in table_files:  # another worker was quicker
                with contextlib.suppress(InputError):
                    out.delete(f"{part.folder}/{path.name}")
    return part.marker


def _path(root: Path, run: FoundRun, file: ObjectInfo) -> Path:
    """Return where :func:`.work.fetch` stores an object."""
    return root / file.path.removeprefix(f"{run.id}/")


# -- reduce ----------------------------------------------------------------------------------------------------------------


def report_parts(task: Task, most: int = PART_BYTES) -> Row:
    """Report a run from its parts, all of which must exist, and remove them."""
    row = report_run(task, partial(_prepare, most))
    if row.state == "reported":
        remove(opened(task.out), task.run)
    return row


def remove(out: Objects, run: FoundRun) -> None:
    """Remove all parts of a run and its earlier versions, if the store allows it."""
    above = f"{places.run_folder(run.id)}/{_FOLDER}/"
    with contextlib.suppress(InputError):
        folders = set[str]()
        for file in list(out.list(above)):
            if _PART_FILE.fullmatch(file.path[len(above) :]):
                out.delete(file.path)
                folders.add(file.path.rpartition("/")[0])
        for folder in folders:
            out.remove_empty(folder)


def _prepare(most: int, task: Task, source: Objects, work: Path) -> tuple[Path, Callable[[], Store]]:
    """Prepare the tables of all parts, and the files that no part contains."""
    from ..ingest.load import load
    from ..ingest.partial import MAPPED, Partials, write

    run, out = task.run, opened(task.out)
    divided = parts(task, most)
    markers, tables = _read_markers(out, divided), work / "tables"
    files = [file for marker in markers for file in marker["files"]]
    read_whole = {file["path"] for file in files if _is_read_whole(file)}
    held = {file["path"] for file in files} - read_whole
    root, rest = _fetch_rest(task, source, work, read_whole, held)
    tables.mkdir()
    names = [(f"{divided[0].folder}/{name}", tables / name, size) for marker in markers for name, size in marker["tables"].items()]
    needed, free = sum(size for *_, size in names), shutil.disk_usage(work).free
    if needed > free * _SHARE_OF_DISK:
        raise InputError(
            f"{out.place(divided[0].folder)}: {needed / 1e6:.0f} MB are to be downloaded, but only {free / 1e6:.0f} MB are free in"
            f" {tempfile.gettempdir()}; set TMPDIR to a folder with more space"
        )
    with ThreadPoolExecutor(_AT_ONCE) as threads:
        for _ in threads.map(partial(_download, out), *zip(*names, strict=True)) if names else ():
            pass
    entries: dict[Path, tuple[Entry, Path]] = {}
    infos = {one.path: one for one in run.objects}
    for file in files:
        if file["path"] not in read_whole:
            entries[_path(root, run, infos[file["path"]])] = (file, tables)
    # Files that no part contains under their names, in formats that are read in parts.
    strays = [one for one in rest if one.readable and one.format is not None and one.format.name in MAPPED]
    for number, stray in enumerate(strays):
        [entry] = write([stray], tables, f"stray-{number}-", **task.options.of_store)
        entries[stray.path] = (entry, tables)
    partials = Partials(entries)
    stray_paths = {one.path for one in strays}
    inputs = [*partials.files(), *(one for one in rest if one.path not in stray_paths)]
    inputs = _once(sorted(inputs, key=lambda one: _order(one.path.relative_to(root))), root, task)
    options = task.options
    return root, partial(load, inputs, [root], partials=partials, **options.of_store)


def _is_read_whole(file: Mapping[str, Any]) -> bool:
    """Decide whether a file of a part is of a format that is not read in parts."""
    from ..ingest.discover import FORMATS
    from ..ingest.partial import MAPPED
    from ..ingest.store.format_names import RUN_STORE

    formats = {known.name for known in FORMATS if known.not_read is None} - MAPPED - {RUN_STORE}
    return file["problem"] is None and file["format"] in formats


def _read_markers(out: Objects, divided: Sequence[Part]) -> list[dict[str, Any]]:
    """Return the markers of all parts. Raise ObjectStoreError for an unsound one."""
    with ThreadPoolExecutor(_AT_ONCE) as threads:
        read = list(threads.map(lambda part: out.read(part.marker, count=_MOST_MARKER + 1), divided))
    markers = []
    for part, data in zip(divided, read, strict=True):
        try:
            marker = json.loads(data)
            sound = len(data) <= _MOST_MARKER and _is_ours(marker, part)
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
            sound = False
        if not sound:
            out.delete(part.marker)
            raise ObjectStoreError(f"{out.place(part.marker)}: is damaged, and was removed; the next night reads this part again")
        markers.append(marker)
    return markers


def _is_ours(marker: Any, part: Part) -> bool:
    """Decide whether :func:`read_part` could have written a marker.

    Others may write below the output. The marker must name only files and tables of its part."""
    from ..ingest.partial_check import sound

    prefix, tables, files = marker["prefix"], marker["tables"], marker["files"]
    return (
        re.fullmatch(rf"{part.number:05}-[0-9a-f]{{12}}-", prefix) is not None
        and all(name.startswith(prefix) and _TABLE_NAME.fullmatch(name, len(prefix)) for name in tables)
        and all(isinstance(size, int) and size >= 0 for size in tables.values())
        and {file["path"] for file in files} <= {known.path for known in part.objects}
        and len(files) <= len(part.objects)
        and all(sound(file, tables) for file in files)
    )


def _fetch_rest(task: Task, source: Objects, work: Path, read_whole: set[str], held: set[str]) -> tuple[Path, list[InputFile]]:
    """Return the run's folder, and its files that no part contains."""
    from ..ingest.discover import find_files

    rest = tuple(one for one in task.run.objects if one.path in read_whole or (one.path not in held and _read_at_the_end(one)))
    task = replace(task, run=replace(task.run, objects=rest))
    root = fetch(task, source, work)
    root.mkdir(parents=True, exist_ok=True)
    return root, find_files([root], linked=linked(task))


def _download(out: Objects, path: str, target: Path, size: int) -> None:
    file = out.head(path)
    if file is None or file.size != size:
        out.delete(f"{path.rpartition('/')[0]}/{target.name[:5]}.json")  # the marker of its part
        lost = "is no longer there" if file is None else "has been replaced"
        raise ObjectStoreError(f"{out.place(path)}: {lost}; the next night reads this part again")
    out.download(file, target)


def _order(path: PurePath) -> tuple[tuple[bool, str], ...]:
    """Return a sort key: the files of a folder before those of its subfolders."""
    return (*((True, folder) for folder in path.parts[:-1]), (False, path.name))


def _once(files: list[InputFile], root: Path, task: Task) -> list[InputFile]:
    """Drop files of a local run that are reached twice, as a search does."""
    if is_url(task.source):
        return files
    seen: set[tuple[int, int]] = set()
    kept = []
    for file in files:
        inside = file.path.relative_to(root)
        status = (Path(task.source) / ("" if task.run.id == "." else task.run.id) / inside).stat()
        if (status.st_dev, status.st_ino) not in seen:
            kept.append(file)
        seen.add((status.st_dev, status.st_ino))
    return kept


# -- an executor that does so ----------------------------------------------------------------------------------------------


@contextlib.contextmanager
def splitting(engine: contextlib.AbstractContextManager[Executor], above: int, tell: Tell | None = None) -> Iterator[Executor]:
    """Wrap an executor so that it reports runs of more than ``above`` bytes in parts."""
    with engine as executor:
        yield Splitting(executor, above, tell)


class Splitting(Executor):
    """Passes tasks on to ``executor``, the report of a large run as several tasks with one result."""

    def __init__(self, executor: Executor, above: int, tell: Tell | None = None) -> None:
        self._executor = executor
        self._tell = tell or (lambda run, number: None)
        self._above = above
        self._most = max(1, min(PART_BYTES, above))

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        task = args[0] if fn is report_run else None
        if not isinstance(task, Task) or task.run.kind == "store" or task.run.bytes <= self._above:
            return self._executor.submit(fn, *args, **kwargs)
        if len(divided := parts(task, self._most)) > 1:
            future: Future[Any] = Future()
            future.set_running_or_notify_cancel()
            self._tell(task.run.id, len(divided))
            threading.Thread(target=self._fulfil, args=(future, task, divided), name="postrun-parts", daemon=True).start()
            return future
        return self._executor.submit(fn, *args, **kwargs)

    def _fulfil(self, future: Future[Row], task: Task, divided: Sequence[Part]) -> None:
        try:
            future.set_result(self._report(task, divided))
        except BaseException as error:
            future.set_exception(error)

    def _report(self, task: Task, divided: Sequence[Part]) -> Row:
        pending: dict[Future[str], Part] = {}
        try:
            for part in divided:
                pending[self._executor.submit(read_part, part)] = part
            done = wait(pending, return_when=FIRST_EXCEPTION).done
            for future in done:
                _checked(future, pending[future])
        except BaseException:
            for future in pending:
                future.cancel()
            wait(pending)  # the next attempt uses the other parts
            raise
        try:
            row = self._executor.submit(report_parts, task, self._most).result()
        except (ObjectStoreError, BrokenExecutor):
            raise
        except Exception:
            remove(opened(task.out), task.run)
            raise
        if row.state != "reported":
            remove(opened(task.out), task.run)  # others may have written there, so the next attempt reads the files themselves again
        return row

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        self._executor.shutdown(wait=wait, cancel_futures=cancel_futures)

    def kill(self) -> None:
        kill(self._executor)


def _checked(future: Future[str], part: Part) -> None:
    """Raise the error of a part with the names of its files."""
    try:
        future.result()
    except (ObjectStoreError, BrokenExecutor):
        raise
    except Exception as error:
        first = part.objects[0].path
        files = first if len(part.objects) == 1 else f"{first} and {len(part.objects) - 1} more files"
        raise InputError(f"{files} (part {part.number + 1} of {part.of}): {str(error) or type(error).__name__}") from error
