"""Hooks on the calls of all modules of PyTorch, until they are removed or the program compiles.

``torch.compile`` traces such hooks as a part of the program. A hook that it cannot trace ends a program that compiles with
``fullgraph=True``, a hook that is removed later makes it compile again, and each causes a warning. So all hooks are removed before the
program compiles, and none is added after that.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from typing import Any, Final

MODULES: Final = "torch.nn.modules.module"
_hooks: Final[list[Any]] = []
_watched = False
_compiles = False


def hook_calls(act: Callable[[Any, Any], None]) -> Callable[[], None]:
    """Call ``act`` before each call of a module; return a function that ends that."""
    modules = sys.modules.get(MODULES)
    watch_compile()
    if modules is None or _compiles:
        return lambda: None
    hook = modules.register_module_forward_pre_hook(act)
    _hooks.append(hook)

    def remove() -> None:
        if hook in _hooks:
            _hooks.remove(hook)
        hook.remove()

    return remove


def watch_compile() -> None:
    """Remove all hooks when the program compiles. PyTorch before 2.0 compiles nothing."""
    global _watched
    torch = sys.modules.get("torch")
    original = getattr(torch, "compile", None)
    if original is None or _watched:
        return
    _watched = True

    @functools.wraps(original)
    def compiles(*arguments: Any, **keywords: Any) -> Any:
        global _compiles
        _compiles = True
        while _hooks:
            _hooks.pop().remove()
        if vars(torch).get("compile") is compiles:
            torch.compile = original  # type: ignore[union-attr]
        return original(*arguments, **keywords)

    torch.compile = compiles  # type: ignore[union-attr]
