"""Lets profilers that the program starts use CUPTI: the window of GPU activity closes before they start and opens after they end.

Only one client can use CUPTI at a time. The profilers of PyTorch, JAX, TensorFlow and Triton are recognized by the functions that start and
end them; CUPTI refuses any other profiler while a window is open.
"""

from __future__ import annotations

import sys
import threading
from types import ModuleType
from typing import Any, Final, NamedTuple

from .exclude_self import around
from .when_imported import when_imported


class _Profiler(NamedTuple):
    """``starts``, ``ends``: functions of the module."""

    name: str
    module: str
    starts: tuple[str, ...]
    ends: tuple[str, ...]


_PROFILERS: Final = (
    _Profiler("PyTorch's profiler", "torch.autograd.profiler", ("_prepare_profiler", "_enable_profiler"), ("_disable_profiler",)),
    _Profiler("JAX's profiler", "jax._src.profiler", ("start_trace",), ("stop_trace",)),
    _Profiler("TensorFlow's profiler", "tensorflow.python.profiler.profiler_v2", ("start",), ("stop",)),
    _Profiler("Triton's profiler (Proton)", "triton.profiler.profile", ("start",), ("finalize",)),
)
_watched = False


def watch() -> None:
    """Watch for these profilers from now on; only the first call has an effect."""
    global _watched
    if not _watched:
        _watched = True
        for profiler in _PROFILERS:
            when_imported(profiler.module, _Hook(profiler).put)


class _Hook:
    """A kind of profiler; at most one of a kind runs at a time."""

    def __init__(self, profiler: _Profiler) -> None:
        self._profiler = profiler
        self._lock = threading.Lock()
        self._runs = False

    def put(self, module: ModuleType) -> None:
        """Wrap the functions of the module, also where other modules have imported them."""
        framework = module.__name__.partition(".")[0]
        others = [loaded for name, loaded in list(sys.modules.items()) if name.partition(".")[0] == framework]
        for names, before, after in (
            (self._profiler.starts, self._starts, self._has_started),
            (self._profiler.ends, lambda *arguments, **keywords: None, self._has_ended),
        ):
            for name in names:
                function = getattr(module, name, None)
                if function is None:
                    continue
                hooked = around(function, before, after)
                for module_ in {id(other): other for other in (module, *others)}.values():
                    if getattr(module_, "__dict__", {}).get(name) is function:
                        setattr(module_, name, hooked)

    def _starts(self, *arguments: Any, **keywords: Any) -> bool:
        """Leave CUPTI to the profiler; return whether this call did so."""
        with self._lock:
            yields = not self._runs and _uses_gpus(arguments)
            self._runs |= yields
        if yields:
            _yield_to(self._profiler.name)
        return yields

    def _has_started(self, yields: bool, failed: BaseException | None, *arguments: Any, **keywords: Any) -> None:
        if yields and failed is not None:
            self._resume()

    def _has_ended(self, _: None, failed: BaseException | None, *arguments: Any, **keywords: Any) -> None:
        self._resume()

    def _resume(self) -> None:
        with self._lock:
            runs, self._runs = self._runs, False
        if runs:
            _yield_to(None)


def _yield_to(who: str | None) -> None:
    from . import library as capture_library  # imported late: it may begin a session, which a launcher that imports torch must not

    capture_library.gpu_yield(who)


def _uses_gpus(arguments: tuple[Any, ...]) -> bool:
    """Whether a profiler with these arguments uses CUPTI."""
    recorded = next((value for value in arguments if isinstance(value, (set, frozenset))), None)  # PyTorch's activities
    return recorded is None or any(getattr(activity, "name", "") == "CUDA" for activity in recorded)
