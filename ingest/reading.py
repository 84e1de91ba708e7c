"""Reading of all files of a run: each goes to the reader of its format, and a reader that fails costs its own file only."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from ..errors import InputError, UsageError
from .checksum import Checksums
from .discover import InputFile
from .joining.statements import Stated, Statements
from .not_read import note_not_read
from .store import format_names as names
from .store.reader_failures import costs_one_file, note_failure, step
from .store.registry import ReadResult
from .store.schema import SCHEMA
from .store.store import Store
from .store.texts import storable
from .store.time_limits import IMPOSSIBLE, clamped

if TYPE_CHECKING:
    from .joining.sources import Clock
    from .partial import Partials

Progress = Callable[[str, float | None], None]

TRACERS: Final = frozenset({names.TRACE, names.NSIGHT})  # Formats with device activity; two such files can be of one process and time
_PART: Final = re.compile(r"(.+?)(?:-(\d+))?\.prt")
_OF_WINDOWS: Final = ("python_profile", "python_call", "python_frame")  # tables with rows of windows of Python profiles


def gives_events(file: InputFile) -> bool:
    """Whether a file is of a format that has events."""
    not_events = {names.RUN_STORE, names.END_MARKER, names.JOB, names.PYTHON_BESIDE, names.TENSORFLOW_TIME}
    return file.readable and file.format is not None and file.format.name not in not_events


class Reading:
    """The files of one run on their way into the store; a file's source id is its position."""

    def __init__(self, store: Store, files: list[InputFile], report: Progress, partials: Partials | None, stated: Stated) -> None:
        from .gpu_logs.rows import GpuLogs
        from .prt.reader import Captures
        from .readers import readers
        from .store.identity import Placement
        from .store.registry import Registry

        self.store = store
        self.files = files
        self.report = report
        self.partials = partials
        self.stated = stated
        self.statements = Statements()
        self.readers = readers()
        self.ids = [store.next_id("source") for _ in files]
        self.registry = Registry(store)
        self.placement = Placement(self.registry)
        self.captures = Captures(store, self.placement)
        self.logs = GpuLogs(store, self.registry)
        self.clocks: dict[int, Clock] = {}
        self.results: dict[int, ReadResult] = {}
        self.job: dict[str, Any] = {}
        self._became_links: set[int] = set()
        self._total = sum(file.bytes or 0 for file in files if file.readable) or 1
        self._done = 0

    def read(self, checksums: Checksums) -> None:
        """Read every readable file once, system metrics together; note the other files."""
        duplicates = checksums.duplicates()
        self.statements = self._statements(duplicates)
        note_not_read(self.store, self.files, self.ids, duplicates)
        reading = [i for i, file in enumerate(self.files) if file.readable and i not in duplicates]
        metrics = [i for i in reading if self._format(i) == names.SYSTEM_METRICS and not self._moved(i)]
        if metrics:
            self._progress(f"reading {len(metrics)} files of system metrics")
            # The files of a statement are read alone: their rows come last.
            alone = [i for i in metrics if self.ids[i] in self.statements.sources]
            with step(self.store, "system metrics of the hosted profiler"):
                self._read_metrics([i for i in metrics if i not in alone])
                for i in alone:
                    self._read_metrics([i])
            self._done += sum(self.files[i].bytes or 0 for i in metrics)
        order = {name: position for position, name in enumerate(self.readers)}
        for i in sorted(reading, key=lambda i: (order.get(self._format(i) or "", 0), *_part(self.files[i].path), i)):
            if self._format(i) in self.readers:
                self._progress(f"reading {self.files[i].path.name}")
                checksums.start(i)
                self._read_or_note(i)
                self._done += self.files[i].bytes or 0
        with step(self.store, "which recordings belong together"):
            self.captures.settle({self._format(i) for i in reading})
        with step(self.store, "which sources are of one machine, process and clock"):
            self._join()
        for i, result in self.results.items():
            if self.ids[i] in self.captures.cut:
                self.results[i] = replace(result, partial=True)

    def _statements(self, duplicates: Mapping[int, int]) -> Statements:
        """Find the files that the user's statements name, or raise UsageError."""
        if not self.stated:
            return Statements()
        files = [(self.ids[duplicates.get(i, i)], file.path) for i, file in enumerate(self.files) if gives_events(file)]
        statements = self.stated.resolved(files)
        for i, file in enumerate(self.files):
            if self.ids[i] in statements.offsets_ns and self._format(i) == names.CAPTURE:
                raise UsageError(f"--clock-offset {file.path.name}: a recording has the clock of its machine; shift the other file to it")
        return statements

    def _read_metrics(self, indices: Sequence[int]) -> None:
        from .hosted.system_metrics import read_system_metrics_many

        lines = None if self.partials is None else self.partials.lines()
        pairs = [(self.files[i].path, self.ids[i]) for i in indices]
        self.results.update(zip(indices, read_system_metrics_many(self.store, pairs, self.registry, lines), strict=True))

    def _join(self) -> None:
        """Decide which sources have one node, process and clock, once all are read."""
        from .joining.join import Joining
        from .joining.sources import SourceFile

        sources = [SourceFile(self.ids[i], self._format(i) or "", self.files[i].path, result) for i, result in self.results.items()]
        # First, in the order in which they were read: those that can be shifted or have the work of others.
        sources.sort(key=lambda source: source.format not in TRACERS and source.id not in self.statements.sources)
        joining = Joining(self.store, self.logs, sources, TRACERS, self.statements)
        joining.settle()
        self.clocks = joining.clocks
        indices = {source: i for i, source in enumerate(self.ids)}
        self.results.update((indices[source], result) for source, result in joining.results.items())

    def _read_or_note(self, i: int) -> None:
        """Read one file; a failure of its reader leaves a note, and none of its rows."""
        path, source = self.files[i].path, self.ids[i]
        if self._moved(i):
            return
        self.registry.begin_file()
        changes, nodes = self.store.changes, self.store.peek_id("node")
        try:
            self._read_rows(i)
        except (InputError, OSError) as error:
            if self.store.changes != changes:
                self._undo(i, nodes)
            why = str(error).removeprefix(f"{path}: ")  # the note names the file
            self.store.note("error", "not_readable", f"The file cannot be read: {why}", source=source, file=path.name)
        except BaseException as error:
            if not costs_one_file(error):
                raise
            self._undo(i, nodes)
            self.results[i] = ReadResult(0, None, None, partial=True)
            note_failure(self.store, error, source, storable(path.name))
        if self.store.left_out and i in self.results:
            result, dropped = self.results[i], self.store.left_out
            self.results[i] = replace(result, events=max(0, result.events - dropped))
            self.store.note(*IMPOSSIBLE, count=dropped, source=source, file=path.name)
        self.store.left_out = 0

    def _moved(self, i: int) -> bool:
        if not self.files[i].moved:
            return False
        self._became_links.add(i)
        text = "The file was left out: it was replaced by a link while the run was read."
        self.store.note("warning", "not_readable", text, source=self.ids[i], file=storable(self.files[i].path.name))
        return True

    def _undo(self, i: int, nodes: int) -> None:
        """Remove what a failed reader added: rows, and facts of nodes and processes.

        ``nodes``: the next node id of the store before the file was read.
        """
        source, execute = self.ids[i], self.store.connection.execute
        self.store.remove_source(source)
        for table in _OF_WINDOWS:
            execute(f'DELETE FROM {table} WHERE "window" IN (SELECT id FROM python_window WHERE source = ?)', [source])
        for table in ("python_window", "profile_window", "compilation", "ingest_note"):
            execute(f"DELETE FROM {table} WHERE source = ?", [source])
        if self._format(i) == names.CAPTURE:
            return  # another file of the recording can be of the same process
        self.placement.forget(source)
        for log in [log for log in self.logs.logs if log.source == source]:
            self.logs.discard(log)
        self.registry.forget(source, nodes)
        execute("DELETE FROM device WHERE node NOT IN (SELECT id FROM node)")

    def _read_rows(self, i: int) -> None:
        from .readers import Destination

        path, size, source = self.files[i].path, self.files[i].bytes or 0, self.ids[i]
        part = self.partials.get(path) if self.partials is not None else None
        if part is not None and self._format(i) in {names.TRACE, names.TIMELINE}:
            self.results[i] = part.read(self.store, self.placement, source)
        elif (reader := self.readers.get(self._format(i) or "")) is not None:
            destination = Destination(self.store, self.registry, self.placement, self.captures, self.logs, self.job)
            result = reader(destination, path, source, lambda part: self._progress(f"reading {path.name}", part * size))
            if result is not None:
                self.results[i] = result

    def write_sources(self, checksums: Checksums) -> None:
        """Store a row per file, without a checksum for files of unknown format."""
        import pyarrow as pa

        rows = [
            {
                "id": self.ids[i],
                "path": storable(str(file.path)),
                "format": self._format(i) or names.UNKNOWN,
                "bytes": file.bytes,
                "sha256": checksums.of(i) if file.readable and i not in self._became_links else None,
                "events": result.events if (result := self.results.get(i)) else 0,
                "first_ns": clamped(result.first_ns) if result else None,
                "last_ns": clamped(result.last_ns) if result else None,
                "clock_offset_ns": clamped(clock.offset_ns) if (clock := self.clocks.get(self.ids[i])) else None,
                "clock_evidence": clock.evidence if clock else None,
            }
            for i, file in enumerate(self.files)
        ]
        kinds = {"INTEGER": pa.int32(), "BIGINT": pa.int64(), "VARCHAR": pa.string()}
        schema = pa.schema([(column, kinds[kind]) for column, kind in SCHEMA["source"].items()])
        self.store.append("source", pa.Table.from_pylist(rows, schema=schema))

    def _format(self, i: int) -> str | None:
        known = self.files[i].format
        return None if known is None else known.name

    def _progress(self, text: str, more: float = 0.0) -> None:
        self.report(text, 0.95 * (self._done + more) / self._total)


def _part(path: Path) -> tuple[str, str, int]:
    """Return a sorting key by which files of one recording follow each other.

    Their numbers do not sort as texts (NAME.prt, NAME-2.prt, ..., NAME-10.prt), and a file needs facts of the process from those before.
    """
    match = _PART.fullmatch(path.name)
    return (os.fspath(path.parent), match[1], int(match[2] or 1)) if match else ("", "", 0)
