"""Keeps the work of the recorder in the profiled thread out of profiles of the program's functions.

Disabling and enabling cProfile around the work would end all functions that are running, and functions that they call later would have no
caller. Here the profiler's events stop instead, and its state of running functions stays: up to Python 3.11 by a ``sys.setprofile(None)``
that it does not see, from 3.12 on by dropping the events of `sys.monitoring`.

Of all functions here a profiler sees only ``recording``: its callers are where the recorder began to work, its own time is the duration of
that work, and it calls nothing.
"""

from __future__ import annotations

import functools
import sys
import threading
from collections.abc import Callable
from typing import Any, Final, ParamSpec, Protocol, TypeVar

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")

MONITORED: Final = sys.version_info >= (3, 12)  # whether `sys.monitoring` calls cProfile, instead of `sys.setprofile`
# Profilers see calls of C functions, but not of partial objects.
_stop: Final = functools.partial(sys.setprofile, None)
_active: Final = functools.partial(sys.getprofile)


class Profile(Protocol):
    """A cProfile of one thread that can be paused. ``resume``: continues it, up to Python 3.11; ``profiler``: the one active then."""

    paused: bool
    profiler: Any
    resume: Callable[[], object]


class _Here(threading.local):
    """The state of a thread: its open profile, and the nesting depth of the recorder's functions."""

    profile: Profile | None = None
    depth = 0


ANNOTATED: Final = "annotated "  # the beginning of the name of the code of wrappers that annotate calls
_here: Final = _Here()
_BEGINS: Final = 0
_ENDS: Final = 1
_WORKS: Final = 2


def begin(profile: Profile) -> None:
    """Make the paused ``profile`` this thread's; resume it after the work."""
    _here.profile = profile
    if not _here.depth:
        _ends()


def end() -> None:
    """Remove the profile of this thread."""
    _here.profile = None


def unseen(work: Callable[P, R]) -> Callable[P, R]:
    """Exclude ``work`` of the recorder, and its calls, from the profile."""
    return functools.wraps(work)(_recording(_WORKS, work))


def around(program: Callable[..., R], before: Callable[..., T], after: Callable[..., object] | None = None) -> Callable[..., R]:
    """Wrap the program's function with work that profiles do not see.

    ``before`` gets its arguments; ``after`` gets the result of ``before``, the exception (None: none), and the arguments.
    """

    def called(*arguments: Any, **keywords: Any) -> R:
        token = before(*arguments, **keywords)
        seen = _here.depth == 1
        failed: BaseException | None = None
        if seen:
            _ends()
        try:
            return program(*arguments, **keywords)
        except BaseException as error:
            failed = error
            raise
        finally:
            if seen:
                _begins()
            if after is not None:
                after(token, failed, *arguments, **keywords)
            failed = None  # avoids a cycle with its traceback

    return functools.wraps(program)(_recording(_WORKS, called))


def annotating(wrapper: Callable[..., Any], program: Callable[..., Any], name: str) -> Callable[..., Any]:
    """Make a wrapper look like ``program``; profiles know it by its code's name."""
    wrapper.__code__ = wrapper.__code__.replace(co_name=f"{ANNOTATED}{name}")
    return functools.wraps(program)(wrapper)


def _recording(what: int, work: Callable[..., Any] | None = None) -> Callable[..., Any]:
    """Make a function; all share their code, so a profiler takes them for one."""

    def recording(*arguments: Any, **keywords: Any) -> Any:
        here = _here
        profile = here.profile
        if what != _ENDS:
            if profile is not None and not profile.paused and (MONITORED or _active() is profile.profiler):
                profile.paused = True
                if not MONITORED:
                    _stop()
            here.depth += 1
        try:
            return work(*arguments, **keywords) if work is not None else None
        finally:
            if what != _BEGINS:
                if here.depth:
                    here.depth -= 1
                profile = here.profile
                if profile is not None and profile.paused and not here.depth:
                    profile.paused = False
                    if not MONITORED:
                        profile.resume()

    return recording


_begins: Final = _recording(_BEGINS)
_ends: Final = _recording(_ENDS)
