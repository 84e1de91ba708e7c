"""Runs a function on a module right after the program imports it, without importing it."""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import sys
import warnings
from collections.abc import Callable, Sequence
from types import ModuleType

from .exclude_self import around, unseen


def when_imported(name: str, act: Callable[[ModuleType], None]) -> Callable[[], None]:
    """Call ``act`` with a module after its import; return a function that cancels.

    If the module is imported already, ``act`` runs now. If ``act`` fails, there is a warning, and the import succeeds.
    """
    module = sys.modules.get(name)
    if module is not None and not getattr(getattr(module, "__spec__", None), "_initializing", False):
        _try(act, module)
        return lambda: None
    finder = _Finder(name, act)
    sys.meta_path.insert(0, finder)
    return finder.leave


class _Finder(importlib.abc.MetaPathFinder):
    """Finds one module like the finders after it, with a loader that calls ``act`` at the end."""

    def __init__(self, name: str, act: Callable[[ModuleType], None]) -> None:
        self._name = name
        self._act = act

    def leave(self) -> None:
        if self in sys.meta_path:
            sys.meta_path.remove(self)

    @unseen
    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if fullname != self._name:
            return None
        self.leave()
        for finder in list(sys.meta_path):
            find_spec = getattr(finder, "find_spec", None)
            spec: importlib.machinery.ModuleSpec | None = None if find_spec is None else find_spec(fullname, path, target)
            if spec is not None:
                if isinstance(spec.loader, importlib.abc.Loader):
                    _act_after(spec.loader, self._act)
                return spec
        return None


def _try(act: Callable[[ModuleType], None], module: ModuleType) -> None:
    try:
        act(module)
    except Exception as error:
        warnings.warn(f"{module.__name__} is not profiled ({type(error).__name__}: {error})", RuntimeWarning, stacklevel=3)


def _act_after(loader: importlib.abc.Loader, act: Callable[[ModuleType], None]) -> None:
    def before(module: ModuleType) -> None:
        del loader.exec_module  # restores the class's method: a reload is not a first import

    def after(_: None, failed: BaseException | None, module: ModuleType) -> None:
        if failed is None:
            _try(act, module)

    loader.exec_module = around(loader.exec_module, before, after)  # type: ignore[method-assign]
