"""How do tasks run in processes that may hang, swell or crash, so that no more than one task is lost?

A :class:`SupervisedPool` is a ``concurrent.futures`` executor. Each worker is a process started by ``subprocess`` (not by
``multiprocessing``, whose children are forbidden in daemonic processes such as Dask's workers), which runs one task at a time and lives
on for the next, so that imports are paid once. A thread per worker watches it. See worker.py for the other side.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import pickle
import queue
import select
import signal
import socket
import subprocess
import sys
import threading
import time
import weakref
from collections.abc import Callable, Mapping
from concurrent.futures import Executor, Future
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal, ParamSpec, TypeVar

from .. import temporary
from . import hard_limit
from .worker import LENGTH, TAKEN, TaskError

__all__ = ["SupervisedPool", "TaskError", "WorkerDied", "memory_of"]

P = ParamSpec("P")
T = TypeVar("T")
Cause = Literal["time", "memory", "signal", "exit", "start", "ended"]

_TICK_S: Final = 0.1
_CRASH: Final = ", a crash in a library"
_EXITED: Final = "the task ended its worker with exit code"
_CHILDREN_TICKS: Final = 5
_START_S: Final = 120.0
_GRACE_S: Final = 5.0
_TAIL_BYTES: Final = 64 << 10
_CHUNK: Final = 1 << 20
_STARTS: Final = 3
_RETIRED_ABOVE: Final = 0.5
"""Share of the memory limit above which an idle worker is replaced, so that no task is blamed for what earlier ones left."""


class WorkerDied(Exception):  # noqa: N818  (it is told of a worker, as by other executors)
    """The worker of a task is gone, and with it the task. ``reason``: in words. ``cause``: time, memory: a limit; signal, exit: how it
    ended; start: no worker could be started; ended: the pool was killed. ``output``: the last the task wrote to stdout and stderr."""

    def __init__(self, reason: str, cause: Cause, output: str = "") -> None:
        super().__init__(reason, cause, output)
        self.reason = reason
        self.cause = cause
        self.output = output

    def __str__(self) -> str:
        return self.reason


class _RemoteTraceback(Exception):  # noqa: N818
    def __init__(self, text: str) -> None:
        super().__init__(text)
        self._text = text

    def __str__(self) -> str:
        return f"\nin the worker:\n{self._text}"


class SupervisedPool(Executor):
    """``workers`` processes; by default as many as processors that this process may use.

    ``timeout_s``: how long a task may take. ``memory_bytes``: how much memory the worker and its children may hold together, looked at ten
    times a second (their own pages and shared memory, not those of files). The kernel enforces twice that between two looks
    (hard_limit.py). A worker beyond a limit is killed with its process group, and the task's future gets a :class:`WorkerDied` that says
    why; so it does when the worker dies. ``max_tasks_per_worker``: then the worker
    is replaced. ``environment``: variables of the workers, over those of this process. Each worker has a temporary folder of its own
    (TMPDIR), which goes with it. Tasks, results and exceptions are pickled; functions must be importable in another process.
    """

    def __init__(
        self,
        workers: int | None = None,
        *,
        timeout_s: float | None = None,
        memory_bytes: int | None = None,
        max_tasks_per_worker: int | None = None,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        count = processors() if workers is None else workers
        if count < 1 or (max_tasks_per_worker is not None and max_tasks_per_worker < 1):
            raise ValueError("workers and max_tasks_per_worker must be 1 or more")
        limits = _Limits(timeout_s, memory_bytes, max_tasks_per_worker, dict(environment or {}))
        self._state = _State(count, limits)
        _STATES.add(self._state)
        weakref.finalize(self, self._state.close, cancel=False).atexit = False

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        future: Future[T] = Future()
        self._state.put(_Item(future, fn, args, kwargs))
        return future

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        self._state.close(cancel=cancel_futures)
        if wait:
            self._state.join()

    def kill(self) -> None:
        """Shut down at once: tasks that wait are cancelled, those that run get a WorkerDied."""
        self._state.killed.set()
        self.shutdown(cancel_futures=True)

    def worker_pids(self) -> tuple[int, ...]:
        """Process ids of the workers that live now."""
        return tuple(sorted(self._state.pids))


def processors() -> int:
    """How many processors this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@dataclass(frozen=True, slots=True)
