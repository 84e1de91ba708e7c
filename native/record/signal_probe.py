"""Detects whether a signal was sent to the recorder alone, or to the job as well.

Senders often signal every process of a job: timeout, mpirun, a scheduler, systemd. The command then already has the signal, and passing it
on would double it: a second SIGTERM ends many programs in the middle of their checkpoint. The signal does not name its other receivers. So
a witness process runs next to the command, in the same group, session and control group, and only reports the signals of programs that
reach it.
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

PATIENCE_S: Final = 0.1  # how long a signal to the recorder waits for the same signal at the witness
_SAME_S: Final = 2.0
"""An older signal at the witness was a different one. (timeout sends one to the recorder, and immediately one to all.)"""
_ARRIVAL: Final = struct.Struct("=id")  # number, time

_CODE: Final = """
import os, signal, struct, sys, time
parent, signals = int(sys.argv[1]), {int(one) for one in sys.argv[2:]}
while os.getppid() == parent:
    arrived = signal.sigtimedwait(signals, 1.0)
    if arrived is not None and arrived.si_code != 0x80:
        os.write(1, struct.pack("=id", arrived.si_signo, time.monotonic()))
"""


class Witness:
    """A process that reports which of ``signals`` it receives. They must be blocked in the process that starts it."""

    def __init__(self, signals: Iterable[int]) -> None:
        numbers = sorted(signals)
        self._seen: dict[int, float] = {}
        self._pipe: int | None = None
        self._process: int | None = None
        command = [sys.executable, "-I", "-S", "-c", _CODE, str(os.getpid()), *map(str, numbers)]
        try:
            self._pipe, end = os.pipe()
        except OSError:
            return  # then every signal is passed on
        nothing = [(os.POSIX_SPAWN_OPEN, fd, os.devnull, os.O_RDWR, 0) for fd in (0, 2)]
        with suppress(OSError):
            self._process = os.posix_spawn(
                sys.executable, command, {}, setsigmask=numbers, file_actions=[(os.POSIX_SPAWN_DUP2, end, 1), *nothing]
            )
        os.close(end)

    def saw(self, number: int) -> bool:
        """Whether a signal to the recorder has also reached the witness."""
        until = time.monotonic() + PATIENCE_S
        while True:
            if time.monotonic() - self._seen.get(number, -_SAME_S) < _SAME_S:
                return True
            if self._process is None or self._pipe is None:
                return False
            ready, _, _ = select.select([self._pipe], [], [], max(0.0, until - time.monotonic()))
            data = os.read(self._pipe, 64 * _ARRIVAL.size) if ready else b""
            if not data:
                return False
            self._seen.update(_ARRIVAL.iter_unpack(data[: len(data) // _ARRIVAL.size * _ARRIVAL.size]))

    def reaped(self, process: int) -> None:
        """Note that a child of the recorder has ended; it may be the witness."""
        if process == self._process:
            self._process = None

    def close(self) -> None:
        """End the witness."""
        if self._process is not None:
            with suppress(ProcessLookupError):
                os.kill(self._process, signal.SIGKILL)
            with suppress(ChildProcessError):
                os.waitpid(self._process, 0)
            self._process = None
        if self._pipe is not None:
            os.close(self._pipe)
            self._pipe = None
