"""What do the trace files of the C capture library (.prt) say, and which rows do they become?

The native reader decodes a file block by block (:mod:`.trace_format`, docs/trace-format.md); here its tables become rows of the run
store, some hundred thousand at a time. Several files of one process (a file is followed by the next when it is full) share its row.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Container, Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

import polars as pl

from ..kernels.categories import features
from ..store.durations import duration
from ..store.identity import Placement
from ..store.limits import cut_text
from ..store.registry import UNKNOWN_HOST
from ..store.result import CaptureResult
from ..store.store import Store
from ..store.tables import COUNTER, ENUM_VALUES, METRICS, Severity
from ..store.time_limits import ABSURD_TIME, possible_times
from .correlations import HALF, count_on
from .devices import CaptureDevices
from .format import TraceFile
from .job_record import PREFIXES, PROCESS_ID, Jobs, is_recorder
from .machine_health import note_health, port_names
from .notes import Missing, note_hidden, note_losses, note_missing, note_no_end, note_problems
from .profiling_notes import note_elsewhere, note_profiling, note_sampled
from .windows import GpuWindows

FLUSH_ROWS: Final = 300_000  # How many rows of a table are collected before they go to the store
SAME_START_NS: Final = 10 * 10**9
"""Two recordings with one process id are of one process where its start differs by at most this: it is told to hundredths of seconds."""
CYCLE_IDS: Final = 1 << 40
"""As for profiler traces: correlations of different sources of one process, and of its profiling windows, are this far apart."""
YEAR_2001_NS: Final = 978_307_200 * 10**9  # Device records from before are ones whose times the tracer does not know
LONGEST_NS: Final = 7 * 86_400 * 10**9  # No run or call is as long: the tracer lost its end
ROUNDING_NS: Final = 1_000  # Negative durations down to this come from converting between clocks

Progress = Callable[[float], None]

_NAME: Final = re.compile(r"(.+)\.(\d+)\.(\d+)(-\d+)?\.prt$")
_SIDE: Final = pl.Enum(["host"])  # goes to the database as a number for each row, not as a text
_NO_NAME: Final = "(no name)"
_ENDED_BY_STOP: Final = 1
_OF_MULTIPROCESSING: Final = "from multiprocessing."  # In the command line of a process that multiprocessing started by spawn or forkserver
_STOPPED: Final = "recording.stopped"  # Metadata of a session that the program ended before it came to its own end
_STOPPED_EARLY_NS: Final = 10**9
_STOPPED_EARLY: Final = 0.05
"""Where that is not said: more than this, and than this part of the job, lies between the end of a recording and that of its process."""
_NOT_OF_THE_RUN: Final = re.compile(
    r"(capability|recording)\..*|(cuda|gpu)\.\d+\..*|gpu\.windows|gpu\.window\.\d+(\.closed)?|host|command|clock|clock\.ticks_per_second"
    r"|forked_from",
    re.DOTALL,
)
_NO_DRIVER: Final = "no libnvidia-ml.so.1 on this machine"
"""Why the sampler of a recorder has no samples of GPUs on a machine without NVIDIA's: it has no GPU, unless a process says this:"""
_OTHER_GPUS: Final = "GPUs are not supported"
_OF_PROCESSES: Final = ("annotation", "host_event", "device_event", "profile_window", "python_profile")
_DEVICE_ENUM: Final = pl.Enum(ENUM_VALUES["DEVICE_KIND"])
# What kind of call a number says; the last one stands for all others.
_HOST_KINDS: Final = pl.Series(["launch", "sync", "call"], dtype=pl.Enum(ENUM_VALUES["HOST_KIND"]))
# Numbers of the device tracer for kinds of copies and of synchronisation.
_COPY_KINDS: Final = {1: "HtoD", 2: "DtoH", 3: "HtoA", 4: "AtoH", 5: "AtoA", 6: "AtoD", 7: "DtoA", 8: "DtoD", 9: "HtoH", 10: "PtoP"}
_WITH_HOST: Final = ("HtoD", "DtoH", "HtoA", "AtoH", "HtoH")  # only the host's memory is pageable or pinned
_MEMORIES: Final = {"HtoD": "{} -> Device", "DtoH": "Device -> {}"}
_NO_STREAM: Final = 2**32 - 1  # of synchronisation records that are of no stream; profilers show -1
_DEVICE_TABLES: Final = frozenset({"kernel", "memcpy", "memset", "sync"})
# What the tracer adds to the names of calls: the version that they came with, the kind of their default stream.
_VERSION: Final = r"^(cuda[A-Z]\w*?)(?:_ptsz|_ptds)?(?:_v\d{4,})?$|^(cu[A-Z]\w*?)(?:_ptsz|_ptds)?$"
_DRIVER: Final = re.compile("cu[A-Z]")
_LOADER: Final = "enumerate(DataLoader)#"
_LOADER_MADE: Final = "DataLoaderIter.__init__"
_SYNC_KINDS: Final = {1: "Event Sync", 2: "Stream Wait Event", 3: "Stream Sync", 4: "Context Sync"}
_SHAPE: Final = ("grid_x", "grid_y", "grid_z", "block_x", "block_y", "block_z", "registers", "shared_memory", "graph_node")


