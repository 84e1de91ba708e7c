"""One worker of a pool, seen from the thread that supervises it: a task -> its pickled answer, or WorkerDied with the reason.

A worker is a child started by ``subprocess``, not by ``multiprocessing``, whose children are forbidden in daemonic processes such as
Dask's workers. It leads a process group of its own, so that it is killed with all its children. worker.py is the other side.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import socket
import subprocess
import sys
import threading
import time
from typing import Final

from .. import temporary
from . import hard_limit
from .watch import CRASH, EXITED, TICK_S, Cause, Limits, Watch, memory_of
from .worker import LENGTH, TAKEN

_GRACE_S: Final = 5.0  # for a worker to end by itself
_TAIL_BYTES: Final = 64 << 10  # of a worker's output that are kept
_CHUNK: Final = 1 << 20  # bytes
_RETIRED_ABOVE: Final = 0.5  # share of the memory limit; a task must not be blamed for the memory that earlier tasks left in use
_HINTS: Final = {"SIGKILL": ", most likely by the machine for want of memory"} | dict.fromkeys(
    ("SIGSEGV", "SIGBUS", "SIGABRT", "SIGILL", "SIGFPE"), CRASH
)


class WorkerDied(Exception):  # noqa: N818  (other executors name theirs the same way)
    """The worker of a task is gone, and the task with it.

    ``cause``: time, memory: a limit; signal, exit: how the worker ended; start: no worker could be started; ended: the pool was killed.
    ``output``: the last output of the task."""

    def __init__(self, reason: str, cause: Cause, output: str = "") -> None:
        super().__init__(reason, cause, output)
        self.reason = reason
        self.cause = cause
        self.output = output

    def __str__(self) -> str:
        return self.reason


class Worker:
    """One process, its output, its temporary folder and its cgroup."""

    def __init__(self, limits: Limits) -> None:
        self.fit = True
        self._tasks = 0
        self._tail = bytearray()
        self._folder = temporary.Folder(prefix="postrun-worker-")
        self._connection, theirs = socket.socketpair()
        try:
            with theirs:
                self._process = subprocess.Popen(
                    [sys.executable, "-P", "-m", f"{__package__}.worker", str(theirs.fileno()), self._folder.name],
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.STDOUT,
                    pass_fds=[theirs.fileno()],
                    process_group=0,
                    bufsize=0,
                    env={**hard_limit.ENVIRONMENT, **os.environ, **limits.environment, "TMPDIR": self._folder.name},
                )
        except BaseException:
            self._connection.close()
            self._folder.cleanup()
            raise
        assert self._process.stdout is not None
        self.pid = self._process.pid
        self._written = self._process.stdout
        self._group = None if limits.memory_bytes is None else hard_limit.MemoryGroup.around(self.pid, limits.memory_bytes)
        self._connection.setblocking(False)
        os.set_blocking(self._written.fileno(), False)

    def run(self, frame: bytes, limits: Limits, killed: threading.Event) -> bytes | None:
        """Return the answer to a frame; None if the worker died before it took it.

        Raise WorkerDied for any other death, and for a limit or the end of the pool; the worker is dead then."""
        self._tail.clear()
        self._tasks += 1
        self.fit = False
        exchange = _Exchange(frame)
        watch = Watch(self.pid, limits, self._group)
        poll = select.poll()
        poll.register(self._written, select.POLLIN)
        while not exchange.done:
            poll.register(self._connection, select.POLLIN | (select.POLLOUT if exchange.unsent else 0))
            ready = dict(poll.poll(TICK_S * 1000))
            if self._written.fileno() in ready and not self._drain():
                poll.unregister(self._written)
            open_ = self._connection.fileno() not in ready or exchange.step(self._connection)
            if not open_ or (not ready and self.dead()):
                self._died(exchange, watch)
                return None
            if killed.is_set():
                raise self._ended_by_us("the pool was ended while the task ran", "ended")
            if broken := watch.broken(exchange.taken):
                raise self._ended_by_us(*broken)
        self.fit = True
        return bytes(exchange.answer)

    def _died(self, exchange: _Exchange, watch: Watch) -> None:
        """Raise WorkerDied with the reason of a death; return if no task was taken."""
        until = time.monotonic() + _GRACE_S
        while not self.dead() and time.monotonic() < until:
            time.sleep(0.01)
        reason, cause = self._how() if self.dead() else ("the worker closed its connection and went on", "exit")
        reason, cause = watch.late() or watch.exceeded(cause, self.output()) or (reason + watch.doubt(reason), cause)
        self._kill()
        if exchange.taken:
            raise WorkerDied(reason, cause, self.output())

    def _ended_by_us(self, reason: str, cause: Cause) -> WorkerDied:
        self._kill()
        return WorkerDied(reason, cause, self.output())

    def worn(self, limits: Limits) -> bool:
        """Decide whether the next task needs a new worker."""
        if limits.max_tasks is not None and self._tasks >= limits.max_tasks:
            return True
        return limits.memory_bytes is not None and memory_of(self.pid) > _RETIRED_ABOVE * limits.memory_bytes

    def dead(self) -> bool:
        """Decide whether the process has ended.

        It is not reaped, so that its id still names its process group."""
        return self._process.returncode is not None or self._status() is not None

    def _status(self) -> tuple[int, int] | None:
        """Return code and status of the ended process, as of waitid(2), else None."""
        try:
            result = os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOWAIT | os.WNOHANG)
        except ChildProcessError:  # reaped by somebody else
            return (0, 0)
        return None if result is None else (result.si_code, result.si_status)

    def _how(self) -> tuple[str, Cause]:
        code, status = self._status() or (0, 0)
        if code == os.CLD_EXITED:
            return f"{EXITED} {status}", "exit"
        if code in (os.CLD_KILLED, os.CLD_DUMPED):
            try:
                name = signal.Signals(status).name
            except ValueError:
                name = f"signal {status}"
            return f"the worker was ended by {name}{_HINTS.get(name, '')}", "signal"
        return "the worker has ended, it is not known how", "exit"

    def output(self) -> str:
        """Return the last output of the worker since the task began."""
        self._drain()
        return bytes(self._tail).decode("utf-8", "replace")

    def _drain(self) -> bool:
        """Read the available output and keep its end; return False after the last."""
        with contextlib.suppress(ValueError, OSError):
            for _ in range(16):
                part = self._written.read(_CHUNK)
                if part is None:
                    return True
                if not part:
                    return False
                self._tail += part
                del self._tail[:-_TAIL_BYTES]
            return True
        return False

    def end(self) -> None:
        """Let an idle worker end by itself; kill it if it does not."""
        self._connection.close()
        if self.fit:
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(_GRACE_S)
        self._kill()
        self._written.close()
        if self._group is not None:
            self._group.remove()
        self._folder.cleanup()

    def _kill(self) -> None:
        """Kill the process with its group, and reap it."""
        if self._process.returncode is None:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self.pid, signal.SIGKILL)
        self._process.wait()


class _Exchange:
    """A task that is sent to a worker, and the answer that is received."""

    def __init__(self, frame: bytes) -> None:
        self.unsent = [memoryview(LENGTH.pack(len(frame))), memoryview(frame)]
        self._length: int | None = None
        self.taken = False
        self.answer = bytearray()
        self.done = False

    def step(self, connection: socket.socket) -> bool:
        """Send and receive without waiting; return False if the worker has closed."""
        try:
            while self.unsent:
                sent = connection.send(self.unsent[0][:_CHUNK])
                self.unsent[0] = self.unsent[0][sent:]
                if not self.unsent[0]:
                    del self.unsent[0]
        except BlockingIOError:
            pass
        except OSError:
            self.unsent.clear()
        try:
            part = connection.recv(_CHUNK)
        except BlockingIOError:
            return True
        except OSError:
            return False
        if not part:
            return False
        if not self.taken:
            assert part[:1] == TAKEN
            self.taken, part = True, part[1:]
        self.answer += part
        if self._length is None and len(self.answer) >= LENGTH.size:
            self._length = LENGTH.unpack(self.answer[: LENGTH.size])[0]
            del self.answer[: LENGTH.size]
        self.done = self._length is not None and len(self.answer) >= self._length
        return True
