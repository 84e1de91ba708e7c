"""Host, rank and pid of the rows of the run store, and groups of processes that are read together."""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import cached_property
from typing import Final, NamedTuple, TypeVar

from ...ingest.store.store import Store
from .contents import NODES, PROCESSES
from .shared import shared

T = TypeVar("T")

# Device events in memory at once; larger runs are read in groups of processes (one process is never divided).
ROWS_AT_ONCE: Final = 1_000_000


def in_order(name: str) -> str:
    """Return a sort key with numbers by value, so that algo-10 comes after algo-2."""
    return re.sub("[0-9]+", lambda digits: digits[0].zfill(20), name) + "\0" + name


class Place(NamedTuple):
    """A process as the report names it."""

    node: str
    rank: int | None
    pid: int | None

    @property
    def order(self) -> tuple[str, bool, int, bool, int]:
        """Sort key: host name, rank, pid; unknown values last."""
        return (in_order(self.node), self.rank is None, self.rank or 0, self.pid is None, self.pid or 0)


class Places:
    """Names of the nodes and processes of a store, read at first use."""

    def __init__(self, store: Store) -> None:
        self._store = store

    @cached_property
    def _nodes(self) -> dict[int, str]:
        return _host_names(self._store)

    @cached_property
    def _processes(self) -> dict[int, tuple[int | None, int | None, int | None]]:
        return _ids(self._store)

    def node(self, node: int | None) -> str:
        """Return the host name of a node id; "node-3" if the source has none."""
        return self._nodes.get(node, f"node-{node}") if node is not None else "unknown"

    def process(self, process: int | None, node: int | None = None) -> Place:
        """Return the place of a process id; ``node`` is for an unknown process."""
        if process is None or process not in self._processes:
            return Place(self.node(node), None, None)
        home, rank, pid = self._processes[process]
        return Place(self.node(home if node is None else node), rank, pid)


@shared
def _host_names(store: Store) -> dict[int, str]:
    rows = store.frame(NODES).select("id", "hostname").rows()
    return {node: f"node-{node}" if hostname is None else hostname for node, hostname in rows}


@shared
def _ids(store: Store) -> dict[int, tuple[int | None, int | None, int | None]]:
    """Return node, rank and pid of each process."""
    rows = store.frame(PROCESSES).select("id", "node", "rank", "pid").rows()
    return {process: (node, rank, pid) for process, node, rank, pid in rows}


@shared
def process_conditions(store: Store, *, rows: int | None = None) -> list[str]:
    """Return SQL conditions on ``e.process``, each for about ``rows`` events."""
    if not store.has_rows("device_event"):
        return []
    sql = "SELECT process, count(*) AS n FROM device_run GROUP BY process ORDER BY process"
    counts: list[tuple[int | None, int]] = store.frame(sql).rows()
    return [one_of("e.process", group) for group in batches(counts, rows)]


def batches(sizes: Iterable[tuple[T, int]], rows: int | None = None) -> list[list[T]]:
    """Divide items, given with their sizes, into groups of at most ``rows`` rows.

    None: ``ROWS_AT_ONCE``."""
    most = ROWS_AT_ONCE if rows is None else rows
    groups: list[list[T]] = []
    total = 0
    for item, size in sizes:
        if not groups or total + size > most:
            groups.append([])
            total = 0
        groups[-1].append(item)
        total += size
    return groups


def one_of(column: str, values: Iterable[int | None]) -> str:
    """Return an SQL condition that a column is one of ``values``, which can be None."""
    values = list(values)
    known = ", ".join(str(value) for value in values if value is not None)
    parts = [f"{column} IN ({known})"] if known else []
    if None in values:
        parts.append(f"{column} IS NULL")
    return f"({' OR '.join(parts) or 'false'})"