@dataclass(slots=True)
class _Session:
    """From when to when a session of a process recorded, by the readings of the clock in its files; ``stopped``: by the program."""

    first_ns: int
    last_ns: int
    source: int
    file: str
    stopped: bool = False


@dataclass(slots=True)
class _Recorded:
    """One process, as its recordings tell of it. ``recorder``: what `postrun record` says for the process that it started."""

    node: int
    process: int
    pid: int
    parent: int | None
    start_ns: int | None
    rank: int | None
    files: dict[bytes, dict[int, str]] = field(default_factory=dict)  # names by session and number
    tids: dict[bytes, dict[int, int]] = field(default_factory=dict)  # of threads, by session and number
    sampled: list[tuple[int, int]] = field(default_factory=list)  # in which times its sampler ran
    cycles: dict[tuple[bytes, int], int] = field(default_factory=dict)
    contexts: dict[int, int] = field(default_factory=dict)  # devices by context
    calls_driver: bool = False
    many_calls: bool = False
    recorder: bool = False
    sessions: dict[bytes, _Session] = field(default_factory=dict)
    command: str = ""

    def recorded(self, session: bytes, first_ns: int, last_ns: int, source: int, file: str, *, stopped: bool) -> None:
        """One file of a session."""
        known = self.sessions.setdefault(session, _Session(first_ns, last_ns, source, file))
        known.first_ns, known.last_ns = min(known.first_ns, first_ns), max(known.last_ns, last_ns)
        known.stopped |= stopped


