"""Nodes and processes of sources, with their ids in the run store.

Every reader gets ids here, so that two files of one process share its row and two processes never do.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Final

from .limits import FURTHER_NODES, NODES, NODES_PER_FILE, PROCESSES, PROCESSES_PER_FILE
from .store import Store
from .texts import storable
from .time_limits import clamped

UNKNOWN_HOST: Final = "unknown host"  # Name of a node that no file names; others are "unknown host 2" and so on


def is_same_host(name: str, hostname: str) -> bool:
    """Whether two names can be of one node: equal, or equal without a domain."""
    name, hostname = name.lower(), hostname.lower()
    return name == hostname or name.startswith(hostname + ".") or hostname.startswith(name + ".")


@dataclass(frozen=True, slots=True)
class ReadResult:
    """Result of reading one file.

    ``events``: rows added to device_event, host_event, annotation, sample and python_profile together. ``first_ns``, ``last_ns``:
    earliest start and latest end among them (None without events), nanoseconds since the Unix epoch or since the anchor 0.
    ``relative``: the file has no epoch, its times count from an anchor of 0. ``partial``: the file broke off or lost a part.
    """

    events: int
    first_ns: int | None
    last_ns: int | None
    relative: bool = False
    partial: bool = False


@dataclass(slots=True)
class _Process:
    id: int
    rank: int | None
    label: str | None


@dataclass(slots=True)
class Registry:
    """The nodes and processes of ``store``, one row each."""

    store: Store
    _nodes: dict[str, int] = field(default_factory=dict)
    _processes: dict[tuple[int, int | None], list[_Process]] = field(default_factory=dict)
    _process_count: int = 0
    _nodes_of_file: int = 0
    _processes_of_file: int = 0

    @property
    def hostnames(self) -> Collection[str]:
        """Names of the machines so far."""
        return self._nodes.keys()

    def begin_file(self) -> None:
        """Count the new machines and processes of the next file from 0."""
        self._nodes_of_file = self._processes_of_file = 0

    def node(self, hostname: str) -> int:
        """Return the id of a node; beyond the limits that of :meth:`further_node`."""
        if hostname in self._nodes:
            return self._nodes[hostname]
        if len(self._nodes) >= NODES or self._nodes_of_file >= NODES_PER_FILE:
            return self.further_node()
        self._nodes_of_file += 1
        return self._new_node(hostname)

    def further_node(self) -> int:
        """Return the node that all beyond the limits share; limit_rows.py removes it."""
        known = self._nodes.get(FURTHER_NODES)
        return self._new_node(FURTHER_NODES) if known is None else known

    def _new_node(self, hostname: str) -> int:
        node = self._nodes[hostname] = self.store.next_id("node")
        self.store.insert("node", {"id": node, "hostname": hostname})
        return node

    def process(
        self,
        node: int,
        pid: int | None,
        *,
        rank: int | None = None,
        local_rank: int | None = None,
        world_size: int | None = None,
        label: str | None = None,
        source: int | None = None,
        fresh: bool = False,
    ) -> int:
        """Return the id of a process; always a new one with ``fresh``.

        Two requests are for one process if node and pid are equal and ranks (without a pid: labels) do not contradict it. Facts that an
        earlier request lacked (rank, world size, label) are filled in. A number that its column cannot contain counts as unknown.
        """
        pid, (rank, local_rank, world_size) = clamped(pid), (clamped(number, 2**31 - 1) for number in (rank, local_rank, world_size))
        for known in self._processes.setdefault((node, pid), []) if not fresh else ():
            same_rank = rank is None or known.rank is None or known.rank == rank
            if same_rank and (pid is not None or known.label == label):
                self._fill(known, rank, local_rank, world_size, label)
                return known.id
        if self._process_count >= PROCESSES or self._processes_of_file >= PROCESSES_PER_FILE:
            return self._further_process()
        self._process_count += 1
        self._processes_of_file += 1
        new = _Process(self.store.next_id("process"), rank, label)
        self._processes.setdefault((node, pid), []).append(new)
        row = {"id": new.id, "node": node, "pid": pid, "rank": rank, "local_rank": local_rank, "world_size": world_size}
        self.store.insert("process", {**row, "label": label, "source": source})
        return new.id

    def _further_process(self) -> int:
        """Return the process that all beyond the limits share."""
        node = self.further_node()
        if (node, None) not in self._processes:
            self._processes[node, None] = [_Process(self.store.next_id("process"), None, None)]
            self.store.insert("process", {"id": self._processes[node, None][0].id, "node": node})
        return self._processes[node, None][0].id

    def is_further(self, process: int) -> bool:
        """Whether a process is the one that all beyond the limits share."""
        return any(shared.id == process for shared in self._processes.get((self._nodes.get(FURTHER_NODES, -1), None), ()))

    def discard(self, node: int, process: int, source: int) -> None:
        """Remove a process of ``source``, and its node if unknown and unused."""
        execute = self.store.connection.execute
        removed = execute("DELETE FROM process WHERE id = ? AND source = ? RETURNING id", [process, source]).fetchall()
        if removed:
            for known in self._processes.values():
                known[:] = [entry for entry in known if entry.id != process]
        orphan = "DELETE FROM node WHERE id = ? AND starts_with(hostname, ?) AND id NOT IN (SELECT node FROM process) RETURNING id"
        if execute(orphan, [node, UNKNOWN_HOST]).fetchall():
            self._nodes = {hostname: known_id for hostname, known_id in self._nodes.items() if known_id != node}

    def forget(self, source: int, nodes: int) -> None:
        """Remove processes of ``source`` alone, and unused nodes from id ``nodes``."""
        execute = self.store.connection.execute
        gone = {row[0] for row in execute("DELETE FROM process WHERE source = ? RETURNING id", [source]).fetchall()}
        for known in self._processes.values():
            known[:] = [entry for entry in known if entry.id not in gone]
        orphans = "DELETE FROM node WHERE id >= ? AND id NOT IN (SELECT node FROM process WHERE node IS NOT NULL) RETURNING id"
        empty = {row[0] for row in execute(orphans, [nodes]).fetchall()}
        self._nodes = {hostname: node for hostname, node in self._nodes.items() if node not in empty}

    def joined(self, hostname: str, node: int) -> None:
        """Make a host's name mean ``node``; the name of an unknown host becomes free."""
        if hostname.startswith(UNKNOWN_HOST):
            self._nodes.pop(hostname, None)
        else:
            self._nodes[hostname] = node

    def _fill(self, known: _Process, rank: int | None, local_rank: int | None, world_size: int | None, label: str | None) -> None:
        label = storable(label) if label is not None else None
        if (rank, local_rank, world_size, label) != (None, None, None, None):
            self.store.connection.execute(
                "UPDATE process SET rank = coalesce(rank, ?), local_rank = coalesce(local_rank, ?),"
                " world_size = coalesce(world_size, ?), label = coalesce(label, ?) WHERE id = ?",
                [rank, local_rank, world_size, label, known.id],
            )
        known.rank = rank if known.rank is None else known.rank
        known.label = label if known.label is None else known.label
