"""Executors of a night's tasks: this process, processes of this machine, or a Dask cluster, each a ``concurrent.futures`` executor."""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import BrokenExecutor, Executor, Future, InvalidStateError
from concurrent.futures import wait as wait_for
from contextlib import ExitStack, contextmanager, suppress
from functools import lru_cache, partial
from importlib import import_module
from importlib.metadata import version
from importlib.util import find_spec
from typing import Any, Final, ParamSpec, TypeVar

from .. import temporary
from ..errors import InputError, UsageError
from .pool import SupervisedPool, processors

P = ParamSpec("P")
T = TypeVar("T")

ENGINES: Final = "none, processes, dask or dask:ADDRESS"
_TASKS_PER_WORKER: Final = 200
_CONNECT_S: Final = 30
_LOOK_S: Final = 2.0  # between two looks at the workers of a cluster
_WITHOUT_WORKERS_S: Final = 40.0  # How long a cluster may be without workers: some time for others to start
_TLS: Final = "DASK_DISTRIBUTED__COMM__TLS__"
_TLS_SETTINGS: Final = f"Dask's certificates: {_TLS}CA_FILE, {_TLS}CLIENT__CERT and {_TLS}CLIENT__KEY"
_NO_PAGES: Final[dict[str, list[str]]] = {"distributed.scheduler.http.routes": [], "distributed.worker.http.routes": []}
"""Dask serves pages over HTTP without a key, even if it has no dashboard."""
_THREADS: Final = ("POLARS_MAX_THREADS", "OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS")


@contextmanager
def executor(
    engine: str, *, workers: int | None = None, timeout_s: float | None = None, memory_bytes: int | None = None
) -> Iterator[Executor]:
    """Provide an executor; an error in the block cancels and ends its tasks.

    ``engine``: "none" runs each task in this process when it is submitted, without limits. "processes": ``workers`` supervised processes
    (pool.py). "dask": a Dask cluster of ``workers`` processes on this machine, which listens on loopback and accepts only this process (TLS
    with a key that exists in memory alone). "dask:ADDRESS": the cluster of that scheduler, whose workers need this version of postrun. In
    Dask also, each task runs in a supervised process next to the worker, under the same limits; the tasks of a lost Dask worker go to
    another one. If all are lost, and none comes back for a while, the open tasks fail with BrokenExecutor. Raise UsageError for an unknown
    engine or a missing extra, InputError for a scheduler that cannot be reached or used."""
    kind, address = checked(engine)
    count = processors() if workers is None else workers
    pool: _Here | SupervisedPool | _OnDask
    if kind == "none":
        pool = _Here()
    elif kind == "processes":
        pool = _pool(count, timeout_s, memory_bytes)
    else:
        pool = _OnDask(address, count, timeout_s, memory_bytes)
    try:
        yield pool
    except BaseException:
        pool.kill()
        raise
    pool.shutdown()


def checked(engine: str) -> tuple[str, str | None]:
    """Return the kind of an engine and its address. Raise UsageError."""
    kind, colon, address = engine.partition(":")
    if kind not in ("none", "processes", "dask") or (colon and (kind != "dask" or not address)):
        raise UsageError(f"{engine!r} is not an engine; accepted: {ENGINES}, such as dask:tcp://host:8786")
    if kind == "dask" and find_spec("distributed") is None:
        raise UsageError('--engine dask needs Dask: pip install "postrun[dask]"')
    return kind, address or None


