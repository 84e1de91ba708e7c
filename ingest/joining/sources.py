"""The sources of a run while they are joined: nodes, clock and result of each."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path
from typing import TYPE_CHECKING, Final

from ..gpu_logs.host_name import has_host
from ..store.store import Store
from ..store.texts import storable
from .statements import Statements

if TYPE_CHECKING:
    from ..gpu_logs.rows import GpuLogs
    from ..store.registry import ReadResult

TABLES: Final = ("device_event", "host_event", "annotation", "collective", "allocation")  # of processes


@dataclass(slots=True)
class SourceFile:
    """One file of the run."""

    id: int
    format: str
    path: Path
    result: ReadResult

    @property
    def file(self) -> str:
        return storable(self.path.name)


@dataclass(frozen=True, slots=True)
class Clock:
    """The offset that was added to the times of a source, and the reason."""

    offset_ns: int
    evidence: str


class Sources:
    """The sources of one run. ``clocks`` (of shifted sources) and ``results`` are by source id.

    ``tracers``: formats whose files can have the same device activity. ``statements``: the user's statements about sources.
    """

    def __init__(
        self, store: Store, logs: GpuLogs, sources: Sequence[SourceFile], tracers: Iterable[str], statements: Statements | None = None
    ) -> None:
        self.store = store
        self.statements = statements or Statements()
        self.logs = logs
        self.sources = list(sources)
        self.tracers = frozenset(tracers)
        self.clocks: dict[int, Clock] = {}
        self.results: dict[int, ReadResult] = {source.id: source.result for source in sources}

    def nodes_of(self, source: SourceFile) -> set[int]:
        """Return the nodes of a source's rows, else the nodes in its file name."""
        nodes = {placed.node for placed in self.logs.placed if placed.log.source == source.id}
        query = " UNION ".join(
            f"SELECT node FROM {table} WHERE source = $source" for table in ("source_map", "python_window", "compilation", "process")
        )
        nodes |= {node for (node,) in self.store.connection.execute(query, {"source": source.id}).fetchall() if node is not None}
        if nodes:
            return nodes
        return {node for node, name in self.store.frame("SELECT id, hostname FROM node").rows() if has_host(source.file, name)}


def tracer_pairs(run: Sources, table: str = "device_event") -> list[tuple[SourceFile, SourceFile]]:
    """Return pairs of tracers of different formats that have rows in a table."""
    tracers = [source for source in run.sources if source.format in run.tracers]
    if len({source.format for source in tracers}) < 2:
        return []
    filled = {number for (number,) in run.store.frame(f"SELECT DISTINCT source FROM {table}").rows()}
    pairs = combinations([source for source in tracers if source.id in filled], 2)
    return [(left, right) for left, right in pairs if left.format != right.format]


def processes(run: Sources, source: SourceFile, table: str) -> set[int]:
    """Return the processes of a source's rows in a table."""
    query = f"SELECT DISTINCT process FROM {table} WHERE source = ? AND process IS NOT NULL"
    return {process for (process,) in run.store.connection.execute(query, [source.id]).fetchall()}


def operators(run: Sources, source: SourceFile, process: int) -> int:
    """Return how many operators of a process a source has."""
    query = "SELECT count(*) FROM host_event WHERE source = ? AND process = ? AND kind = 'operator'"
    return int(run.store.frame(query, [source.id, process]).item())
