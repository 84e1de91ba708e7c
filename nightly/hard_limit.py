"""Limits of the kernel on the workers of a pool, next to the limits that the pool checks ten times a second.

The pool's own check sees memory only when it looks; a single large allocation is faster. Two mechanisms close that gap:

* :class:`MemoryGroup`: a cgroup v2 per worker with ``memory.max``, if the system delegates a group to this process.
* :class:`DataLimit`: otherwise RLIMIT_DATA, which the pool moves along with the memory in use. An allocation that could exceed
  ``FACTOR`` times the memory limit fails at once. RLIMIT_AS is of no use: libraries reserve GBs of addresses that they never touch.

:func:`limit_files` bounds one file and switches core dumps off; :func:`explained` names the limit in an error.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
import secrets
import shutil
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

try:
    import resource
except ImportError:  # Windows
    resource = None  # type: ignore[assignment]

FACTOR: Final = 2  # Hard limit / polled limit: a run within the polled limit never reaches the hard one
LEAST_FILE: Final = 20_000_000_000  # Bytes that one file may always have: the default of --max-unpacked
SHARE_OF_DISK: Final = 0.9  # Of the free space of the temporary folder, for one file; the same share as for downloads
ENVIRONMENT: Final = {"MIMALLOC_ARENA_EAGER_COMMIT": "0"}
"""For workers: Arrow's allocator otherwise maps 1 GiB as writable, which RLIMIT_DATA counts although it is never touched."""
_PREFIX: Final = "postrun-"
_REMOVAL_S: Final = 1.0
_NO_MEMORY: Final = re.compile(
    r"memory allocation of \d+ bytes failed|bad_alloc|out of memory|failed to allocate|cannot allocate memory|MemoryError"
    r"|failed to map segment|cannot apply additional memory protection|pthread_create failed|can't start new thread",
    re.I,
)
_LOST: Final = re.compile(r"error return without exception set|without setting an exception")  # no memory for the MemoryError itself

_allowed: int | None = None
_file_limit: int | None = None


_BEGINNING: Final = "it needed more memory"  # of each reason


def size(count: int) -> str:
    return f"{count / 1e9:.2f} GB" if count >= 1e9 else f"{count / 1e6:.0f} MB"


def reason(allowed: int, needed: int | None = None) -> str:
    """The reason of a run that exceeded its memory limit; ``needed``: bytes, if known."""
    amount = "" if needed is None else f" ({size(needed)})"
    return f"{_BEGINNING}{amount} than is allowed ({size(allowed)}); raise --memory"


def is_reason(text: str) -> bool:
    return text.startswith(_BEGINNING)


def doubt(allowed: int) -> str:
    """The end of a reason, for a failure that a lack of memory or a defect can cause."""
    return f", or {reason(allowed)}"


def speaks_of_memory(output: str) -> bool:
    """Decide whether a text or a crashed process's output reports no memory."""
    return _NO_MEMORY.search(output) is not None


# -- in the worker ---------------------------------------------------------------------------------------------------------


def limit_files() -> None:
    """Bound one file that this process writes, for a task, and switch core dumps off."""
    global _file_limit
    if resource is None:
        return
    with contextlib.suppress(OSError, ValueError):
        hard = resource.getrlimit(resource.RLIMIT_FSIZE)[1]
        most = max(LEAST_FILE, int(shutil.disk_usage(tempfile.gettempdir()).free * SHARE_OF_DISK))
        most = most if hard == resource.RLIM_INFINITY else min(most, hard)
        resource.setrlimit(resource.RLIMIT_FSIZE, (most, hard))
        _file_limit = most
        resource.setrlimit(resource.RLIMIT_CORE, (0, resource.getrlimit(resource.RLIMIT_CORE)[1]))


def limited_to(memory_bytes: int | None) -> None:
    """Note the memory limit that the pool enforces, for :func:`explained`."""
    global _allowed
    _allowed = memory_bytes


def explained(error: BaseException) -> str | None:
    """The limit that ``error`` ran into, as a reason; None for other errors."""
    seen: set[int] = set()
    cause: BaseException | None = error
    while cause is not None and id(cause) not in seen:
        seen.add(id(cause))
        text = str(cause)
        database = type(cause).__name__ == "IOException" and "File too large" in text
        if _file_limit is not None and (database or (isinstance(cause, OSError) and cause.errno == errno.EFBIG)):
            return f"it wrote a temporary file larger than is allowed ({size(_file_limit)})"
        if _allowed is not None and (
            isinstance(cause, MemoryError)
            or (isinstance(cause, OSError) and cause.errno == errno.ENOMEM)
            or (type(cause).__name__ in ("ImportError", "OutOfMemoryException", "RuntimeError") and speaks_of_memory(text))
        ):
            return reason(_allowed)
        cause = cause.__cause__ or cause.__context__
    if _allowed is not None and isinstance(error, SystemError) and _LOST.search(str(error)):
        return f"internal error: SystemError: {error}{doubt(_allowed)}"
    return None


