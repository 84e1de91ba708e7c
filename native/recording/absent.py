"""Stand-ins for the functions of the C library: they record nothing, and the first start warns of that.

They check their arguments like the C functions, so that a mistake does not first show when the program is recorded.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable
from types import TracebackType
from typing import Any, SupportsFloat, SupportsIndex, TypeVar, final

_F = TypeVar("_F")
_warned = False


def _answer(value: Any) -> Callable[..., Any]:
    return lambda *arguments, **options: value


configure = end = flush = gpu_when_used = path = set_decorator = watch_steps = _answer(None)
gpu = gpu_driver = gpu_yield = nvtx_steps = recording = _answer(False)
stop = _answer(True)
gpu_reason = _answer("this installation of postrun has no C library")


def _check(name: str, value: SupportsIndex | None = None) -> None:
    if not isinstance(name, str):
        raise TypeError(f"a name is a str, not {name!r}")
    if value is not None and not -(2**63) < value.__index__() < 2**63:
        raise OverflowError("a value has 64 bits; -2**63 stands for none")


@final
class Annotation:
    """A range with a name, which is recorded nowhere."""

    def __enter__(self) -> Annotation:
        return self

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, traceback: TracebackType | None, /) -> None:
        return None

    async def __aenter__(self) -> None:
        return None

    async def __aexit__(self, kind: type[BaseException] | None, value: BaseException | None, traceback: TracebackType | None, /) -> None:
        return None

    def __call__(self, function: _F, /) -> _F:
        if not callable(function):
            raise TypeError(f"annotate decorates functions, not {function!r}")
        return function


@final
class Range:
    """The result of range_begin."""


def begin(name: str, value: SupportsIndex | None = None) -> None:
    _check(name, value)


def annotate(name: str, value: SupportsIndex | None = None) -> Annotation:
    _check(name, value)
    return Annotation()


def range_begin(name: str, value: SupportsIndex | None = None) -> Range:
    _check(name, value)
    return Range()


def range_end(handle: Range, /) -> None:
    if not isinstance(handle, Range):
        raise ValueError(f"{handle!r} is not a range that was begun")


range_drop = range_end


def turn(before: Range | None, number: int | None, /) -> Range | None:
    return None if number is None else Range()


def counter(name: str, value: SupportsFloat | SupportsIndex, /) -> None:
    _check(name)
    float(value)


def metadata(key: str, value: str, /) -> None:
    _check(key)


def start() -> bool:
    """Warn once; return True, so that the program behaves as if it recorded."""
    global _warned
    if not _warned:
        _warned = True
        warnings.warn(
            "nothing is recorded: this installation of postrun has no C library; reinstall with a C compiler and without POSTRUN_NO_NATIVE",
            RuntimeWarning,
            stacklevel=4,
        )
    return True


def statistics() -> dict[str, int]:
    return dict.fromkeys(("recorded", "written", "lost", "bytes", "blocks", "unbalanced", "error"), 0)


def now_ns() -> int:
    return time.time_ns()
