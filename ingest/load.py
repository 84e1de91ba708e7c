"""How do the files of one run become a run store? Find them, read each with its reader, derive what only the whole shows."""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from .. import modes
from ..errors import InputError, PostrunError, UsageError
from .checksum import Checksums
from .discover import KNOWN, Found, find_files
from .joining.statements import Stated, Statements
from .object_store.urls import is_url
from .packed import may_be_anything
from .python_profiles.window import window_of
from .store.format_names import (
    CAPTURE,
    END_MARKER,
    JOB,
    NSIGHT,
    NSIGHT_REPORT,
    PYTHON_BESIDE,
    PYTHON_STATS,
    PYTHON_TREE,
    RUN_STORE,
    SYSTEM_METRICS,
    TENSORFLOW_TIME,
    TIMELINE,
    TRACE,
    UNKNOWN,
)
from .store.limits import unpacked_limit
from .store.reader_failures import costs_one_file, note_failure, step
from .store.registry import ReadResult
from .store.store import Store
from .store.tables import SCHEMA, storable
from .store.time_limits import IMPOSSIBLE, clamped

if TYPE_CHECKING:
    from .joining.source_rows import Clock, SourceRows
    from .partial import Partials

Progress = Callable[[str, float | None], None]

_SHOWN: Final = 8
_PART: Final = re.compile(r"(.+?)(?:-(\d+))?\.prt")  # How many files an error message lists
TRACERS: Final = frozenset({TRACE, NSIGHT})
"""Formats with device activity of which two can be of one process and time. Of recordings see capture.py."""
_EVENTS_OF_FILES: Final = (
    "device_event", "host_event", "annotation", "collective", "allocation", "sample", "recorded_window", "python_window", "python_profile",
    "python_call", "python_frame",
)  # fmt: skip
"""Tables to which the reader of a file only adds rows."""
_EVENT_TABLES: Final = ("device_event", "host_event", "annotation", "step", "sample", "python_profile")


def ingest(
    paths: Sequence[str | Path],
    store_path: str | Path | None = None,
    *,
    progress: Progress | None = None,
    name: str | None = None,
    memory_limit: str = "600MB",
    threads: int | None = None,
    max_unpacked: str | None = None,
    redact: Iterable[str] = (),
    linked: Iterable[str] = (),
    same: Iterable[Sequence[str | Path]] = (),
    clock_offsets: Mapping[str, int] | None = None,
) -> Store:
    """The files and folders of one run as an open run store, at ``store_path`` or in a temporary file that closing it removes.

    A run store given alone is copied: see :mod:`.foreign_store`. Secrets are masked; ``redact``: which of conceal.KINDS is redacted also.
    ``progress`` is called with what is being done and the fraction done
    (None: not known). ``name``: of the run, instead of the one found. Damage of a file is noted in ``ingest_note``, never raised.
    ``max_unpacked``: how much a compressed file may unpack to, such as "50GB" (None: 20 GB or 200 times its size, whichever is larger).
    URLs of object stores stand for what is below them; their objects are copied to a temporary folder first.
    ``same``: groups of files that are of one node. ``clock_offsets``: nanoseconds to add to the times of a file. Both name files by path,
    or by the end of it that no other file of the run has.
    Links that lead out of a folder are left out, except to ``linked``, real paths of files.
    Raises InputError where a path does not exist or nothing usable is found, UsageError for a run store among other files, and for a
    statement about a file that is not read.
    """
    paths = [paths] if isinstance(paths, str | Path) else list(paths)
    if not paths or "" in paths:
        what = "an empty path was given (a variable that is not set?)" if paths else "nothing given"
        raise UsageError(f"{what}; give trace files, a folder, a URL or a run store")
    target = Path(store_path) if store_path is not None else None
    report = progress or (lambda text, fraction: None)
    options: dict[str, Any] = {"memory_limit": memory_limit, "threads": threads, "max_unpacked": max_unpacked}
    stated = Stated(tuple(tuple(map(str, names)) for names in same), dict(clock_offsets or {}))
    with modes.umask_for(modes.current()) if target is not None else nullcontext():
        if any(is_url(path) for path in paths):
            return _ingest_urls(paths, target, report, name, options, redact, stated)
        return _ingest_files(paths, target, report, name, options, redact=redact, linked=linked, stated=stated)


