"""How is a run reported that is too large for one machine? Its files are read by many tasks, and one task puts together what they read.

Map: :func:`read_part` reads some files of the run by themselves, writes what they say as Parquet below the output, and a marker last.
Reduce: :func:`report_parts` loads all parts into one run store, by what loads files, and reports that with the same analysis.
What stands below ``runs/<id>/partial/`` is removed when the run is reported:

runs/<id>/partial/<16 digits>-<12 digits>/00003.json                what the files of part 3 say, and which tables are its own; written last
runs/<id>/partial/<16 digits>-<12 digits>/00003-<random>-*.parquet  its tables

A part that is read twice, by a task that was repeated or by two nights, counts once: whoever writes the marker first has written it, and
only the tables that it names are read.
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
from concurrent.futures import FIRST_EXCEPTION, Executor, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from importlib.metadata import version
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, Any, Final, ParamSpec, TypeVar

from .. import modes
from ..errors import InputError
from ..ingest.object_store.objects import ObjectInfo, Objects, ObjectStoreError
from ..ingest.object_store.open import open_objects
from ..ingest.object_store.urls import is_url
from . import places
from .model import FoundRun, Row, Task
from .work import Workplace, check_unchanged, fetch, linked, report_run, source_of

if TYPE_CHECKING:
    from ..ingest.discover import Found
    from ..ingest.partial import Entry
    from ..ingest.store.store import Store

P = ParamSpec("P")
T = TypeVar("T")

PART_BYTES: Final = 64_000_000
"""Smaller files are read together up to this; or up to the size above which a run is divided at all, where that is less."""
PART_FILES: Final = 500
_AT_ONCE: Final = 8
_FOLDER: Final = "partial"
_OWN: Final = re.compile(r"[0-9a-f]{16}-[0-9a-f]{12}/\d{5}(?:\.json|-[0-9a-f]{12}-.*\.parquet)")
_TABLE_NAME: Final = re.compile(r"(?:\d{4,6}|metrics)\.[a-z_]+\.parquet")  # Behind the prefix of its part
_MOST_MARKER: Final = 64 << 20  # Bytes of a marker, which describes at most PART_FILES files
_SHARE_OF_DISK: Final = 0.9
_TABLE: Final = "application/vnd.apache.parquet"


@dataclass(frozen=True, slots=True)
class Part:
    """Some files of a run that one task reads. ``task``: of the whole run, but with the objects of this part only. ``most``: bytes of files
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
    """What of a run is read by tasks of their own: all but recordings, which are read as quickly as the tables that would be made of them,
    and the description of the job. The same on every machine. ``most``: bytes of files that are read together."""
    groups: list[list[ObjectInfo]] = []
    size = 0
    for one in task.run.objects:
        if _read_at_the_end(one):
            continue
        if not groups or size + one.size > most or len(groups[-1]) >= PART_FILES:
            groups.append([])
            size = 0
        groups[-1].append(one)
        size += one.size
    return [Part(replace(task, run=replace(task.run, objects=tuple(group))), i, len(groups), most) for i, group in enumerate(groups)]


def _read_at_the_end(one: ObjectInfo) -> bool:
    name = one.path.rpartition("/")[2]
    return name == "job.json" or name.lower().endswith((".prt", ".sqlite"))


@lru_cache(8)
def _digest(most: int) -> str:
    """Another one where parts are cut or read in another way."""
    from ..ingest.partial import FORMAT

    return hashlib.sha256(json.dumps([version("postrun"), FORMAT, most, PART_FILES]).encode()).hexdigest()[:12]


@lru_cache(4)
def _opened(url: str) -> Objects:
    """Connections are kept from task to task."""
    return open_objects(url)


# -- map -------------------------------------------------------------------------------------------------------------------


def read_part(part: Part) -> str:
    """Reads the files of a part, writes what they say, and the marker last. -> the marker's path. Nothing is done where it is there.

    Raises ObjectStoreError where it is the store's fault, or where a file is being written: another time it may go well.
    """
    from ..ingest.discover import find_files
    from ..ingest.partial import write

    task = part.task
    modes.set_umask(task.options.mode)
    out, source = _opened(task.out), source_of(task)
    if out.head(part.marker) is not None:
        return part.marker
    with Workplace() as work:
        root = fetch(task, source, work)
        found = {one.path: one for one in find_files([root], linked=linked(task))}
        files = [(one, found[path]) for one in part.objects if (path := _path(root, task.run, one)) in found]
        tables = work / "tables"
        tables.mkdir()
        prefix = f"{part.number:05}-{uuid.uuid4().hex[:12]}-"
        options = task.options
        entries = write([file for _, file in files], tables, prefix, **options.of_reading)
        check_unchanged(task, source)
        made = sorted(tables.iterdir())
        for path in made:
            out.write(f"{part.folder}/{path.name}", path, content_type=_TABLE)
        said = {
            "files": [{"path": one.path, **entry} for (one, _), entry in zip(files, entries, strict=True)],
            "tables": {path.name: path.stat().st_size for path in made},
            "prefix": prefix,
        }
        if not out.create(part.marker, json.dumps(said).encode()):
            for path in made:  # somebody else was quicker
                with contextlib.suppress(InputError):
                    out.delete(f"{part.folder}/{path.name}")
    return part.marker


