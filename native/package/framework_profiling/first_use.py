"""When does a process that imports torch train? Then, and not before, it is recorded: a launcher that imports torch is no part of the run.

It trains when an optimizer steps, and if that matters to the plan, when a data loader is iterated, or a module is called for training.
"""

from __future__ import annotations

import functools
import os
import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any, Final

from .when_imported import when_imported

_LOADER: Final = "torch.utils.data.dataloader"
_MODULES: Final = "torch.nn.modules.module"


def hook() -> None:
    """Acts on the first use of what torch offers for training."""
    from . import active, other_profilers
    from .engine import windows

    other_profilers.watch()
    plan = active.of_environment()
    if plan is None or not plan.of_framework or "postrun.capture" in sys.modules:
        return
    when_imported("torch.optim.optimizer", _watch_optimizers)
    if plan.loader is not None:
        when_imported(_LOADER, _watch_loaders)
    if any(window.holds(0) for window in windows(plan).values()):
        when_imported(_MODULES, _watch_modules)


def _record() -> None:
    """Importing it begins the session of POSTRUN_CAPTURE=1, and the plan's windows. Training goes on whatever happens."""
    try:
        from .. import capture  # noqa: F401
    except Exception as error:
        print(f"postrun: this process is not profiled ({type(error).__name__}: {error})", file=sys.stderr)


def _watch_optimizers(module: ModuleType) -> None:
    register = getattr(module, "register_optimizer_step_pre_hook", None)
    pid = os.getpid()

    def steps(optimizer: Any, arguments: Any, keywords: Any) -> None:
        if "postrun.capture" not in sys.modules and os.getpid() == pid:
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
            handle.remove()
            _record()
            again = sys.modules.get("postrun.framework_profiling.steps")
            if again is not None:  # this very call is the first one
                again.called_now(of)

    handle = module.register_module_forward_pre_hook(called)