class Captures:
    """The recordings of one run on their way into the store: :meth:`read` each, then :meth:`settle`."""

    def __init__(self, store: Store, placement: Placement) -> None:
        self.store = store
        self.placement = placement
        self.jobs = Jobs(store)
        self.devices = CaptureDevices(store)
        self.windows = GpuWindows(store)
        self._recorded: list[_Recorded] = []
        self._rows = {"device_event": 0, "host_event": 0}  # of recordings; those of traces follow
        self._unfinished: dict[int, tuple[_Recorded, str, bool]] = {}  # sources without an end: of whom, file, forked
        self._missing: list[Missing] = []
        self._without_gpu: dict[int, bool] = {}  # by node; False: it has GPUs of another maker
        self.cut: set[int] = set()
        """Sources of which a part is missing, as only all files together tell."""

    def read(self, path: Path, source: int, progress: Progress | None = None) -> CaptureResult:
        """Store the rows of one file, and note what of it is lost. Raises InputError where it is none, or the native part is missing."""
        opened = TraceFile(path, name_ids=True, max_unpacked=self.store.max_unpacked)
        header = opened.header
        sound = not any(problem.code == "bad_header" for problem in opened.problems())
        process = self._process(opened, header if sound else {}, source)
        files = process.files.setdefault(header["session"], {}) if sound else {}
        if (known := files.setdefault(header["number"], path.name)) != path.name:
            text = f"The same part of the same recording as {known}; left out. Keep only one of the two."
            self.store.note("warning", "duplicate_part", text, source=source, file=path.name)
            return CaptureResult(0, None, None, process=process.process)
        result = _File(self, opened, process, header["session"], source).read(progress)
        if sound:
            result = replace(result, session=header["session"], number=header["number"])
        for table in self._rows:
            self._rows[table] = self.store.next_row(table)
        return result

    def settle(self, formats: Container[str | None] = ()) -> None:
        """What only all files tell: which parts are missing, and which processes are helpers of another. ``formats``: of all files that
        are read with the recordings."""
        for one in self._recorded:
            for files in one.files.values():
                if missing := max(files) - len(files):
                    text = f"{missing} of the {max(files)} files of one recording of process {one.pid} are missing; give all of them."
                    self.store.note("warning", "file_missing", text, count=missing, file=files[max(files)])
            # A data-loader worker has its parent's environment, and so says its parent's rank.
            jobs = [other for other in self._recorded if other is not one and not other.recorder]
            parents = [other for other in jobs if (other.node, other.pid) == (one.node, one.parent)]
            if one.rank is not None and any(parent.rank == one.rank for parent in parents):
                self.store.connection.execute("UPDATE process SET rank = NULL, local_rank = NULL WHERE id = ?", [one.process])
        for source, (one, file, forked) in self._unfinished.items():
            worker = forked or self._is_worker(one)
            note_no_end(self.store, source, file, worker=worker)
            self.cut |= set() if worker else {source}
        note_missing(self.store, self._missing)
        for node, none in self._without_gpu.items():
            if none:
                self.store.connection.execute("UPDATE node SET gpus = 0 WHERE id = ? AND gpus IS NULL", [node])
        note_profiling(self.store, self._missing)
        note_elsewhere(self.store, self._missing, formats)
        note_sampled(self.store, self._missing, self._spans())
        for one in self._recorded:
            if one.many_calls:
                count_on(self.store, one.process, sorted(set(one.cycles.values())), CYCLE_IDS)
            if not one.recorder:
                self._windows(one)
        for one in self._recorded:
            if one.recorder and any(other.node == one.node and not other.recorder for other in self._recorded):
                self._forget(one)
        self._settle_twice()
        self._settle_calls()
        self.devices.settle()
        self.windows.settle()
        self.jobs.settle()
        note_health(self.store, port_names((one.machine, one.metadata) for one in self._missing))

    def _spans(self) -> dict[int, tuple[int, int]]:
        """From when to when the sessions of each process were, all together."""
        sessions = {one.process: one.sessions.values() for one in self._recorded if one.sessions}
        return {process: (min(of.first_ns for of in some), max(of.last_ns for of in some)) for process, some in sessions.items()}

    def _settle_twice(self) -> None:
        """What a profiler trace of the same process and time holds, too, is told by the trace: it knows the operators."""
        execute = self.store.connection.execute
        processes = [one.process for one in self._recorded]
        work, calls = self._rows["device_event"], self._rows["host_event"]
        # Windows of recordings are not there yet.
        windows = execute("SELECT process, first_ns, last_ns FROM profile_window WHERE list_contains(?, process)", [processes]).fetchall()
        for window in windows:
            inside = "process = ? AND start_ns BETWEEN ? AND ?"
            if not execute(f"SELECT 1 FROM device_event WHERE rowid >= {work} AND {inside} LIMIT 1", window).fetchall():
                continue
            twice = execute(f"DELETE FROM device_event WHERE rowid < {work} AND {inside}", window).fetchall()[0][0]
            if twice:
                execute(f"DELETE FROM host_event WHERE rowid < {calls} AND kind IN ('launch', 'sync', 'call') AND {inside}", window)
                text = "Device activity that a profiler trace of the same process holds, too, is taken from the trace."
                self.store.note("info", "recorded_twice", text, count=twice, first_ns=window[1], last_ns=window[2])

    def _settle_calls(self) -> None:
        """A call of the runtime and the driver's call inside of it, which has its correlation, are one launch: the runtime's."""
        if processes := [one.process for one in self._recorded if one.calls_driver]:
            self.store.connection.execute(
                """
                UPDATE host_event SET kind = 'call' FROM (
                    SELECT i.rowid AS row FROM host_event AS i JOIN name AS n ON n.id = i.name
                    JOIN (SELECT process, correlation, min(start_ns) AS first, arg_min(start_ns + duration_ns, start_ns) AS last
                          FROM host_event WHERE kind = 'launch' AND correlation IS NOT NULL GROUP BY ALL HAVING count(*) > 1) AS o
                        ON o.process = i.process AND o.correlation = i.correlation
                    WHERE i.kind = 'launch' AND i.start_ns > o.first AND i.start_ns + i.duration_ns <= o.last
                        AND list_contains(?, i.process) AND regexp_matches(n.text, '^cu[A-Z]')
                ) AS inside WHERE host_event.rowid = inside.row
                """,
                [processes],
            )

    def unfinished(self, one: _Recorded, source: int, file: str, *, forked: bool) -> None:
        """A file whose recording was not stopped. Whether a part of the run is missing, tell the files of other processes."""
        self._unfinished[source] = (one, file, forked)

    def missing(self, one: _Recorded, source: int, file: str, metadata: Mapping[str, str], *, devices: bool) -> None:
        """What a recording says that it could not capture. ``devices``: whether some activity of GPUs was recorded."""
        ((machine,),) = self.store.connection.execute("SELECT hostname FROM node WHERE id = ?", [one.node]).fetchall()
        self._missing.append(Missing(source, file, machine, one.process, one.pid, metadata, devices))
        if _OTHER_GPUS in metadata.get("capability.gpu", ""):
            self._without_gpu[one.node] = False
        elif one.recorder and metadata.get("capability.gpu.samples", "").startswith(_NO_DRIVER):
            self._without_gpu.setdefault(one.node, True)

    def _is_worker(self, one: _Recorded) -> bool:
        """Whether a process was a helper of another one whose recording is complete. The parent of a worker may be one of multiprocessing's
        own processes, which records nothing; a process with a rank of its own is none."""
        complete = [
            other for other in self._recorded
            if other is not one and other.node == one.node and not other.recorder
            and not self._open(other) and other.rank in (None, one.rank)
        ]  # fmt: skip
        if one.recorder or (one.rank is not None and all(other.rank is None for other in complete)):
            return False
        if any(other.pid == one.parent for other in complete):
            return True
        alone = all(other.pid != one.parent for other in self._recorded if other.node == one.node and not other.recorder)
        return alone and _OF_MULTIPROCESSING in one.command and bool(complete)

    def _open(self, one: _Recorded) -> bool:
        return any(other is one for other, _, _ in self._unfinished.values())

    def _windows(self, one: _Recorded) -> None:
        """When a process recorded, and a note of the time in which it did not, between its sessions and after them."""
        sessions = sorted(one.sessions.values(), key=lambda session: session.first_ns)
        gaps = [(a.last_ns, b.first_ns) for a, b in pairwise(sessions) if b.first_ns > a.last_ns]
        if gaps:
            lost = duration(sum(last - first for first, last in gaps))
            text = f"Process {one.pid} recorded in {len(gaps) + 1} parts; what it did in the {lost} between them is not known."
            first = sessions[0]
            self.store.note(
                "info",
                "recording_gap",
                text,
                count=len(gaps),
                source=first.source,
                file=first.file,
                first_ns=gaps[0][0],
                last_ns=gaps[-1][1],
            )
        last = sessions[-1] if sessions else None
        after = self._unrecorded(one, last) if last is not None else None
        if last is not None and after is not None:
            text = f"Process {one.pid} stopped recording {duration(after)} before the job ended; what it did then is not known."
            at = {"first_ns": last.last_ns, "last_ns": last.last_ns + after}
            self.store.note("info", "stopped_early", text, source=last.source, file=last.file, **at)
        for session in sessions:
            self.store.insert(
                "recorded_window",
                {
                    "process": one.process, "first_ns": session.first_ns, "last_ns": session.last_ns, "process_started_ns": one.start_ns,
                    "stopped": after is not None and session is last,
                },
            )  # fmt: skip

    def _unrecorded(self, one: _Recorded, last: _Session) -> int | None:
        """How long the job went on after a process had stopped to record; None where the process ended then, as far as is known."""
        started, ended = self.jobs.times()
        if started is None or ended is None or self._open(one) or ended <= last.last_ns:
            return None
        after = ended - last.last_ns
        command = any(other.recorder and (other.node, other.pid) == (one.node, one.pid) for other in self._recorded)
        long = after > max(_STOPPED_EARLY_NS, _STOPPED_EARLY * (ended - started))
        return after if last.stopped or (command and long) else None

    def _forget(self, recorder: _Recorded) -> None:
        """The process that a recorder started, where others of the machine recorded, and nothing is known of this one."""
        if any(other.process == recorder.process and not other.recorder for other in self._recorded):
            return
        execute = self.store.connection.execute
        if not any(execute(f"SELECT 1 FROM {table} WHERE process = ? LIMIT 1", [recorder.process]).fetchall() for table in _OF_PROCESSES):
            execute("DELETE FROM process WHERE id = ?", [recorder.process])

    def sampled_by_others(self, process: _Recorded) -> list[tuple[int, int]]:
        """When another process of the machine sampled it already."""
        return [span for other in self._recorded if other is not process and other.node == process.node for span in other.sampled]

    def _process(self, opened: TraceFile, header: dict[str, Any], source: int) -> _Recorded:
        """Whose recording a file is: by its PROCESS block, else by its header and its name."""
        rows = opened.table("process").arrow().to_pylist()
        said = rows[0] if rows else {}
        named = _NAME.match(opened.path.name)
        pid = _known(said.get("pid"), header.get("pid"), int(named[2]) if named else None) or 0
        metadata = opened.metadata()
        recorder = is_recorder(metadata)
        if recorder and metadata.get(PROCESS_ID, "").isdecimal():
            pid = int(metadata[PROCESS_ID])
        host = said.get("host") or metadata.get("host") or (named[1] if named else None) or UNKNOWN_HOST
        node = self.placement.registry.node(host[:255])
        start, rank = said.get("start_ns"), _count(said.get("rank"))
        same = [one for one in self._recorded if (one.node, one.pid, one.recorder) == (node, pid, recorder)]
        for one in same:
            in_session = header.get("session") in one.files
            if in_session or start is None or one.start_ns is None or abs(start - one.start_ns) <= SAME_START_NS:
                return one
        parent = _known(said.get("parent_pid"), header.get("parent_pid"))
        process = self.placement.registry.process(
            node, pid, rank=rank, local_rank=_count(said.get("local_rank")), world_size=_count(said.get("world_size")) or None,
            source=source, fresh=bool(same),
        )  # fmt: skip
        if said.get("command") and not recorder:
            command = cut_text(said["command"])
            self.store.connection.execute("UPDATE process SET command = coalesce(command, ?) WHERE id = ?", [command, process])
        self._recorded.append(_Recorded(node, process, pid, parent, start, rank, recorder=recorder, command=said.get("command") or ""))
        return self._recorded[-1]