def _ingest_files(
    paths: Sequence[str | Path],
    target: Path | None,
    report: Progress,
    name: str | None,
    options: dict[str, Any],
    *,
    redact: Iterable[str],
    linked: Iterable[str] = (),
    settle: Callable[[Store], None] | None = None,
    stated: Stated,
) -> Store:
    from .store.conceal import conceal

    report("looking at the files", None)
    found = find_files(paths, exclude=target, linked=linked)
    for one in found:
        if one.given and one.format is not None and one.format.name == RUN_STORE:
            if len(found) > 1 or target is not None:
                raise UsageError(f"{one.path} is a run store already; give it alone (postrun report {one.path})")
            if stated:
                raise UsageError(f"{one.path} is a run store already; use --same and --clock-offset when you make it (postrun ingest)")
            report("reading the run store", None)
            with ExitStack() as until_masked:
                store = until_masked.enter_context(Store.open(one.path, **options))
                conceal(store, redact)
                until_masked.pop_all()
            return store
    return load(found, paths, target, progress=report, name=name, redact=redact, settle=settle, stated=stated, **options)


def load(
    found: list[Found],
    paths: Sequence[str | Path],
    target: Path | None = None,
    *,
    partials: Partials | None = None,
    progress: Progress | None = None,
    name: str | None = None,
    memory_limit: str = "600MB",
    threads: int | None = None,
    max_unpacked: str | None = None,
    redact: Iterable[str] = (),
    settle: Callable[[Store], None] | None = None,
    stated: Stated | None = None,
) -> Store:
    """As :func:`ingest`, for files that have been looked for at ``paths``. ``partials``: what was read of some of them before; these files
    themselves are not looked at again. ``settle`` changes the store before its secrets are masked."""
    from .store.conceal import conceal

    report = progress or (lambda text, fraction: None)
    unpacked_limit(0, max_unpacked)
    if not any(_gives_events(one) for one in found):
        raise _nothing_usable(paths, found, [])
    store = (
        Store.create(target, memory_limit=memory_limit, threads=threads)
        if target is not None
        else Store.temporary(memory_limit=memory_limit, threads=threads)
    )
    store.max_unpacked = max_unpacked
    from .store.result import CaptureResult

    try:
        results = _read_all(store, found, [Path(path) for path in paths], report, name, partials, stated or Stated())
        if not any(result.events or (isinstance(result, CaptureResult) and result.job) for result in results):
            said = "SELECT file, message FROM ingest_note WHERE severity <> 'info' AND code <> 'unknown_format'"
            notes = store.connection.execute(said).fetchall()
            raise _nothing_usable(paths, found, notes)
        if settle is not None:
            settle(store)
        conceal(store, redact)
        store.checkpoint()
    except BaseException as error:
        store.close()
        if target is not None:
            store.remove()
        if full := _file_problem(error):
            raise full from error
        raise
    return store


def _ingest_urls(
    paths: Sequence[str | Path],
    target: Path | None,
    report: Progress,
    name: str | None,
    options: dict[str, Any],
    redact: Iterable[str],
    stated: Stated,
) -> Store:
    """As ingest, through local copies; what is stored and told names the URLs."""
    from .fetch import fetch

    fetched = fetch(paths, report)

    def settle(store: Store) -> None:
        for local, url in fetched.moves():
            store.connection.execute("UPDATE source SET path = replace(path, ?, ?)", [local, url])
            store.connection.execute("UPDATE ingest_note SET message = replace(message, ?, ?)", [local, url])
        for place, why in fetched.left_out:
            store.note("warning", "not_readable", f"The object was left out: {why}.", file=storable(place))

    try:
        try:
            store = _ingest_files(
                fetched.paths, target, report, name, options, redact=redact, settle=settle, stated=stated.renamed(fetched.local_name)
            )
        except PostrunError as error:
            error.args = tuple(fetched.told(part) if isinstance(part, str) else part for part in error.args)
            raise
        if store.copied_from is not None:
            store.copied_from = fetched.told(store.copied_from)
            fetched.folder.cleanup()
            return store
    except BaseException:
        fetched.folder.cleanup()
        raise
    fetched.folder.cleanup()
    return store