class _Limits:
    timeout_s: float | None
    memory_bytes: int | None
    max_tasks: int | None
    environment: dict[str, str]


@dataclass(slots=True)
class _Item:
    future: Future[Any]
    function: Callable[..., Any]
    given: tuple[Any, ...]
    named: dict[str, Any]


class _State:
    """What the threads of a pool share; they do not hold the pool itself, so that it can be collected."""

    def __init__(self, workers: int, limits: _Limits) -> None:
        self.limits = limits
        self.killed = threading.Event()
        self.pids: set[int] = set()
        self._workers = workers
        self._queue: queue.SimpleQueue[_Item | None] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._closed = False
        self._idle = 0
        self._threads: list[threading.Thread] = []

    def put(self, item: _Item) -> None:
        with self._lock:
            if self._closed:
                raise RuntimeError("cannot schedule new futures after shutdown")
            self._queue.put(item)
            if self._idle > 0:
                self._idle -= 1
            elif len(self._threads) < self._workers:
                thread = threading.Thread(target=self._serve, name=f"postrun-pool-{len(self._threads)}", daemon=True)
                self._threads.append(thread)
                thread.start()

    def close(self, *, cancel: bool) -> None:
        with self._lock:
            self._closed = True
            while cancel:
                try:
                    item = self._queue.get_nowait()
                except queue.Empty:
                    break
                if item is not None and item.future.cancel():
                    item.future.set_running_or_notify_cancel()
            for _ in self._threads:
                self._queue.put(None)

    def join(self) -> None:
        for thread in self._threads:
            if thread is not threading.current_thread():
                thread.join()

    def _serve(self) -> None:
        """The thread of one worker."""
        worker: _Worker | None = None
        try:
            while (item := self._queue.get()) is not None:
                if item.future.set_running_or_notify_cancel():
                    worker = self._run(item, worker)
                del item
                with self._lock:
                    self._idle += 1
        finally:
            if worker is not None:
                self._end(worker)

    def _run(self, item: _Item, worker: _Worker | None) -> _Worker | None:
        """Fulfils the item's future. -> the worker for the next one, None where it is gone."""
        try:
            task = pickle.dumps((item.function, item.given, item.named), pickle.HIGHEST_PROTOCOL)
            paths = [path for path in sys.path if path]
            frame = pickle.dumps((paths, self.limits.timeout_s, self.limits.memory_bytes, task), pickle.HIGHEST_PROTOCOL)
            answer: bytes | None = None
            for _ in range(_STARTS):
                if worker is not None and worker.dead():  # while it was idle: that is no task's fault
                    self._end(worker)
                    worker = None
                if worker is None:
                    try:
                        worker = _Worker(self.limits)
                    except OSError as error:
                        raise WorkerDied(f"no worker could be started: {error}", "start") from error
                    self.pids.add(worker.pid)
                answer = worker.run(frame, self.limits, self.killed)
                if answer is not None:
                    break
            if answer is None:
                raise WorkerDied(f"no worker could be started: {_last_line(worker.output()) if worker else 'no reason'}", "start")
            del frame, task
            kind, *said = pickle.loads(answer)
        except BaseException as error:
            if worker is not None and not (isinstance(error, Exception) and worker.fit):
                self._end(worker)
                worker = None
            item.future.set_exception(error)
            return worker
        if kind == "ok":
            item.future.set_result(said[0])
        else:
            said[0].__cause__ = _RemoteTraceback(said[1])
            item.future.set_exception(said[0])
        if worker is not None and worker.worn(self.limits):
            self._end(worker)
            return None
        return worker

    def _end(self, worker: _Worker) -> None:
        self.pids.discard(worker.pid)
        worker.end()


