"""How does a training script record what it does?

With a session around what is to be recorded, and annotations in it::

    from postrun import capture

    with capture.session("traces"):
        for i, batch in enumerate(loader):
            with capture.annotate("step", value=i):
                train(batch)

or, for scripts of the hosted profiler, ``import postrun.capture as smprof``: SMProfiler, Config, annotate, annotation_begin and
annotation_end are here. See docs/capture.md.

Outside a session every call does nothing and costs almost nothing. All functions may be called from any thread.
"""

from __future__ import annotations

import atexit
import errno
import functools
import inspect
import itertools
import os
import re
import socket
import sys
import time
import warnings
from collections.abc import AsyncGenerator, Callable, Generator, Mapping
from contextlib import ContextDecorator, suppress
from pathlib import Path
from types import MappingProxyType, TracebackType
from typing import TYPE_CHECKING, Any, Final, Literal

try:
    from .native._native import (
        Annotation,
        Range,
        annotate,
        begin,
        counter,
        end,
        flush,
        now_ns,
        path,
        range_begin,
        range_end,
        recording,
        set_decorator,
        statistics,
        watch_steps,  # noqa: F401 - for framework_profiling
    )
    from .native._native import configure as _configure
    from .native._native import gpu as _gpu
    from .native._native import gpu_driver as _gpu_driver
    from .native._native import gpu_reason as _gpu_reason
    from .native._native import gpu_when_used as _gpu_when_used
    from .native._native import metadata as _metadata
    from .native._native import start as _start
    from .native._native import stop as _stop
except ImportError:  # installed without a C compiler (POSTRUN_NO_NATIVE=1)
    from .capture_absent import (  # type: ignore[assignment]
        Annotation,
        Range,
        annotate,
        begin,
        counter,
        end,
        flush,
        now_ns,
        path,
        range_begin,
        range_end,
        recording,
        statistics,
    )
    from .capture_absent import configure as _configure
    from .capture_absent import gpu as _gpu
    from .capture_absent import gpu_driver as _gpu_driver
    from .capture_absent import gpu_reason as _gpu_reason
    from .capture_absent import gpu_when_used as _gpu_when_used
    from .capture_absent import metadata as _metadata
    from .capture_absent import start as _start
    from .capture_absent import stop as _stop

    def set_decorator(decorator: Callable[[Callable[..., Any], str, int | None], Callable[..., Any]], /) -> None:
        """Nothing is decorated."""


if TYPE_CHECKING:
    from .profiler_config import ProfilerConfig
    from .profiling_plan import ProfilingPlan

__all__ = [
    "Annotation",
    "Config",
    "Range",
    "SMProfiler",
    "annotate",
    "annotation_begin",
    "annotation_end",
    "begin",
    "counter",
    "end",
    "flush",
    "gpu_start",
    "gpu_stop",
    "gpu_window",
    "metadata",
    "now_ns",
    "path",
    "recording",
    "session",
    "statistics",
    "torch_trace_handler",
]

SAMPLE_MS: Final = 500
"""How often the system is sampled where nothing else is said."""

annotation_begin = range_begin
annotation_end = range_end

_TRUE: Final = frozenset({"1", "true", "yes", "on"})
_RANKS: Final = ("RANK", "OMPI_COMM_WORLD_RANK", "PMI_RANK", "SLURM_PROCID")
_PROFILER_CONFIG: Final = "POSTRUN_PROFILER_CONFIG"
_GPU_WINDOWS: Final = ("POSTRUN_GPU_STEPS", "POSTRUN_GPU_TIME", "POSTRUN_GPU_SIGNAL")
# Set while the session that POSTRUN_CAPTURE=1 began at import lasts.
_by_environment = os.environ.get("POSTRUN_CAPTURE") == "1" and recording()


def metadata(key: str, value: object) -> None:
    """A fact of the run, written as text; kept for the next session where none is recording."""
    _metadata(key, str(value).encode("utf-8", "backslashreplace").decode())


# ------------------------------------------------------------------ annotations as decorators


_ANNOTATED: Final = "annotated "
_numbers = itertools.count(1)


