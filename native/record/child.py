"""Runs a command so that signals, the terminal and its end behave as they do without the recorder.

The command stays in the process group of the recorder, so signals of a terminal (Ctrl-C, Ctrl-Z, Ctrl-\\, hang-up) reach it directly; a
signal that a program sends only to the recorder is passed on (see signal_probe.py). The recorder lives as long as the command does.
See docs/record.md.
"""

from __future__ import annotations

import errno
import os
import resource
import shutil
import signal
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final, NoReturn

from ... import modes
from ...errors import PostrunError
from ...messages import echo
from .signal_probe import Witness

PASSED_ON: Final = frozenset(
    {
        signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGTERM, signal.SIGUSR1, signal.SIGUSR2, signal.SIGTSTP, signal.SIGCONT,
    }
)  # fmt: skip
_HELD: Final = PASSED_ON | {signal.SIGCHLD}
_ASK_TO_END: Final = frozenset({signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGTERM})
_STOPS: Final = frozenset({signal.SIGTSTP, signal.SIGTTIN, signal.SIGTTOU})
_BY_THE_KERNEL: Final = 0x80  # si_code SI_KERNEL: a terminal sends to the whole process group
# Python ignores these, and a child inherits that.
_DEFAULTS: Final = (signal.SIGPIPE, signal.SIGXFSZ)


class CommandError(PostrunError):
    """The command does not exist (exit code 127) or cannot be executed (126), as in a shell."""

    def __init__(self, message: str, exit_code: int) -> None:
        super().__init__(message)
        self.exit_code = exit_code


@dataclass(frozen=True, slots=True)
class End:
    """How a process ended: exit code, or signal (128 + its number). ``asked``: after the recorder had been asked to end."""

    exit_code: int
    signal: int | None = None
    asked: bool = False

    @property
    def signal_name(self) -> str | None:
        """Return SIGKILL, ...; the number of a signal without a name."""
        try:
            return signal.Signals(self.signal).name if self.signal is not None else None
        except ValueError:
            return str(self.signal)


def find(command: str, path: str | None = None) -> str:
    """Return the file of ``command``, found as shells find it. Raise CommandError."""
    file = shutil.which(command, path=path)
    if file is not None:
        return file
    if "/" not in command:
        raise CommandError(f"{command}: command not found; check the name and PATH", 127)
    try:
        os.stat(command)  # noqa: PTH116 - the text may not be a valid Path: it can be empty or contain anything
    except PermissionError:
        raise CommandError(f"{command}: permission denied", 126) from None
    except (OSError, ValueError) as error:
        reason = (error.strerror or str(error)) if isinstance(error, OSError) else str(error)
        raise CommandError(f"{command}: cannot be found ({reason}); check the path", 127) from None
    raise CommandError(f"{command}: is not a file that can be executed; chmod +x, or run it with its interpreter", 126)


