"""How does what the recorder does in the thread that is profiled stay out of the profile of the program's functions?

cProfile cannot be disabled and enabled again for it: that ends all functions that are running, and what they call later has no caller.
Here the events of the profiler stop instead, and what it knows of running functions stays as it is: up to Python 3.11 by a
``sys.setprofile(None)`` that it does not see, from 3.12 on by dropping what `sys.monitoring` tells it.

Of all functions that are made here a profiler sees one, ``recording``: its calls are where the recorder began to work, its own time is how
long that took, and it calls nothing.
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

MONITORED: Final = sys.version_info >= (3, 12)  # Whether cProfile is called by `sys.monitoring`, else as `sys.setprofile` has it
# Profilers see calls of functions in C, but of no partial ones.
_stop: Final = functools.partial(sys.setprofile, None)
_active: Final = functools.partial(sys.getprofile)


class Profile(Protocol):
    """A cProfile of one thread that can be paused. ``resume``: makes it go on, up to Python 3.11; ``profiler``: what is active then."""

    paused: bool
    profiler: Any
    resume: Callable[[], object]


class _Here(threading.local):
    """What holds in a thread: its open profile, and how many functions of the recorder run inside of each other."""

    profile: Profile | None = None
    depth = 0


_here: Final = _Here()
_BEGINS: Final = 0
_ENDS: Final = 1
_WORKS: Final = 2


def begin(profile: Profile) -> None:
    """``profile``, which is paused, is that of this thread from now on, and goes on as soon as the recorder has done its work."""
    _here.profile = profile
    if not _here.depth:
        _ends()


def end() -> None:
    """This thread has no profile any more."""
    _here.profile = None


def unseen(work: Callable[P, R]) -> Callable[P, R]:
    """``work`` of the recorder; what it calls is none of the profile's either."""
    return functools.wraps(work)(_made(_WORKS, work))


def around(program: Callable[..., R], before: Callable[..., T], after: Callable[..., object] | None = None) -> Callable[..., R]:
    """The program's function, with work of the recorder around it: ``before`` with its arguments, and ``after`` with what that returned,
    what was raised (None: nothing), and its arguments. The program's function is called by who calls this."""

    def called(*arguments: Any, **keywords: Any) -> R:
        told = before(*arguments, **keywords)
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
                after(told, failed, *arguments, **keywords)
            failed = None  # no cycle with its traceback

    return functools.wraps(program)(_made(_WORKS, called))


def _made(what: int, work: Callable[..., Any] | None = None) -> Callable[..., Any]:
    """All that this makes has the same code: a profiler takes it for one function, and one call of it ends what another has begun."""

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


_begins: Final = _made(_BEGINS)
_ends: Final = _made(_ENDS)
