"""Job facts of the recorders (`postrun record`): command, hyperparameters, times and end -> notes and the run's row.

A recorder writes them as metadata, ``job.<fact>`` and ``param.<name>``, into the trace file with its samples; a distributed job may
have a recorder per rank.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from ..store.durations import duration
from ..store.run_row import common_metadata
from ..store.store import Store
from ..store.tables import Severity

_JOB: Final = "job."
_PARAMETER: Final = "param."
PREFIXES: Final = (_JOB, _PARAMETER)
PROCESS_ID: Final = "job.pid"
_MAX_CHARACTERS: Final = 2000  # of a value in the run's metadata
# Facts with a column in the run's row, and times, which come from one recorder.
_NOT_SHOWN: Final = frozenset(
    {"job.name", "job.instance_type", "job.hosts", "job.memory_bytes", "job.started_ns", "job.ended_ns", PROCESS_ID, "job.inside"}
    | {f"job.environment.{name}" for name in ("RANK", "LOCAL_RANK", "GROUP_RANK")}
)
# Signals that stop a job; programs that handle them exit with 128 and their number.
_STOPS: Final = {"SIGHUP": 1, "SIGINT": 2, "SIGQUIT": 3, "SIGTERM": 15, "SIGUSR1": 10, "SIGUSR2": 12}
_STOP_CODES: Final = frozenset(str(128 + number) for name, number in _STOPS.items() if not name.startswith("SIGUSR"))


def is_recorder(metadata: Mapping[str, str]) -> bool:
    """Whether the metadata of a trace file are of a recorder, not of the job itself."""
    return "job.command" in metadata


@dataclass(slots=True)
class _Recorder:
    """Facts of one recorder; of its files, the last counts."""

    source: int
    file: str
    rank: int | None
    facts: dict[str, str] = field(default_factory=dict)

    @property
    def inside(self) -> bool:
        """Whether another recorder recorded the job around it."""
        return "job.inside" in self.facts

    @property
    def started_ns(self) -> int:
        """When the command was started; 0 if unknown."""
        return self._time("job.started_ns")

    @property
    def ended_ns(self) -> int:
        """When the command ended; 0 if unknown."""
        return self._time("job.ended_ns")

    def _time(self, key: str) -> int:
        text = self.facts.get(key, "")
        return int(text) if text.isdecimal() else 0

    @property
    def status(self) -> str | None:
        """completed, failed or stopped; None if the recorder did not see the end."""
        code, signal = self.facts.get("job.exit_code"), self.facts.get("job.signal")
        if code is None and signal is None:
            return None
        if code == "0":
            return "completed"
        return "stopped" if signal in _STOPS or code in _STOP_CODES else "failed"


class Jobs:
    """The recorders of one run: :meth:`add` each file, then :meth:`settle`."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self._recorders: dict[tuple[int, int, bytes], _Recorder] = {}

    def add(self, key: tuple[int, int, bytes], source: int, file: str, rank: int | None, metadata: Mapping[str, str]) -> None:
        """Add a file of a recorder. ``key``: node, process id and session."""
        recorder = self._recorders.setdefault(key, _Recorder(source, file, rank))
        recorder.facts.update({name: value for name, value in metadata.items() if name.startswith(PREFIXES)})
        recorder.source, recorder.file = source, file

    def _outermost(self) -> list[_Recorder]:
        return [recorder for recorder in self._recorders.values() if not recorder.inside] or list(self._recorders.values())

    def _all(self) -> list[_Recorder]:
        """Return the outermost recorders by rank; of a restarted rank the last one."""
        by_start = sorted(self._outermost(), key=lambda recorder: recorder.started_ns)
        last = {recorder.file if recorder.rank is None else recorder.rank: recorder for recorder in by_start}
        return sorted(last.values(), key=lambda recorder: (-1 if recorder.rank is None else recorder.rank, recorder.file))

    def information(self) -> dict[str, Any]:
        """Return facts for the run's row, first rank first; ``status`` unless completed."""
        information: dict[str, Any] = {}
        for recorder in reversed(self._all()):
            facts = recorder.facts
            information |= {key: facts[f"job.{key}"] for key in ("name", "instance_type") if facts.get(f"job.{key}")}
            if hosts := facts.get("job.hosts", "").split():
                information["resources"] = hosts
            information.setdefault("hyperparameters", {}).update(_parameters(facts))
        status = {recorder.status for recorder in self._all()}
        if bad := status & {"failed", "stopped"}:
            information["status"] = "failed" if "failed" in bad else "stopped"
        return information

    def times(self) -> tuple[int | None, int | None]:
        """Return the job's first start and last end; None if a recorder lacks one."""
        started, ended = [recorder.started_ns for recorder in self._outermost()], [recorder.ended_ns for recorder in self._all()]
        return min(started, default=0) or None, max(ended) if ended and all(ended) else None

    @property
    def ended(self) -> bool:
        """Whether every recorder saw its job end."""
        return bool(self._recorders) and all(recorder.status is not None for recorder in self._all())

    def metadata(self) -> dict[str, str]:
        """Return the facts of the job as a whole, on which all recorders agree."""
        return common_metadata(
            {
                name: value if len(value) <= _MAX_CHARACTERS else value[:_MAX_CHARACTERS] + " ..."
                for name, value in recorder.facts.items()
                if name.startswith(_JOB) and name not in _NOT_SHOWN
            }
            for recorder in self._all()
        )

    def settle(self) -> None:
        """Note the end of the job and missing contents; store the memory of nodes."""
        counts = self._all()
        for (node, _, _), recorder in self._recorders.items():
            size = recorder.facts.get("job.memory_bytes", "")
            if size.isdecimal() and 0 < int(size) < 2**63:
                self.store.connection.execute("UPDATE node SET memory_bytes = coalesce(memory_bytes, ?) WHERE id = ?", [int(size), node])
        for recorder in self._recorders.values():
            if note := _end(recorder):
                severity, code, text = note
                if recorder.rank is not None and not recorder.inside and recorder not in counts:
                    severity, text = "warning", f"{text.removesuffix('.')}, and was started again."
                self.store.note(severity, code, text, source=recorder.source, file=recorder.file)
        parameters = [_parameters(recorder.facts) for recorder in counts]
        differing = sorted({key for values in parameters for key in values if any(rank.get(key) != values[key] for rank in parameters)})
        if differing:
            names = ", ".join(key[:60] for key in differing[:8]) + (f" and {len(differing) - 8} more" if len(differing) > 8 else "")
            text = f"Hyperparameters differ between the recorders of the job; those of the first rank are shown: {names}."
            self.store.note("warning", "parameters_differ", text, count=len(differing))
        if self._recorders and not self._recorded_by_itself():
            sampled = self.store.connection.execute("SELECT 1 FROM sample LIMIT 1").fetchall()
            self.store.note("info", "only_system", ("Only the machine was" if sampled else "Only the job's facts were") + _ONLY_SYSTEM)

    def _recorded_by_itself(self) -> bool:
        tables = ("annotation", "profile_window", "host_event")
        return any(self.store.connection.execute(f"SELECT 1 FROM {table} LIMIT 1").fetchall() for table in tables)