def _path(root: Path, run: FoundRun, one: ObjectInfo) -> Path:
    """Where :func:`.work.fetch` puts an object."""
    return root / one.path.removeprefix(f"{run.id}/")


# -- reduce ----------------------------------------------------------------------------------------------------------------


def report_parts(task: Task, most: int = PART_BYTES) -> Row:
    """As :func:`.work.report_run`, from the parts of the run, all of which must have been read; they are removed then."""
    row = report_run(task, partial(_prepare, most))
    if row.state == "reported":
        remove(_opened(task.out), task.run)
    return row


def remove(out: Objects, run: FoundRun) -> None:
    """Removes all parts of a run, of earlier versions of it, too. Where the store does not let us, its next report does."""
    above = f"{places.run_folder(run.id)}/{_FOLDER}/"
    with contextlib.suppress(InputError):
        for one in list(out.list(above)):
            if _OWN.fullmatch(one.path[len(above) :]):
                out.delete(one.path)


def _prepare(most: int, task: Task, source: Objects, work: Path) -> tuple[Path, Callable[[], Store]]:
    """The tables of all parts, and those files of the run that no part holds, as files."""
    from ..ingest.load import load
    from ..ingest.partial import Partials

    run, out = task.run, _opened(task.out)
    divided = parts(task, most)
    said, tables = _said(out, divided), work / "tables"
    whole = {file["path"] for marker in said for file in marker["files"] if _is_read_whole(file)}
    held = {file["path"] for marker in said for file in marker["files"]} - whole
    root, rest = _fetch_rest(task, source, work, whole, held)
    tables.mkdir()
    names = [(f"{divided[0].folder}/{name}", tables / name, size) for marker in said for name, size in marker["tables"].items()]
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
    for marker in said:
        for file in marker["files"]:
            if file["path"] in whole:
                continue
            entries[_path(root, run, infos[file["path"]])] = (file, tables)
    # What no part holds under its name, but is of a format that parts are made of.
    strays = [one for one in rest if one.readable and one.format is not None and one.format.name in _mapped()]
    for place, one in enumerate(strays):
        entry = _write_one(one, tables, f"stray-{place}-", task)
        entries[one.path] = (entry, tables)
    partials = Partials(entries)
    stray_paths = {one.path for one in strays}
    found = [*partials.found(), *(one for one in rest if one.path not in stray_paths)]
    found = _once(sorted(found, key=lambda one: _order(one.path.relative_to(root))), root, task)
    options = task.options
    return root, partial(load, found, [root], partials=partials, **options.of_store)


def _is_read_whole(file: Mapping[str, Any]) -> bool:
    """Whether a file that a part looked at has to be read as it is: its format is read, but not in parts."""
    from ..ingest.discover import FORMATS
    from ..ingest.store.format_names import RUN_STORE

    formats = {known.name for known in FORMATS if known.not_read is None} - _mapped() - {RUN_STORE}
    return file["problem"] is None and file["format"] in formats


def _mapped() -> frozenset[str]:
    from ..ingest.partial import MAPPED

    return MAPPED


def _write_one(one: Found, tables: Path, prefix: str, task: Task) -> Entry:
    from ..ingest.partial import write

    return write([one], tables, prefix, **task.options.of_store)[0]


def _said(out: Objects, divided: Sequence[Part]) -> list[dict[str, Any]]:
    """The markers of all parts. ObjectStoreError where one is missing, or not ours."""
    with ThreadPoolExecutor(_AT_ONCE) as threads:
        read = list(threads.map(lambda part: out.read(part.marker, count=_MOST_MARKER + 1), divided))
    said = []
    for part, data in zip(divided, read, strict=True):
        try:
            one = json.loads(data)
            sound = len(data) <= _MOST_MARKER and _is_ours(one, part)
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
            sound = False
        if not sound:
            out.delete(part.marker)
            raise ObjectStoreError(f"{out.place(part.marker)}: is damaged, and was removed; the next night reads this part again")
        said.append(one)
    return said


