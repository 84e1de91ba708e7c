"""Identity of a trace file: its node, process and rank.

The metadata of the file state it, or its name does. Without either, files are kept apart if they cannot be of one process or one node.
Such nodes are called "unknown host", "unknown host 2", ...
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from .registry import UNKNOWN_HOST, Registry

_RANK: Final = re.compile(
    r"(?<![a-z])(?<!local[-_])(?:rank|worker)[-_ =.]?(\d{1,6})(?!\d)(?:[-_ ]?of[-_ ]?(\d{1,6})(?!\d))?", re.IGNORECASE
)
# The names of files from torch.profiler.tensorboard_trace_handler: <host>_<pid>.<time>.pt.trace.json
_HOST_AND_PID: Final = re.compile(r"(.+)_(\d+)\.\d{6,}\.pt\.trace\.json", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Identity:
    """Origin of a trace file, as the file states it; None if it does not."""

    hostname: str | None
    pid: int | None
    rank: int | None
    world_size: int | None


@dataclass(frozen=True, slots=True)
class Facts:
    """Facts that distinguish files of unknown nodes: names of devices by index, devices with events, first start and last end."""

    device_names: Mapping[int, str]
    used_devices: frozenset[int]
    first_ns: int
    last_ns: int


def identify(members: Mapping[str, Any], path: Path, pid: int | None) -> Identity:
    """Return the identity that a trace or the names of its file and folder state.

    The members ``distributedInfo`` and ``host_name`` come first. ``pid``: the process id of the host events.
    """
    info = members.get("distributedInfo")
    rank = _count(info.get("rank")) if isinstance(info, dict) else None
    world_size = _count(info.get("world_size")) if isinstance(info, dict) else None
    for name in (path.name, path.parent.name):
        match = _RANK.search(name)
        if match and rank is None:
            rank = int(match[1])
            world_size = int(match[2]) if match[2] and world_size is None else world_size
    host = members.get("host_name") or members.get("hostname")
    named = _HOST_AND_PID.match(path.name)
    if not host and named and (pid is None or int(named[2]) == pid):
        host, pid = named[1], int(named[2])
    return Identity(host[:255] if isinstance(host, str) and host.strip() else None, pid, rank, world_size or None)


def _count(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**31 else None


@dataclass(frozen=True, slots=True)
class _Placed:
    source: int
    node: int
    process: int
    identity: Identity
    facts: Facts

    def is_process(self, identity: Identity, facts: Facts) -> bool:
        """Whether this is the same process, captured at another time."""
        same = (self.identity.pid, self.identity.rank) == (identity.pid, identity.rank)
        return same and not self._overlaps(facts) and not self._other_hardware(facts)

    def excludes(self, identity: Identity, facts: Facts) -> bool:
        """Whether the process of another file cannot have run on this node with this one.

        A node does not have two processes of one rank, two processes with one pid at a time, or two kinds of hardware under one
        index. Two ranks on one device index are on two nodes: sharing a GPU is the rarer case.
        """
        ours = self.identity
        if self.is_process(identity, facts):
            return False
        same_rank = identity.rank is not None and identity.rank == ours.rank
        same_pid = identity.pid is not None and identity.pid == ours.pid and self._overlaps(facts)
        shared_device = bool(self.facts.used_devices & facts.used_devices)
        return same_rank or same_pid or shared_device or self._other_hardware(facts)

    def _overlaps(self, facts: Facts) -> bool:
        return facts.first_ns < self.facts.last_ns and self.facts.first_ns < facts.last_ns

    def _other_hardware(self, facts: Facts) -> bool:
        mine = self.facts.device_names
        return any(mine.get(index, name) != name for index, name in facts.device_names.items())


@dataclass(slots=True)
class Placement:
    """Gives every trace file its node and process. ``exports``: key of an export's session -> source that was read, and its name."""

    registry: Registry
    exports: dict[tuple[Any, ...], tuple[int, str]] = field(default_factory=dict)
    _placed: list[_Placed] = field(default_factory=list)
    _files: dict[int, list[int]] = field(default_factory=dict)  # sources by process, in the order in which they were read
    _recorded: list[tuple[int, int, Identity, int, int]] = field(default_factory=list)

    def recorded(self, node: int, process: int, pid: int, rank: int | None, first_ns: int, last_ns: int) -> None:
        """Add a recorded process: traces that do not name their node can be of it."""
        self._recorded.append((node, process, Identity(None, pid, rank, None), first_ns, last_ns))

    def assign(self, identity: Identity, facts: Facts, source: int, label: str) -> tuple[int, int]:
        """Return node and process of a file; new ones if no earlier file belongs to them."""
        if identity.hostname is not None:
            node = self.registry.node(identity.hostname)
            return node, self._process(node, identity, source, label)
        if (recorded := self._recording(identity, facts)) is not None:
            return recorded, self._process(recorded, identity, source, label)
        for number in range(1, len(self._placed) + 2):
            node = self.registry.node(UNKNOWN_HOST if number == 1 else f"{UNKNOWN_HOST} {number}")
            here = [placed for placed in self._placed if placed.node == node]
            if not any(placed.excludes(identity, facts) for placed in here):
                break
        known = [placed.process for placed in here if placed.is_process(identity, facts)]
        process = known[0] if known else self._process(node, identity, source, label, fresh=True)
        self._placed.append(_Placed(source, node, process, identity, facts))
        return node, process

    def replace(self, node: int, process: int, identity: Identity, facts: Facts, source: int, label: str) -> tuple[int, int]:
        """Assign a file again, now that more is known; remove unused rows."""
        self._placed = [placed for placed in self._placed if placed.source != source]
        now = self.assign(identity, facts, source, label)
        if now[1] != process:
            self.registry.discard(node, process, source)
        return now

    def forget(self, source: int) -> None:
        """Forget the file of a source that could not be read."""
        self._placed = [placed for placed in self._placed if placed.source != source]
        self.exports = {key: known for key, known in self.exports.items() if known[0] != source}
        for files in self._files.values():
            if source in files:
                files.remove(source)

    def cycle(self, process: int, source: int) -> int:
        """Return the number of earlier files of the process, one per profiling cycle."""
        files = self._files.setdefault(process, [])
        if source not in files:
            files.append(source)
        return files.index(source)

    def _recording(self, identity: Identity, facts: Facts) -> int | None:
        """Return the node of the only recorded process of this pid, rank and time."""
        matches = {
            (node, process)
            for node, process, known, first_ns, last_ns in self._recorded
            if identity.pid is not None and identity.pid == known.pid and (identity.rank is None or known.rank in (None, identity.rank))
            and facts.first_ns <= last_ns and first_ns <= facts.last_ns
        }  # fmt: skip
        return matches.pop()[0] if len(matches) == 1 else None

    def _process(self, node: int, identity: Identity, source: int, label: str, *, fresh: bool = False) -> int:
        return self.registry.process(
            node, identity.pid, rank=identity.rank, world_size=identity.world_size, label=label, source=source, fresh=fresh
        )
