"""Shows the recorder in a profile of Python functions as one function, "postrun's own recording".

Profilers do not see most of the recorder (:mod:`...recording.exclude_self`). The rest are functions that the program itself calls, such as
``annotate``.
"""

from __future__ import annotations

import heapq
import operator
import os
from collections.abc import Iterator, Sequence
from itertools import zip_longest
from pathlib import Path
from typing import Any, Final

from ...recording.exclude_self import ANNOTATED

_NATIVE: Final = Path(__file__).parents[2]
_UNSEEN: Final = os.fspath(_NATIVE / "recording" / "exclude_self.py")
_OURS: Final = os.fspath(_NATIVE) + os.sep  # the files of the recorder

Function = tuple[str, int, str]
RECORDING: Final[Function] = ("~", 0, "<postrun's own recording>")  # as pstats names a function without a source file


def with_one_function(stats: dict[Function, Any]) -> dict[Function, Any]:
    """Merge this package's functions in pstats data into one, ``RECORDING``.

    It includes their own calls of C functions. The callers of a decorator become the callers of the functions that it calls.
    """
    stats = _without_decorators(stats)
    callers_of_some = {caller for figures in stats.values() for caller in figures[4]}
    ours = {function for function in stats.keys() | callers_of_some if _of_package(function)}
    into: dict[Function, tuple[float, ...]] = {}
    for function in ours & stats.keys():
        for caller, figures in stats[function][4].items():
            if caller not in ours:
                into[caller] = _added(into.get(caller), figures)
    kept: dict[Function, Any] = {}
    below = 0.0
    for function, (primitive, calls, own_time, cumulative, callers) in stats.items():
        if function in ours:
            continue
        others: dict[Function, Any] = {}
        for caller, figures in callers.items():
            if caller not in ours:
                others[caller] = figures
            elif not into or function not in callers_of_some:
                calls, primitive = calls - figures[0], primitive - figures[1]
                own_time, cumulative = max(0.0, own_time - figures[2]), max(0.0, cumulative - figures[3])
            else:
                others[RECORDING] = _added(others.get(RECORDING), figures)
                below += figures[3]
        if calls > 0:
            kept[function] = primitive, calls, own_time, cumulative, others
    total_time = sum(figures[3] for figures in into.values())
    part = max(0.0, 1 - below / total_time) if total_time > 0 else 0.0
    if into or not kept:  # pstats needs at least one function
        calls = sum(figures[0] for figures in into.values()) or 1
        edges = {caller: (figures[0], figures[0], part * figures[3], figures[3]) for caller, figures in into.items()}
        kept[RECORDING] = calls, calls, part * total_time, total_time, edges
    return kept


def _without_decorators(stats: dict[Function, Any]) -> dict[Function, Any]:
    """Remove this package's decorators: their callers call what they decorate.

    The time of a decorator with several callers is divided by the time that each waited for it.
    """
    functions = {function: (*figures, dict(callers)) for function, (*figures, callers) in stats.items()}
    todo = _OuterFirst(functions)
    for decorator in todo:
        above = functions[decorator][4]
        total_time = sum(figures[3] for figures in above.values())
        for function in todo.called_by(decorator):
            callers = functions[function][4]
            _, _, own_time, total = callers.pop(decorator)
            for caller, (calls, primitive, its_own, below) in list(above.items()):
                share = below / total_time if total_time > 0 else 1 / len(above)
                todo.calls(caller, function)
                callers[caller] = _added(callers.get(caller), (calls, primitive, own_time * share, total * share))
                above[caller] = calls, primitive, its_own, max(its_own, below - total * share)
    return functions


class _OuterFirst:
    """Yields the decorators among functions, each after its callers; in a cycle the first one first.

    A program may make thousands of decorators, so each is found by look-up, not by a search.
    """

    def __init__(self, functions: dict[Function, Any]) -> None:
        self._index = {function: place for place, function in enumerate(functions)}
        self._remaining = {function: None for function in functions if _is_decorator(function)}
        self._called: dict[Function, set[Function]] = {function: set() for function in self._remaining}
        self._waits_for: dict[Function, set[Function]] = {function: set() for function in self._remaining}
        for function, (*_, callers) in functions.items():
            if function in self._remaining or not _of_package(function):
                for caller in callers.keys() & self._remaining.keys():
                    self.calls(caller, function)
        self._ready = [self._index[function] for function, others in self._waits_for.items() if not others]  # a heap

    def __iter__(self) -> Iterator[Function]:
        functions = list(self._index)
        while self._remaining:
            decorator = None
            while self._ready and decorator is None:
                ready = functions[heapq.heappop(self._ready)]
                decorator = ready if ready in self._remaining and not self._waits_for[ready] else None
            if decorator is None:
                decorator = next(iter(self._remaining))
            del self._remaining[decorator]
            yield decorator

    def called_by(self, decorator: Function) -> list[Function]:
        """Return the functions that it calls, in order, and release them from waiting."""
        functions = sorted(self._called.pop(decorator), key=self._index.__getitem__)
        for function in functions:
            if function in self._remaining:
                self._waits_for[function].discard(decorator)
                heapq.heappush(self._ready, self._index[function])
        return functions

    def calls(self, caller: Function, function: Function) -> None:
        """Note a call if the caller is a decorator that has not been yielded."""
        if caller in self._remaining:
            self._called[caller].add(function)
            if function in self._waits_for:
                self._waits_for[function].add(caller)


def _is_decorator(function: Function) -> bool:
    return function[0].startswith(_OURS) and function[2].startswith(ANNOTATED)


def _added(figures: tuple[float, ...] | None, more: tuple[float, ...]) -> tuple[float, ...]:
    return more if figures is None else tuple(map(operator.add, figures, more))


def _of_package(function: Function) -> bool:
    file, _, name = function
    return file.startswith(_OURS) or (file == "~" and ("postrun.native." in name or "_lsprof.Profiler" in name))


_SAMPLED: Final = "{postrun's own recording}\0<built-in>\x000"
_CALLED: Final = f"called\0{_UNSEEN}\0"


def stack_with_one_function(stack: Sequence[str]) -> list[str]:
    """Shorten a stack of Pyinstrument, outermost first (name, NUL, file, NUL, line).

    It ends where the recorder works, and lacks the recorder's frames between the program's.
    """
    kept: list[str] = []
    for frame, below in zip_longest(stack, stack[1:], fillvalue=""):
        name, _, location = frame.partition("\0")
        file = location.partition("\0")[0]
        if not file.startswith(_OURS):
            kept.append(frame)
        elif not (below.startswith(_CALLED) if name == "recording" else below and (name == "called" or name.startswith(ANNOTATED))):
            return [*kept, _SAMPLED]
    return kept
