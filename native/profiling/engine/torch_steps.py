"""Training steps of PyTorch: calls of ``optimizer.step()`` -> boundaries of steps.

A step belongs to one step of an optimizer. If its batch comes from a ``DataLoader``, it lasts from the request for its first batch to the
request for the first batch of the next step, or to the end of the loader. Work after the end of the loader, such as a validation after an
epoch, is in no step. Without a loader a step lasts from the end of one ``optimizer.step()`` to the end of the next. Step 0 begins with the
first module that is called for training, unless the program compiles (:mod:`.torch_forward`).

* Gradient accumulation: batches whose gradients are accumulated belong to one step.
* ``GradScaler``: an iteration that it skips belongs to the next step.
* Several optimizers, such as those of a GAN: the first to step counts, until it is gone, or another has stepped a hundred times without
  it.
* Batches that are requested without gradients (``torch.no_grad()``), or from another data set, belong to a validation: they begin no step,
  and end a step whose optimizer has stepped.

Lightning and the Trainer of Hugging Face train with optimizers and loaders of PyTorch, so their steps are found in the same way.
"""

from __future__ import annotations

import sys
import weakref
from collections.abc import Callable
from threading import get_ident
from types import ModuleType
from typing import Any, Final, Protocol

from ...recording.exclude_self import unseen
from ...recording.when_imported import when_imported
from . import torch_forward

OPTIMIZERS: Final = "torch.optim.optimizer"
_WITHOUT_THE_FIRST: Final = 100
_KIND: Final = "optimizer"
_RANK: Final = 2


class Counter(Protocol):
    """The steps of the session, as this module uses :class:`.steps.Steps`."""

    open: int | None
    thread: int | None

    @property
    def has_listener(self) -> bool: ...
    def takes(self, kind: str, rank: int, words: str) -> bool: ...
    def passes(self) -> None: ...
    def turns(self) -> None: ...
    def ends(self) -> None: ...
    def forgets(self) -> None: ...


class TorchSteps:
    """Counts the steps of PyTorch's optimizers, from :meth:`watch` to :meth:`remove`."""

    def __init__(self, steps: Counter) -> None:
        self._steps: Counter | None = steps
        self._hook: Any = None
        self._forward: Callable[[], None] | None = None
        self._call_off: Callable[[], None] = lambda: None
        self._first: weakref.ref[Any] | None = None
        self._others: dict[int, int] = {}
        self._grad_enabled: Callable[[], bool] = lambda: True
        self._loader: int | None = None
        """The data set whose requests begin steps."""
        self._asked: int | None = None
        """The data set of the first request since the optimizer stepped."""
        self._stepped = False
        """The optimizer has stepped, and the step ends with the next request."""
        self._fresh = False
        """The last request has begun the step."""
        self._tentative = False
        """That request found no batch: the step is one only if the optimizer steps, as in loops that load a batch ahead."""

    def watch(self) -> None:
        """Watch PyTorch from now on, or from its import."""
        self._call_off = when_imported(OPTIMIZERS, self._watch)

    def stop(self) -> None:
        """Stop counting; a hook may call this while PyTorch iterates over its hooks."""
        self._steps = None

    def remove(self) -> None:
        """Stop counting, and remove all hooks."""
        self.stop()
        self._call_off()
        self._forget_forward()
        if self._hook is not None:
            self._hook.remove()
            self._hook = None

    def _watch(self, module: ModuleType) -> None:
        if self._steps is None or not hasattr(module, "register_optimizer_step_post_hook"):
            return
        torch = sys.modules.get("torch")
        self._grad_enabled = getattr(torch, "is_grad_enabled", self._grad_enabled)
        hidden = unseen if self._steps.has_listener else _plain  # which profiles Python functions
        self.asks = hidden(self.asks)  # type: ignore[method-assign]
        self._hook = module.register_optimizer_step_post_hook(hidden(self._steps_now))
        self._forward = torch_forward.hook_calls(hidden(self.called))

    def _forget_forward(self) -> None:
        if self._forward is not None:
            self._forward()
            self._forward = None

    def _takes(self, steps: Counter) -> bool:
        return steps.takes(_KIND, _RANK, "PyTorch optimizer")

    # -------------------------------------------------------------- what the hooks see

    def called(self, module: Any, arguments: Any) -> None:
        """Begin step 0 with the first call of a module for training."""
        steps = self._steps
        if steps is None or self._forward is None:
            return
        if not module.training or not self._grad_enabled():
            self._asked = None  # that batch was for a validation
            return
        self._forget_forward()
        if self._takes(steps):
            steps.turns()

    def _steps_now(self, optimizer: Any, arguments: Any, keywords: Any) -> None:
        steps = self._steps
        if steps is None or not self._counts(optimizer) or not self._takes(steps):
            return
        if self._forward is not None:
            self._forget_forward()
        asked, self._asked = self._asked, None
        self._tentative = False
        if self._stepped or steps.open is None or self._loader is None:
            self._loader = asked
        if steps.open is None:
            steps.passes()
        elif not self._stepped and self._loader is not None:
            self._stepped = True
            return
        self._stepped = False
        steps.turns()

    def asks(self, iterator: Any) -> None:
        """Handle the request of a data loader's iterator for its next batch."""
        steps = self._steps
        if steps is None or (steps.thread is not None and steps.thread != get_ident()):
            return
        self._fresh = False
        if self._tentative:
            self._tentative = False
            steps.forgets()
        here = id(getattr(iterator, "_dataset", iterator))
        trains = self._grad_enabled()
        if not trains or (self._stepped and here != self._loader):
            if self._stepped and self._takes(steps):
                self._stepped = False
                steps.ends()
        elif here == self._loader and (self._stepped or steps.open is None) and self._takes(steps):
            self._stepped, self._fresh = False, True
            steps.turns()
        if self._asked is None and trains:
            self._asked = here

    def is_exhausted(self) -> None:
        """Handle the end of the data loader of the last request."""
        steps = self._steps
        if steps is None or (steps.thread is not None and steps.thread != get_ident()):
            return
        if self._fresh:
            self._fresh, self._asked = False, None
            self._tentative = True
        elif self._forward is not None:
            self._asked = None  # nothing was trained with its batches

    def _counts(self, optimizer: Any) -> bool:
        """Whether this is the optimizer whose steps are counted."""
        first = None if self._first is None else self._first()
        if first is optimizer:
            if self._others:
                self._others.clear()
            return True
        here = id(optimizer)
        self._others[here] = self._others.get(here, 0) + 1
        if first is not None and self._others[here] < _WITHOUT_THE_FIRST:
            return False
        self._first = weakref.ref(optimizer)
        self._others.clear()
        return True


def _plain(hook: Callable[..., Any]) -> Callable[..., Any]:
    return hook