def _decorated(function: Callable[..., Any], name: str, value: int | None) -> Callable[..., Any]:
    """``function`` with a range around each call. What can be suspended has a range by handle, from its first to its last step."""
    if not callable(function) or isinstance(function, type):
        raise TypeError(f"annotate decorates functions and methods, not {function!r}")
    if inspect.iscoroutinefunction(function):
        around = _around_coroutine
    elif inspect.isasyncgenfunction(function):
        around = _around_async_generator
    elif inspect.isgeneratorfunction(function):
        around = _around_generator
    else:
        around = _around_call
    wrapper = around(function, name, value)
    # Code of its own, by which profiles know what it calls.
    called = getattr(function, "__qualname__", type(function).__qualname__)
    wrapper.__code__ = wrapper.__code__.replace(co_name=f"{_ANNOTATED}{called} {next(_numbers)}")
    return functools.wraps(function)(wrapper)


def _around_call(function: Callable[..., Any], name: str, value: int | None) -> Callable[..., Any]:
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        with annotate(name, value):
            return function(*args, **kwargs)

    return wrapper


def _around_coroutine(function: Callable[..., Any], name: str, value: int | None) -> Callable[..., Any]:
    async def wrapper(*args: Any, **kwargs: Any) -> Any:
        async with annotate(name, value):
            return await function(*args, **kwargs)

    return wrapper


def _around_generator(function: Callable[..., Any], name: str, value: int | None) -> Callable[..., Any]:
    def wrapper(*args: Any, **kwargs: Any) -> Generator[Any, Any, Any]:
        handle = range_begin(name, value)
        try:
            return (yield from function(*args, **kwargs))
        finally:
            range_end(handle)

    return wrapper


def _around_async_generator(function: Callable[..., Any], name: str, value: int | None) -> Callable[..., Any]:
    async def wrapper(*args: Any, **kwargs: Any) -> AsyncGenerator[Any, Any]:
        async with annotate(name, value):
            inner = function(*args, **kwargs)
            try:
                item = await inner.__anext__()
                while True:
                    try:
                        sent = yield item
                    except GeneratorExit:
                        await inner.aclose()
                        raise
                    except BaseException as error:
                        item = await inner.athrow(error)
                    else:
                        item = await inner.asend(sent)
            except StopAsyncIteration:
                return

    return wrapper


set_decorator(_decorated)


# ------------------------------------------------------------------ sessions


