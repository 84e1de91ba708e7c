"""The sources of a run while they are joined: rows, nodes, clock and result of each."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations
from pathlib import Path
from typing import TYPE_CHECKING, Final

from ..gpu_logs.host_name import has_host
from ..store.store import Store
from ..store.tables import storable
from .statements import Statements

if TYPE_CHECKING:
    from ..gpu_logs.rows import GpuLogs
    from ..store.registry import ReadResult

TABLES: Final = ("device_event", "host_event", "annotation", "collective", "allocation")
"""Tables of events whose rows can be assigned to a source."""
_COUNTED: Final = (*TABLES, "sample", "python_window")


@dataclass(slots=True)
class SourceRows:
    """One file and its rows in the store. ``rows``: first and last rowid + 1 in each table of :func:`row_counts`; empty if unknown."""

    id: int
    format: str
    path: Path
    result: ReadResult
    rows: Mapping[str, tuple[int, int]] = field(default_factory=dict)

    @property
    def file(self) -> str:
        return storable(self.path.name)

    def within(self, table: str) -> str:
        """Return the SQL condition for the rows of this source in a table."""
        first, last = self.rows.get(table, (0, 0))
        return f"rowid >= {first} AND rowid < {last}"


@dataclass(frozen=True, slots=True)
class Clock:
    """The offset that was added to the times of a source, and the reason."""

    offset_ns: int
    evidence: str


def row_counts(store: Store) -> dict[str, int]:
    """Return the next rowid of every table whose rows can be assigned to a source."""
    return {table: store.connection.execute(f"SELECT coalesce(max(rowid) + 1, 0) FROM {table}").fetchall()[0][0] for table in _COUNTED}


class Sources:
    """The sources of one run. ``clocks`` (of shifted sources) and ``results`` are by source id.

    ``tracers``: formats whose files can have the same device activity. ``statements``: the user's statements about sources.
    """

    def __init__(
        self, store: Store, logs: GpuLogs, sources: Sequence[SourceRows], tracers: Iterable[str], statements: Statements | None = None
    ) -> None:
        self.store = store
        self.statements = statements or Statements()
        self.logs = logs
        self.sources = list(sources)
        self.tracers = frozenset(tracers)
        self.clocks: dict[int, Clock] = {}
        self.results: dict[int, ReadResult] = {source.id: source.result for source in sources}

    def nodes_of(self, source: SourceRows) -> set[int]:
        """Return the nodes of a source's rows, else the nodes in its file name."""
        nodes = {placed.node for placed in self.logs.placed if placed.log.source == source.id}
        queries = [f"SELECT node FROM {table} WHERE {source.within(table)}" for table in source.rows]
        queries.append("SELECT node FROM process WHERE source = ?")
        nodes |= {node for (node,) in self.store.frame(" UNION ".join(queries), [source.id]).rows() if node is not None}
        if nodes:
            return nodes
        return {node for node, name in self.store.frame("SELECT id, hostname FROM node").rows() if has_host(source.file, name)}


def tracer_pairs(run: Sources, table: str = "device_event") -> list[tuple[SourceRows, SourceRows]]:
    """Return pairs of tracers of different formats that have rows in a table."""
    tracers = [source for source in run.sources if source.format in run.tracers and _has_rows(source, table)]
    return [(left, right) for left, right in combinations(tracers, 2) if left.format != right.format]


def _has_rows(source: SourceRows, table: str) -> bool:
    first, last = source.rows.get(table, (0, 0))
    return first < last


def processes(run: Sources, source: SourceRows, table: str) -> set[int]:
    """Return the processes of a source's rows in a table."""
    if not _has_rows(source, table):
        return set()
    query = f"SELECT DISTINCT process FROM {table} WHERE {source.within(table)} AND process IS NOT NULL"
    return set(run.store.frame(query).to_series().to_list())


def operators(run: Sources, source: SourceRows, process: int) -> int:
    """Return how many operators of a process a source has."""
    query = f"SELECT count(*) FROM host_event WHERE {source.within('host_event')} AND process = ? AND kind = 'operator'"
    return int(run.store.frame(query, [process]).item())
