"""Was a signal sent to the recorder alone, or to the job as well?

Who ends a job often signals every process of it: timeout, mpirun, a scheduler, systemd. The command then has the signal already, and
passing it on would make it two: a second SIGTERM ends many programs in the middle of their checkpoint. The sender does not say whom else
it sent it to. So a process stands beside the command, in the same group, session and control group, that does nothing but tell which
signals of programs reach it.
"""

from __future__ import annotations

import os
import select
import signal
import struct
import sys
import time
from collections.abc import Iterable
from contextlib import suppress
from typing import Final

PATIENCE_S: Final = 0.1  # How long a signal to the recorder waits for the same to the witness
_SAME_S: Final = 2.0
"""A signal that reached the witness longer ago was another. (timeout sends one to the recorder, and at once one to all.)"""
_TOLD: Final = struct.Struct("=id")  # number, time

_CODE: Final = """
import os, signal, struct, sys, time
parent, signals = int(sys.argv[1]), {int(one) for one in sys.argv[2:]}
while os.getppid() == parent:
    arrived = signal.sigtimedwait(signals, 1.0)
    if arrived is not None and arrived.si_code != 0x80:
        os.write(1, struct.pack("=id", arrived.si_signo, time.monotonic()))
"""


class Witness:
    """A process that tells which of ``signals`` it gets. They must be blocked in the process that makes it."""

    def __init__(self, signals: Iterable[int]) -> None:
        numbers = sorted(signals)
        self._seen: dict[int, float] = {}
        self._pipe: int | None = None
        self._process: int | None = None
        command = [sys.executable, "-I", "-S", "-c", _CODE, str(os.getpid()), *map(str, numbers)]
        try:
            self._pipe, end = os.pipe()
        except OSError:
            return  # every signal is passed on, then
        nothing = [(os.POSIX_SPAWN_OPEN, fd, os.devnull, os.O_RDWR, 0) for fd in (0, 2)]
        with suppress(OSError):
            self._process = os.posix_spawn(
                sys.executable, command, {}, setsigmask=numbers, file_actions=[(os.POSIX_SPAWN_DUP2, end, 1), *nothing]
            )
        os.close(end)

    def saw(self, number: int) -> bool:
        """Whether a signal that the recorder got has reached this process, too."""
        until = time.monotonic() + PATIENCE_S
        while True:
            if time.monotonic() - self._seen.get(number, -_SAME_S) < _SAME_S:
                return True
            if self._process is None or self._pipe is None:
                return False
            ready, _, _ = select.select([self._pipe], [], [], max(0.0, until - time.monotonic()))
            told = os.read(self._pipe, 64 * _TOLD.size) if ready else b""
            if not told:
                return False
            self._seen.update(_TOLD.iter_unpack(told[: len(told) // _TOLD.size * _TOLD.size]))

    def reaped(self, process: int) -> None:
        """A child of the recorder that has ended; it may be this one."""
        if process == self._process:
            self._process = None

    def close(self) -> None:
        """End it."""
        if self._process is not None:
            with suppress(ProcessLookupError):
                os.kill(self._process, signal.SIGKILL)
            with suppress(ChildProcessError):
                os.waitpid(self._process, 0)
            self._process = None
        if self._pipe is not None:
            os.close(self._pipe)
            self._pipe = None
