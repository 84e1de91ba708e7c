"""A recording session: its options, its start and its end."""

from __future__ import annotations

import os
import sys
import warnings
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Literal

from ... import modes
from ..recording import environment as capture_environment
from ..recording import gpu as capture_gpu
from ..recording import library as library
from . import profiling as capture_profiling

if TYPE_CHECKING:
    from ..profiling.plan import ProfilingPlan
    from ..profiling.profiler_config import ProfilerConfig


class session:  # noqa: N801 - used like a function
    """Records while the ``with`` lasts.

    ``directory``: of the trace files; else $POSTRUN_DIR, else "postrun-traces". ``sample_ms``: interval of the system sampler (100,
    200, 500, 1000, 5000, 60000; 0: none), ``sample_for_s``: how long it samples. ``follow_fork``: forked processes record as well.
    ``gpu``: True records all GPU activity, and initializes CUDA for it. None records it in bounded windows (20 steps after 10, and again
    every 10 minutes; see docs/gpu-capture.md) once the program has initialized CUDA itself. "windows" records it only in
    :class:`gpu_window`; False does not record it. ``profiler_config``: which steps are profiled and how, a ProfilerConfig or a JSON or
    TOML file; its intervals of the sampler and of files apply unless ``sample_ms`` or ``rotate_s`` is given.
    ``rotate_s``: age in seconds at which a file is closed and the next begun (None: $POSTRUN_ROTATE_S; 0: never).
    ``mode``: permissions of the files, such as 0o640 (None: $POSTRUN_MODE, else 0o600).
    ``zstd_level``, ``rotate_bytes``, ``ring_records``, ``drain_ms``: see docs/capture.md.

    If a session is already recording, this one becomes part of it, with a warning. Under `postrun record` there is no warning, the files
    go to the folder of the job, and the job's recorder samples the system.
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
        mode: int | None = None,
        ring_records: int = 0,
        drain_ms: int = 0,
        profiler_config: ProfilerConfig | ProfilingPlan | str | os.PathLike[str] | None = None,
    ) -> None:
        if gpu not in (None, True, False, "windows"):
            raise ValueError(f"gpu: {gpu!r} is none of True, False, None and 'windows'")
        if mode is not None and not modes.is_file_mode(mode):
            raise ValueError(f"mode: {mode:#o} is not a file mode from 0o600 to 0o666 without execute permissions")
        self._mode = mode
        self._plan = capture_profiling.plan_of(profiler_config)
        if gpu is None and self._plan is not None and self._plan.detailed and library.gpu_driver():
            gpu = "windows"  # kernels of the profiled steps, not of all
        self._gpu = gpu
        self._options: dict[str, Any] = {
            "directory": directory,
            "sample_for_s": sample_for_s,
            "follow_fork": follow_fork,
            "zstd_level": zstd_level,
            "rotate_bytes": rotate_bytes,
            "file_mode": mode or 0,
            "ring_records": ring_records,
            "drain_ms": drain_ms,
            **capture_profiling.options(self._plan, sample_ms, rotate_s),
            **capture_gpu.options(gpu),
        }
        self._started = False
        self._armed = False
        self.path: Path | None = None
        """The first file of the session, once it has begun."""

    def __enter__(self) -> session:
        if self._plan is not None and self._plan.disabled:
            return self
        if not library.recording():
            options = capture_environment.of_job(self._options)
            modes.of_session(self._mode)
            library.configure(**options)
            started = start_in(options["directory"])
            if started is None:
                return self
            self._started = started
        if self._started:
            try:
                capture_gpu.begins(self._gpu, stacklevel=3)
            except BaseException:  # a warning that is an error: __exit__ will not be called
                self.__exit__(None, None, None)
                raise
        if not self._started and self._gpu == "windows" and capture_environment.session_lasts():
            capture_gpu.leave_to_windows()
        if not self._started and not capture_environment.session_lasts():
            warnings.warn(f"a session is recording already, to {library.path()}; this one is part of it", RuntimeWarning, stacklevel=2)
        file = library.path()
        self.path = Path(file) if file else None
        if self._started or capture_environment.session_lasts():
            self._armed = capture_profiling.arm(self._plan, self._gpu)
        return self

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, traceback: TracebackType | None, /) -> None:
        if self._armed:
            self._armed = False
            capture_profiling.disarm()
        if self._started:
            self._started = False
            record_framework()
            library.stop()


_FRAMEWORKS: Final = {"torch": "PyTorch", "tensorflow": "TensorFlow", "jax": "JAX"}


def record_framework() -> None:
    """Record the framework, if the program uses exactly one, for the advice."""
    frameworks = [name for module, name in _FRAMEWORKS.items() if module in sys.modules]
    if not library.recording():
        return
    if len(frameworks) == 1:
        library.metadata("framework", frameworks[0])
    version = getattr(sys.modules.get("torch"), "version", None)
    maker = "AMD" if getattr(version, "hip", None) else "Intel" if getattr(version, "xpu", None) else None
    if maker is not None:
        library.metadata("capability.gpu", f"{maker} GPUs are not supported; use PyTorch's profiler")


_reported = False


def start_in(directory: str | os.PathLike[str] | None) -> bool | None:
    """Begin to record; False if a session is recording already. Raise OSError.

    The error names the folder. Under `postrun record`, whose command must go on, it is a message, once per process, and None is returned.
    """
    global _reported
    try:
        return library.start()
    except OSError as error:
        folder = os.fspath(directory) if directory is not None else os.environ.get("POSTRUN_DIR") or "postrun-traces"
        if capture_environment.of_recorder():
            if not _reported:
                _reported = True
                sys.stderr.write(f"postrun: process {os.getpid()} is not recorded: cannot write to {folder!a}: {error.strerror}\n")
            return None
        raise OSError(error.errno, f"no trace file can be written ({error.strerror})", folder) from None
