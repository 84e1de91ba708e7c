"""When is recorded what runs on the GPUs, and what is told where it cannot be?"""

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
    """Opens a window in which GPU activity is recorded, in a session with ``gpu="windows"``, or after :func:`gpu_stop`. False where one is
    open, where nothing records or ``gpu`` is False, and, with a RuntimeWarning once in a session, where there is no way to record it."""
    return _start(stacklevel=3)


def gpu_stop() -> bool:
    """Closes the window, after the GPU has done what it was given; outside of windows nothing slows calls. Whether one was open."""
    return library.gpu(False) is True


class gpu_window(ContextDecorator):  # noqa: N801 - used like a function
    """Records GPU activity while the ``with`` or the decorated function lasts, as :func:`gpu_start` and :func:`gpu_stop` do. In another
    window it is part of it."""

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
    """What a session with windows of a plan is asked for, as its ``gpu``."""
    global _in_session
    _in_session = gpu is True or (gpu is None and library.gpu_driver())


def is_open() -> bool:
    """Whether this process records GPU activity beside the windows of a plan: then CUPTI is not free."""
    if capture_environment.session_lasts():
        return capture_environment.gpu() == "1" and not _in_windows
    return _in_session


def leave_to_windows() -> None:
    """In the session of the environment: what is open closes, and opens by :func:`gpu_start` again."""
    global _in_windows
    library.gpu(False)
    _in_windows = True


def options(gpu: bool | str | None) -> dict[str, bool]:
    """Of the library's configuration, for a session's ``gpu``."""
    return {"gpu": gpu is True, "gpu_later": gpu == "windows", "gpu_bounded": gpu is None}


def begins(gpu: bool | str | None, stacklevel: int) -> None:
    """What is left to do when a session has begun with these options; warns where what was asked for cannot be had."""
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
    """A script asks for GPU activity in the session that POSTRUN_CAPTURE=1 began: from when it uses CUDA, and in the job's windows."""
    if capture_environment.gpu() == "0":
        begins(True, stacklevel + 1)
        return
    _let_profilers_go_first()
    library.gpu_when_used()
    if not capture_environment.gpu_by_windows() and library.gpu(True) is None:
        _warn(stacklevel + 1)


def begins_by_environment() -> None:
    """In the session that POSTRUN_CAPTURE=1 began at import."""
    if capture_environment.session_lasts() and capture_environment.gpu() == "1":
        _let_profilers_go_first()


def _let_profilers_go_first() -> None:
    """Those of the program, before they use CUPTI."""
    if library.gpu_driver():
        from . import other_profilers

        other_profilers.watch()


def _warn(stacklevel: int) -> None:
    """Once for each session, whose files differ in the number at the end."""
    global _warned
    file = re.sub(r"-\d+\.prt$", ".prt", library.path() or "")
    if file == _warned:
        return
    _warned = file
    reason = library.gpu_reason() or "the trace file says why"
    warnings.warn(f"GPU activity is not recorded: {reason}", RuntimeWarning, stacklevel=stacklevel)
