"""Reads an Nsight Systems export (SQLite) -> rows of the run store.

:mod:`.schema` has the tables and columns, :mod:`.session` the facts about the session, :mod:`.events` the conversion to rows. Here rows get
their machine, process and time. Notes report damaged, absent and skipped data; rows in the tables of events = rows stored + rows that notes
count (codes in ``NOT_STORED``).
"""

from __future__ import annotations

import sqlite3
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Final

import polars as pl

from ...errors import InputError
from ..chrome_trace.batches import DEPTH_ROWS, FLUSH_ROWS
from ..chrome_trace.cycle_ids import of_cycle
from ..chrome_trace.notes import note_defects
from ..chrome_trace.ranges import depths
from ..chrome_trace.unpacked import unpacked
from ..store.devices import add_devices
from ..store.identity import Facts, Identity, Placement, identify
from ..store.limits import cut_text
from ..store.registry import Registry
from ..store.result import TraceResult
from ..store.store import Store
from ..store.tables import Severity
from ..store.texts import storable
from . import schema as schema
from .coverage import Known
from .events import DEVICE, HOST, RANGES, Names, Reader
from .metrics import samples
from .schema import Export, open_database
from .session import Ranks, Session, read_session

NOT_STORED: Final = (
    "no_timestamp", "zero_time", "impossible_time", "no_duration", "absurd_duration", "negative_duration", "marks", "domains",
    "after_damage",
)  # fmt: skip
_DEVICE_TABLES: Final = (schema.KERNEL, schema.GRAPH, schema.MEMCPY, schema.MEMSET)
_EVENT_TABLES: Final = (
    *_DEVICE_TABLES, schema.SYNC, schema.RUNTIME, schema.DRIVER, schema.OVERHEAD, schema.PROFILER_OVERHEAD, schema.NVTX,
)  # fmt: skip
_LISTED: Final = 12

_Context = tuple[int | None, int | None, int | None]  # process, context, device
_Surveys = dict[str, tuple[int, int | None, int | None, list[_Context]]]  # table -> rows, first start, last end, contexts

_MESSAGES: Final[Mapping[str, tuple[Severity, str]]] = {
    "no_timestamp": ("warning", "Events without a start were left out."),
    "zero_time": ("warning", "Events with start 0 and end 0 were left out: the profiler lost their times."),
    "impossible_time": ("warning", "Events with times that cannot be were left out."),
    "no_duration": ("warning", "Events without an end were left out."),
    "absurd_duration": ("warning", "Events longer than seven days were left out: their durations cannot be right."),
    "negative_duration": ("warning", "Events that end before they start were left out."),
    "negative_bytes": ("warning", "Sizes below 0 were left out: these copies and memsets keep their time, and count in no bandwidth."),
    "device_unknown": ("warning", "Device events that name no device are shown as of device 0."),
    "unclosed_begin": ("warning", "Ranges that were begun and never ended were closed at the end of the recording."),
    "marks": ("info", "Marks and other events of NVTX without a duration are not stored."),
    "domains": ("info", "Entries that give domains of NVTX their names are no events."),
    "names_unknown": ("warning", "Names that the export refers to are not in it; they are shown as numbers."),
    "whole_graphs": (
        "warning",
        "Runs of CUDA graphs were recorded as a whole and are shown as one kernel each: computation and communication within them are not"
        " told apart. Record with `nsys profile --cuda-graph-trace=node` to see their kernels.",
    ),
}


@dataclass(frozen=True, slots=True)
class ExportResult(TraceResult):
    """``ranked``: the processes with device work, in the order of their devices."""

    ranked: tuple[int, ...] = ()

    @property
    def processes(self) -> tuple[int, ...]:
        return self.ranked


