"""A ``concurrent.futures`` executor whose tasks may hang, swell or crash: no more than the task itself is lost.

Each worker is a process that runs one task at a time and lives on for the next, so that imports are paid once. A thread of this process
supervises it (worker_process.py) and enforces the limits (watch.py, hard_limit.py).
"""

from __future__ import annotations

import atexit
import os
import pickle
import queue
import sys
import threading
import weakref
from collections.abc import Callable, Mapping
from concurrent.futures import Executor, Future
from dataclasses import dataclass
from typing import Any, Final, ParamSpec, TypeVar

from .watch import Limits
from .worker_process import Worker, WorkerDied

P = ParamSpec("P")
T = TypeVar("T")

_STARTS: Final = 3  # attempts to hand one task to a worker


class _RemoteTraceback(Exception):  # noqa: N818  (not an error itself)
    """The traceback of an exception that a worker raised."""

    def __str__(self) -> str:
        return f"\nin the worker:\n{self.args[0]}"


class SupervisedPool(Executor):
    """``workers`` processes; the default is the number of processors that this process may use.

    ``timeout_s``: of one task. ``memory_bytes``: of a worker with its children (their own pages and shared memory, not pages of files); it
    is measured ten times a second, and the kernel enforces twice that in between (hard_limit.py). A worker that exceeds a limit is killed
    with its process group. The task's future then gets a :class:`WorkerDied` with the reason, as it does if the worker dies by itself.
    ``max_tasks_per_worker``: a worker is replaced after this many tasks. ``environment``: overrides variables of this process in the
    workers. Each worker has a temporary folder of its own (TMPDIR), which is removed with it. Tasks, results and exceptions are pickled;
    functions must be importable in another process."""

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
        limits = Limits(timeout_s, memory_bytes, max_tasks_per_worker, dict(environment or {}))
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
        """Cancel the tasks that wait; those that run get a WorkerDied."""
        self._state.killed.set()
        self.shutdown(cancel_futures=True)

    def worker_pids(self) -> tuple[int, ...]:
        """Return the process ids of the living workers."""
        return tuple(sorted(self._state.pids))


def processors() -> int:
    """Return how many processors this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@dataclass(slots=True)
class _Item:
    future: Future[Any]
    function: Callable[..., Any]
    args: tuple[Any, ...]
    kwargs: dict[str, Any]


class _State:
    """Data that the threads of a pool share. They do not refer to the pool, so that it can be garbage-collected."""

    def __init__(self, workers: int, limits: Limits) -> None:
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
        """Run tasks in one worker after the other: the target of a thread."""
        worker: Worker | None = None
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

    def _run(self, item: _Item, worker: Worker | None) -> Worker | None:
        """Set the result of a task and return the worker for the next, if it lives."""
        try:
            task = pickle.dumps((item.function, item.args, item.kwargs), pickle.HIGHEST_PROTOCOL)
            paths = [path for path in sys.path if path]
            frame = pickle.dumps((paths, self.limits.timeout_s, self.limits.memory_bytes, task), pickle.HIGHEST_PROTOCOL)
            answer: bytes | None = None
            for _ in range(_STARTS):
                if worker is not None and worker.dead():  # while it was idle, so no task is to blame
                    self._end(worker)
                    worker = None
                if worker is None:
                    try:
                        worker = Worker(self.limits)
                    except OSError as error:
                        raise WorkerDied(f"no worker could be started: {error}", "start") from error
                    self.pids.add(worker.pid)
                answer = worker.run(frame, self.limits, self.killed)
                if answer is not None:
                    break
            if answer is None:
                lines = worker.output().splitlines() if worker else ["no reason"]
                last = next((line.strip() for line in reversed(lines) if line.strip()), "no message")[:300]
                raise WorkerDied(f"no worker could be started: {last}", "start")
            del frame, task
            kind, result, *traceback = pickle.loads(answer)
        except BaseException as error:
            if worker is not None and not (isinstance(error, Exception) and worker.fit):
                self._end(worker)
                worker = None
            item.future.set_exception(error)
            return worker
        if kind == "ok":
            item.future.set_result(result)
        else:
            result.__cause__ = _RemoteTraceback(*traceback)
            item.future.set_exception(result)
        if worker is not None and worker.worn(self.limits):
            self._end(worker)
            return None
        return worker

    def _end(self, worker: Worker) -> None:
        self.pids.discard(worker.pid)
        worker.end()


_STATES: Final[weakref.WeakSet[_State]] = weakref.WeakSet()


def _wait_for_all() -> None:
    """Finish all submitted tasks when the program ends, as other executors do."""
    for state in list(_STATES):
        state.close(cancel=False)
        state.join()


atexit.register(_wait_for_all)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_STATES.clear)
