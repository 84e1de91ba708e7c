"""How does a script of the hosted profiler record? With the same SMProfiler and Config."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from ..recording import environment as capture_environment
from ..recording import gpu as capture_gpu
from ..recording import library as library
from . import profiling as capture_profiling
from .session import start_in, tell_framework

_TRUE: Final = frozenset({"1", "true", "yes", "on"})


class Config:
    """What a profiler is to do: ``profiler`` is a dict of texts, such as ``{"EnableCuda": "1"}``."""

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
        """The profiler of this process."""
        return cls()

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
        if library.recording() and not capture_environment.session_lasts():
            raise RuntimeError("the configuration cannot change while recording; call stop_profiling first")
        self._config = found
        if library.recording():
            self._tell()

    def start_profiling(self) -> None:
        """Begins to record, with EnableCuda also what runs on the GPUs (where that cannot be: a RuntimeWarning says why). Where it records
        already: nothing, with a warning (not in a session that POSTRUN_CAPTURE=1 began). Raises OSError where no file can be written."""
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
        sampled = {"sample_ms": capture_profiling.sample_ms(None, plan), "cpu_for_s": (plan and plan.cpu_seconds) or 0}
        files = {"rotate_s": capture_profiling.rotate_s(None, plan), "follow_fork": follow_fork}
        library.configure(**capture_environment.of_job({**sampled, **files, **capture_gpu.options(self._gpu())}))
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
        """Ends the recording; ranges that are open end here. Without one: nothing, with a warning."""
        capture_profiling.disarm()
        capture_environment.session_ended()
        if library.recording():
            tell_framework()
            library.metadata("recording.stopped", "by the program")
        if not library.stop():
            _warn("stop_profiling: nothing was recording")

    def _tell(self) -> None:
        for key, value in self._config.items():
            if len(value.encode("utf-8", "replace")) < 60000:
                text = value.replace("\0", " ").encode("utf-8", "backslashreplace").decode()
                library.metadata(f"config.{key}"[:200].replace("\0", " "), text)

    def _gpu(self) -> bool | None:
        """Under `postrun record --gpu` also what does not ask for it, unless it says no."""
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