_STATES: Final[weakref.WeakSet[_State]] = weakref.WeakSet()


def _wait_for_all() -> None:
    """At the end of the program, as other executors do: what was submitted is done first."""
    for state in list(_STATES):
        state.close(cancel=False)
        state.join()


atexit.register(_wait_for_all)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_STATES.clear)


class _Worker:
    """One process, seen from the thread that watches it."""

    def __init__(self, limits: _Limits) -> None:
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

    def run(self, frame: bytes, limits: _Limits, killed: threading.Event) -> bytes | None:
        """The answer to a frame. None where the worker died before it took the task. Raises WorkerDied; the worker is dead then."""
        self._tail.clear()
        self._tasks += 1
        self.fit = False
        exchange = _Exchange(frame)
        watch = _Watch(self.pid, limits, self._group)
        poll = select.poll()
        poll.register(self._written, select.POLLIN)
        while not exchange.done:
            poll.register(self._connection, select.POLLIN | (select.POLLOUT if exchange.to_send else 0))
            ready = dict(poll.poll(_TICK_S * 1000))
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

    def _died(self, exchange: _Exchange, watch: _Watch) -> None:
        """Raises what is to be said of a death; returns where the task was not taken yet."""
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

    def worn(self, limits: _Limits) -> bool:
        """Whether the next task should have a new worker."""
        if limits.max_tasks is not None and self._tasks >= limits.max_tasks:
            return True
        return limits.memory_bytes is not None and memory_of(self.pid) > _RETIRED_ABOVE * limits.memory_bytes

    def dead(self) -> bool:
        """Whether the process has ended; it is not reaped, so that its id still names its process group."""
        return self._process.returncode is not None or self._status() is not None

    def _status(self) -> tuple[int, int] | None:
        """How the process ended: code and status as of waitid(2). None while it runs."""
        try:
            found = os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOWAIT | os.WNOHANG)
        except ChildProcessError:  # reaped by somebody else
            return (0, 0)
        return None if found is None else (found.si_code, found.si_status)

    def _how(self) -> tuple[str, Cause]:
        code, status = self._status() or (0, 0)
        if code == os.CLD_EXITED:
            return f"{_EXITED} {status}", "exit"
        if code in (os.CLD_KILLED, os.CLD_DUMPED):
            try:
                name = signal.Signals(status).name
            except ValueError:
                name = f"signal {status}"
            hint = {"SIGKILL": ", most likely by the machine for want of memory"}.get(name, "")
            hint = _CRASH if name in ("SIGSEGV", "SIGBUS", "SIGABRT", "SIGILL", "SIGFPE") else hint
            return f"the worker was ended by {name}{hint}", "signal"
        return "the worker has ended, it is not known how", "exit"

    def output(self) -> str:
        """The last the worker wrote, since the task began."""
        self._drain()
        return bytes(self._tail).decode("utf-8", "replace")

    def _drain(self) -> bool:
        """Read what there is, keep the end of it. Whether more may come."""
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
        """Let an idle worker end by itself, and kill it where it does not."""
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
        """The process with its group; then it is reaped."""
        if self._process.returncode is None:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self.pid, signal.SIGKILL)
        self._process.wait()


class _Exchange:
    """A task on its way to a worker, and the answer on its way back."""

    def __init__(self, frame: bytes) -> None:
        self._parts = [memoryview(LENGTH.pack(len(frame))), memoryview(frame)]
        self._length: int | None = None
        self.taken = False
        self.answer = bytearray()
        self.done = False

    @property
    def to_send(self) -> bool:
        return bool(self._parts)

    def step(self, connection: socket.socket) -> bool:
        """Send and receive what goes without waiting. False where the other side has closed."""
        try:
            while self._parts:
                sent = connection.send(self._parts[0][:_CHUNK])
                self._parts[0] = self._parts[0][sent:]
                if not self._parts[0]:
                    del self._parts[0]
        except BlockingIOError:
            pass
        except OSError:
            self._parts.clear()
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