class session:  # noqa: N801 - used like a function
    """Records while the ``with`` lasts.

    ``directory``: where trace files go; else $POSTRUN_DIR, else "postrun-traces". ``sample_ms``: interval of the system sampler (100,
    200, 500, 1000, 5000, 60000; 0: none), ``sample_for_s``: how long it samples. ``follow_fork``: forked processes record, too.
    ``gpu``: True records what runs on the GPUs, and initialises CUDA for it; None does from when the program has initialised CUDA itself;
    "windows" does so only in :class:`gpu_window`; False does not. ``profiler_config``: what is profiled in which steps, a ProfilerConfig or
    a JSON or TOML file; where it has an interval of the sampler, or of files, that holds unless ``sample_ms`` or ``rotate_s`` is given.
    ``rotate_s``: a file that is older, in seconds, is closed and another begun (0: as $POSTRUN_ROTATE_S says, else never).
    ``zstd_level``, ``rotate_bytes``, ``ring_records``, ``drain_ms``: see docs/capture.md.

    Where a session is recording already, it goes on with a warning: what is recorded goes to its file. Under `postrun record` there is no
    warning, and what is recorded goes to the folder of the job, whose recorder samples the system.
    """

    def __init__(
        self,
        directory: str | os.PathLike[str] | None = None,
        *,
        sample_ms: int | None = None,
        sample_for_s: int = 0,
        follow_fork: bool = False,
        gpu: bool | Literal["windows"] | None = None,
        zstd_level: int = 0,
        rotate_bytes: int = 0,
        rotate_s: int | None = None,
        ring_records: int = 0,
        drain_ms: int = 0,
        profiler_config: ProfilerConfig | ProfilingPlan | str | os.PathLike[str] | None = None,
    ) -> None:
        if gpu not in (None, True, False, "windows"):
            raise ValueError(f"gpu: {gpu!r} is none of True, False, None and 'windows'")
        self._plan = _plan(profiler_config)
        if gpu is None and self._plan is not None and self._plan.detailed and _gpu_driver():
            gpu = "windows"  # kernels of the steps that are profiled, not of all
        self._gpu = gpu
        self._options: dict[str, Any] = {
            "directory": directory,
            "sample_ms": _sample_ms(sample_ms, self._plan),
            "cpu_for_s": (self._plan and self._plan.cpu_seconds) or 0,
            "sample_for_s": sample_for_s,
            "follow_fork": follow_fork,
            "zstd_level": zstd_level,
            "rotate_bytes": rotate_bytes,
            "rotate_s": _rotate_s(rotate_s, self._plan),
            "ring_records": ring_records,
            "drain_ms": drain_ms,
            **_gpu_options(gpu),
        }
        self._started = False
        self._armed = False
        self.path: Path | None = None
        """The first file of the session, once it has begun."""

    def __enter__(self) -> session:
        if self._plan is not None and self._plan.disabled:
            return self
        if not recording():
            options = _of_job(self._options)
            _configure(**options)
            self._started = _start_in(options["directory"])
        if self._started:
            try:
                _gpu_begins(self._gpu, stacklevel=3)
            except BaseException:  # a warning that is an error: there will be no __exit__
                self.__exit__(None, None, None)
                raise
        elif self._gpu == "windows" and _by_environment:
            _gpu(False)
            _leave_gpu_to_windows()
        if not self._started and not _by_environment:
            warnings.warn(f"a session is recording already, to {path()}; this one is part of it", RuntimeWarning, stacklevel=2)
        file = path()
        self.path = Path(file) if file else None
        if self._started or _by_environment:
            self._armed = _arm(self._plan, self._gpu)
        return self

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, traceback: TracebackType | None, /) -> None:
        if self._armed:
            self._armed = False
            _disarm()
        if self._started:
            self._started = False
            _tell_framework()
            _stop()


_FRAMEWORKS: Final = {"torch": "PyTorch", "tensorflow": "TensorFlow", "jax": "JAX"}


def _tell_framework() -> None:
    """The framework that the program has imported, if that is one: advice in a report is in its words."""
    found = [name for module, name in _FRAMEWORKS.items() if module in sys.modules]
    if len(found) == 1 and recording():
        metadata("framework", found[0])


if _by_environment:
    atexit.register(_tell_framework)


def _of_job(options: dict[str, Any]) -> dict[str, Any]:
    """Under `postrun record` everything goes to the folder of the job, and its recorder samples the system."""
    if os.environ.get("POSTRUN_RECORDER") and os.environ.get("POSTRUN_DIR"):
        return {**options, "directory": None, "sample_ms": 0}
    return options


def _start_in(directory: str | os.PathLike[str] | None) -> bool:
    """Begins to record. Raises OSError that names the folder."""
    try:
        return _start()
    except OSError as error:
        folder = os.fspath(directory) if directory is not None else os.environ.get("POSTRUN_DIR") or "postrun-traces"
        raise OSError(error.errno, f"no trace file can be written ({error.strerror})", folder) from None


# ------------------------------------------------------------------ what a profiling configuration asks for


def _plan(config: object) -> ProfilingPlan | None:
    """That of the job, else of the script. Raises UsageError, TypeError."""
    if config is None and not os.environ.get(_PROFILER_CONFIG):
        return None
    from .framework_profiling import active

    try:
        given = None if config is None else active.plan(config)
    except Exception as error:
        raise error.with_traceback(None) from None  # the caller's mistake, not one of the functions that read the file
    return active.of_environment() or given


def _sample_ms(given: int | None, plan: ProfilingPlan | None) -> int:
    if given is not None:
        return given
    return SAMPLE_MS if plan is None or plan.sample_ms is None else plan.sample_ms


