"""When does a step begin and end? As the program annotates it; where it annotates none, as the optimizers of PyTorch step.

A step of an optimizer goes from the end of one ``optimizer.step()`` to the end of the next; it is recorded as an annotation ``step`` with
its number. When number 0 begins is not known: it is not recorded, and counts from the first module that is called for training. Of
several optimizers the one that steps first counts, until it is gone, or another has stepped a hundred times without it. As soon as the
program annotates a step, optimizers count no more.

Steps count on one thread: the one that makes the first.
"""

from __future__ import annotations

import os
import sys
import threading
import weakref
from collections.abc import Callable
from types import ModuleType
from typing import Any, Final, Protocol

from .unseen import unseen
from .when_imported import when_imported

OPTIMIZERS: Final = "torch.optim.optimizer"
_MODULES: Final = "torch.nn.modules.module"
_WITHOUT_THE_FIRST: Final = 100


class Listener(Protocol):
    """Who is told of steps, on the thread that makes them."""

    def begins(self, step: int) -> None:
        """Before the step."""

    def ends(self, step: int) -> None:
        """After it."""


class Native(Protocol):
    """What is needed of the C library."""

    def watch_steps(self, watcher: Callable[[bool, int | None], bool] | None, /) -> None: ...
    def range_begin(self, name: str, value: int, /) -> Any: ...
    def range_end(self, handle: Any, /) -> None: ...


class Steps:
    """Tells ``listener`` of steps until it is closed. ``from_zero``: step 0 matters."""

    def __init__(self, listener: Listener, native: Native, *, from_zero: bool) -> None:
        self.source: str | None = None
        """``annotations`` or ``optimizer``; None: no step yet."""
        self._listener: Listener | None = listener
        self._native = native
        self._from_zero = from_zero
        self._thread: int | None = None
        self._counted = 0
        self._annotated: int | None = None
        self._optimizers: _Optimizers | None = None
        self._call_off: Callable[[], None] = lambda: None

    def watch(self) -> None:
        """From now on."""
        global _current
        _current = self
        self._native.watch_steps(_told)
        self._call_off = when_imported(OPTIMIZERS, self._hook)

    def listen_no_more(self) -> None:
        """The listener is told nothing more; annotations cost what they do without it. Steps of optimizers are recorded on."""
        self._listener = None
        self._native.watch_steps(None)

    def unfinished(self) -> int | None:
        """The step of an optimizer that has begun and not ended: where training is over there is no such step."""
        return None if self._optimizers is None else self._optimizers.unfinished

    def close(self) -> None:
        """The end of all."""
        global _current
        self._listener = None
        self._native.watch_steps(None)
        self._call_off()
        if self._optimizers is not None:
            self._optimizers.remove()
            self._optimizers = None
        if _current is self:
            _current = None

    # -------------------------------------------------------------- annotations

    def annotated(self, begins: bool, number: int | None) -> bool:
        """What the C library tells; whether it is to tell of the end, too."""
        if not self.mine():
            return False
        if not begins:
            number, self._annotated = self._annotated, None
            if number is not None and self._listener is not None:
                self._listener.ends(number)
            return False
        if self._optimizers is not None:
            self._optimizers.remove()
            self._optimizers = None
        self._call_off()
        self.source = "annotations"
        if number is None:
            number, self._counted = self._counted, self._counted + 1
        self._annotated = number
        if self._listener is not None:
            self._listener.begins(number)
        return True

    def mine(self) -> bool:
        """Whether this is the thread that makes the steps."""
        here = threading.get_ident()
        if self._thread is None:
            self._thread = here
        return self._thread == here

    # -------------------------------------------------------------- optimizers

    def _hook(self, module: ModuleType) -> None:
        if self.source is None and hasattr(module, "register_optimizer_step_post_hook"):
            self._optimizers = _Optimizers(self, module, from_zero=self._from_zero)

    def boundary(self, ended: int | None, begins: int | None, handle: Any) -> Any:
        """A step of the optimizer ends, its range with it, and the next one begins; the handle of its range."""
        global _recording_own
        self.source = "optimizer"
        if handle is not None:
            self._native.range_end(handle)
        if ended is not None and self._listener is not None:
            self._listener.ends(ended)
        if begins is not None and self._listener is not None:
            self._listener.begins(begins)
        if not begins:
            return None
        _recording_own = True
        try:
            return self._native.range_begin("step", begins)
        finally:
            _recording_own = False


class _Optimizers:
    """Counts the steps of PyTorch's optimizers."""

    def __init__(self, steps: Steps, module: ModuleType, *, from_zero: bool) -> None:
        self._steps: Steps | None = steps
        self._number = 0
        self._handle: Any = None
        self._began = False
        self._first: weakref.ref[Any] | None = None
        self._others: dict[int, int] = {}
        self._pid = os.getpid()
        self._hook = module.register_optimizer_step_post_hook(unseen(self._stepped))
        self._forward: Any = None
        modules = sys.modules.get(_MODULES)
        if from_zero and modules is not None:
            self._forward = modules.register_module_forward_pre_hook(unseen(self._called))

    def remove(self) -> None:
        """Counts no more. The range that is open, of a step that has not ended, stays so until the session ends, and is no step then."""
        self._steps = self._handle = None
        self._forget_forward()
        self._hook.remove()

    @property
    def unfinished(self) -> int | None:
        return self._number if self._began else None

    def _forget_forward(self) -> None:
        if self._forward is not None:
            self._forward.remove()
            self._forward = None

    def _called(self, module: Any, arguments: Any) -> None:
        steps = self._steps
        if steps is None or not module.training or not sys.modules["torch"].is_grad_enabled() or os.getpid() != self._pid:
            return
        self._forget_forward()
        if self._number == 0 and not self._began and steps.mine():
            self._began = True
            steps.boundary(None, 0, None)

    def _stepped(self, optimizer: Any, arguments: Any, keywords: Any) -> None:
        steps = self._steps
        if steps is None or os.getpid() != self._pid or not steps.mine() or not self._counts(optimizer):
            return
        self._forget_forward()
        ended = self._number if self._began else None
        self._number += 1
        self._began = True
        self._handle = steps.boundary(ended, self._number, self._handle)

    def _counts(self, optimizer: Any) -> bool:
        """Whether this is the one whose steps are counted."""
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


_current: Steps | None = None
_recording_own = False


@unseen
def _told(begins: bool, number: int | None) -> bool:
    """What the C library calls: always the same function."""
    return _current is not None and not _recording_own and _current.annotated(begins, number)


@unseen
def called_now(module: Any) -> None:
    """A module is being called whose call the hooks did not see, as they were not there yet."""
    if _current is not None and _current._optimizers is not None:
        _current._optimizers._called(module, ())


def forget_in_child() -> None:
    """A forked process makes no steps of its parent's session."""
    global _current
    steps, _current = _current, None
    if steps is not None:
        steps._native.watch_steps(None)
