"""What is known of each source of a run while sources are joined: its rows, its node, its clock, its result."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
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
"""Tables of events whose rows are known by the source that they came from."""
_COUNTED: Final = (*TABLES, "sample", "python_window")


@dataclass(slots=True)
class SourceRows:
    """What one file brought into the store. ``rows``: first and last rowid + 1 in each table of :func:`row_counts`; empty: not known."""

    id: int
    format: str
    path: Path
    result: ReadResult
    rows: Mapping[str, tuple[int, int]] = field(default_factory=dict)

    @property
    def file(self) -> str:
        return storable(self.path.name)


@dataclass(frozen=True, slots=True)
class Clock:
    """What was added to the times of a source, in nanoseconds, and why."""

    offset_ns: int
    evidence: str


def row_counts(store: Store) -> dict[str, int]:
    """The next rowid of every table with times whose rows are known by source."""
    return {table: store.connection.execute(f"SELECT coalesce(max(rowid) + 1, 0) FROM {table}").fetchall()[0][0] for table in _COUNTED}


class Sources:
    """The sources of one run. ``clocks`` (of those that were shifted) and ``results``, by id: what became of each.

    ``tracers``: formats of which two can have the same device activity. ``statements``: what the user states about sources.
    """

    def __init__(
        self,
        store: Store,
        logs: GpuLogs,
        sources: Sequence[SourceRows],
        several_tracers: Iterable[str],
        statements: Statements | None = None,
    ) -> None:
        self.store = store
        self.statements = statements or Statements()
        self.logs = logs
        self.sources = list(sources)
        self.tracers = frozenset(several_tracers)
        self.clocks: dict[int, Clock] = {}
        self.results: dict[int, ReadResult] = {source.id: source.result for source in sources}

    def nodes_of(self, source: SourceRows) -> set[int]:
        """The nodes of a source's rows; without rows the node whose name the file's name contains."""
        nodes = {placed.node for placed in self.logs.placed if placed.log.source == source.id}
        tables = [table for table, (first, last) in source.rows.items() if first < last]
        queries = [f"SELECT node FROM {table} WHERE rowid >= ? AND rowid < ?" for table in tables]
        queries.append("SELECT node FROM process WHERE source = ?")
        bounds = [bound for table in tables for bound in source.rows[table]]
        nodes |= {node for (node,) in self.store.frame(" UNION ".join(queries), [*bounds, source.id]).rows() if node is not None}
        if nodes:
            return nodes
        return {node for node, name in self.store.frame("SELECT id, hostname FROM node").rows() if has_host(source.file, name)}


def tracer_pairs(run: Sources, table: str = "device_event") -> list[tuple[SourceRows, SourceRows]]:
    """Sources of two formats of which each can have what the other has, and brought rows of a table."""

    def has_rows(source: SourceRows) -> bool:
        first, last = source.rows.get(table, (0, 0))
        return first < last

    tracers = [source for source in run.sources if source.format in run.tracers and has_rows(source)]
    return [(one, other) for place, one in enumerate(tracers) for other in tracers[place + 1 :] if one.format != other.format]


def processes(run: Sources, source: SourceRows, table: str) -> set[int]:
    """The processes of which a source brought rows of a table."""
    first, last = source.rows.get(table, (0, 0))
    if first >= last:
        return set()
    query = f"SELECT DISTINCT process FROM {table} WHERE rowid >= ? AND rowid < ? AND process IS NOT NULL"
    return set(run.store.frame(query, [first, last]).to_series().to_list())


def operators(run: Sources, source: SourceRows, process: int) -> int:
    """How many operators of a process a source brought."""
    first, last = source.rows.get("host_event", (0, 0))
    query = "SELECT count(*) FROM host_event WHERE rowid >= ? AND rowid < ? AND process = ? AND kind = 'operator'"
    return int(run.store.frame(query, [first, last, process]).item())