def read_export(
    store: Store, registry: Registry, placement: Placement, path: Path, source: int, progress: Callable[[float], None] | None = None
) -> TraceResult:
    """Store the events of an export, with notes on repairs, losses and guesses.

    Raises InputError if the file is not an export or nothing can be read, OSError if it cannot be opened.
    """
    with unpacked(path, store.max_unpacked) as (plain, defects):
        note_defects(store, source, storable(path.name), defects)
        try:
            with open_database(plain) as connection:
                tables = schema.tables_of(connection)
                if not schema.is_export(tables):
                    listed = ", ".join(storable(name) for name in list(tables.values())[:_LISTED]) or "none"
                    more = f" and {len(tables) - _LISTED} more" if len(tables) > _LISTED else ""
                    raise InputError(
                        f"an SQLite database, but no Nsight Systems export: its tables are {listed}{more};"
                        " make one with `nsys export --type sqlite REPORT.nsys-rep`"
                    )
                missing = schema.pages_missing(plain)
                export = Export(connection, tables, truncated=missing > 0)
                return _File(store, registry, placement, path, source, export, missing).read(progress or (lambda part: None))
        except sqlite3.Error as error:
            raise InputError(
                f"the database is damaged ({error}); export the report again with `nsys export --type sqlite --force-overwrite true`"
            ) from error


@dataclass(slots=True)
class _Process:
    """A process of the store, with the first start and last end of its events in this file."""

    node: int
    id: int
    first_ns: int | None = None
    last_ns: int | None = None


