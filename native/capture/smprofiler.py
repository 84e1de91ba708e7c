"""SMProfiler and Config, with which scripts of the hosted profiler record."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from ..recording import environment as capture_environment
from ..recording import gpu as capture_gpu
from ..recording import library as library
from . import profiling as capture_profiling
from .session import record_framework, start_in

_TRUE: Final = frozenset({"1", "true", "yes", "on"})


class Config:
    """The configuration of a profiler: ``profiler`` is a dict of texts, such as ``{"EnableCuda": "1"}``."""

    def __init__(self, profiler: Mapping[str, str | int | bool] | None = None) -> None:
        self.profiler: Mapping[str, str | int | bool] = dict(profiler or {})


_profilers: Final[dict[type, SMProfiler]] = {}


class SMProfiler:
    """The profiler of this process. There is one: ``SMProfiler()`` and :meth:`instance` return the same object."""

    _config: dict[str, str]

    def __new__(cls) -> SMProfiler:
        if (profiler := _profilers.get(cls)) is None:
            profiler = _profilers.setdefault(cls, super().__new__(cls))
            profiler._config = {}
        return profiler

    @classmethod
    def instance(cls) -> SMProfiler:
        """Return the profiler of this process."""
        return cls()

    @property
    def config(self) -> Mapping[str, str]:
        """The configuration as texts, including keys without a meaning here."""
        return MappingProxyType(self._config)

    def configure(self, config: Config) -> None:
        """Configure the next session.

        Unknown keys are kept and written to the trace file's metadata. Raise RuntimeError while recording (not in a session of
        POSTRUN_CAPTURE=1), TypeError for a value that is neither a text nor a number.
        """
        if not isinstance(config, Config) or not isinstance(config.profiler, Mapping):
            raise TypeError("configure takes a Config whose profiler is a dict, such as {'EnableCuda': '1'}")
        config_texts = {_text(key, "key"): _text(value, f"value of {key!r}") for key, value in config.profiler.items()}
        if library.recording() and not capture_environment.session_lasts():
            raise RuntimeError("the configuration cannot change while recording; call stop_profiling first")
        self._config = config_texts
        if library.recording():
            self._tell()

    def start_profiling(self) -> None:
        """Begin to record, with EnableCuda also GPU activity. Raise OSError.

        A RuntimeWarning reports why GPU activity cannot be recorded, or that a session is recording already (not in one of
        POSTRUN_CAPTURE=1); then nothing changes.
        """
        if library.recording():
            if not capture_environment.session_lasts():
                _warn("start_profiling: recording already")
            elif self._gpu():
                capture_gpu.begins_in_job(stacklevel=3)
            return
        plan = capture_profiling.plan_of(None)
        if plan is not None and plan.disabled:
            return
        follow_fork = self._config.get("EnableForkFollow", "").lower() in _TRUE
        options = {"follow_fork": follow_fork, **capture_profiling.options(plan), **capture_gpu.options(self._gpu())}
        library.configure(**capture_environment.of_job(options))
        started = start_in(None)
        if not started:
            if started is False:
                _warn("start_profiling: recording already")
            return
        self._tell()
        try:
            capture_gpu.begins(self._gpu(), stacklevel=3)
        except BaseException:
            library.stop()
            raise
        capture_profiling.arm(plan, self._gpu())

    def stop_profiling(self) -> None:
        """End the recording and its open ranges; warn if nothing is recording."""
        capture_profiling.disarm()
        capture_environment.session_ended()
        if library.recording():
            record_framework()
            library.metadata("recording.stopped", "by the program")
        if not library.stop():
            _warn("stop_profiling: nothing was recording")

    def _tell(self) -> None:
        for key, value in self._config.items():
            if len(value.encode("utf-8", "replace")) < 60000:
                text = value.replace("\0", " ").encode("utf-8", "backslashreplace").decode()
                library.metadata(f"config.{key}"[:200].replace("\0", " "), text)

    def _gpu(self) -> bool | None:
        """Return the session's ``gpu``; under `postrun record --gpu` None by default."""
        asked = self._config.get("EnableCuda", "").lower()
        return True if asked in _TRUE else None if not asked and capture_environment.gpu() == "1" else False


def _text(value: object, what: str) -> str:
    if isinstance(value, bool):
        return str(int(value))
    if isinstance(value, str | int):
        return str(value)
    raise TypeError(f"Config.profiler: the {what} is {value!r}; accepted: str, int, bool")


def _warn(text: str) -> None:
    warnings.warn(text, RuntimeWarning, stacklevel=3)
