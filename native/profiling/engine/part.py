"""The interface between the engine and a part of framework profiling.

A part is made when the session begins, with its plan and the folder that contains ``framework/``; it does nothing until it is opened:
``LoaderPart(plan: LoaderPlan, folder: Path, files: FileLimits)``, ``PythonPart(plan: PythonPlan, folder: Path)``.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class FileLimits:
    """Size and age at which a timeline file is closed and the next begun, and failures in a row after which no file is opened."""

    max_bytes: int = 10_485_760
    close_interval_s: float = 60
    open_fail_threshold: int = 50


class LeftOutError(Exception):
    """Raised by a part that has nothing (more) to record in this program; the message is the reason.

    ``quiet``: usual, or reported already. ``nothing``: nothing was recorded, even if the part was open. ``lacks``: the package that the
    program has not imported; one warning covers all parts that lack it.
    """

    def __init__(self, message: str, *, quiet: bool = False, nothing: bool = False, lacks: str | None = None) -> None:
        super().__init__(message)
        self.quiet = quiet
        self.nothing = nothing
        self.lacks = lacks


class Part:
    """One window of one kind of profiling. All calls come from the thread that makes the steps, each once, in this order: ``open``,
    ``step`` any number of times, ``close``. If a call raises, the engine warns once (RuntimeWarning) and stops calling the part."""

    def open(self, step: int | None) -> None:
        """Open the window at the beginning of ``step``; None: no step is known."""

    def step(self, step: int) -> None:
        """Begin the next step in the window; by default nothing changes."""

    def close(self, step: int | None) -> None:
        """Close the window at the end of ``step`` (None: no step is known).

        Also called at the end of the session and of the process. A step that began after ``step`` has not ended, and does not count.
        """


class Patch:
    """A wrapped attribute of a class or module of torch; undoing it has no effect if another library has wrapped it again."""

    def __init__(self, owner: Any, name: str, around: Callable[[Any], Any]) -> None:
        self._owner = owner
        self._name = name
        self._original = getattr(owner, name)
        self._replacement = around(self._original)
        setattr(owner, name, self._replacement)

    def undo(self) -> None:
        """Restore the attribute."""
        if getattr(self._owner, self._name) is self._replacement:
            setattr(self._owner, self._name, self._original)
