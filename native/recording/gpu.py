"""When GPU activity is recorded in a session, and the warning if it cannot be."""

from __future__ import annotations

import re
import warnings
from contextlib import ContextDecorator
from types import TracebackType

from . import environment as capture_environment
from . import library as library

_in_session = False
_in_windows = False
_warned = ""


def gpu_start() -> bool:
    """Open a window in which GPU activity is recorded; return whether it opened.

    It needs a session with ``gpu="windows"``, or a preceding :func:`gpu_stop`. False if a window is open, nothing records or ``gpu`` is
    False; also, with a RuntimeWarning once per session, if GPU activity cannot be recorded.
    """
    return _start(stacklevel=3)


def gpu_stop() -> bool:
    """Close the window when the GPU has finished; return whether one was open."""
    return library.gpu(False) is True


class gpu_window(ContextDecorator):  # noqa: N801 - used like a function
    """Records GPU activity while the ``with`` or the decorated function lasts; inside another window it is part of that."""

    def __enter__(self) -> gpu_window:
        self._opened = _start(stacklevel=3)
        return self

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, traceback: TracebackType | None, /) -> None:
        if self._opened:
            gpu_stop()


def _start(stacklevel: int) -> bool:
    opened = library.gpu(True)
    if opened is None:
        _warn(stacklevel + 1)
    return opened is True


def session_asks(gpu: bool | str | None) -> None:
    """Set the ``gpu`` of a session with windows of a plan."""
    global _in_session
    _in_session = gpu is True or (gpu is None and library.gpu_driver())


def is_open() -> bool:
    """Whether GPU activity is recorded outside the plan's windows, with CUPTI."""
    if capture_environment.session_lasts():
        return capture_environment.gpu() == "1" and not _in_windows
    return _in_session


def leave_to_windows() -> None:
    """Close the window in the environment's session; :func:`gpu_start` opens it again."""
    global _in_windows
    library.gpu(False)
    _in_windows = True


def options(gpu: bool | str | None) -> dict[str, bool]:
    """Return the options of the library's configuration for a session's ``gpu``."""
    return {"gpu": gpu is True, "gpu_later": gpu == "windows", "gpu_bounded": gpu is None}


def begins(gpu: bool | str | None, stacklevel: int) -> None:
    """Finish the start of a session with this ``gpu``; warn if it cannot be recorded."""
    off = capture_environment.gpu() == "0"
    if gpu is not False and not off:
        _let_profilers_go_first()
    if off and gpu:
        library.metadata("capability.gpu", "POSTRUN_GPU=0, as of postrun record --no-gpu, turns it off")
    elif gpu is True:
        if library.gpu(True) is None:
            _warn(stacklevel + 1)
    elif gpu == "windows" or (gpu is None and not off and library.gpu_driver()):
        library.gpu_when_used()


def begins_in_job(stacklevel: int) -> None:
    """Record GPU activity for a script in the session of POSTRUN_CAPTURE=1."""
    if capture_environment.gpu() == "0":
        begins(True, stacklevel + 1)
        return
    _let_profilers_go_first()
    library.gpu_when_used()
    if not capture_environment.gpu_by_windows() and library.gpu(True) is None:
        _warn(stacklevel + 1)


def begins_by_environment() -> None:
    """Prepare the session that POSTRUN_CAPTURE=1 began at import."""
    if capture_environment.session_lasts() and capture_environment.gpu() == "1":
        _let_profilers_go_first()


def _let_profilers_go_first() -> None:
    """Watch for the program's profilers, before they use CUPTI."""
    if library.gpu_driver():
        from . import other_profilers

        other_profilers.watch()


def _warn(stacklevel: int) -> None:
    """Warn once per session; its files differ only in the number at the end."""
    global _warned
    file = re.sub(r"-\d+\.prt$", ".prt", library.path() or "")
    if file == _warned:
        return
    _warned = file
    reason = library.gpu_reason() or "the trace file says why"
    warnings.warn(f"GPU activity is not recorded: {reason}", RuntimeWarning, stacklevel=stacklevel)
