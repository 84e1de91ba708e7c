"""Watch over the limits of one task: its time, and the memory of its worker -> the limit that is exceeded and the reason in words.

The pool measures memory ten times a second and moves the kernel's limit along, which is the faster guard (hard_limit.py).
"""

from __future__ import annotations

import contextlib
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

from . import hard_limit

Cause = Literal["time", "memory", "signal", "exit", "start", "ended"]

TICK_S: Final = 0.1  # between two looks at a worker
CRASH: Final = ", a crash in a library"
EXITED: Final = "the task ended its worker with exit code"
_CHILDREN_TICKS: Final = 5  # looks at memory between two searches for children
_START_S: Final = 120.0  # for a worker to start and take its task


@dataclass(frozen=True, slots=True)
class Limits:
    timeout_s: float | None
    memory_bytes: int | None
    max_tasks: int | None
    environment: dict[str, str]


class Watch:
    """The limits of one task. ``group``: the worker's cgroup, if there is one."""

    def __init__(self, pid: int, limits: Limits, group: hard_limit.MemoryGroup | None) -> None:
        self._pid = pid
        self._limits = limits
        self._waiting_since = time.monotonic()
        self._since: float | None = None
        self._looked = 0.0
        self._looks = 0
        self._children: tuple[int, ...] = ()
        self._group = group
        self._data = None if limits.memory_bytes is None or group is not None else hard_limit.DataLimit(limits.memory_bytes)
        if self._data is not None:
            self._measured()

    def _measured(self) -> int:
        """Return the bytes that the worker and its children use, and move the limit."""
        sizes = {pid: _sizes(pid) for pid in (self._pid, *self._children)}
        held = sum(held for held, _ in sizes.values())
        if self._data is not None:
            self._data.set({pid: mapped for pid, (_, mapped) in sizes.items()}, held)
        return held

    def exceeded(self, cause: Cause, output: str) -> tuple[str, Cause] | None:
        """Return the reason if the kernel's memory limit ended the worker, else None."""
        allowed = self._limits.memory_bytes
        if allowed is None or cause not in ("signal", "exit"):
            return None
        killed = self._group.exceeded() if self._group is not None else hard_limit.speaks_of_memory(output)
        return (hard_limit.reason(allowed), "memory") if killed else None

    def doubt(self, reason: str) -> str:
        """Return words for a failure that may have been a lack of memory.

        Without memory, libraries also crash, and Python may end with status 1; nothing else separates the limit from a defect."""
        allowed = self._limits.memory_bytes
        if self._data is None or allowed is None or not (CRASH in reason or reason == f"{EXITED} 1"):
            return ""
        return hard_limit.doubt(allowed)

    def broken(self, taken: bool) -> tuple[str, Cause] | None:
        now = time.monotonic()
        if not taken:
            if now - self._waiting_since > _START_S:
                return f"the worker did not take the task within {_START_S:g} s", "start"
            return None
        self._since = self._since or now
        if late := self.late(TICK_S):  # by then the worker has printed its tracebacks
            return late
        allowed = self._limits.memory_bytes
        if allowed is not None and now - self._looked >= TICK_S:
            self._looked = now
            if self._looks % _CHILDREN_TICKS == 0:
                self._children = _descendants(self._pid)
            self._looks += 1
            if (held := self._measured()) > allowed:
                return hard_limit.reason(allowed, held), "memory"
        return None

    def late(self, by_s: float = -2 * TICK_S) -> tuple[str, Cause] | None:
        """Return the reason if the task has exceeded its time by ``by_s``.

        Shortly before the limit, the worker prints its tracebacks; it may crash while it does, so a death within the last ticks counts as
        late."""
        limit = self._limits.timeout_s
        if limit is None or self._since is None or time.monotonic() - self._since <= limit + by_s:
            return None
        return f"it took longer than the {limit:g} s that are allowed", "time"


def memory_of(pid: int) -> int:
    """Return the bytes of a process and its children, without pages of files."""
    return sum(_sizes(one)[0] for one in (pid, *_descendants(pid)))


def _descendants(pid: int) -> tuple[int, ...]:
    pids: list[int] = []
    with contextlib.suppress(OSError, ValueError):
        for thread in Path(f"/proc/{pid}/task").iterdir():
            with contextlib.suppress(OSError, ValueError):
                for child in (thread / "children").read_text().split():
                    pids += [int(child), *_descendants(int(child))]
    return tuple(pids)


def _sizes(pid: int) -> tuple[int, int]:
    """Return the bytes in use and the private writable bytes (RLIMIT_DATA)."""
    try:
        lines = Path(f"/proc/{pid}/status").read_bytes().splitlines()
    except OSError:
        return 0, 0
    sizes = {line.partition(b":")[0]: int(line.split()[1]) << 10 for line in lines if line.startswith((b"Rss", b"VmRSS", b"VmData"))}
    held = sizes[b"RssAnon"] + sizes.get(b"RssShmem", 0) if b"RssAnon" in sizes else sizes.get(b"VmRSS", 0)
    return held, sizes.get(b"VmData", 0)