class _File:
    """One file on its way into the store."""

    def __init__(self, captures: Captures, opened: TraceFile, process: _Recorded, session: bytes, source: int) -> None:
        self.captures, self.opened, self.process, self.session, self.source = captures, opened, process, session, source
        self.store = captures.store
        self.names = _Names(captures.store, [cut_text(text) for text in opened.names()])
        self.calls: _Names | None = None
        self.metadata = opened.metadata()
        self.starts = captures.windows.add(process.process, session, source, self.metadata)
        self.stored = 0
        self.first_ns: int | None = None
        self.last_ns: int | None = None
        self.dropped: dict[str, int] = {}
        self.devices: set[int] = set()
        self.lost_times_before = YEAR_2001_NS if (opened.header.get("created_ns") or 0) >= YEAR_2001_NS else None

    def read(self, progress: Progress | None) -> CaptureResult:
        import pyarrow as pa

        readers: dict[str, Callable[[pl.DataFrame], tuple[str, pl.DataFrame]]] = {
            "annotation": self._annotations, "counter": self._counters, "metric": self._samples, "api": self._calls,
            "kernel": self._kernels, "memcpy": self._copies, "memset": self._memsets, "sync": self._syncs,
        }  # fmt: skip
        threads = pa.RecordBatchReader.from_stream(self.opened.table("thread"))
        # A range may end in a later file than its thread did, which describes only the threads of its time.
        self.tids = self.process.tids.setdefault(self.session, {})
        with threads:
            for batch in threads:
                self.tids.update(zip(batch["source"].to_pylist(), batch["tid"].to_pylist(), strict=True))
        contents = self.opened.contents
        total = sum(contents[table].rows for table in readers) or 1
        done = 0
        unreadable = None
        for table, rows_of in readers.items():
            try:
                for frame in self._frames(table):
                    target, rows = rows_of(frame)
                    self._append(target, rows)
                    done += frame.height
                    if progress is not None:
                        progress(min(done / total, 1.0))
            except (pa.ArrowException, OSError) as error:
                unreadable = f"Rows of kind {table} could not be decoded: {error}"
                self.store.note("error", "undecodable", unreadable, source=self.source, file=self.opened.path.name)
        self._finish_samples()
        return self._finish(unreadable is not None)

    def _frames(self, table: str) -> Iterator[pl.DataFrame]:
        """The rows of a table, some hundred thousand at a time; without those that lack what each row must have."""
        import pyarrow as pa

        needed = ["time_ns", "value"] if table in {"counter", "metric"} else ["start_ns", "duration_ns"]
        waiting: list[pa.RecordBatch] = []
        rows = 0
        with pa.RecordBatchReader.from_stream(self.opened.table(table)) as batches:
            for batch in batches:
                waiting.append(batch)
                rows += batch.num_rows
                if rows >= FLUSH_ROWS:
                    yield self._whole(waiting, needed, table)
                    waiting, rows = [], 0
        if rows:
            yield self._whole(waiting, needed, table)

    def _whole(self, batches: list[Any], needed: list[str], table: str) -> pl.DataFrame:
        import pyarrow as pa

        frame = pl.from_arrow(pa.Table.from_batches(batches))
        assert isinstance(frame, pl.DataFrame)
        whole = frame.drop_nulls(needed) if any(frame[column].null_count() for column in needed) else frame
        self._drop("incomplete_record", frame.height - whole.height)
        sane = self._sane(whole, table) if "duration_ns" in needed else whole
        possible = possible_times(sane)
        self._drop("absurd_time", sane.height - possible.height)
        return possible

    def _sane(self, frame: pl.DataFrame, table: str) -> pl.DataFrame:
        """Without what cannot be, each kind counted, as for profiler traces."""
        duration = pl.col("duration_ns")
        tests = {"negative_duration": duration < -ROUNDING_NS}
        if table != "annotation":  # ranges of the program may be as long as it runs
            tests["absurd_duration"] = duration > LONGEST_NS
        if table in _DEVICE_TABLES and self.lost_times_before is not None:
            tests = {"zero_time": pl.col("start_ns") < self.lost_times_before, **tests}
        if frame.select(pl.any_horizontal(*tests.values(), duration < 0).any()).item():
            for code, test in tests.items():
                kept = frame.filter(~test)
                self._drop(code, frame.height - kept.height)
                frame = kept
            self._drop("rounded_duration", int((frame["duration_ns"] < 0).sum()))
            frame = frame.with_columns(duration.clip(0))
        return frame

    def _append(self, table: str, rows: pl.DataFrame) -> None:
        if rows.is_empty():
            return
        started = "time_ns" if table == "sample" else "start_ns"
        ended = pl.col(started) if table == "sample" else pl.col(started) + pl.col("duration_ns")
        first, last = rows.select(first=pl.col(started).min(), last=ended.max()).row(0)
        self.first_ns = first if self.first_ns is None else min(first, self.first_ns)
        self.last_ns = last if self.last_ns is None else max(last, self.last_ns)
        owner = {"node": self.process.node} | ({} if table == "sample" else {"process": self.process.process})
        self.store.append(table, rows.with_columns(pl.lit(value, pl.Int32).alias(column) for column, value in owner.items()))
        self.stored += rows.height

    def _drop(self, code: str, count: int) -> None:
        if count:
            self.dropped[code] = self.dropped.get(code, 0) + count

    # -- tables --------------------------------------------------------------------------------------------------------

    def _annotations(self, frame: pl.DataFrame) -> tuple[str, pl.DataFrame]:
        loader = self.names.loads(frame["name"])
        if loader.any():
            some = frame.filter(loader)
            kind = pl.lit("loader", pl.Enum(ENUM_VALUES["HOST_KIND"]))
            waits = some.select(
                tid=self._tids(some["source"]),
                kind=kind,
                name=self.names.ids(some["name"])[0],
                start_ns="start_ns",
                duration_ns="duration_ns",
            )
            self._append("host_event", waits)
            frame = frame.filter(~loader)
        ids, numbers = self.names.ids(frame["name"])
        return "annotation", frame.select(
            tid=self._tids(frame["source"]), side=pl.lit("host", _SIDE), name=ids, value=pl.coalesce("value", numbers), start_ns="start_ns",
            duration_ns="duration_ns", depth="depth", complete=pl.col("flags").fill_null(0) & _ENDED_BY_STOP == 0,
            arguments=self._loader_settings(frame),
        )  # fmt: skip

    def _loader_settings(self, frame: pl.DataFrame) -> pl.Expr:
        """The settings of the process's data loaders, as JSON, for the ranges in which one was made."""
        texts = {key: self.metadata.get(f"dataloader.{key}", "") for key in ("num_workers", "pin_memory", "prefetch_factor")}
        settings: dict[str, int | bool] = {key: int(text) for key, text in texts.items() if text.isascii() and text.isdigit()}
        if not settings:
            return pl.lit(None, pl.String)
        if "pin_memory" in settings:
            settings["pin_memory"] = bool(settings["pin_memory"])
        made = self.names.texts(frame["name"]).str.ends_with(_LOADER_MADE).fill_null(False)
        return pl.when(pl.lit(made)).then(pl.lit(json.dumps(settings)))

    def _counters(self, frame: pl.DataFrame) -> tuple[str, pl.DataFrame]:
        text = self.names.texts(frame["name"]).fill_null(_NO_NAME)
        process = pl.lit(self.process.process, pl.Int32)
        return "sample", frame.select(metric=COUNTER + text, unit=process, time_ns="time_ns", value="value")

    def _samples(self, frame: pl.DataFrame) -> tuple[str, pl.DataFrame]:
        rows = frame.select(
            metric=self.names.texts(frame["metric"]), unit=pl.when(pl.col("unit") >= 0).then("unit"), time_ns="time_ns", value="value"
        )
        known = rows.filter(pl.col("metric").is_in(list(METRICS)))
        self._drop("unknown_metric", rows.height - known.height)
        others = self.captures.sampled_by_others(self.process)
        if others:
            alone = known.filter(~pl.any_horizontal(pl.col("time_ns").is_between(first, last) for first, last in others))
            self._drop("sampled_twice", known.height - alone.height)
            known = alone
        if known.height:
            self._sampled(known)
        return "sample", known

    def _calls(self, frame: pl.DataFrame) -> tuple[str, pl.DataFrame]:
        if self.calls is None:
            texts = self.names.without_versions()
            self.calls = _Names(self.store, texts)
            self.process.calls_driver |= any(_DRIVER.match(text) for text in texts)
        kind = pl.when(pl.col("kind").is_null()).then(self.calls.kinds(frame["name"])).otherwise(_chosen("kind", len(_HOST_KINDS)))
        return "host_event", frame.select(
            tid="tid", kind=_HOST_KINDS.gather(frame.select(kind).to_series()), name=self.calls.ids(frame["name"])[0],
            start_ns="start_ns", duration_ns="duration_ns", correlation=self._correlation(frame),
        )  # fmt: skip

    def _kernels(self, frame: pl.DataFrame) -> tuple[str, pl.DataFrame]:
        shape = {column: pl.col(column).cast(pl.Int64) for column in _SHAPE}
        shape["graph_node"] = pl.when(pl.col("graph_node") != 0).then("graph_node")
        return self._device_rows(frame, "kernel", self.names.ids(frame["name"])[0], **shape)

    def _copies(self, frame: pl.DataFrame) -> tuple[str, pl.DataFrame]:
        kind = frame["copy_kind"].replace_strict(_COPY_KINDS, default=None, return_dtype=pl.String)
        pageable = frame["pageable"].cast(pl.Boolean).set(~kind.is_in(_WITH_HOST).fill_null(False), None)
        host = pl.when("pageable").then(pl.lit("Pageable")).when(~pl.col("pageable")).then(pl.lit("Pinned"))
        memories = pl.coalesce(
            *(pl.when(kind=word).then(pl.format(text, host)) for word, text in _MEMORIES.items()),
            pl.when(pl.col("kind").is_in(["DtoD", "PtoP"])).then(pl.lit("Device -> Device")),
        )
        name = pl.DataFrame({"kind": kind, "pageable": pageable}).select(
            pl.concat_str(
                pl.lit("Memcpy "), pl.col("kind").fill_null("(unknown)"), pl.format(" ({})", memories).fill_null("")
            ).alias("name")
        )  # fmt: skip
        return self._device_rows(
            frame, "memcpy", self.names.store_ids(name["name"]), bytes=pl.col("bytes"), copy_kind=kind, pageable=pageable
        )

    def _memsets(self, frame: pl.DataFrame) -> tuple[str, pl.DataFrame]:
        return self._device_rows(frame, "memset", self.names.store_ids(_constant("Memset (Device)", frame.height)), bytes=pl.col("bytes"))

    def _syncs(self, frame: pl.DataFrame) -> tuple[str, pl.DataFrame]:
        name = frame["type"].replace_strict(_SYNC_KINDS, default="Sync", return_dtype=pl.String)
        contexts = self.process.contexts
        of_context = pl.col("context").replace_strict(list(contexts), list(contexts.values()), default=None, return_dtype=pl.Int32)
        known = pl.when(pl.col("device") >= 0).then("device")
        only = next(iter(devices)) if len(devices := set(contexts.values()) | self.devices) == 1 else None
        frame = frame.with_columns(
            device=pl.coalesce(known, of_context, pl.lit(only, pl.Int32)),
            stream=pl.when(pl.col("stream") == _NO_STREAM).then(-1).otherwise("stream"),
        )
        return self._device_rows(frame, "sync", self.names.store_ids(name))

    def _device_rows(self, frame: pl.DataFrame, kind: str, name: pl.Series, **more: pl.Expr | pl.Series) -> tuple[str, pl.DataFrame]:
        self._drop("device_unknown", int((frame["device"].fill_null(-1) < 0).sum()))
        device = pl.when(pl.col("device") >= 0).then("device").otherwise(0)
        rows = frame.select(
            device=device, context="context", stream="stream", kind=pl.lit(kind, _DEVICE_ENUM), name=name, start_ns="start_ns",
            duration_ns="duration_ns", correlation=self._correlation(frame), **more,
        )  # fmt: skip
        self.devices.update(rows["device"].unique())
        self._worked(frame)
        if kind != "sync":
            self.process.contexts.update(frame.filter(pl.col("device") >= 0).select("context", "device").unique().drop_nulls().iter_rows())
        return "device_event", rows

    def _worked(self, frame: pl.DataFrame) -> None:
        spans = {"first": pl.col("start_ns").min(), "last": (pl.col("start_ns") + pl.col("duration_ns")).max()}
        if self.starts:
            found = frame.group_by(self._windows(frame).alias("window")).agg(**spans)
        else:
            found = frame.select(window=pl.lit(0), **spans)
        for place, first, last in found.iter_rows():
            if first is not None:
                self.captures.windows.worked(self.process.process, self.session, place, first, last)

    def _correlation(self, frame: pl.DataFrame) -> pl.Expr:
        """Correlations count through all files of a session, and anew where the tracer began anew; those of a profiler that traced the
        same process are others."""
        known = pl.when(pl.col("correlation").is_between(1, CYCLE_IDS - 1)).then("correlation")
        self.process.many_calls |= bool((frame["correlation"] >= HALF).any())
        if not self.starts:
            return known + self._cycle(0) * CYCLE_IDS
        cycles = pl.Series([self._cycle(window) for window in range(len(self.starts) + 1)], dtype=pl.Int64)
        return known + cycles.gather(self._windows(frame)) * CYCLE_IDS

    def _windows(self, frame: pl.DataFrame) -> pl.Series:
        """In which window of device activity each row starts, as their places in order of time."""
        return pl.Series(self.starts, dtype=pl.Int64).search_sorted(frame["start_ns"], side="right")

    def _cycle(self, window: int) -> int:
        key = (self.session, window)
        cycles = self.process.cycles
        if key not in cycles:
            place = self.source if window == 0 else -1 - len(cycles)  # a file's number, or none that a file has
            cycles[key] = self.captures.placement.cycle(self.process.process, place)
        return cycles[key]

    def _tids(self, sources: pl.Series) -> pl.Series:
        """Thread ids; of threads whose description is lost, their negative number: no id is negative."""
        found = {number: self.tids.get(number) for number in sources.unique().drop_nulls()}
        unknown = [number for number, tid in found.items() if tid is None]
        self._drop("thread_unknown", int(sources.is_in(unknown).sum()))
        tids = [-number if tid is None else tid for number, tid in found.items()]
        return sources.replace_strict(list(found), tids, default=None, return_dtype=pl.Int64)

    # -- at the end ----------------------------------------------------------------------------------------------------

    _spans: tuple[int, int] | None = None
    _cores: frozenset[int] = frozenset()
    _gpus: frozenset[int] = frozenset()
    _quota: float | None = None

    def _sampled(self, rows: pl.DataFrame) -> None:
        first, last = rows.select(pl.col("time_ns").min(), last=pl.col("time_ns").max()).row(0)
        self._spans = (min(first, self._spans[0]), max(last, self._spans[1])) if self._spans else (first, last)
        self._cores |= frozenset(rows.filter(pl.col("metric") == "cpu_utilization")["unit"].unique().drop_nulls())
        self._gpus |= frozenset(rows.filter(pl.col("metric") == "gpu_utilization")["unit"].unique().drop_nulls())
        quotas = rows.filter(pl.col("metric") == "cgroup.cpu_quota_cores").sort("time_ns")["value"]
        self._quota = quotas[-1] if len(quotas) else self._quota

    def _finish_samples(self) -> None:
        if self._spans is not None:
            self.process.sampled.append(self._spans)
            self.store.connection.execute(
                "UPDATE node SET cores = greatest(cores, ?), gpus = greatest(gpus, ?), quota = coalesce(?, quota) WHERE id = ?",
                [len(self._cores) or None, len(self._gpus) or None, self._quota, self.process.node],
            )

    def _finish(self, unreadable: bool) -> CaptureResult:
        store, file = self.store, self.opened.path.name
        process = self.process
        self.captures.devices.add(process.node, process.process, process.pid, process.rank, self.metadata, self.devices)
        if self.first_ns is not None and self.last_ns is not None:
            self.captures.windows.seen(process.process, self.session, self.first_ns, self.last_ns, devices=bool(self.devices))
        if self.first_ns is not None and self.last_ns is not None:
            self.captures.placement.recorded(
                self.process.node, self.process.process, self.process.pid, self.process.rank, self.first_ns, self.last_ns
            )
        metadata = self.opened.metadata()
        clock = [time for time in self.opened.table("clock").arrow()["realtime_ns"].to_pylist() if time is not None]
        if times := [time for time in (*clock, self.first_ns, self.last_ns) if time is not None]:
            stopped = _STOPPED in metadata
            self.process.recorded(self.session, min(times), max(times), self.source, file, stopped=stopped)
        problems = self.opened.problems()
        cut = note_problems(store, self.source, file, problems)
        if any(problem.code == "no_end" for problem in problems):
            self.captures.unfinished(self.process, self.source, file, forked="forked_from" in metadata)
        lost = note_losses(store, self.source, file, self.opened)
        for code, count in sorted(self.dropped.items()):
            store.note(*_DROPPED[code], count=count, source=self.source, file=file)
        if self.process.recorder:
            self.captures.jobs.add((self.process.node, self.process.pid, self.session), self.source, file, self.process.rank, metadata)
            metadata = {key: value for key, value in metadata.items() if not key.startswith(PREFIXES)}
        elif not self.stored and "sampled_twice" not in self.dropped:
            # Workers of a recorded job may have nothing to record; who samples the machine, always has.
            severity: Severity = "info" if metadata.get("sample_ms") == "0" else "warning"
            store.note(severity, "no_events", "The recording holds no event and no sample.", count=0, source=self.source, file=file)
        note_hidden(store, self.source, file, metadata)
        self.captures.missing(self.process, self.source, file, metadata, devices=bool(self.devices))
        return CaptureResult(
            events=self.stored,
            first_ns=self.first_ns,
            last_ns=self.last_ns,
            partial=unreadable or lost or cut,
            job=self.process.recorder,
            process=None if self.process.recorder else self.process.process,
            metadata={key[:60]: value[:200] for key, value in metadata.items() if not _NOT_OF_THE_RUN.fullmatch(key)},
        )