# -- in the pool -----------------------------------------------------------------------------------------------------------


class DataLimit:
    """RLIMIT_DATA of the processes of one worker, which leaves them the rest of ``FACTOR`` times ``memory_bytes``."""

    def __init__(self, memory_bytes: int) -> None:
        self._most = FACTOR * memory_bytes

    def set(self, data: dict[int, int], held: int) -> None:
        """Set the limit of processes.

        ``data``: process id -> bytes of its private writable memory. ``held``: bytes that all of them use now."""
        room = max(0, self._most - held)
        for pid, mapped in data.items():
            with contextlib.suppress(OSError, ValueError, AttributeError):
                hard = resource.prlimit(pid, resource.RLIMIT_DATA)[1]
                if hard == resource.RLIM_INFINITY or mapped + room < hard:
                    resource.prlimit(pid, resource.RLIMIT_DATA, (mapped + room, hard))


class MemoryGroup:
    """A cgroup v2 with one worker and its children. The kernel kills them when they use more than ``FACTOR`` times the limit."""

    def __init__(self, path: Path) -> None:
        self._path = path

    @classmethod
    def around(cls, pid: int, memory_bytes: int, root: Path = Path("/")) -> MemoryGroup | None:
        """Move a process into a new group; return None if that is not possible."""
        for base in _delegated(root):
            group = cls(base / f"{_PREFIX}{secrets.token_hex(8)}")
            try:
                _enable(base)
                group._path.mkdir()
                _write(group._path / "memory.max", FACTOR * memory_bytes)
                for file, value in (("memory.swap.max", 0), ("memory.oom.group", 1)):  # missing without swap, and before Linux 4.19
                    with contextlib.suppress(OSError):
                        _write(group._path / file, value)
                _write(group._path / "cgroup.procs", pid)
            except OSError:
                group.remove()
                continue
            return group
        return None

    def exceeded(self) -> bool:
        """Whether the kernel killed a process of the group for its memory."""
        with contextlib.suppress(OSError, ValueError):
            events = dict(line.split() for line in (self._path / "memory.events").read_text().splitlines())
            return int(events.get("oom_kill", 0)) > 0
        return False

    def remove(self) -> None:
        """Remove the group once the kernel has noticed the end of its processes."""
        until = time.monotonic() + _REMOVAL_S
        while True:
            try:
                return self._path.rmdir()
            except FileNotFoundError:
                return None
            except OSError:
                if time.monotonic() > until:
                    return None
                time.sleep(0.01)


def _delegated(root: Path) -> Iterator[Path]:
    """Yield the groups below which this process may create groups with limits.

    These are its own group and the parent. A group with processes cannot have such children (except the root), so the usual case is a
    systemd service with ``Delegate=memory`` and ``DelegateSubgroup=``. For root every group is writable: root uses only groups that systemd
    marks as delegated."""
    with contextlib.suppress(OSError, ValueError):
        line = next((line for line in (root / "proc/self/cgroup").read_text().splitlines() if line.startswith("0::/")), None)
        mount = next(
            (one for one in (root / "sys/fs/cgroup", root / "sys/fs/cgroup/unified") if (one / "cgroup.controllers").is_file()), None
        )
        if line is None or mount is None or ".." in line:
            return
        current = mount / line.removeprefix("0::/")
        for group in (current, current.parent):
            if group != mount and mount not in group.parents:
                return
            if "memory" in (group / "cgroup.controllers").read_text().split() and _is_ours(group):
                yield group


def _is_ours(group: Path) -> bool:
    if not os.access(group, os.W_OK) or not os.access(group / "cgroup.procs", os.W_OK):
        return False
    if os.geteuid() != 0:
        return True
    for name in ("user.delegate", "trusted.delegate"):
        with contextlib.suppress(OSError, AttributeError):
            if os.getxattr(group, name) == b"1":
                return True
    return False


def _enable(group: Path) -> None:
    """Allow memory limits in children. Raise OSError if the group has processes."""
    file = group / "cgroup.subtree_control"
    if "memory" not in file.read_text().split():
        _write(file, "+memory")


def _write(file: Path, value: int | str) -> None:
    descriptor = os.open(file, os.O_WRONLY | os.O_CLOEXEC)  # never creates a file: this may be another file system
    try:
        os.write(descriptor, str(value).encode())
    finally:
        os.close(descriptor)
