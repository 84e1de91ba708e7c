"""Begins a recording at the first training use of a framework, so that a launcher which imports torch is not recorded.

A process trains when a module of PyTorch is called for training, an optimizer steps, a data loader is iterated, Keras fits, or a compiled
function is called again. The hooks here begin the session (begin.py). Training goes on whatever happens.
"""

from __future__ import annotations

import functools
import os
import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any, Final

from ..profiling.engine import torch_forward
from ..recording.when_imported import when_imported
from . import begin

HOOKS: Final = "POSTRUN_HOOKS"  # 1: record the steps and data loading that hooks in frameworks find
_LOADER: Final = "torch.utils.data.dataloader"
_CAPTURE: Final = "postrun.native.capture"
_hooked: set[str] = set()


def hook(framework: str) -> None:
    """Hook the training functions of a framework: torch, jax, tensorflow or keras."""
    from ..recording import other_profilers

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


# -------------------------------------------------------------- PyTorch


def _hook_torch() -> None:
    torch_forward.watch_compile()
    if _CAPTURE in sys.modules:
        return
    if os.environ.get(HOOKS) != "1":
        from ..profiling.engine import active

        plan = active.of_environment()
        if plan is None or not plan.of_framework:
            return
    when_imported("torch.optim.optimizer", _watch_optimizers)
    when_imported(_LOADER, _watch_loaders)
    when_imported(torch_forward.MODULES, _watch_modules)


def _watch_optimizers(module: ModuleType) -> None:
    register = getattr(module, "register_optimizer_step_pre_hook", None)
    pid = os.getpid()

    def steps(optimizer: Any, arguments: Any, keywords: Any) -> None:  # not removed: torch is iterating over its hooks now
        if _CAPTURE not in sys.modules and os.getpid() == pid:
            begin.record()

    if register is not None:
        register(steps)


def _watch_loaders(module: ModuleType) -> None:
    loader = module.DataLoader
    iterate: Callable[[Any], Any] = loader.__iter__

    @functools.wraps(iterate)
    def begins(self: Any) -> Any:
        if loader.__iter__ is begins:
            loader.__iter__ = iterate
        begin.record()
        return iterate(self)

    loader.__iter__ = begins


def _watch_modules(module: ModuleType) -> None:
    def called(of: Any, arguments: Any) -> None:
        if of.training and sys.modules["torch"].is_grad_enabled():
            remove()
            begin.record()
            again = sys.modules.get("postrun.native.profiling.engine.steps")
            torch_steps = None if again is None else again.torch_current()
            if torch_steps is not None:  # this very call is the first one
                torch_steps.called(of, arguments)

    remove = torch_forward.hook_calls(called)