class _Names:
    """The names of one file: those that are used get ids of the store."""

    def __init__(self, store: Store, texts: list[str]) -> None:
        self.store = store
        self._texts = pl.Series("text", texts, pl.String)
        self._ids = pl.Series([None] * len(texts), dtype=pl.Int32)
        self._features = features(self._texts)
        self._loads = self._texts.str.starts_with(_LOADER)

    def texts(self, column: pl.Series) -> pl.Series:
        """The text of each name, null for none."""
        return self._texts.gather(column)

    def ids(self, column: pl.Series) -> tuple[pl.Series, pl.Series]:
        """Ids in the store, and the numbers at the ends of the names."""
        used = column.unique().drop_nulls()
        fresh = used.filter(self._ids.gather(used).is_null())
        if len(fresh):
            self._ids = self._ids.scatter(fresh, self.store.name_ids(self._texts.gather(fresh).to_list()))
        ids = self._ids.gather(column)
        if ids.null_count():
            ids = ids.fill_null(self.store.name_ids([_NO_NAME])[0])
        return ids, self._features["value"].gather(column)

    def loads(self, column: pl.Series) -> pl.Series:
        """Whether each is the framework's own range around waiting for the data loader."""
        return self._loads.gather(column).fill_null(False)

    def kinds(self, column: pl.Series) -> pl.Series:
        """What kind of call each is by its name, as a place in _HOST_KINDS."""
        places = {kind: place for place, kind in enumerate(_HOST_KINDS)}
        kinds = self._features["call"].cast(pl.String).replace_strict(places, return_dtype=pl.Int32)
        return kinds.gather(column).fill_null(len(places) - 1)

    def without_versions(self) -> list[str]:
        """All texts, names of calls without what the tracer adds to them."""
        text = pl.col("text")
        plain = pl.coalesce(text.str.extract(_VERSION, 1), text.str.extract(_VERSION, 2), text)
        return self._texts.to_frame().select(plain.alias("text"))["text"].to_list()

    def store_ids(self, texts: pl.Series) -> pl.Series:
        """Ids in the store of texts of which there are few."""
        distinct = texts.unique(maintain_order=True).to_list()
        return texts.replace_strict(distinct, self.store.name_ids(distinct), return_dtype=pl.Int32)