def hold_signals() -> set[int]:
    """Block signals for :func:`wait`, before threads start; return the old mask."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    return {int(number) for number in signal.pthread_sigmask(signal.SIG_BLOCK, _HELD)}


def start(
    file: str, command: Sequence[str], environment: Mapping[str, str], blocked: set[int], stdout: int = 1, ignored: int | None = None
) -> int:
    """Start a command and return its process id. Raise CommandError.

    ``blocked``: its blocked signals. ``stdout``: its output. ``ignored``: a signal that it ignores unless it installs a handler.
    """
    before = None if ignored is None else signal.signal(ignored, signal.SIG_IGN)  # is inherited; a blocked signal still arrives here
    try:
        with modes.umask_of_user():
            return _start(file, command, environment, blocked, stdout)
    finally:
        if ignored is not None:
            signal.signal(ignored, before)


def _start(file: str, command: Sequence[str], environment: Mapping[str, str], blocked: set[int], stdout: int) -> int:
    settings: dict[str, Any] = {"setsigmask": blocked, "setsigdef": _DEFAULTS}
    if stdout != 1:
        settings["file_actions"] = [(os.POSIX_SPAWN_DUP2, stdout, 1)]
    try:
        return os.posix_spawn(file, list(command), environment, **settings)
    except OSError as error:
        if error.errno == errno.ENOEXEC:  # a script without an interpreter line: as shells and env do
            return os.posix_spawn("/bin/sh", ["/bin/sh", file, *command[1:]], environment, **settings)
        if error.errno == errno.ENOENT:
            raise CommandError(f"{file}: the interpreter of its first line is not there; correct that line", 127) from None
        raise CommandError(f"{file}: cannot be executed ({error.strerror})", 126) from None


def wait(child: int, witness: Witness | None = None) -> End:
    """Wait for the child and pass on signals, except those the witness has seen."""
    asked = False
    while True:
        arrived = signal.sigwaitinfo(_HELD)
        asked |= arrived.si_signo in _ASK_TO_END
        if arrived.si_signo == signal.SIGCHLD:
            end = _look(child, witness)
            if end is not None:
                return replace(end, asked=asked)
        elif arrived.si_code != _BY_THE_KERNEL and not (witness and witness.saw(arrived.si_signo)):
            send(child, arrived.si_signo)


def apart(work: Callable[[], None], output_file: Path) -> int:
    """Run ``work`` in a child with its own session; return its id. Raise OSError.

    No signal to this process's group or terminal reaches it. ``output_file`` gets its output. The calling process has one thread.
    """
    output, nothing = os.open(output_file, os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC), os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
    try:
        sys.stderr.flush()
        child = os.fork()
        if child == 0:
            code = 1
            try:
                os.setsid()
                for number, target in ((0, nothing), (1, output), (2, output)):
                    os.dup2(target, number)
                work()
                code = 0
            except Exception as error:
                echo(f"postrun: {error}", err=True)
            finally:
                os._exit(code)
        return child
    finally:
        os.close(output)
        os.close(nothing)


def outlast(child: int, going_on: Callable[[], None], asked: bool) -> End | None:
    """Wait for a child that signals do not reach; None at a second request to end.

    ``going_on`` is called at the first request, or at once if ``asked``.
    """
    if asked:
        going_on()
    while True:
        arrived = signal.sigwaitinfo(_HELD)
        if arrived.si_signo == signal.SIGCHLD:
            end = _look(child, None)
            if end is not None:
                return end
        elif arrived.si_signo == signal.SIGTSTP:
            os.kill(os.getpid(), signal.SIGSTOP)
        elif arrived.si_signo in _ASK_TO_END:
            if asked:
                return None
            asked = True
            going_on()


def asked_to_end(seconds: float) -> End | None:
    """Wait ``seconds`` without a child, or until a signal requests the end."""
    arrived = signal.sigtimedwait(_ASK_TO_END, seconds)
    return None if arrived is None else End(128 + arrived.si_signo, arrived.si_signo)


def send(child: int, number: int) -> None:
    """Send a signal to a child that has not been waited for."""
    with suppress(PermissionError):  # it changed its user
        os.kill(child, number)


def leave(end: End) -> NoReturn:
    """End like the command: by its exit code, or by its signal without a core dump."""
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError):
            stream.flush()
    if end.signal is not None:
        resource.setrlimit(resource.RLIMIT_CORE, (0, resource.getrlimit(resource.RLIMIT_CORE)[1]))
        if end.signal not in (signal.SIGKILL, signal.SIGSTOP):
            signal.signal(end.signal, signal.SIG_DFL)
        os.kill(os.getpid(), end.signal)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {end.signal})
    os._exit(end.exit_code)


def _look(child: int, witness: Witness | None) -> End | None:
    """Reap all ended processes (process 1 has others); return the child's end."""
    end = None
    while True:
        try:
            process, status = os.waitpid(-1, os.WNOHANG | os.WUNTRACED)
        except ChildProcessError:
            return end
        if process == 0:
            return end
        if process != child:
            if witness is not None:
                witness.reaped(process)
            continue
        if os.WIFSTOPPED(status):
            # Ctrl-Z: the shell that waits for the recorder sees the job stopped only when the recorder is stopped as well.
            if os.WSTOPSIG(status) in _STOPS:
                os.kill(os.getpid(), signal.SIGSTOP)
        elif os.WIFSIGNALED(status):
            end = End(128 + os.WTERMSIG(status), os.WTERMSIG(status))
        else:
            end = End(os.WEXITSTATUS(status))