def _rotate_s(given: int | None, plan: ProfilingPlan | None) -> int:
    return given if given is not None else (plan and plan.rotate_s) or 0


def _arm(plan: ProfilingPlan | None, gpu: bool | str | None) -> bool:
    """The windows of the plan open and close with the steps from now on."""
    global _gpu_in_session
    if plan is None or not plan.of_framework:
        return False
    from .framework_profiling import active

    _gpu_in_session = gpu is True or (gpu is None and _gpu_driver())
    return active.arm(plan)


def _disarm() -> None:
    active = sys.modules.get(f"{__package__}.framework_profiling.active")
    if active is not None:
        active.disarm()


def _arm_by_environment() -> None:
    """In the session that POSTRUN_CAPTURE=1 began at import."""
    if _by_environment and os.environ.get(_PROFILER_CONFIG):
        _arm(_plan(None), False)


def _has_gpu() -> bool:
    """Whether there is an NVIDIA driver; CUDA is not initialised."""
    return _gpu_driver()


def _gpu_open() -> bool:
    """Whether this process records GPU activity beside the windows of a plan: then CUPTI is not free."""
    if _by_environment:
        return os.environ.get("POSTRUN_GPU") == "1" and not _gpu_in_windows
    return _gpu_in_session


def _leave_gpu_to_windows() -> None:
    global _gpu_in_windows
    _gpu_in_windows = True


_gpu_in_session = False
_gpu_in_windows = False


# ------------------------------------------------------------------ GPU activity


def gpu_start() -> bool:
    """Opens a window in which GPU activity is recorded, in a session with ``gpu="windows"``, or after :func:`gpu_stop`. False where one is
    open, where nothing records or ``gpu`` is False, and, with a RuntimeWarning once in a session, where there is no way to record it."""
    return _gpu_start(stacklevel=3)


def gpu_stop() -> bool:
    """Closes the window, after the GPU has done what it was given; outside of windows nothing slows calls. Whether one was open."""
    return _gpu(False) is True


class gpu_window(ContextDecorator):  # noqa: N801 - used like a function
    """Records GPU activity while the ``with`` or the decorated function lasts, as :func:`gpu_start` and :func:`gpu_stop` do. In another
    window it is part of it."""

    def __enter__(self) -> gpu_window:
        self._opened = _gpu_start(stacklevel=3)
        return self

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, traceback: TracebackType | None, /) -> None:
        if self._opened:
            gpu_stop()


def _gpu_start(stacklevel: int) -> bool:
    opened = _gpu(True)
    if opened is None:
        _warn_of_gpu(stacklevel + 1)
    return opened is True


def _gpu_options(gpu: bool | str | None) -> dict[str, bool]:
    return {"gpu": gpu is True, "gpu_later": gpu == "windows"}


def _gpu_begins(gpu: bool | str | None, stacklevel: int) -> None:
    """What is left to do when a session has begun with these options; warns where what was asked for cannot be had."""
    off = os.environ.get("POSTRUN_GPU") == "0"
    if off and gpu:
        metadata("capability.gpu", "POSTRUN_GPU=0, as of postrun record --no-gpu, turns it off")
    elif gpu is True:
        if _gpu(True) is None:
            _warn_of_gpu(stacklevel + 1)
    elif gpu == "windows":
        _gpu_when_used()
    elif gpu is None and not off and _gpu_driver():
        _gpu_when_used()
        if not any(map(os.environ.get, _GPU_WINDOWS)):
            _gpu(True)  # now, where the program has used CUDA before


def _gpu_begins_in_job(stacklevel: int) -> None:
    """A script asks for GPU activity in the session that POSTRUN_CAPTURE=1 began: from when it uses CUDA, and in the job's windows."""
    if os.environ.get("POSTRUN_GPU") == "0":
        _gpu_begins(True, stacklevel + 1)
        return
    _gpu_when_used()
    if not any(map(os.environ.get, _GPU_WINDOWS)) and _gpu(True) is None:
        _warn_of_gpu(stacklevel + 1)


