"""Bounds for rules from outside postrun: their run time, and how much they may print.

A rule runs in this process and is trusted code; the bounds are for its mistakes. In the main thread of a POSIX system an alarm ends an
endless loop; elsewhere the time is checked between evaluation windows.
"""

from __future__ import annotations

import contextlib
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any, Final

from ...toolkit.wording import plural

LIMIT_S: Final = 300.0  # default seconds for a rule file to load, and again for its evaluation
LINES: Final = 100
CHARACTERS: Final = 10_000
_LONGEST_S: Final = 1e8
_AGAIN_S: Final = 1.0  # A rule that catches everything is interrupted again after so long


class RuleTimeout(BaseException):
    """A rule file exceeded its time. It is not an Exception, so that a rule does not catch it with the others."""


class TimeLimit:
    """A limit of ``seconds`` for the code inside :meth:`running`."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self._end: float | None = None

    def check(self) -> None:
        """Raise RuleTimeout if the time is over."""
        if self._end is not None and time.monotonic() >= self._end:
            raise RuleTimeout(f"stopped after {self.seconds:g} s; --rule-timeout (rule_timeout in Python) gives it more")

    @contextlib.contextmanager
    def running(self) -> Iterator[None]:
        began = time.monotonic()
        self._end = began + self.seconds
        try:
            with _alarm(self.seconds, self.check) if _alarm_is_ours(self.seconds) else contextlib.nullcontext():
                yield
        finally:
            self._end = None


def _alarm_is_ours(seconds: float) -> bool:
    """Return whether the alarm can be set; an earlier alarm of the caller is kept."""
    if not hasattr(signal, "setitimer") or threading.current_thread() is not threading.main_thread():
        return False
    set_already = signal.getitimer(signal.ITIMER_REAL)[0]
    return signal.getsignal(signal.SIGALRM) is not None and not 0 < set_already <= seconds


@contextlib.contextmanager
def _alarm(seconds: float, check: Callable[[], None]) -> Iterator[None]:
    """Call ``check`` at the end of the time and repeatedly; then restore the alarm."""
    armed = True

    def ring(_number: int, _frame: FrameType | None) -> None:
        if armed:
            check()

    began = time.monotonic()
    before = signal.signal(signal.SIGALRM, ring)
    left, interval = signal.setitimer(signal.ITIMER_REAL, min(seconds, _LONGEST_S), _AGAIN_S)
    try:
        try:
            yield
        finally:
            armed = False
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
        if left:
            signal.setitimer(signal.ITIMER_REAL, max(left - (time.monotonic() - began), 1e-3), interval)


@contextlib.contextmanager
def printing_aside(who: str) -> Iterator[None]:
    """Redirect prints to standard error: the first lines, then the omitted number."""
    target = sys.stderr
    capped: Any = _Capped(target)
    try:
        with contextlib.redirect_stdout(capped), contextlib.redirect_stderr(capped):
            yield
    finally:
        if capped.left:
            omitted = f"{plural(max(capped.left_lines, 1), 'line')} ({plural(capped.left, 'character')})"
            target.write(f"{capped.line_end}note: {who} printed more: {omitted} are left out here\n")


class _Capped:
    """A text stream that passes on the first LINES lines and CHARACTERS characters."""

    def __init__(self, target: Any) -> None:
        self._target = target
        self._lines = self._characters = self.left_lines = self.left = 0
        self.line_end = ""

    def write(self, text: str) -> int:
        if not isinstance(text, str):
            raise TypeError(f"write() argument must be str, not {type(text).__name__}")
        passed = ""
        if not self.left:
            head = text[: CHARACTERS - self._characters]
            passed = "".join(head.splitlines(keepends=True)[: LINES - self._lines])
        if passed:
            self._target.write(passed)
            self._lines += passed.count("\n")
            self._characters += len(passed)
            self.line_end = "" if passed.endswith("\n") else "\n"
        self.left_lines += text.count("\n", len(passed))
        self.left += len(text) - len(passed)
        return len(text)

    def writelines(self, lines: Any) -> None:
        for line in lines:
            self.write(line)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._target, name)