def _is_ours(said: Any, part: Part) -> bool:
    """Whether a marker, which others may have written, names only files of its part and tables that :func:`read_part` could have made."""
    from ..ingest.partial_check import sound

    prefix, tables, files = said["prefix"], said["tables"], said["files"]
    return (
        re.fullmatch(rf"{part.number:05}-[0-9a-f]{{12}}-", prefix) is not None
        and all(name.startswith(prefix) and _TABLE_NAME.fullmatch(name, len(prefix)) for name in tables)
        and all(isinstance(size, int) and size >= 0 for size in tables.values())
        and {file["path"] for file in files} <= {known.path for known in part.objects}
        and len(files) <= len(part.objects)
        and all(sound(file, tables) for file in files)
    )


def _fetch_rest(task: Task, source: Objects, work: Path, whole: set[str], held: set[str]) -> tuple[Path, list[Found]]:
    """The folder of the run, and the files in it that no part holds. ``whole``: those that parts left to be read as they are."""
    from ..ingest.discover import find_files

    rest = tuple(one for one in task.run.objects if one.path in whole or (one.path not in held and _read_at_the_end(one)))
    task = replace(task, run=replace(task.run, objects=rest))
    root = fetch(task, source, work)
    root.mkdir(parents=True, exist_ok=True)
    return root, find_files([root], linked=linked(task))


def _download(out: Objects, path: str, target: Path, size: int) -> None:
    one = out.head(path)
    if one is None or one.size != size:
        out.delete(f"{path.rpartition('/')[0]}/{target.name[:5]}.json")  # the marker of its part
        lost = "is no longer there" if one is None else "has been replaced"
        raise ObjectStoreError(f"{out.place(path)}: {lost}; the next night reads this part again")
    out.download(one, target)


def _order(path: PurePath) -> tuple[tuple[bool, str], ...]:
    """Files come in the order in which a folder is searched: those of a folder before those of the folders in it."""
    return (*((True, folder) for folder in path.parts[:-1]), (False, path.name))


def _once(found: list[Found], root: Path, task: Task) -> list[Found]:
    """Without files of a local run that are reached twice, as where the folder is searched."""
    if is_url(task.source):
        return found
    seen: set[tuple[int, int]] = set()
    kept = []
    for one in found:
        inside = one.path.relative_to(root)
        status = (Path(task.source) / ("" if task.run.id == "." else task.run.id) / inside).stat()
        if (status.st_dev, status.st_ino) not in seen:
            kept.append(one)
        seen.add((status.st_dev, status.st_ino))
    return kept


# -- an executor that does so ----------------------------------------------------------------------------------------------


@contextlib.contextmanager
def splitting(made: contextlib.AbstractContextManager[Executor], above: int) -> Iterator[Executor]:
    """The executor, which reports runs of more than ``above`` bytes, of which there are several parts, part by part."""
    with made as executor:
        yield Splitting(executor, above)


class Splitting(Executor):
    """Passes tasks on to ``executor``; a report of a large run as several, which are one for who asked for it."""

    def __init__(self, executor: Executor, above: int) -> None:
        self._executor = executor
        self._above = above
        self._most = max(1, min(PART_BYTES, above))

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        task = args[0] if args else None
        if fn is report_run and isinstance(task, Task) and task.run.kind != "store" and task.run.bytes > self._above:
            divided = parts(task, self._most)
            if len(divided) > 1:
                future: Future[Any] = Future()
                future.set_running_or_notify_cancel()
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
            for one in done:
                _checked(one, pending[one])
        except BaseException:
            for one in pending:
                one.cancel()
            wait(pending)  # the others are of use to the next attempt
            raise
        try:
            row = self._executor.submit(report_parts, task, self._most).result()
        except ObjectStoreError:
            raise
        except Exception:
            remove(_opened(task.out), task.run)
            raise
        if row.state != "reported":
            remove(_opened(task.out), task.run)  # others may have written there: the next attempt reads the files themselves again
        return row

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        self._executor.shutdown(wait=wait, cancel_futures=cancel_futures)

    def kill(self) -> None:
        getattr(self._executor, "kill", lambda: self._executor.shutdown(wait=False, cancel_futures=True))()


def _checked(future: Future[str], part: Part) -> None:
    """Raises what a part failed with, under the names of its files."""
    try:
        future.result()
    except ObjectStoreError:
        raise
    except Exception as error:
        first = part.objects[0].path
        files = first if len(part.objects) == 1 else f"{first} and {len(part.objects) - 1} more files"
        raise InputError(f"{files} (part {part.number + 1} of {part.of}): {str(error) or type(error).__name__}") from error
