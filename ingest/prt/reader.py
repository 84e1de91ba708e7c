"""Recordings of one job: the trace files of the C capture library (.prt) -> rows of the run store, and notes on what is missing.

The native reader decodes a file block by block (:mod:`.format`, docs/trace-format.md) and :mod:`.file_rows` stores its rows. Several files
of one process (when a file is full, the next one follows) share the row of the process (:mod:`.processes`).
"""

from __future__ import annotations

import re
from collections.abc import Container, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

from ..chrome_trace.batches import Progress
from ..store.identity import Placement
from ..store.result import CaptureResult
from ..store.schema import RECORDED_TWICE
from ..store.store import Store
from ..store.tables import Severity
from ..store.time_limits import ABSURD_TIME
from .devices import CaptureDevices
from .format import TraceFile
from .job_record import PREFIXES, Jobs
from .machine_health import note_health, port_names
from .notes import Missing, note_hidden, note_losses, note_missing, note_problems
from .processes import RecordedProcesses
from .profiling_notes import note_elsewhere, note_profiling, note_sampled
from .staged_rows import STAGED, StagedRows
from .windows import GpuWindows

if TYPE_CHECKING:
    from .file_rows import CaptureFile

_STOPPED: Final = "recording.stopped"  # Metadata of a session that the program ended
_NOT_OF_THE_RUN: Final = re.compile(
    r"(capability|recording)\..*|(cuda|gpu)\.\d+\..*|gpu\.windows|gpu\.window\.\d+(\.closed)?|host|command|clock|clock\.ticks_per_second"
    r"|forked_from",
    re.DOTALL,
)
_NO_DRIVER: Final = (
    "no libnvidia-ml.so.1 on this machine"  # The reason of a recorder without samples of GPUs: the node has none, unless ...
)
_OTHER_GPUS: Final = "GPUs are not supported"  # ... a process states this
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