def _file_problem(error: BaseException) -> Exception | None:
    """The duckdb.IOException that stands behind an error of another class: a commit or checkpoint that could not be written."""
    import duckdb

    if not isinstance(error, duckdb.Error) or isinstance(error, duckdb.IOException):
        return None
    text = str(error).partition("\n")[0]
    place = text.find("Could not write file")
    return duckdb.IOException(text[place:]) if place >= 0 else None


def summary(store: Store) -> dict[str, Any]:
    """What a run store holds: run (name, status, times), rows per table, files by format, and the notes; ready for JSON."""
    run = store.frame("SELECT name, status, started_ns, ended_ns FROM run")
    return {
        "run": run.row(0, named=True) if run.height else {},
        "rows": {table: store.frame(f"SELECT count(*) AS n FROM {table}").item() for table in _EVENT_TABLES},
        "sources": dict(store.frame("SELECT format, count(*) AS n FROM source GROUP BY format ORDER BY format").iter_rows()),
        "notes": store.frame('SELECT file, severity, code, message, "count" FROM ingest_note ORDER BY ALL').to_dicts(),
    }


def _said(found: Found) -> str:
    """What the path says that the contents do not, so that two files with the same contents are not one."""
    format = None if found.format is None else found.format.name
    if format in (PYTHON_STATS, PYTHON_TREE):
        return "/".join(found.path.parts[-3:-1]) if window_of(found.path).start_ns is not None else ""
    if format == PYTHON_BESIDE:  # says the same of many profiles
        return str(found.path)
    return found.path.name if format == TIMELINE else ""


def _gives_events(found: Found) -> bool:
    return (
        found.readable
        and found.format is not None
        and found.format.name not in {RUN_STORE, END_MARKER, JOB, PYTHON_BESIDE, TENSORFLOW_TIME}
    )


def _read_all(
    store: Store, found: list[Found], paths: list[Path], report: Progress, name: str | None, partials: Partials | None, stated: Stated
) -> list[ReadResult]:
    """Read every file, then derive; the results of the readers."""
    from .derive.finish import classify_kernels, demangle_kernels, ranks_by_order
    from .derive.limit_rows import limit_rows
    from .derive.plausibility import note_several_runs
    from .derive.steps import derive_steps
    from .store.result import CaptureResult, TraceResult
    from .store.run_row import agreed_metadata, common_metadata, name_of, told_last, write_run

    run = _Reading(store, found, report, partials, stated)
    names = [_said(one) for one in found]
    known = partials.checksums(found) if partials is not None else None
    files = [(one.path, one.bytes if one.readable else None, said) for one, said in zip(found, names, strict=True)]
    with Checksums(files, known) as checksums:
        run.read(checksums)
        run.write_sources(checksums)
    limit_rows(store)
    report("deriving steps", 0.95)
    with step(store, "training steps"):
        derive_steps(store)
    with step(store, "names of kernels"):
        demangle_kernels(store)
    with step(store, "precision and category of kernels"):
        classify_kernels(store)
    results = [result for _, result in sorted(run.results.items())]
    traces = [result for result in results if isinstance(result, TraceResult)]
    parts = [(result.session, result.number, result.metadata) for result in results if isinstance(result, CaptureResult)]
    recorded = agreed_metadata(told_last(parts))
    imported = recorded.pop("framework", None)  # by the recorded programs
    jobs = run.captures.jobs
    with step(store, "whether all files are of one run"):
        note_several_runs(store, results)
    with step(store, "ranks by the order of files"):
        ranks_by_order(store, [process for trace in traces if trace.events for process in trace.processes])
    write_run(
        store,
        results,
        job={**jobs.information(), **run.job, **({"name": name} if name else {})},
        name=name_of(paths),
        framework=next((trace.framework for trace in traces if trace.framework), None) or imported,
        metadata=common_metadata(trace.metadata for trace in traces if trace.events) | recorded | jobs.metadata(),
        times=jobs.times(),
        ended=jobs.ended or any(one.format is not None and one.format.name == END_MARKER for one in found),
    )
    report("loaded", 1.0)
    return results


def _part(path: Path) -> tuple[str, str, int]:
    """Files of one recording one after the other: what it knows of its process it has from those before. Their numbers do not sort as
    texts: NAME.prt, NAME-2.prt, ..., NAME-10.prt."""
    found = _PART.fullmatch(path.name)
    return (os.fspath(path.parent), found[1], int(found[2] or 1)) if found else ("", "", 0)


