"""Processes of recordings: files of one process share a row, and a helper process takes neither a rank nor the blame for a lost end.

Header and metadata of trace files -> rows of ``process`` and ``recorded_window``, and notes on what was not recorded.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, Final

from ..store.durations import duration
from ..store.limits import cut_text
from ..store.registry import UNKNOWN_HOST, Registry
from ..store.store import Store
from .format import TraceFile
from .job_record import PROCESS_ID, is_recorder
from .notes import note_no_end

SAME_START_NS: Final = 10 * 10**9  # Start times of a process in two recordings are at most this far apart; they have a resolution of 10 ms

_NAME: Final = re.compile(r"(.+)\.(\d+)\.(\d+)(-\d+)?\.prt$")
_OF_MULTIPROCESSING: Final = "from multiprocessing."  # In the command line of a process that multiprocessing started by spawn or forkserver
_STOPPED_EARLY_NS: Final = 10**9  # Least time between the end of a recording and that of its job, if the program did not stop the recording
_STOPPED_EARLY: Final = 0.05  # Least part of the job that this time is
_OF_PROCESSES: Final = ("annotation", "host_event", "device_event", "profile_window", "python_profile")


@dataclass(slots=True)
class Session:
    """First and last clock reading in the files of a session; ``stopped``: whether the program ended it."""

    first_ns: int
    last_ns: int
    source: int
    file: str
    stopped: bool = False


@dataclass(slots=True)
class RecordedProcess:
    """One process with what its recordings state. ``recorder``: `postrun record` wrote them for the process that it started."""

    id: int
    node: int
    pid: int
    parent: int | None
    start_ns: int | None
    rank: int | None
    files: dict[bytes, dict[int, str]] = field(default_factory=dict)  # names by session and number
    tids: dict[bytes, dict[int, int]] = field(default_factory=dict)  # of threads, by session and number
    sampled: list[tuple[int, int]] = field(default_factory=list)  # times in which its sampler ran
    cycles: dict[tuple[bytes, int], int] = field(default_factory=dict)
    contexts: dict[int, int] = field(default_factory=dict)  # devices by context
    calls_driver: bool = False
    many_calls: bool = False
    recorder: bool = False
    sessions: dict[bytes, Session] = field(default_factory=dict)
    command: str = ""

    def recorded(self, session: bytes, first_ns: int, last_ns: int, source: int, file: str, *, stopped: bool) -> None:
        """Add the times of one file of a session."""
        known = self.sessions.setdefault(session, Session(first_ns, last_ns, source, file))
        known.first_ns, known.last_ns = min(known.first_ns, first_ns), max(known.last_ns, last_ns)
        known.stopped |= stopped


class RecordedProcesses:
    """The recorded processes of one run: :meth:`of_file` for each file, then the other methods in their order."""

    def __init__(self, store: Store, registry: Registry) -> None:
        self.store = store
        self.registry = registry
        self.all: list[RecordedProcess] = []
        self._unfinished: dict[int, tuple[RecordedProcess, str, bool]] = {}  # sources without an end: process, file, forked

    def of_file(self, opened: TraceFile, header: Mapping[str, Any], source: int) -> RecordedProcess:
        """Return the process of a file: by its PROCESS block, else header and name."""
        rows = opened.table("process").arrow().to_pylist()
        block = rows[0] if rows else {}
        name = _NAME.match(opened.path.name)
        pid = _known(block.get("pid"), header.get("pid"), int(name[2]) if name else None) or 0
        metadata = opened.metadata()
        recorder = is_recorder(metadata)
        if recorder and metadata.get(PROCESS_ID, "").isdecimal():
            pid = int(metadata[PROCESS_ID])
        host = block.get("host") or metadata.get("host") or (name[1] if name else None) or UNKNOWN_HOST
        node = self.registry.node(host[:255])
        start, rank = block.get("start_ns"), _count(block.get("rank"))
        same = [process for process in self.all if (process.node, process.pid, process.recorder) == (node, pid, recorder)]
        for process in same:
            in_session = header.get("session") in process.files
            if in_session or start is None or process.start_ns is None or abs(start - process.start_ns) <= SAME_START_NS:
                return process
        row = self.registry.process(
            node, pid, rank=rank, local_rank=_count(block.get("local_rank")), world_size=_count(block.get("world_size")) or None,
            source=source, fresh=bool(same),
        )  # fmt: skip
        command = block.get("command") or ""
        if command and not recorder:
            self.store.connection.execute("UPDATE process SET command = coalesce(command, ?) WHERE id = ?", [cut_text(command), row])
        parent = _known(block.get("parent_pid"), header.get("parent_pid"))
        self.all.append(RecordedProcess(row, node, pid, parent, start, rank, recorder=recorder, command=command))
        return self.all[-1]

    def unfinished(self, process: RecordedProcess, source: int, file: str, *, forked: bool) -> None:
        """Add a file without an end, for :meth:`note_unfinished`."""
        self._unfinished[source] = (process, file, forked)

    def sampled_by_others(self, process: RecordedProcess) -> list[tuple[int, int]]:
        """Return the times in which other processes sampled the node of a process."""
        return [span for other in self._others(process) for span in other.sampled]

    def note_missing_files(self) -> None:
        """Note missing parts of recordings, and remove the rank of helpers.

        A data-loader worker has the environment of its parent, and with it the parent's rank.
        """
        for process in self.all:
            for files in process.files.values():
                if missing := max(files) - len(files):
                    text = f"{missing} of the {max(files)} files of one recording of process {process.pid} are missing; give all of them."
                    self.store.note("warning", "file_missing", text, count=missing, file=files[max(files)])
            parents = [other for other in self._others(process) if other.pid == process.parent and not other.recorder]
            if process.rank is not None and any(parent.rank == process.rank for parent in parents):
                self.store.connection.execute("UPDATE process SET rank = NULL, local_rank = NULL WHERE id = ?", [process.id])

    def note_unfinished(self) -> set[int]:
        """Note recordings without an end; return the sources that lack a part of the run."""
        cut = set()
        for source, (process, file, forked) in self._unfinished.items():
            worker = forked or self._is_worker(process)
            note_no_end(self.store, source, file, worker=worker)
            if not worker:
                cut.add(source)
        return cut

    def spans(self) -> dict[int, tuple[int, int]]:
        """Return the first start and last end of the sessions of each process."""
        sessions = {process.id: process.sessions.values() for process in self.all if process.sessions}
        return {process: (min(of.first_ns for of in some), max(of.last_ns for of in some)) for process, some in sessions.items()}

    def write_windows(self, started_ns: int | None, ended_ns: int | None) -> None:
        """Store when each process of a job with these times recorded, and note gaps."""
        for process in self.all:
            if not process.recorder:
                self._write_windows(process, started_ns, ended_ns)

    def forget_recorders(self) -> None:
        """Remove processes that are known only from a recorder, on nodes with others."""
        execute = self.store.connection.execute
        recorded = [process for process in self.all if not process.recorder]
        for recorder in [process for process in self.all if process.recorder]:
            if any(process.node == recorder.node for process in recorded) and not any(process.id == recorder.id for process in recorded):
                tables = (execute(f"SELECT 1 FROM {table} WHERE process = ? LIMIT 1", [recorder.id]).fetchall() for table in _OF_PROCESSES)
                if not any(tables):
                    execute("DELETE FROM process WHERE id = ?", [recorder.id])

    def _others(self, process: RecordedProcess) -> list[RecordedProcess]:
        return [other for other in self.all if other is not process and other.node == process.node]

    def _is_open(self, process: RecordedProcess) -> bool:
        return any(unfinished is process for unfinished, _, _ in self._unfinished.values())

    def _is_worker(self, process: RecordedProcess) -> bool:
        """Whether a process was a helper of another process whose recording is complete.

        The parent of a helper may be a process of multiprocessing, which records nothing. A process with a rank of its own is not a helper.
        """
        jobs = [other for other in self._others(process) if not other.recorder]
        complete = [other for other in jobs if not self._is_open(other) and other.rank in (None, process.rank)]
        if process.recorder or (process.rank is not None and all(other.rank is None for other in complete)):
            return False
        if any(other.pid == process.parent for other in complete):
            return True
        orphan = all(other.pid != process.parent for other in jobs)
        return orphan and _OF_MULTIPROCESSING in process.command and bool(complete)

    def _write_windows(self, process: RecordedProcess, started_ns: int | None, ended_ns: int | None) -> None:
        sessions = sorted(process.sessions.values(), key=lambda session: session.first_ns)
        if not sessions:
            return
        first, last = sessions[0], sessions[-1]
        gaps = [(a.last_ns, b.first_ns) for a, b in pairwise(sessions) if b.first_ns > a.last_ns]
        if gaps:
            lost = duration(sum(end - start for start, end in gaps))
            text = f"Process {process.pid} recorded in {len(gaps) + 1} parts; what it did in the {lost} between them is not known."
            at = {"first_ns": gaps[0][0], "last_ns": gaps[-1][1]}
            self.store.note("info", "recording_gap", text, count=len(gaps), source=first.source, file=first.file, **at)
        after = self._unrecorded(process, last, started_ns, ended_ns)
        if after is not None:
            text = f"Process {process.pid} stopped recording {duration(after)} before the job ended; what it did then is not known."
            at = {"first_ns": last.last_ns, "last_ns": last.last_ns + after}
            self.store.note("info", "stopped_early", text, source=last.source, file=last.file, **at)
        for session in sessions:
            window = {"process": process.id, "first_ns": session.first_ns, "last_ns": session.last_ns}
            stopped = after is not None and session is last
            self.store.insert("recorded_window", {**window, "process_started_ns": process.start_ns, "stopped": stopped})

    def _unrecorded(self, process: RecordedProcess, last: Session, started_ns: int | None, ended_ns: int | None) -> int | None:
        """How long the job ran after a process stopped recording; None if it ended."""
        if started_ns is None or ended_ns is None or self._is_open(process) or ended_ns <= last.last_ns:
            return None
        after = ended_ns - last.last_ns
        command = any(other.recorder and other.pid == process.pid for other in self._others(process))
        long = after > max(_STOPPED_EARLY_NS, _STOPPED_EARLY * (ended_ns - started_ns))
        return after if last.stopped or (command and long) else None


def _count(value: int | None) -> int | None:
    return value if value is not None and 0 <= value < 2**31 else None


def _known(*values: int | None) -> int | None:
    return next((value for value in values if value is not None and value >= 0), None)