def _warn_of_gpu(stacklevel: int) -> None:
    """Once for each session, whose files differ in the number at the end."""
    global _gpu_warned
    file = re.sub(r"-\d+\.prt$", ".prt", path() or "")
    if file == _gpu_warned:
        return
    _gpu_warned = file
    reason = _gpu_reason() or "the trace file says why"
    warnings.warn(f"GPU activity is not recorded: {reason}", RuntimeWarning, stacklevel=stacklevel)


_gpu_warned = ""


# ------------------------------------------------------------------ workers of multiprocessing


def _stop_in_worker() -> None:
    """A worker leaves by os._exit, past the end of the library, but runs its finalizers: this is the last."""
    sys.modules["multiprocessing.util"].Finalize(None, _stop, exitpriority=-(10**6))


def _stop_in_workers() -> None:
    """So in each worker that begins from now on, where multiprocessing is in use, and in this process, where it is one."""
    global _workers_known
    util, process = sys.modules.get("multiprocessing.util"), sys.modules.get("multiprocessing.process")
    if _workers_known or not hasattr(util, "register_after_fork") or not hasattr(process, "parent_process"):
        return
    _workers_known = True
    util.register_after_fork(_PROFILER, lambda _: _stop_in_worker())  # type: ignore[union-attr]
    if process.parent_process() is not None:  # type: ignore[union-attr]
        _stop_in_worker()


_workers_known = False


# ------------------------------------------------------------------ the hosted profiler's interface


class Config:
    """What a profiler is to do: ``profiler`` is a dict of texts, such as ``{"EnableCuda": "1"}``."""

    def __init__(self, profiler: Mapping[str, str | int | bool] | None = None) -> None:
        self.profiler: Mapping[str, str | int | bool] = dict(profiler or {})


class SMProfiler:
    """The profiler of this process; there is one, :meth:`instance`."""

    def __init__(self) -> None:
        self._config: dict[str, str] = {}

    @classmethod
    def instance(cls) -> SMProfiler:
        """The profiler of this process."""
        return _PROFILER

    @property
    def config(self) -> Mapping[str, str]:
        """What was configured, as texts; also keys that mean nothing here."""
        return MappingProxyType(self._config)

    def configure(self, config: Config) -> None:
        """Sets what the next session does. Keys that are not known are kept, and written to the trace file's metadata.

        Raises RuntimeError while recording (not in a session that POSTRUN_CAPTURE=1 began), TypeError for what is no text or number.
        """
        if not isinstance(config, Config) or not isinstance(config.profiler, Mapping):
            raise TypeError("configure takes a Config whose profiler is a dict, such as {'EnableCuda': '1'}")
        found = {_text(key, "key"): _text(value, f"value of {key!r}") for key, value in config.profiler.items()}
        if recording() and not _by_environment:
            raise RuntimeError("the configuration cannot change while recording; call stop_profiling first")
        self._config = found
        if recording():
            self._tell()

    def start_profiling(self) -> None:
        """Begins to record, with EnableCuda also what runs on the GPUs (where that cannot be: a RuntimeWarning says why). Where it records
        already: nothing, with a warning (not in a session that POSTRUN_CAPTURE=1 began). Raises OSError where no file can be written."""
        if recording():
            if not _by_environment:
                _warn("start_profiling: recording already")
            elif self._gpu():
                _gpu_begins_in_job(stacklevel=3)
            return
        plan = _plan(None)
        if plan is not None and plan.disabled:
            return
        follow_fork = self._config.get("EnableForkFollow", "").lower() in _TRUE
        sampled = {"sample_ms": _sample_ms(None, plan), "cpu_for_s": (plan and plan.cpu_seconds) or 0}
        files = {"rotate_s": _rotate_s(None, plan)}
        _configure(**_of_job({**sampled, **files, "follow_fork": follow_fork, **_gpu_options(self._gpu())}))
        if not _start_in(None):
            _warn("start_profiling: recording already")
            return
        self._tell()
        try:
            _gpu_begins(self._gpu(), stacklevel=3)
        except BaseException:
            _stop()
            raise
        _arm(plan, self._gpu())

    def stop_profiling(self) -> None:
        """Ends the recording; ranges that are open end here. Without one: nothing, with a warning."""
        global _by_environment
        _disarm()
        _by_environment = False
        if recording():
            _tell_framework()
            metadata("recording.stopped", "by the program")
        if not _stop():
            _warn("stop_profiling: nothing was recording")

    def _tell(self) -> None:
        for key, value in self._config.items():
            if len(value.encode("utf-8", "replace")) < 60000:
                metadata(f"config.{key}"[:200].replace("\0", " "), value.replace("\0", " "))

    def _gpu(self) -> bool | None:
        """Under `postrun record --gpu` also what does not ask for it, unless it says no."""
        asked = self._config.get("EnableCuda", "").lower()
        return True if asked in _TRUE else None if not asked and os.environ.get("POSTRUN_GPU") == "1" else False