class _Reading:
    """The files of one run on their way into the store; a file's source id is its position."""

    def __init__(self, store: Store, found: list[Found], report: Progress, partials: Partials | None, stated: Stated) -> None:
        from .gpu_logs.rows import GpuLogs
        from .prt.reader import Captures
        from .store.identity import Placement
        from .store.registry import Registry

        self.store = store
        self.found = found
        self.report = report
        self.partials = partials
        self.stated = stated
        self.statements = Statements()
        self.ids = [store.next_id("source") for _ in found]
        self.registry = Registry(store)
        self.placement = Placement(self.registry)
        self.captures = Captures(store, self.placement)
        self.logs = GpuLogs(store, self.registry)
        self.traced: list[SourceRows] = []
        self.clocks: dict[int, Clock] = {}
        self.results: dict[int, ReadResult] = {}
        self.job: dict[str, Any] = {}
        self._became_links: set[int] = set()
        self._total = sum(one.bytes or 0 for one in found if one.readable) or 1
        self._done = 0

    def read(self, checksums: Checksums) -> None:
        """Every readable file once, system metrics together; notes for all others."""
        from .readers import READERS

        duplicates = checksums.duplicates()
        self.statements = self._statements(duplicates)
        self._note_others(duplicates)
        reading = [i for i, one in enumerate(self.found) if one.readable and i not in duplicates]
        metrics = [i for i in reading if self._format(i) == SYSTEM_METRICS and not self._moved(i)]
        if metrics:
            self._tell(f"reading {len(metrics)} files of system metrics")
            # Files that the user states something about are read alone: then it is known which rows are theirs.
            alone = [i for i in metrics if self.ids[i] in self.statements.sources]
            with step(self.store, "system metrics of the hosted profiler"):
                self._read_metrics([i for i in metrics if i not in alone])
                for i in alone:
                    self._keeping_rows(i, lambda i: self._read_metrics([i]))
            self._done += sum(self.found[i].bytes or 0 for i in metrics)
        order = {name: position for position, name in enumerate(READERS)}
        for i in sorted(reading, key=lambda i: (order.get(self._format(i) or "", 0), *_part(self.found[i].path), i)):
            if self._format(i) in READERS:
                self._tell(f"reading {self.found[i].path.name}")
                checksums.start(i)
                self._read_one(i)
                self._done += self.found[i].bytes or 0
        with step(self.store, "which recordings belong together"):
            self.captures.settle({self._format(i) for i in reading})
        with step(self.store, "which sources are of one machine, process and clock"):
            self._join()
        for i, result in self.results.items():
            if self.ids[i] in self.captures.cut:
                self.results[i] = replace(result, partial=True)

    def _statements(self, duplicates: Mapping[int, int]) -> Statements:
        """What the user states about the files that are read. Raises UsageError for other files, and for recordings with an offset."""
        if not self.stated:
            return Statements()
        files = [(self.ids[duplicates.get(i, i)], one.path) for i, one in enumerate(self.found) if _gives_events(one)]
        statements = self.stated.resolved(files)
        for i, one in enumerate(self.found):
            if self.ids[i] in statements.offsets_ns and self._format(i) == CAPTURE:
                raise UsageError(f"--clock-offset {one.path.name}: a recording has the clock of its machine; shift the other file to it")
        return statements

    def _read_metrics(self, places: Sequence[int]) -> None:
        from .hosted.system_metrics import read_system_metrics_many

        lines = None if self.partials is None else self.partials.lines()
        pairs = [(self.found[i].path, self.ids[i]) for i in places]
        self.results.update(zip(places, read_system_metrics_many(self.store, pairs, self.registry, lines), strict=True))

    def _join(self) -> None:
        """One machine, process and clock for what several files say of one, once all are read."""
        from .joining.join import Joining
        from .joining.source_rows import SourceRows

        traced = {source.id for source in self.traced}
        others = [
            SourceRows(self.ids[i], self._format(i) or "", self.found[i].path, result)
            for i, result in self.results.items()
            if self.ids[i] not in traced
        ]
        joining = Joining(self.store, self.logs, [*self.traced, *others], TRACERS, self.statements)
        joining.settle()
        self.clocks = joining.clocks
        places = {source: i for i, source in enumerate(self.ids)}
        self.results.update((places[source], result) for source, result in joining.results.items())

    def _read_one(self, i: int) -> None:
        if self._format(i) in TRACERS or self.ids[i] in self.statements.sources:
            self._keeping_rows(i, self._read_or_note)
        else:
            self._read_or_note(i)

    def _keeping_rows(self, i: int, read: Callable[[int], None]) -> None:
        """Read a file and keep which rows it brought."""
        from .joining.source_rows import SourceRows, row_counts

        before = row_counts(self.store)
        read(i)
        if i in self.results:
            after = row_counts(self.store)
            rows = {table: (first, after[table]) for table, first in before.items()}
            self.traced.append(SourceRows(self.ids[i], self._format(i) or "", self.found[i].path, self.results[i], rows))

    def _read_or_note(self, i: int) -> None:
        """Read one file; a failure of its reader leaves a note, and none of its rows."""
        path, source = self.found[i].path, self.ids[i]
        if self._moved(i):
            return
        self.registry.begin_file()
        rows, nodes = self.store.mark(), self.store.peek_id("node")
        try:
            self._read_rows(i)
        except (InputError, OSError) as error:
            if self.store.mark() != rows:
                self._undo(i, rows, nodes)
            why = str(error).removeprefix(f"{path}: ")  # the note names the file
            self.store.note("error", "not_readable", f"The file cannot be read: {why}", source=source, file=path.name)
        except BaseException as error:
            if not costs_one_file(error):
                raise
            self._undo(i, rows, nodes)
            self.results[i] = ReadResult(0, None, None, partial=True)
            note_failure(self.store, error, source, storable(path.name))
        if self.store.left_out and i in self.results:
            result, dropped = self.results[i], self.store.left_out
            self.results[i] = replace(result, events=max(0, result.events - dropped))
            self.store.note(*IMPOSSIBLE, count=dropped, source=source, file=path.name)
        self.store.left_out = 0

    def _moved(self, i: int) -> bool:
        if not self.found[i].moved:
            return False
        self._became_links.add(i)
        text = "The file was left out: it was replaced by a link while the run was read."
        self.store.note("warning", "not_readable", text, source=self.ids[i], file=storable(self.found[i].path.name))
        return True

    def _undo(self, i: int, rows: Counter[str], nodes: int) -> None:
        """Remove the rows that a reader added before it failed, and what it made known of machines and processes. ``rows``, ``nodes``: the
        store's mark and next id of a machine before."""
        source, execute = self.ids[i], self.store.connection.execute
        self.store.remove_since(rows, _EVENTS_OF_FILES)
        for table in ("profile_window", "ingest_note"):
            execute(f"DELETE FROM {table} WHERE source = ?", [source])
        if self._format(i) == CAPTURE:
            return  # another file of the recording can be of the same process
        self.placement.forget(source)
        for log in [log for log in self.logs.logs if log.source == source]:
            self.logs.discard(log)
        self.registry.forget(source, nodes)
        execute("DELETE FROM device WHERE node NOT IN (SELECT id FROM node)")

    def _read_rows(self, i: int) -> None:
        from .readers import READERS, Place

        path, size, source = self.found[i].path, self.found[i].bytes or 0, self.ids[i]
        part = self.partials.get(path) if self.partials is not None else None
        if part is not None and self._format(i) in {TRACE, TIMELINE}:
            self.results[i] = part.read(self.store, self.placement, source)
        elif (reader := READERS.get(self._format(i) or "")) is not None:
            place = Place(self.store, self.registry, self.placement, self.captures, self.logs, self.job)
            result = reader(place, path, source, lambda part: self._tell(f"reading {path.name}", part * size))
            if result is not None:
                self.results[i] = result

    def write_sources(self, checksums: Checksums) -> None:
        """One row per file; unknown ones without checksum, they may be anything."""
        import pyarrow as pa

        rows = [
            {
                "id": self.ids[i],
                "path": storable(str(one.path)),
                "format": self._format(i) or UNKNOWN,
                "bytes": one.bytes,
                "sha256": checksums.of(i) if one.readable and i not in self._became_links else None,
                "events": result.events if (result := self.results.get(i)) else 0,
                "first_ns": clamped(result.first_ns) if result else None,
                "last_ns": clamped(result.last_ns) if result else None,
                "clock_offset_ns": clamped(clock.offset_ns) if (clock := self.clocks.get(self.ids[i])) else None,
                "clock_evidence": clock.evidence if clock else None,
            }
            for i, one in enumerate(self.found)
        ]
        kinds = {"INTEGER": pa.int32(), "BIGINT": pa.int64(), "VARCHAR": pa.string()}
        schema = pa.schema([(column, kinds[kind]) for column, kind in SCHEMA["source"].items()])
        self.store.append("source", pa.Table.from_pylist(rows, schema=schema))

    def _note_others(self, duplicates: dict[int, int]) -> None:
        unknown = 0
        exports = {one.path for one in self.found if one.readable and self._is(one, NSIGHT)}
        not_read: dict[str, list[tuple[str, int | None, str | None]]] = {}
        for i, one in enumerate(self.found):
            source, file = self.ids[i], storable(one.path.name)
            if one.problem is not None:
                self.store.note("warning", "not_readable", f"The file was left out: {one.problem}.", source=source, file=file)
            elif i in duplicates:
                first = storable(self.found[duplicates[i]].path.name)
                self.store.note("info", "duplicate", f"The same as {first}; read once.", source=source, file=file)
            elif one.format is None and one.given:
                self.store.note("warning", "unknown_format", f"No format that is read: {KNOWN}.", count=1, source=source, file=file)
            elif one.format is None or (not one.given and may_be_anything(one.format.name, one.path.name)):
                unknown += 1
            elif one.format.name == NSIGHT_REPORT and any(one.path.with_suffix(f".sqlite{end}") in exports for end in ("", ".gz", ".zst")):
                continue
            elif one.format.not_read is not None:
                not_read.setdefault(one.format.name, []).append((f"{one.format.name}: {one.format.not_read}.", source, file))
            elif one.format.name == RUN_STORE:
                text = "A run store was left out; to report it give it alone."
                self.store.note("info", "run_store_left_out", text, source=source, file=file)
        for files in not_read.values():
            told, only, name = files[0] if len(files) == 1 else (files[0][0], None, None)
            self.store.note("info", "format_not_read", told, count=len(files), source=only, file=name)
        if unknown:
            text = "Files of unknown formats are listed among the sources and otherwise ignored."
            self.store.note("info", "unknown_format", text, count=unknown)

    @staticmethod
    def _is(one: Found, name: str) -> bool:
        return one.format is not None and one.format.name == name

    def _format(self, i: int) -> str | None:
        known = self.found[i].format
        return None if known is None else known.name

    def _tell(self, text: str, more: float = 0.0) -> None:
        self.report(text, 0.95 * (self._done + more) / self._total)