_DROPPED: Final[dict[str, tuple[Severity, str, str]]] = {
    "incomplete_record": ("warning", "incomplete_record", "Records without a time, a duration or a value were left out."),
    "unknown_metric": ("info", "unknown_metric", "Samples of metrics that this version does not know were left out."),
    "sampled_twice": (
        "info", "sampled_twice", "Samples of a machine that another process sampled at the same time were left out; one process is enough."
    ),
    "device_unknown": ("warning", "device_unknown", "Device events that name no device are shown as of device 0."),
    "zero_time": ("warning", "zero_time", "Device events without a time were left out: the tracer lost it."),
    "absurd_time": ABSURD_TIME,
    "absurd_duration": (
        "warning", "absurd_duration", "Device events and calls longer than seven days were left out: their durations cannot be right."
    ),
    "negative_duration": ("warning", "negative_duration", "Events with a negative duration were left out."),
    "rounded_duration": ("info", "rounded_duration", "Durations down to -1 us, a product of converting between clocks, were taken as 0."),
    "thread_unknown": ("warning", "thread_unknown", "Ranges of threads whose description is lost have a negative thread id."),
}  # fmt: skip


def _chosen(column: str, count: int) -> pl.Expr:
    """Places in a list of `count` for numbers from 0; the last one for any other number and for none."""
    return pl.when(pl.col(column).is_between(0, count - 1)).then(column).otherwise(count - 1)


def _constant(text: str, count: int) -> pl.Series:
    return pl.repeat(text, count, dtype=pl.String, eager=True)


def _count(value: int | None) -> int | None:
    return value if value is not None and 0 <= value < 2**31 else None


def _known(*values: int | None) -> int | None:
    return next((value for value in values if value is not None and value >= 0), None)