def _pool(workers: int, timeout_s: float | None, memory_bytes: int | None) -> SupervisedPool:
    share = str(max(1, processors() // workers))
    environment = {name: share for name in _THREADS if name not in os.environ}
    return SupervisedPool(
        workers, timeout_s=timeout_s, memory_bytes=memory_bytes, max_tasks_per_worker=_TASKS_PER_WORKER, environment=environment
    )


class _Here(Executor):
    """Runs each task when it is submitted."""

    def __init__(self) -> None:
        self._closed = False

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        if self._closed:
            raise RuntimeError("cannot schedule new futures after shutdown")
        future: Future[T] = Future()
        future.set_running_or_notify_cancel()
        try:
            result = fn(*args, **kwargs)
        except Exception as error:
            future.set_exception(error)
        else:
            future.set_result(result)
        return future

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        self._closed = True

    def kill(self) -> None:
        self.shutdown()


class _OnDask(Executor):
    """A Dask cluster's own executor, whose tasks go through :func:`_in_a_process` on its workers."""

    def __init__(self, address: str | None, workers: int, timeout_s: float | None, memory_bytes: int | None) -> None:
        distributed: Any = import_module("distributed")
        self._limits = (timeout_s, memory_bytes)
        self._open: set[Future[Any]] = set()
        self._closed = False
        self._ended = threading.Event()
        self._lost: str | None = None
        self._stack = ExitStack()
        try:
            self._connect(distributed, address, workers)
        except BaseException:
            self._stack.close()
            raise

    def _connect(self, distributed: Any, address: str | None, workers: int) -> None:
        self._cluster: Any = None
        if address is None:
            # A process that connects to a scheduler runs code as its workers: loopback alone would admit all users of this machine.
            try:
                security = distributed.Security.temporary()
            except ImportError as error:
                raise UsageError('--engine dask needs the package cryptography: pip install "postrun[dask]"') from error
            self._folder = self._stack.enter_context(temporary.Folder())
            # Processes that multiprocessing starts would import modules from the current folder.
            self._stack.callback(_set_variable, "PYTHONSAFEPATH", os.environ.get("PYTHONSAFEPATH"))
            os.environ["PYTHONSAFEPATH"] = "1"
            with import_module("dask.config").set(_NO_PAGES):
                self._cluster = distributed.LocalCluster(
                    n_workers=workers, threads_per_worker=1, processes=True, dashboard_address=None, memory_limit=0, silence_logs="ERROR",
                    host="127.0.0.1", protocol="tls://", security=security, local_directory=self._folder,
                )  # fmt: skip
            self._stack.callback(self._cluster.close)
        # The client of Dask prints tracebacks when it loses the scheduler, and the night reports why it ends.
        for logger in map(logging.getLogger, ("distributed", "distributed.client", "tornado.application")):
            self._stack.callback(logger.setLevel, logger.level)
            logger.setLevel(logging.CRITICAL)
        try:
            self._client = distributed.Client(address or self._cluster, timeout=_CONNECT_S, set_as_default=False)
        except (OSError, TimeoutError, ValueError, TypeError, RuntimeError) as error:
            hint = f"check the address, and {_TLS_SETTINGS}" if (address or "").startswith("tls:") else "check the address"
            raise InputError(f"no Dask scheduler answers at {address}: {str(error) or type(error).__name__}; {hint}") from error
        self._stack.callback(self._client.close)
        _check_workers(self._client, address)
        self._executor = self._client.get_executor(pure=False)
        threading.Thread(target=self._watch, name="postrun-dask", daemon=True).start()

    def _watch(self) -> None:
        """Fail all open tasks if there is no worker for some time.

        Dask itself waits for one forever."""
        seen = time.monotonic()
        while not self._ended.wait(_LOOK_S):
            try:
                workers = self._client.nthreads(callback_timeout=_LOOK_S * 5)
            except Exception:  # of Dask: the scheduler does not answer
                workers = {}
            if workers or not self._open:
                seen = time.monotonic()
            elif time.monotonic() - seen > _WITHOUT_WORKERS_S:
                self._lost = f"all workers of the Dask cluster are lost, and none came back within {_WITHOUT_WORKERS_S:g} s; start workers"
                for future in list(self._open):
                    with suppress(InvalidStateError):
                        future.set_exception(BrokenExecutor(self._lost))
                return

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        # No retries by Dask: they would repeat a task that fails. A task whose Dask worker is lost goes to another one anyway.
        if self._closed:
            raise RuntimeError("cannot schedule new futures after shutdown")
        if self._lost is not None:
            raise BrokenExecutor(self._lost)
        future: Future[T] = Future()
        of_dask: Future[T] = self._executor.submit(_in_a_process, self._limits, fn, args, kwargs)
        self._open.add(future)
        future.add_done_callback(self._open.discard)
        future.add_done_callback(partial(_cancel_both, of_dask))
        of_dask.add_done_callback(partial(_pass_on, future))  # refers to the task, which Dask would forget otherwise
        return future

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        self._closed = True
        if cancel_futures:
            for future in list(self._open):
                future.cancel()
        if wait:
            wait_for(list(self._open))
            self._ended.set()
            self._stack.close()

    def kill(self) -> None:
        self.shutdown(wait=False, cancel_futures=True)
        self._ended.set()
        self._stack.close()


def _cancel_both(of_dask: Future[T], future: Future[T]) -> None:
    if future.cancelled():
        of_dask.cancel()
        future.set_running_or_notify_cancel()  # wakes those who wait for it


def _pass_on(future: Future[T], of_dask: Future[T]) -> None:
    """Give ``future`` the outcome of Dask's own, unless it has one already."""
    with suppress(InvalidStateError):
        if of_dask.cancelled():
            if not future.cancelled():
                future.set_exception(BrokenExecutor("the connection to the Dask scheduler is lost; check it"))
        elif error := of_dask.exception():
            future.set_exception(error)
        else:
            future.set_result(of_dask.result())


def _set_variable(name: str, value: str | None) -> None:
    os.environ.pop(name, None)
    if value is not None:
        os.environ[name] = value


def _check_workers(client: Any, address: str | None) -> None:
    """Raise InputError if a worker has no postrun, or another version."""
    ours = version("postrun")
    try:
        client.wait_for_workers(1, timeout=_CONNECT_S)
        versions: dict[str, str] = client.run(_version)
    except Exception as error:
        reason = f"{type(error).__name__}: {(str(error).splitlines() or [''])[0]}"
        raise InputError(
            f"the workers of the Dask scheduler at {address} cannot run postrun {ours} ({reason}); install it there"
        ) from error
    for worker, theirs in sorted(versions.items()):
        if theirs != ours:
            raise InputError(f"the Dask worker {worker} has postrun {theirs}, this is {ours}; install one version on both")


def _version() -> str:
    return version("postrun")


_POOLS: Final = threading.Lock()


def _in_a_process(
    limits: tuple[float | None, int | None], function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Any:
    """Run a task in a process next to a Dask worker, which outlives a crash."""
    with _POOLS:
        pool = _pool_here(*limits)
    return pool.submit(function, *args, **kwargs).result()


@lru_cache(8)
def _pool_here(timeout_s: float | None, memory_bytes: int | None) -> SupervisedPool:
    """Return the pool of this Dask worker, with a process per worker thread."""
    from distributed import get_worker

    return _pool(int(get_worker().state.nthreads), timeout_s, memory_bytes)