def _nothing_usable(paths: Sequence[str | Path], found: list[Found], notes: Sequence[tuple[str | None, str]]) -> InputError:
    """What was looked at, and what would be read."""
    given = ", ".join(str(path) for path in paths[:3]) + (f" and {len(paths) - 3} more" if len(paths) > 3 else "")
    reasons: dict[str, list[str]] = {}
    for file, message in notes:
        reasons.setdefault(file or "", []).append(message)
    lines = []
    for one in found[:_SHOWN]:
        kind = one.problem or (one.format.name if one.format else "empty file" if one.bytes == 0 else "unknown format")
        step = one.format.not_read if one.format and one.format.not_read else "empty file" if one.format and one.bytes == 0 else ""
        said = " ".join(reasons.get(storable(one.path.name), []))
        line = f"  {storable(str(one.path))}: {'; '.join(part for part in (kind, step, said) if part)}"
        lines.append(line.replace("\n", "\\n"))  # a name with a newline cannot forge another message
    if len(found) > _SHOWN:
        lines.append(f"  ... and {len(found) - _SHOWN} more")
    looked = "\n".join(["Looked at:", *lines]) if lines else "There is no file in it."
    recognised = any(one.format is not None for one in found) or (bool(found) and all(one.problem is not None for one in found))
    read = "" if recognised else f"\nWhat is read: {KNOWN}. Give a file or folder of that kind."
    return InputError(f"{given}: nothing usable found. {looked}{read}")
