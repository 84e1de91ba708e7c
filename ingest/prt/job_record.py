"""What do the recorders of a job (`postrun record`) say of it: what ran, with which hyperparameters, and how it ended?

A recorder writes that as metadata, ``job.<fact>`` and ``param.<name>``, into the trace file that holds its samples; a distributed job may
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
_SHOWN: Final = 2000
# What the run's row has columns for, and times, which are of one recorder.
_NOT_SHOWN: Final = frozenset(
    {"job.name", "job.instance_type", "job.hosts", "job.memory_bytes", "job.started_ns", "job.ended_ns", PROCESS_ID, "job.inside"}
    | {f"job.environment.{name}" for name in ("RANK", "LOCAL_RANK", "GROUP_RANK")}
)
# Who stops a job sends these; programs that look after them leave with 128 and their number.
_STOPS: Final = {"SIGHUP": 1, "SIGINT": 2, "SIGQUIT": 3, "SIGTERM": 15, "SIGUSR1": 10, "SIGUSR2": 12}
_STOP_CODES: Final = frozenset(str(128 + number) for name, number in _STOPS.items() if not name.startswith("SIGUSR"))


def is_recorder(metadata: Mapping[str, str]) -> bool:
    """Whether a trace file with these metadata is of a recorder, not of the job itself."""
    return "job.command" in metadata


@dataclass(slots=True)
class _Said:
    """What one recorder says; of several files of it, the last counts."""

    source: int
    file: str
    rank: int | None
    facts: dict[str, str] = field(default_factory=dict)

    @property
    def inside(self) -> bool:
        """Whether another recorder recorded the whole."""
        return "job.inside" in self.facts

    @property
    def started_ns(self) -> int:
        """When the command was started; 0 where that is not said."""
        text = self.facts.get("job.started_ns", "")
        return int(text) if text.isdecimal() else 0

    @property
    def ended_ns(self) -> int:
        """When the command ended; 0 where that is not said."""
        text = self.facts.get("job.ended_ns", "")
        return int(text) if text.isdecimal() else 0

    @property
    def status(self) -> str | None:
        """completed, failed or stopped; None where the recorder did not see the end."""
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
        self._said: dict[tuple[int, int, bytes], _Said] = {}

    def add(self, key: tuple[int, int, bytes], source: int, file: str, rank: int | None, metadata: Mapping[str, str]) -> None:
        """One file of a recorder. ``key``: machine, process id and session."""
        said = self._said.setdefault(key, _Said(source, file, rank))
        said.facts.update({name: value for name, value in metadata.items() if name.startswith(PREFIXES)})
        said.source, said.file = source, file

    def _outermost(self) -> list[_Said]:
        return [one for one in self._said.values() if not one.inside] or list(self._said.values())

    def _all(self) -> list[_Said]:
        """The outermost recorders, the first rank before the others; of a rank that was started again the last."""
        last = {one.rank if one.rank is not None else one.file: one for one in sorted(self._outermost(), key=lambda one: one.started_ns)}
        return sorted(last.values(), key=lambda one: (one.rank if one.rank is not None else -1, one.file))

    def information(self) -> dict[str, Any]:
        """What the run's row has columns for. Of several recorders the first counts. ``status`` only where the job did not complete."""
        found: dict[str, Any] = {}
        for one in reversed(self._all()):
            facts = one.facts
            hosts = facts.get("job.hosts", "").split()
            found |= {"name": facts["job.name"]} if facts.get("job.name") else {}
            found |= {"instance_type": facts["job.instance_type"]} if facts.get("job.instance_type") else {}
            found |= {"resources": hosts} if hosts else {}
            found.setdefault("hyperparameters", {}).update(_parameters(facts))
        status = {one.status for one in self._all()}
        if bad := status & {"failed", "stopped"}:
            found["status"] = "failed" if "failed" in bad else "stopped"
        return found

    def times(self) -> tuple[int | None, int | None]:
        """When the job began and ended, by its outermost recorders: earliest start, latest end; None where one of them does not say."""
        started, ended = [one.started_ns for one in self._outermost()], [one.ended_ns for one in self._all()]
        return min(started, default=0) or None, max(ended) if ended and all(ended) else None

    @property
    def ended(self) -> bool:
        """Whether every recorder saw its job end."""
        return bool(self._said) and all(one.status is not None for one in self._all())

    def metadata(self) -> dict[str, str]:
        """What all recorders say alike, of the job as a whole."""
        return common_metadata(
            {
                name: value if len(value) <= _SHOWN else value[:_SHOWN] + " ..."
                for name, value in one.facts.items()
                if name.startswith(_JOB) and name not in _NOT_SHOWN
            }
            for one in self._all()
        )

    def settle(self) -> None:
        """Note how the job ended, and what keeps the report from showing more; the machines' memory goes to their rows."""
        counts = self._all()
        for (node, _, _), one in self._said.items():
            size = one.facts.get("job.memory_bytes", "")
            if size.isdecimal() and 0 < int(size) < 2**63:
                self.store.connection.execute("UPDATE node SET memory_bytes = coalesce(memory_bytes, ?) WHERE id = ?", [int(size), node])
        for one in self._said.values():
            if note := _end(one):
                severity, code, text = note
                if one.rank is not None and not one.inside and one not in counts:
                    severity, text = "warning", f"{text.removesuffix('.')}, and was started again."
                self.store.note(severity, code, text, source=one.source, file=one.file)
        parameters = [_parameters(one.facts) for one in self._all()]
        if differing := sorted({key for one in parameters for key in one if any(other.get(key) != one[key] for other in parameters)}):
            shown = ", ".join(key[:60] for key in differing[:8]) + (f" and {len(differing) - 8} more" if len(differing) > 8 else "")
            text = f"Hyperparameters differ between the recorders of the job; those of the first rank are shown: {shown}."
            self.store.note("warning", "parameters_differ", text, count=len(differing))
        if self._said and not self._recorded_by_itself():
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


def _end(said: _Said) -> tuple[Severity, str, str] | None:
    """How a job ended, where that was not well; as a note."""
    facts = said.facts
    what = "The job" if said.rank is None else f"Rank {said.rank} of the job"
    if said.status is None:
        return (
            "warning",
            "job_end_unknown",
            f"The recorder did not see how {what[0].lower()}{what[1:]} ended: it was killed, or the job goes on.",
        )
    if said.status == "completed":
        return None
    after = _after(facts.get("job.started_ns"), facts.get("job.ended_ns"))
    severity: Severity = "warning" if said.status == "stopped" else "error"
    if signal := facts.get("job.signal"):
        why = " (often for want of memory, or at the end of the time that a scheduler gives)" if signal == "SIGKILL" else ""
        return severity, f"job_{said.status}", f"{what} was ended by {signal}{after}{why}."
    return severity, f"job_{said.status}", f"{what} ended with exit code {facts['job.exit_code']}{after}."


def _after(started: str | None, ended: str | None) -> str:
    try:
        took = int(ended or "") - int(started or "")
    except ValueError:
        return ""
    return f" after {duration(took)}" if took >= 0 else ""