_ONLY_SYSTEM: Final = (
    " recorded: the program says nothing of its steps. For step times and ranges add `from postrun import capture` and"
    ' `with capture.annotate("step", value=i):` to it; for GPU activity torch.profiler with capture.torch_trace_handler.'
)


def _parameters(facts: Mapping[str, str]) -> dict[str, str]:
    return {name.removeprefix(_PARAMETER): value for name, value in facts.items() if name.startswith(_PARAMETER)}


def _end(recorder: _Recorder) -> tuple[Severity, str, str] | None:
    """Return a note on how a job ended, unless it completed."""
    facts, status = recorder.facts, recorder.status
    what = "The job" if recorder.rank is None else f"Rank {recorder.rank} of the job"
    if status is None:
        text = f"The recorder did not see how {what[0].lower()}{what[1:]} ended: it was killed, or the job goes on."
        return "warning", "job_end_unknown", text
    if status == "completed":
        return None
    after = _after(facts.get("job.started_ns"), facts.get("job.ended_ns"))
    severity: Severity = "warning" if status == "stopped" else "error"
    if signal := facts.get("job.signal"):
        why = " (often for want of memory, or at the end of the time that a scheduler gives)" if signal == "SIGKILL" else ""
        return severity, f"job_{status}", f"{what} was ended by {signal}{after}{why}."
    return severity, f"job_{status}", f"{what} ended with exit code {facts['job.exit_code']}{after}."


def _after(started: str | None, ended: str | None) -> str:
    try:
        took = int(ended or "") - int(started or "")
    except ValueError:
        return ""
    return f" after {duration(took)}" if took >= 0 else ""
