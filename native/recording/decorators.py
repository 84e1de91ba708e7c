"""Wrappers that annotate every call of a function, a coroutine or a generator.

The code of a wrapper has its own name: profiles of Python functions identify by it the functions that the wrapper calls.
"""

from __future__ import annotations

import inspect
import itertools
from collections.abc import AsyncGenerator, Callable, Generator
from typing import Any

from .exclude_self import annotating
from .library import annotate, range_begin, range_end

_numbers = itertools.count(1)


def decorated(function: Callable[..., Any], name: str, value: int | None) -> Callable[..., Any]:
    """Wrap ``function`` with a range around each call; suspended ones by handle."""
    if not callable(function) or isinstance(function, type):
        raise TypeError(f"annotate decorates functions and methods, not {function!r}")
    if inspect.iscoroutinefunction(function):
        around = _around_coroutine
    elif inspect.isasyncgenfunction(function):
        around = _around_async_generator
    elif inspect.isgeneratorfunction(function):
        around = _around_generator
    else:
        around = _around_call
    called = getattr(function, "__qualname__", type(function).__qualname__)
    return annotating(around(function, name, value), function, f"{called} {next(_numbers)}")


def _around_call(function: Callable[..., Any], name: str, value: int | None) -> Callable[..., Any]:
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        with annotate(name, value):
            return function(*args, **kwargs)

    return wrapper


def _around_coroutine(function: Callable[..., Any], name: str, value: int | None) -> Callable[..., Any]:
    async def wrapper(*args: Any, **kwargs: Any) -> Any:
        async with annotate(name, value):
            return await function(*args, **kwargs)

    return wrapper


def _around_generator(function: Callable[..., Any], name: str, value: int | None) -> Callable[..., Any]:
    def wrapper(*args: Any, **kwargs: Any) -> Generator[Any, Any, Any]:
        handle = range_begin(name, value)
        try:
            return (yield from function(*args, **kwargs))
        finally:
            range_end(handle)

    return wrapper


def _around_async_generator(function: Callable[..., Any], name: str, value: int | None) -> Callable[..., Any]:
    async def wrapper(*args: Any, **kwargs: Any) -> AsyncGenerator[Any, Any]:
        async with annotate(name, value):
            inner = function(*args, **kwargs)
            try:
                item = await inner.__anext__()
                while True:
                    try:
                        sent = yield item
                    except GeneratorExit:
                        await inner.aclose()
                        raise
                    except BaseException as error:
                        item = await inner.athrow(error)
                    else:
                        item = await inner.asend(sent)
            except StopAsyncIteration:
                return

    return wrapper
