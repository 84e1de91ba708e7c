"""The begin of a recording: the first use that a program makes of a framework for training. A launcher that imports torch is not recorded.

A process trains when a module of PyTorch is called for training, an optimizer steps, a data loader is iterated, Keras fits, or a compiled
function is called again. The hooks here begin the session by importing postrun.capture. Training goes on whatever happens.
"""

from __future__ import annotations

import functools
import os
import sys
from collections.abc import Callable
from types import ModuleType
from typing import TYPE_CHECKING, Any, Final

from . import torch_forward
from .when_imported import when_imported

if TYPE_CHECKING:
    from .steps import Steps

HOOKS: Final = "POSTRUN_HOOKS"
"""1: steps and data loading are recorded as frameworks show them."""
_LOADER: Final = "torch.utils.data.dataloader"
_CAPTURE: Final = "postrun.capture"
_library: Any = None
_failed = False
_hooked: set[str] = set()


def hook(framework: str) -> None:
    """Acts on the first use of what a framework offers for training: ``torch``, ``jax``, ``tensorflow`` or ``keras``."""
    from . import other_profilers

    other_profilers.watch()
    if framework in _hooked:
        return
    _hooked.add(framework)
    if framework == "torch":
        _hook_torch()
    elif os.environ.get(HOOKS) != "1":
        return
    elif framework == "jax":
        from . import jit_steps

        jit_steps.hook_jax(sys.modules["jax"])
    else:
        from . import jit_steps, keras_steps

        keras_steps.hook()
        jit_steps.hook_tensorflow()


def steps() -> Steps | None:
    """The steps of the session, which begins if it has not."""
    return steps_of_session() if _record() is not None else None


def steps_of_session() -> Steps | None:
    """The steps of the session."""
    module = sys.modules.get("postrun.framework_profiling.steps")
    return None if module is None else module.current()


def begin_range(name: str, value: int) -> Any:
    """A range begins, in the session, which begins if it has not; None where there is none."""
    library = _record()
    return None if library is None else library.range_begin(name, value)


def end_range(handle: Any) -> None:
    """The range ends."""
    _library.range_end(handle)


def _record() -> Any:
    """The C library, once it records. Importing postrun.capture begins the session of POSTRUN_CAPTURE=1, and the plan's windows."""
    global _library, _failed
    if _library is None and not _failed:
        _failed = True
        try:
            from .. import capture, capture_library  # noqa: F401

            _library, _failed = capture_library, False
        except Exception as error:
            print(f"postrun: this process is not recorded ({type(error).__name__}: {error})", file=sys.stderr)
    return _library


# -------------------------------------------------------------- PyTorch


def _hook_torch() -> None:
    torch_forward.watch_compile()
    if _CAPTURE in sys.modules:
        return
    if os.environ.get(HOOKS) != "1":
        from . import active

        plan = active.of_environment()
        if plan is None or not plan.of_framework:
            return
    when_imported("torch.optim.optimizer", _watch_optimizers)
    when_imported(_LOADER, _watch_loaders)
    when_imported(torch_forward.MODULES, _watch_modules)


def _watch_optimizers(module: ModuleType) -> None:
    register = getattr(module, "register_optimizer_step_pre_hook", None)
    pid = os.getpid()

    def steps(optimizer: Any, arguments: Any, keywords: Any) -> None:  # stays: torch goes through its hooks now
        if _CAPTURE not in sys.modules and os.getpid() == pid:
            _record()

    if register is not None:
        register(steps)


def _watch_loaders(module: ModuleType) -> None:
    loader = module.DataLoader
    iterate: Callable[[Any], Any] = loader.__iter__

    @functools.wraps(iterate)
    def begins(self: Any) -> Any:
        if loader.__iter__ is begins:
            loader.__iter__ = iterate
        _record()
        return iterate(self)

    loader.__iter__ = begins


def _watch_modules(module: ModuleType) -> None:
    def called(of: Any, arguments: Any) -> None:
        if of.training and sys.modules["torch"].is_grad_enabled():
            remove()
            _record()
            again = sys.modules.get("postrun.framework_profiling.steps")
            torch_steps = None if again is None else again.torch_current()
            if torch_steps is not None:  # this very call is the first one
                torch_steps.called(of, arguments)

    remove = torch_forward.hook_calls(called)
