"""When training steps begin and end: as the program annotates them, else as the hooks of its framework find them.

A step that a hook finds is recorded as an annotation ``step`` with its number. As soon as the program annotates a step, also with NVTX, the
hooks record no more. Steps count on one thread: the one that makes the first. The sources, best first, are :mod:`.keras_steps`,
:mod:`.torch_steps` and :mod:`.jit_steps`; a better source replaces one that was found before.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any, Final, Protocol

from ...recording.exclude_self import unseen
from . import torch_steps

SOURCE_KEY: Final = "steps.source"  # Metadata: who made the steps of a process, in words
ANNOTATIONS: Final = "annotations"


class Listener(Protocol):
    """Receives the steps, on the thread that makes them."""

    def begins(self, step: int) -> None:
        """Handle the beginning of a step, before it."""

    def ends(self, step: int) -> None:
        """Handle the end of a step, after it."""


class Native(Protocol):
    """The functions of the C library that steps use."""

    def watch_steps(self, watcher: Callable[[bool, int | None], bool] | None, /) -> None: ...
    def turn(self, before: Any, number: int | None, /) -> Any: ...
    def range_drop(self, handle: Any, /) -> None: ...
    def nvtx_steps(self) -> bool: ...


class Steps:
    """Notifies ``listener`` of steps until it is closed, and records those that hooks find. ``tell`` writes a fact of the run."""

    def __init__(self, listener: Listener | None, native: Native, tell: Callable[[str, object], None] = lambda key, value: None) -> None:
        self.source: str | None = None
        """``annotations``, ``optimizer`` or another kind of hook; None: no step yet."""
        self.open: int | None = None
        """The open step that a hook has begun."""
        self._listener = listener
        self._native = native
        self._tell = tell
        self.thread: int | None = None
        """The thread that makes the steps, once it has made one."""
        self._annotated: int | None = None
        self._counted = 0
        self._rank = 0
        self._next = 0
        self._handle: Any = None
        self._closed = False
        self._torch = torch_steps.TorchSteps(self)

    def watch(self) -> None:
        """Watch steps from now on."""
        global _current
        if _current is not None:
            _current.close()
        _current = self
        self._native.watch_steps(_on_step)
        self._torch.watch()

    def listen_no_more(self) -> None:
        """Detaches the listener; steps that hooks find are still recorded."""
        self._listener = None
        if self.source == ANNOTATIONS:
            self._native.watch_steps(None)  # so that annotations cost no more than without a watcher

    def close(self) -> None:
        """Stop watching and recording steps."""
        global _current
        self._listener = None
        self._native.watch_steps(None)
        self._closed = True
        self._drop()
        self._torch.remove()
        if _current is self:
            _current = None

    def mine(self) -> bool:
        """Whether this is the thread that makes the steps."""
        here = threading.get_ident()
        if self.thread is None:
            self.thread = here
        return self.thread == here

    @property
    def has_listener(self) -> bool:
        """Whether something is profiled in some steps."""
        return self._listener is not None

    # -------------------------------------------------------------- annotations

    def annotated(self, begins: bool, number: int | None) -> bool:
        """Handle an annotated step's begin or end; return whether to report its end."""
        if not self.mine():
            return False
        if not begins:
            number, self._annotated = self._annotated, None
            if number is not None and self._listener is not None:
                self._listener.ends(number)
            return False
        if self.source != ANNOTATIONS:
            self._leave_to_annotations()
        if self._listener is None:
            self._native.watch_steps(None)
            return False
        if number is None:
            number, self._counted = self._counted, self._counted + 1
        self._annotated = number
        self._listener.begins(number)
        return True

    def _leave_to_annotations(self) -> None:
        """Use the program's annotations as steps; drop the step that a hook has begun."""
        self._closed = True
        self._drop()
        self._torch.stop()
        self.source = ANNOTATIONS
        self._tell(SOURCE_KEY, ANNOTATIONS)

    # -------------------------------------------------------------- steps that hooks find

    def takes(self, kind: str, rank: int, words: str) -> bool:
        """Whether a hook makes this thread's steps: the first, or of higher ``rank``."""
        if self._closed or not self.mine():
            return False
        if self.source == kind:
            return True
        if self.source is not None and rank <= self._rank:
            return False
        if self._native.nvtx_steps():
            self._leave_to_annotations()
            return False
        if self.source is not None:
            self.forgets()  # drops the step of the other source
        self.source, self._rank = kind, rank
        self._tell(SOURCE_KEY, words)
        return True

    def passes(self) -> None:
        """Count a step that ended without a known beginning."""
        self._next += 1

    def turns(self) -> None:
        """End the open step and begin the next."""
        number = self._next
        if self._listener is not None:
            self._tell_of_turn(number)
        else:
            self._handle = self._native.turn(self._handle, number)
        if self._handle is None:  # NVTX marks steps
            self._leave_to_annotations()
            return
        self.open = number
        self._next = number + 1

    def ends(self) -> None:
        """End the open step."""
        if self.open is not None:
            self._tell_of_turn(None)
            self.open = None

    def _tell_of_turn(self, begins: int | None) -> None:
        """Notify the listener between the steps, so that its work is in no step."""
        ended, self.open = self.open, None
        self._native.turn(self._handle, None)
        self._handle = None
        if ended is not None and self._listener is not None:
            self._listener.ends(ended)
        if begins is not None and self._listener is not None:
            self._listener.begins(begins)
        if begins is not None:
            self._handle = self._native.turn(None, begins)

    def forgets(self) -> None:
        """Drop the open step; the next one gets its number."""
        if self.open is not None:
            self._next -= 1
            self._drop()

    def _drop(self) -> None:
        handle, self._handle, self.open = self._handle, None, None
        if handle is not None:
            self._native.range_drop(handle)


_current: Steps | None = None


def current() -> Steps | None:
    """Return the steps of this process."""
    return _current


def torch_current() -> torch_steps.TorchSteps | None:
    """Return the steps of PyTorch's optimizers."""
    return None if _current is None else _current._torch


@unseen
def _on_step(begins: bool, number: int | None) -> bool:
    """Handle a call of the C library, which always calls this same function."""
    return _current is not None and _current.annotated(begins, number)


def forget_in_child() -> None:
    """Stop counting steps in a forked process: they belong to its parent's session."""
    global _current
    steps, _current = _current, None
    if steps is not None:
        steps._torch.stop()
        steps._native.watch_steps(None)