_PROFILER: Final = SMProfiler()
_stop_in_workers()
os.register_at_fork(before=_stop_in_workers)


def _text(value: object, what: str) -> str:
    if isinstance(value, bool):
        return str(int(value))
    if isinstance(value, str | int):
        return str(value)
    raise TypeError(f"Config.profiler: the {what} is {value!r}; accepted: str, int, bool")


def _warn(text: str) -> None:
    warnings.warn(text, RuntimeWarning, stacklevel=3)


# ------------------------------------------------------------------ traces of torch.profiler


def torch_trace_handler(directory: str | os.PathLike[str]) -> Callable[[Any], None]:
    """For ``torch.profiler.profile(on_trace_ready=...)``: writes each trace, gzipped, to where ``postrun report DIRECTORY`` reads it.

    Files are named ``<host>_<pid>.<time>.pt.trace.json.gz``, in a folder ``rank<N>`` where the process has a rank. A file is complete
    or not there; where it cannot be written, there is a warning, and training goes on.
    """
    root = Path(directory)

    def handler(profiler: Any) -> None:
        try:
            _write_trace(profiler, root)
        except OSError as error:
            warnings.warn(f"{error.filename}: the trace could not be written ({error.strerror})", RuntimeWarning, stacklevel=2)

    return handler


def _write_trace(profiler: Any, root: Path) -> None:
    """Raises OSError, with the trace's name and the reason."""
    rank = _rank()
    folder = root if rank is None else root / f"rank{rank}"
    name = f"{socket.gethostname().replace('/', '_')}_{os.getpid()}.{time.time_ns()}.pt.trace.json"
    plain, packed = folder / f".{name}", folder / f".{name}.gz"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        profiler.export_chrome_trace(os.fspath(plain))
        if not _is_whole(plain):
            packed.write_bytes(bytes(1 << 20))  # fails for the same reason, which torch does not tell
            raise OSError(errno.EIO, "torch.profiler did not write it")
        _pack(plain, packed)
        packed.replace(folder / f"{name}.gz")
    except OSError as error:
        raise OSError(error.errno or errno.EIO, error.strerror or str(error), f"{folder / name}.gz") from None
    finally:
        for left in (plain, packed, folder / f".{name}.tmp"):  # the last one is torch's own
            with suppress(OSError):
                left.unlink(missing_ok=True)


def _is_whole(trace: Path) -> bool:
    """Whether it is there, to its last bracket."""
    with suppress(OSError), trace.open("rb") as file:
        file.seek(max(0, trace.stat().st_size - 16))
        return file.read().rstrip().endswith((b"}", b"]"))
    return False


def _pack(source: Path, target: Path) -> None:
    import gzip
    import shutil

    with source.open("rb") as plain, gzip.open(target, "wb", compresslevel=4) as packed:
        shutil.copyfileobj(plain, packed, 1 << 20)


def _rank() -> int | None:
    """As torch.distributed knows it, where it is in use; else as the launcher set it."""
    distributed = sys.modules.get("torch.distributed")
    if distributed is not None and distributed.is_available() and distributed.is_initialized():
        return int(distributed.get_rank())
    for variable in _RANKS:
        text = os.environ.get(variable, "")
        if text.isascii() and text.isdigit():
            return int(text)
    return None


_arm_by_environment()
