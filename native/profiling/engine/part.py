"""What is a part of framework profiling: which calls does the engine make, and when?

A part is made when the session begins, with its plan and the folder that holds ``framework/``; it does nothing until it is opened:
``LoaderPart(plan: LoaderPlan, folder: Path, files: FileLimits)``, ``PythonPart(plan: PythonPlan, folder: Path)``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True)
class FileLimits:
    """When a timeline file is closed and the next one begun, and after how many failures in a row none is opened any more."""

    max_bytes: int = 10_485_760
    close_interval_s: float = 60
    open_fail_threshold: int = 50


class LeftOutError(Exception):
    """Raised by a part: there is nothing for it to do in this program, or no more; the message says why. ``quiet``: as is usual, or
    told already. ``nothing``: nothing was recorded, also where it was on before. ``lacks``: the package that the program has not imported,
    which is told once of all parts."""

    def __init__(self, message: str, *, quiet: bool = False, nothing: bool = False, lacks: str | None = None) -> None:
        super().__init__(message)
        self.quiet = quiet
        self.nothing = nothing
        self.lacks = lacks


class Part(Protocol):
    """One window of one kind of profiling. All calls come from the thread that makes the steps, each once, in this order: ``open``,
    ``step`` any number of times, ``close``. Where one raises, the engine warns once (RuntimeWarning) and calls the part no more."""

    def open(self, step: int | None) -> None:
        """The window opens, at the begin of ``step``. None: at a time when no step is known."""

    def step(self, step: int) -> None:
        """The next step inside of the window begins; not called for the one that ``open`` was called with."""

    def close(self, step: int | None) -> None:
        """The window closes, at the end of ``step`` (None: no step is known); also at the end of the session, and of the process.
        A step that was begun and is later than ``step`` has not ended, and is none."""
