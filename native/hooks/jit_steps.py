"""Training steps of JAX and of TensorFlow's ``tf.function``: calls of a compiled function that repeat -> boundaries of steps.

A step lasts from one call of the function to the next. The function is the first that is called twice; a function whose name contains
``train``, ``step`` or ``update`` replaces another, and a function for evaluation (``eval``, ``test``, ``valid``, ``predict``, ``init``,
``loss``, ``metric``) never counts. Calls inside another compiled function do not count. ``jax.profiler.StepTraceAnnotation`` marks steps
like an annotation.

``jax.jit`` and ``jax.pmap`` return a callable object that calls JAX's own result and passes on its attributes: JAX has no hook for calls
of compiled functions. Functions that JAX itself compiles, or that are compiled by other names (``jax._src``), are not seen; a loop inside
one call (``lax.scan``) is one step.
"""

from __future__ import annotations

import functools
import re
import threading
from collections.abc import Callable
from types import MethodType, ModuleType
from typing import Any, Final

from ..recording.when_imported import when_imported
from . import begin

_RANK: Final = 1
_TRAINS: Final = re.compile(r"train|step|update", re.IGNORECASE)
_EVALUATES: Final = re.compile(r"eval|test|valid|predict|init|loss|metric|generate|sample", re.IGNORECASE)
_KERAS: Final = ("keras.", "tf_keras.")  # compiled by Keras, whose steps keras_steps.py finds better
_WITHOUT_THE_CHOSEN: Final = 100
_MOST: Final = 1000  # functions counted before one is chosen; a program that compiles more keeps making new ones


class _Calls(threading.local):
    """The calls of compiled functions in a thread."""

    inside = 0


class _Chosen:
    """The function whose calls are steps, and how often others have been called since."""

    def __init__(self) -> None:
        self.function: int | None = None
        self.trains = False
        self.counts: dict[int, int] = {}


_calls: Final = _Calls()
_chosen: Final = _Chosen()


def hook_jax(module: ModuleType) -> None:
    """Watch JAX, which has been imported."""
    for name in ("jit", "pmap"):
        setattr(module, name, _compiling(getattr(module, name)))
    when_imported("jax.profiler", _watch_annotations)


def hook_tensorflow() -> None:
    """Watch ``tf.function``."""
    when_imported("tensorflow.python.eager.polymorphic_function.polymorphic_function", _watch_functions)


def _compiling(compile_function: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap ``jax.jit`` so that calls of its results are counted."""

    @functools.wraps(compile_function)
    def compiling(*arguments: Any, **keywords: Any) -> Any:
        compiled = compile_function(*arguments, **keywords)
        if arguments or "fun" in keywords:
            return Compiled(compiled)
        return lambda function: Compiled(compiled(function))  # jit(static_argnums=...) decorates

    return compiling


class Compiled:
    """A result of ``jax.jit``: calls it and passes on its attributes."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self._postrun_function = function
        python_function = getattr(function, "__wrapped__", function)
        functools.update_wrapper(self, function, updated=())
        self.__wrapped__ = python_function
        self._postrun_key = id(python_function)

    def __call__(self, *arguments: Any, **keywords: Any) -> Any:
        function = functools.partial(self._postrun_function, *arguments, **keywords)
        return _counted(function, self._postrun_key, self.__wrapped__, "JAX")

    def __get__(self, owner: Any, kind: type | None = None) -> Any:
        return self if owner is None else MethodType(self, owner)

    def __getattr__(self, name: str) -> Any:
        if name == "_postrun_function":  # before __init__, as copy does
            raise AttributeError(name)
        return getattr(self._postrun_function, name)

    def __repr__(self) -> str:
        return repr(self._postrun_function)

    def __reduce_ex__(self, protocol: Any) -> Any:
        return self._postrun_function.__reduce_ex__(protocol)  # a process without postrun can read it

    # jax.stages.Wrapped looks at the class
    def lower(self, *arguments: Any, **keywords: Any) -> Any:
        return self._postrun_function.lower(*arguments, **keywords)  # type: ignore[attr-defined]

    def trace(self, *arguments: Any, **keywords: Any) -> Any:
        return self._postrun_function.trace(*arguments, **keywords)  # type: ignore[attr-defined]


def _watch_functions(module: ModuleType) -> None:
    owner = module.Function
    original = owner.__call__

    @functools.wraps(original)
    def called(self: Any, *arguments: Any, **keywords: Any) -> Any:
        return _counted(functools.partial(original, self, *arguments, **keywords), id(self), self.python_function, "TensorFlow")

    owner.__call__ = called


def _watch_annotations(module: ModuleType) -> None:
    owner = module.StepTraceAnnotation
    begins, enters, leaves = owner.__init__, owner.__enter__, owner.__exit__

    @functools.wraps(begins)
    def init(self: Any, name: str, **keywords: Any) -> None:
        begins(self, name, **keywords)
        number = keywords.get("step_num")
        self._postrun_step = number if isinstance(number, int) else None
        self._postrun_range = None

    @functools.wraps(enters)
    def enter(self: Any) -> Any:
        if self._postrun_step is not None:
            self._postrun_range = begin.begin_range("step", self._postrun_step)
        return enters(self)

    @functools.wraps(leaves)
    def leave(self: Any, *arguments: Any) -> Any:
        left = leaves(self, *arguments)
        if self._postrun_range is not None:
            begin.end_range(self._postrun_range)
            self._postrun_range = None
        return left

    owner.__init__, owner.__enter__, owner.__exit__ = init, enter, leave


def _counted(call: Callable[[], Any], function: int, named: Any, framework: str) -> Any:
    """Make a call of a compiled function, and count it unless it is inside another."""
    if _calls.inside:
        return call()
    _called(function, named, framework)
    _calls.inside = 1
    try:
        return call()
    finally:
        _calls.inside = 0


def _called(function: int, named: Any, framework: str) -> None:
    """Count a call of a compiled function from outside other compiled functions."""
    chosen = _chosen
    if chosen.function != function and not _chooses(function, named):
        return
    steps = begin.steps()
    if steps is None or not steps.takes("compiled function", _RANK, f"{framework}, calls of {_name(named)}"):
        return
    if steps.open is None:
        steps.passes()  # the first call, before the function was known to repeat
    steps.turns()


def _chooses(function: int, named: Any) -> bool:
    """Count a call; return whether this function's calls become the steps."""
    chosen, counts = _chosen, _chosen.counts
    if len(counts) >= _MOST and function not in counts:
        return False
    counts[function] = times = counts.get(function, 0) + 1
    if times == 1:
        return False
    name = _name(named)
    if _EVALUATES.search(name) or str(getattr(named, "__module__", "")).startswith(_KERAS):
        counts[function] = 0
        return False
    trains = bool(_TRAINS.search(name))
    if chosen.function is not None and (chosen.trains >= trains) and times < _WITHOUT_THE_CHOSEN:
        return False
    chosen.function, chosen.trains = function, trains
    counts.clear()
    return True


def _name(function: Any) -> str:
    """Return the function's own name."""
    while (inner := getattr(function, "func", None)) is not None:  # functools.partial
        function = inner
    return str(getattr(function, "__name__", type(function).__name__))
