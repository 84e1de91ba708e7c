"""Begins a recording session by importing postrun.capture. The hooks call it at the first use of a framework."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ..profiling.engine.steps import Steps

_library: Any = None
_failed = False


def steps() -> Steps | None:
    """Return the steps of the session, which begins if it has not."""
    return steps_of_session() if record() is not None else None


def steps_of_session() -> Steps | None:
    """Return the steps of the session, if it has begun."""
    module = sys.modules.get("postrun.native.profiling.engine.steps")
    return None if module is None else module.current()


def begin_range(name: str, value: int) -> Any:
    """Begin a range, and the session if it has not begun; None if it cannot."""
    library = record()
    return None if library is None else library.range_begin(name, value)


def end_range(handle: Any) -> None:
    """End the range."""
    _library.range_end(handle)


def record() -> Any:
    """Begin the session by importing postrun.capture; return the C library."""
    global _library, _failed
    if _library is None and not _failed:
        _failed = True
        try:
            from .. import capture  # noqa: F401
            from ..recording import library as capture_library

            _library, _failed = capture_library, False
        except Exception as error:
            print(f"postrun: this process is not recorded ({type(error).__name__}: {error})", file=sys.stderr)
    return _library