class _Watch:
    """The limits of one task: which of them is broken now?"""

    def __init__(self, pid: int, limits: _Limits, group: hard_limit.MemoryGroup | None) -> None:
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
            self._measured(self._data)

    def _measured(self, limit: hard_limit.DataLimit | None) -> int:
        """Bytes that the worker and its children hold; the limit of the kernel moves along."""
        sizes = {pid: _sizes(pid) for pid in (self._pid, *self._children)}
        held = sum(held for held, _ in sizes.values())
        if limit is not None:
            limit.set({pid: mapped for pid, (_, mapped) in sizes.items()}, held)
        return held

    def exceeded(self, cause: Cause, output: str) -> tuple[str, Cause] | None:
        """The reason of a worker that died of the kernel's memory limit; None if it died of something else."""
        allowed = self._limits.memory_bytes
        if allowed is None or cause not in ("signal", "exit"):
            return None
        killed = self._group.exceeded() if self._group is not None else hard_limit.speaks_of_memory(output)
        return (hard_limit.reason(allowed), "memory") if killed else None

    def doubt(self, reason: str) -> str:
        """Without memory, libraries also crash and Python may end with status 1; nothing else separates the limit from a defect."""
        allowed = self._limits.memory_bytes
        if self._data is None or allowed is None or not (_CRASH in reason or reason == f"{_EXITED} 1"):
            return ""
        return hard_limit.doubt(allowed)

    def broken(self, taken: bool) -> tuple[str, Cause] | None:
        now = time.monotonic()
        if not taken:
            if now - self._waiting_since > _START_S:
                return f"the worker did not take the task within {_START_S:g} s", "start"
            return None
        self._since = self._since or now
        if said := self.late(_TICK_S):  # the worker has told where it was by then
            return said
        allowed = self._limits.memory_bytes
        if allowed is not None and now - self._looked >= _TICK_S:
            self._looked = now
            if self._looks % _CHILDREN_TICKS == 0:
                self._children = _descendants(self._pid)
            self._looks += 1
            held = self._measured(self._data)
            if held > allowed:
                return hard_limit.reason(allowed, held), "memory"
        return None

    def late(self, by_s: float = -2 * _TICK_S) -> tuple[str, Cause] | None:
        """Whether the time is over, and by how much. A worker that tells where it hangs may crash on that: it then dies in time, almost."""
        limit = self._limits.timeout_s
        if limit is None or self._since is None or time.monotonic() - self._since <= limit + by_s:
            return None
        return f"it took longer than the {limit:g} s that are allowed", "time"


def memory_of(pid: int) -> int:
    """Bytes that a process and all its children hold: their own pages and shared memory. 0 where that cannot be told."""
    return sum(_sizes(one)[0] for one in (pid, *_descendants(pid)))


def _descendants(pid: int) -> tuple[int, ...]:
    found: list[int] = []
    with contextlib.suppress(OSError, ValueError):
        for thread in Path(f"/proc/{pid}/task").iterdir():
            with contextlib.suppress(OSError, ValueError):
                for child in (thread / "children").read_text().split():
                    found += [int(child), *_descendants(int(child))]
    return tuple(found)


def _sizes(pid: int) -> tuple[int, int]:
    """Bytes that a process holds, and bytes of its private writable mappings, which RLIMIT_DATA counts."""
    try:
        lines = Path(f"/proc/{pid}/status").read_bytes().splitlines()
    except OSError:
        return 0, 0
    sizes = {line.partition(b":")[0]: int(line.split()[1]) << 10 for line in lines if line.startswith((b"Rss", b"VmRSS", b"VmData"))}
    held = sizes[b"RssAnon"] + sizes.get(b"RssShmem", 0) if b"RssAnon" in sizes else sizes.get(b"VmRSS", 0)
    return held, sizes.get(b"VmData", 0)


def _last_line(text: str) -> str:
    return next((line.strip() for line in reversed(text.splitlines()) if line.strip()), "no message")[:300]
