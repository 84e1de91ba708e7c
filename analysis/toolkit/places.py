"""Which host, rank and pid does a row of the run store belong to, and which processes are read together?"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cached_property
from typing import Final

from ...ingest.store.store import Store

# Device events that are held in memory at once; a run of more is read in groups of processes (one process is never divided).
ROWS_AT_ONCE: Final = 2_000_000


def in_order(name: str) -> str:
    """Sort key of a host name: numbers in it count as numbers, so that algo-10 comes after algo-2."""
    return re.sub("[0-9]+", lambda digits: digits[0].zfill(20), name) + "\0" + name


@dataclass(frozen=True, slots=True)
class Place:
    """A process as the report names it."""

    node: str
    rank: int | None
    pid: int | None

    @property
    def order(self) -> tuple[str, bool, int, bool, int]:
        """Sort key: by host name, then rank, then pid; unknown ones last."""
        return (in_order(self.node), self.rank is None, self.rank or 0, self.pid is None, self.pid or 0)


class Places:
    """Names of the nodes and processes of a store, read when first asked for."""

    def __init__(self, store: Store) -> None:
        self._store = store

    @cached_property
    def _nodes(self) -> dict[int, str]:
        return dict(self._store.frame("SELECT id, coalesce(hostname, 'node-' || id) FROM node").rows())

    @cached_property
    def _processes(self) -> dict[int, tuple[int | None, int | None, int | None]]:
        found = self._store.frame("SELECT id, node, rank, pid FROM process").rows()
        return {process: (node, rank, pid) for process, node, rank, pid in found}

    def node(self, node: int | None) -> str:
        """Host name of a node id; "node-3" where the source gives none."""
        return self._nodes.get(node, f"node-{node}") if node is not None else "unknown"

    def process(self, process: int | None, node: int | None = None) -> Place:
        """Host, rank and pid of a process id; ``node`` names the host where the process is not known."""
        if process is None or process not in self._processes:
            return Place(self.node(node), None, None)
        home, rank, pid = self._processes[process]
        return Place(self.node(home if node is None else node), rank, pid)


def process_conditions(store: Store, *, rows: int = ROWS_AT_ONCE) -> list[str]:
    """SQL conditions on ``e.process`` that divide the device events into groups of whole processes with about ``rows`` events each."""
    counts = store.frame("SELECT process, count(*) AS n FROM device_event WHERE kind <> 'sync' GROUP BY process ORDER BY process").rows()
    groups: list[list[int | None]] = []
    held = rows
    for process, n in counts:
        if held + n > rows:
            groups.append([])
            held = 0
        groups[-1].append(process)
        held += n
    return [_condition(group) for group in groups]


def _condition(processes: list[int | None]) -> str:
    known = ", ".join(str(p) for p in processes if p is not None)
    parts = [f"e.process IN ({known})"] if known else []
    if None in processes:
        parts.append("e.process IS NULL")
    return f"({' OR '.join(parts)})"