class Captures:
    """The recordings of one run on their way into the store: :meth:`read` each, then :meth:`settle`."""

    def __init__(self, store: Store, placement: Placement) -> None:
        self.store = store
        self.placement = placement
        self.jobs = Jobs(store)
        self.devices = CaptureDevices(store)
        self.windows = GpuWindows(store)
        self.processes = RecordedProcesses(store, placement.registry)
        self.staged = StagedRows(store)
        self._missing: list[Missing] = []
        self._without_gpu: dict[int, bool] = {}  # by node; False: it has GPUs of another vendor
        self.cut: set[int] = set()  # sources that lack a part of the run, once all files are read

    def read(self, path: Path, source: int, progress: Progress | None = None) -> CaptureResult:
        """Store the rows of one file and note its losses; InputError if it is unreadable."""
        from .file_rows import CaptureFile  # with pyarrow

        opened = TraceFile(path, name_ids=True, max_unpacked=self.store.max_unpacked)
        header = opened.header
        sound = not any(problem.code == "bad_header" for problem in opened.problems())
        process = self.processes.of_file(opened, header if sound else {}, source)
        files = process.files.setdefault(header["session"], {}) if sound else {}
        if (known := files.setdefault(header["number"], path.name)) != path.name:
            text = f"The same part of the same recording as {known}; left out. Keep only one of the two."
            self.store.note("warning", "duplicate_part", text, source=source, file=path.name)
            return CaptureResult(0, None, None, process=process.id)
        sampled = self.processes.sampled_by_others(process)
        file = CaptureFile(self.store, self.placement, self.windows, self.staged, opened, process, header["session"], source, sampled)
        try:
            result = self._result(file, file.read(progress))
        except BaseException:
            self.staged.discard(source)
            raise
        return replace(result, session=header["session"], number=header["number"]) if sound else result

    def settle(self, formats: Container[str | None] = ()) -> None:
        """Store and note what only all recordings, and ``formats`` of other files, show."""
        of_recordings = {table: self.store.next_event(table) for table in STAGED}
        self.staged.write(self.processes.all)
        self.processes.note_missing_files()
        self.cut |= self.processes.note_unfinished()
        note_missing(self.store, self._missing)
        for node, none in self._without_gpu.items():
            if none:
                self.store.connection.execute("UPDATE node SET gpus = 0 WHERE id = ? AND gpus IS NULL", [node])
        note_profiling(self.store, self._missing)
        note_elsewhere(self.store, self._missing, formats)
        note_sampled(self.store, self._missing, self.processes.spans())
        self.processes.write_windows(*self.jobs.times())
        self.processes.forget_recorders()
        self._leave_out_twice(of_recordings)
        self.devices.settle()
        self.windows.settle()
        self.jobs.settle()
        note_health(self.store, port_names((missing.machine, missing.metadata) for missing in self._missing))

    def _leave_out_twice(self, first: Mapping[str, int]) -> None:
        """Leave out work that a trace also contains: traces have the operators.

        ``first``: by table, the id of the first row of recordings, which follow those of traces.
        """
        processes = [process.id for process in self.processes.all]
        # Windows of recordings are not there yet.
        query = "SELECT process, first_ns, last_ns FROM profile_window WHERE list_contains(?, process)"
        for window in self.store.connection.execute(query, [processes]).fetchall():
            inside = "process = ? AND start_ns BETWEEN ? AND ?"
            traced = f"SELECT 1 FROM device_event WHERE id < {first['device_event']} AND {inside} LIMIT 1"
            if not self.store.connection.execute(traced, window).fetchall():
                continue
            work = f"SELECT id FROM device_event WHERE id >= {first['device_event']} AND {inside}"
            if twice := self.store.leave_out("device_event", RECORDED_TWICE, work, window):
                calls = f"SELECT id FROM host_event WHERE id >= {first['host_event']} AND kind IN ('launch', 'sync', 'call') AND {inside}"
                self.store.leave_out("host_event", RECORDED_TWICE, calls, window)
                text = "Device activity that a profiler trace of the same process holds, too, is taken from the trace."
                self.store.note("info", "recorded_twice", text, count=twice, first_ns=window[1], last_ns=window[2])

    def _result(self, file: CaptureFile, complete: bool) -> CaptureResult:
        """Add a stored file to the job and note its damage."""
        store, opened, process, source, name = self.store, file.opened, file.process, file.source, file.opened.path.name
        self.devices.add(process.node, process.id, process.pid, process.rank, file.metadata, file.devices)
        if file.first_ns is not None and file.last_ns is not None:
            self.windows.seen(process.id, file.session, file.first_ns, file.last_ns, devices=bool(file.devices))
            self.placement.recorded(process.node, process.id, process.pid, process.rank, file.first_ns, file.last_ns)
        metadata = opened.metadata()
        readings = opened.table("clock").arrow()["realtime_ns"].to_pylist()
        if times := [time for time in (*readings, file.first_ns, file.last_ns) if time is not None]:
            process.recorded(file.session, min(times), max(times), source, name, stopped=_STOPPED in metadata)
        problems = opened.problems()
        cut = note_problems(store, source, name, problems)
        if any(problem.code == "no_end" for problem in problems):
            self.processes.unfinished(process, source, name, forked="forked_from" in metadata)
        lost = note_losses(store, source, name, opened)
        for code, count in sorted(file.dropped.items()):
            store.note(*_DROPPED[code], count=count, source=source, file=name)
        if process.recorder:
            self.jobs.add((process.node, process.pid, file.session), source, name, process.rank, metadata)
            metadata = {key: value for key, value in metadata.items() if not key.startswith(PREFIXES)}
        elif not file.stored and "sampled_twice" not in file.dropped:
            # Helpers of a recorded job may have nothing to record; a process that samples the node always has rows.
            severity: Severity = "info" if metadata.get("sample_ms") == "0" else "warning"
            store.note(severity, "no_events", "The recording holds no event and no sample.", count=0, source=source, file=name)
        note_hidden(store, source, name, metadata)
        ((machine,),) = store.connection.execute("SELECT hostname FROM node WHERE id = ?", [process.node]).fetchall()
        self._missing.append(Missing(source, name, machine, process.id, process.pid, metadata, bool(file.devices)))
        if _OTHER_GPUS in metadata.get("capability.gpu", ""):
            self._without_gpu[process.node] = False
        elif process.recorder and metadata.get("capability.gpu.samples", "").startswith(_NO_DRIVER):
            self._without_gpu.setdefault(process.node, True)
        return CaptureResult(
            events=file.stored,
            first_ns=file.first_ns,
            last_ns=file.last_ns,
            partial=lost or cut or not complete,
            job=process.recorder,
            process=None if process.recorder else process.id,
            metadata={key[:60]: value[:200] for key, value in metadata.items() if not _NOT_OF_THE_RUN.fullmatch(key)},
        )