@dataclass(slots=True)
class _File:
    """One export on its way into the store."""

    store: Store
    registry: Registry
    placement: Placement
    path: Path
    source: int
    export: Export
    pages_missing: int
    session: Session = field(init=False)
    node: int = field(init=False)
    dropped: Counter[str] = field(default_factory=Counter)
    known: Known = field(default_factory=Known)
    processes: dict[int | None, _Process] = field(default_factory=dict)
    used: dict[int | None, set[int]] = field(default_factory=dict)
    waiting: dict[str, list[pl.DataFrame]] = field(default_factory=lambda: {DEVICE: [], HOST: [], RANGES: []})
    events: int = 0
    ranges_flushed: bool = False
    of_torch: bool = False

    def read(self, progress: Callable[[float], None]) -> TraceResult:
        session = self.session = read_session(self.export)
        surveys = self._surveys()
        key = (session.base_ns, session.hostname, *((name, *rest[:3]) for name, rest in surveys.items()))
        held = any(rest[0] for rest in surveys.values())
        first = self.placement.exports.setdefault(key, (self.source, self.path.name)) if held else (self.source, "")
        if first[0] != self.source:
            self._note("info", "duplicate", f"Another export of the session that {storable(first[1])} holds; read once.")
            return TraceResult(0, None, None)
        devices = self._devices_by_process(surveys)
        self._register(devices, surveys)
        rows = {name: self.export.last_row(name) for names in _EVENT_TABLES if (name := self.export.table(names))}
        total, done = sum(rows.values()) or 1, 0
        names = Names(self.export, self.store.name_ids, self.store.signatures.ids)
        reader = Reader(self.export, session, names, self.dropped, self._only_process(surveys), self._contexts(surveys))
        self._look_ahead(reader)
        for table, frame, count in reader.read():
            done += count
            self._take(table, self.known.kept(frame) if table == DEVICE else frame)
            progress(min(done / total, 1.0))
        self.of_torch = reader.of_torch
        self._finish_ranges()
        for table in (DEVICE, HOST):
            self._flush(table)
        self.dropped["names_unknown"] += len(names.unknown)
        self._samples()
        return self._finish(devices)

    # -- processes and devices -----------------------------------------------------------------------------------------

    def _surveys(self) -> _Surveys:
        surveys: _Surveys = {}
        for names in _DEVICE_TABLES:
            if (table := self.export.table(names)) is not None:
                count, first, last, contexts = self.export.survey(table, ("globalPid", "contextId", "deviceId"))
                clean = {(_number(process), _number(context), _number(device)) for process, context, device in contexts}
                ordered = sorted(clean, key=lambda numbers: [-1 if number is None else number for number in numbers])
                surveys[table] = (count, first, last, ordered)
        return surveys

    def _only_process(self, surveys: _Surveys) -> int | None:
        processes = {process for *_, contexts in surveys.values() for process, _, _ in contexts if process is not None}
        if not processes:
            processes = set(self.session.pids) if len(self.session.pids) == 1 else set()
        return processes.pop() if len(processes) == 1 else None

    def _contexts(self, surveys: _Surveys) -> dict[tuple[int | None, int | None], int]:
        """Return the device of each context that worked on only one."""
        working: dict[tuple[int | None, int | None], set[int]] = {}
        for *_, contexts in surveys.values():
            for process, context, device in contexts:
                if process is not None and context is not None and device is not None:
                    working.setdefault((process, context), set()).add(device)
        return {key: devices.pop() for key, devices in working.items() if len(devices) == 1}

    def _devices_by_process(self, surveys: _Surveys) -> dict[int | None, set[int]]:
        """Return the GPUs that each process works on."""
        only = self._only_process(surveys)
        working: dict[int | None, set[int]] = {}
        for *_, contexts in surveys.values():
            for process, _, number in contexts:
                process = only if process is None else process
                device = self.session.devices.get((process, number), number) if number is not None and process is not None else number
                working.setdefault(process, set()).update({device} if device is not None and 0 <= device < 1024 else {0})
        return dict(sorted(working.items(), key=lambda item: (min(item[1]), -1 if item[0] is None else item[0])))

    def _register(self, devices: dict[int | None, set[int]], surveys: _Surveys) -> None:
        """Register the machine and the processes with device work, by device."""
        session = self.session
        processes = list(devices) or [self._only_process(surveys)]
        main = processes[0]
        name = identify({}, self.path, None)
        ranks = [self._ranks(process, len(devices) == 1, name) for process in processes]
        pid = session.pid(main) if main is not None else None
        if session.hostname is not None:
            node = self.registry.node(session.hostname)
        else:
            starts = [start for _, start, _, _ in surveys.values() if start is not None]
            ends = [end for _, _, end, _ in surveys.values() if end is not None]
            names = {gpu["id"]: gpu["name"] for gpu in session.gpus if gpu["name"]}
            first, last = session.base_ns + min(starts, default=0), session.base_ns + max(ends, default=0)
            facts = Facts(names, frozenset().union(*devices.values()), first, last)
            node, _ = self.placement.assign(Identity(None, pid, ranks[0].rank, ranks[0].world_size), facts, self.source, self.path.name)
        self.store.connection.execute(
            "UPDATE node SET cores = coalesce(cores, ?), gpus = coalesce(gpus, ?) WHERE id = ?",
            [session.cores, len(session.gpus) or None, node],
        )
        if devices:
            with self.store.transaction():
                for process, rank in zip(processes, ranks, strict=True):
                    self._process(node, process, rank)
        self.node = node

    def _ranks(self, process: int | None, alone: bool, name: Identity) -> Ranks:
        """Return the ranks from MPI; for a single process also from its environment."""
        if process is not None and process in self.session.ranks:
            return self.session.ranks[process]
        if not alone:
            return Ranks()
        return self.session.launched if self.session.launched.rank is not None else Ranks(name.rank, None, name.world_size)

    def _process(self, node: int, process: int | None, ranks: Ranks = Ranks()) -> _Process:  # noqa: B008
        if process not in self.processes:
            pid = self.session.pid(process) if process is not None else None
            number = self.registry.process(node, pid, **asdict(ranks), label=self.path.name, source=self.source)
            if process is not None and (command := self.session.names.get(process)) and not self.registry.is_further(number):
                command = cut_text(storable(command))
                self.store.connection.execute("UPDATE process SET command = coalesce(command, ?) WHERE id = ?", [command, number])
            self.processes[process] = _Process(node, number)
            self.placement.cycle(number, self.source)
        return self.processes[process]

    # -- rows ----------------------------------------------------------------------------------------------------------

    def _look_ahead(self, reader: Reader) -> None:
        """Read damaged device tables in advance, to learn where they end."""
        if (syncs := self.export.table(schema.SYNC)) is not None:
            self.export.survey(syncs, ("globalPid",))
        for names in (*_DEVICE_TABLES, schema.SYNC):
            if (table := self.export.table(names)) is not None and table in self.export.cut:
                trial = replace(reader, dropped=Counter())
                self.export.damaged.pop(table, None)
                self.known.cut(table, trial.up_to_damage(table), busy=names != schema.SYNC)
                self.export.damaged.pop(table, None)  # it is read once more

    def _take(self, table: str, rows: pl.DataFrame) -> None:
        if rows.is_empty():
            return
        end = pl.col("start_ns") + pl.col("duration_ns").fill_null(0)
        spans = rows.group_by("process").agg(pl.col("start_ns").min().alias("first"), end.max().alias("last")).sort("process")
        with self.store.transaction():
            for process, first, last in spans.rows():
                owner = self._process(self.node, process)
                owner.first_ns = first if owner.first_ns is None else min(owner.first_ns, first)
                owner.last_ns = last if owner.last_ns is None else max(owner.last_ns, last)
        if table == DEVICE:
            for process, device in rows.select("process", "device").unique().rows():
                self.used.setdefault(process, set()).add(device)
        self.waiting[table].append(rows)
        if sum(frame.height for frame in self.waiting[table]) >= (DEPTH_ROWS if table == RANGES else FLUSH_ROWS):
            if table == RANGES:
                self._close_ranges()
            self._flush(table)

    def _finish_ranges(self) -> None:
        """Close open ranges; compute the depths if all ranges are still in memory."""
        all_waiting = not self.ranges_flushed
        self._close_ranges()
        if self.waiting[RANGES] and all_waiting:
            rows = pl.concat(self.waiting[RANGES])
            self.waiting[RANGES] = [rows.with_columns(depth=depths(rows, ["process", "tid"]))]
        self._flush(RANGES)

    def _close_ranges(self) -> None:
        last = max((process.last_ns for process in self.processes.values() if process.last_ns is not None), default=0)
        for i, rows in enumerate(self.waiting[RANGES]):
            if unclosed := int((~rows["complete"]).sum()):
                self.dropped["unclosed_begin"] += unclosed
                to_end = pl.max_horizontal(last - pl.col("start_ns"), 0)
                self.waiting[RANGES][i] = rows.with_columns(duration_ns=pl.coalesce("duration_ns", to_end))

    def _flush(self, table: str) -> None:
        frames = self.waiting[table]
        if not frames:
            return
        self.waiting[table] = []
        if table == RANGES:
            self.ranges_flushed = True
        rows = pl.concat(frames, how="diagonal")
        processes = pl.DataFrame(
            [(number, row.node, row.id, self.placement.cycle(row.id, self.source)) for number, row in self.processes.items()],
            schema={"process": pl.Int64, "node": pl.Int32, "of": pl.Int32, "cycle": pl.Int64}, orient="row",
        )  # fmt: skip
        rows = rows.join(processes, on="process", how="left", nulls_equal=True, maintain_order="left").with_columns(
            pl.col("start_ns") + self.session.base_ns, process="of"
        )
        if "correlation" in rows.columns and any(processes["cycle"]):
            rows = pl.concat(
                part.with_columns(of_cycle("correlation", int(cycle))) if cycle else part
                for (cycle,), part in rows.partition_by("cycle", as_dict=True, maintain_order=True).items()
            )
        self.events += rows.height
        self.store.append(table, rows.drop("of", "cycle"), source=self.source)

    def _samples(self) -> None:
        """Store the GPU metrics as samples of the machine."""
        rows = samples(self.export)
        if rows.height:
            self.events += rows.height
            rows = rows.with_columns(pl.col("time_ns") + self.session.base_ns, node=pl.lit(self.node, pl.Int32))
            self.store.append("sample", rows, source=self.source)

    # -- result and notes ----------------------------------------------------------------------------------------------

    def _note(self, severity: Severity, code: str, message: str, count: int = 1) -> None:
        self.store.note(severity, code, message, count=count, source=self.source, file=self.path.name)

    def _finish(self, devices: dict[int | None, set[int]]) -> TraceResult:
        session = self.session
        base = session.base_ns
        spans = [
            (row.id, row.first_ns + base, row.last_ns + base)
            for row in self.processes.values()
            if row.first_ns is not None and row.last_ns is not None
        ]
        with self.store.transaction():
            for process, first, last in spans:
                if not self.registry.is_further(process):
                    window = {"process": process, "source": self.source, "first_ns": first, "last_ns": last}
                    self.store.insert("profile_window", window)
        used = sorted(set().union(*self.used.values()))
        if add_devices(self.store, self.node, {"deviceProperties": session.gpus}, used):
            text = f"The export lists one device and uses one of another number; both are shown as device {used[0]}."
            self._note("info", "device_renumbered", text)
        if used:
            self.store.connection.execute("UPDATE device SET vendor = 'NVIDIA' WHERE node = ? AND vendor IS NULL", [self.node])
        self._notes()
        rows = [self.processes[process] for process in devices if process in self.processes]
        ranked = tuple(row.id for row in rows if row.first_ns is not None and not self.registry.is_further(row.id))
        return ExportResult(
            events=self.events,
            first_ns=min((first for _, first, _ in spans), default=None),
            last_ns=max((last for _, _, last in spans), default=None),
            relative=session.relative and bool(spans),
            partial=bool(self.export.damaged or self.pages_missing),
            metadata=session.metadata,
            process=ranked[0] if ranked else next((process for process, _, _ in spans), None),
            framework="PyTorch" if self.of_torch else None,
            ranked=ranked,
        )

    def _notes(self) -> None:
        session = self.session
        if self.pages_missing:
            self._note("error", "truncated", "The file is cut off: pages at its end are missing. Copy it again.", self.pages_missing)
        if (text := self.known.note()) is not None:
            self._note("error", "after_damage", text, self.known.left_out)
        for table, reason in sorted(self.export.damaged.items()):
            text = f"Table {storable(table)} is damaged and was read up to the damage ({reason}). Export the report again."
            self._note("error", "damaged", text)
        if (beside := self.path.with_name(self.path.name + "-wal")).is_file() and beside.stat().st_size:
            text = (
                f"A log of changes stands beside the database ({storable(beside.name)}); what it holds is not read. Close the program that"
                " writes the database, and report again."
            )
            self._note("warning", "log_not_read", text)
        for code, count in sorted(self.dropped.items()):
            if count:
                severity, text = _MESSAGES[code]
                self._note(severity, code, text, count)
        for level, text, count in session.losses[:_LISTED]:
            self._note("error" if level == 3 else "warning", "nsys_diagnostic", f"Nsight Systems says: {storable(text)}", count)
        if len(session.losses) > _LISTED:
            self._note("warning", "nsys_diagnostic", "Nsight Systems says more than that.", len(session.losses) - _LISTED)
        if session.relative and self.events:
            self._note("info", "relative_times", "The export does not say when its session began; its times count from an anchor of 0.")
        major = (session.schema_version or "").partition(".")[0]
        if major.isdigit() and int(major) > schema.KNOWN_MAJOR:
            version = storable(session.schema_version or "")
            text = f"The schema of the export ({version}) is newer than those known here; what is known of it was read."
            self._note("warning", "newer_schema", text)
        elif session.schema_version is not None and not (major.isascii() and major.isdigit() and int(major) > 0):
            version = storable(session.schema_version[:60])
            text = f"The export says a schema that none has ({version}); what is known of it was read. Export the report again."
            self._note("warning", "unknown_schema", text)
        if self.events and self.export.table((*schema.KERNEL, *schema.GRAPH)) is None:
            text = "The export has no table of kernels: none ran, or CUDA was not recorded. Record with `nsys profile --trace=cuda,nvtx`."
            self._note("info", "no_kernels", text)
        others = {name: self.export.last_row(self.export.tables[name]) for name in schema.OTHER_EVENTS if name in self.export.tables}
        if unread := {name: count for name, count in others.items() if count}:
            text = f"What else the export holds is not read: {', '.join(f'{name} ({count:,} rows)' for name, count in unread.items())}."
            self._note("info", "not_shown", text, sum(unread.values()))
        if not self.events:
            self._note("warning", "no_events", "The export holds no event that is read.", 0)


def _number(value: object) -> int | None:
    return value if type(value) is int else None
