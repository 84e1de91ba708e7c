"""How is a command run so that signals, the terminal and its end are as if nobody stood between?

The command stays in the process group of the recorder, so what a terminal sends (Ctrl-C, Ctrl-Z, Ctrl-\\, hang-up) reaches it directly; a
signal that a program sends to the recorder alone is passed on (see record_witness.py). The recorder lives as long as the command does.
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
# Python ignores these, and what is ignored is inherited.
_DEFAULTS: Final = (signal.SIGPIPE, signal.SIGXFSZ)


class CommandError(PostrunError):
    """The command is not there (exit code 127), or cannot be executed (126), as shells say it."""

    def __init__(self, message: str, exit_code: int) -> None:
        super().__init__(message)
        self.exit_code = exit_code


@dataclass(frozen=True, slots=True)
class End:
    """How a process ended: with an exit code, or by a signal (then 128 + its number, as shells count). ``asked``: after somebody had asked
    the recorder to end."""

    exit_code: int
    signal: int | None = None
    asked: bool = False

    @property
    def signal_name(self) -> str | None:
        """SIGKILL, ...; a number where it has no name."""
        try:
            return signal.Signals(self.signal).name if self.signal is not None else None
        except ValueError:
            return str(self.signal)


def find(command: str, path: str | None = None) -> str:
    """The file that runs when the user says ``command``, looked up as shells do. Raises CommandError."""
    found = shutil.which(command, path=path)
    if found is not None:
        return found
    if "/" not in command:
        raise CommandError(f"{command}: command not found; check the name and PATH", 127)
    try:
        os.stat(command)  # noqa: PTH116 - the text is no Path: it may be empty or hold anything
    except PermissionError:
        raise CommandError(f"{command}: permission denied", 126) from None
    except (OSError, ValueError) as error:
        reason = (error.strerror or str(error)) if isinstance(error, OSError) else str(error)
        raise CommandError(f"{command}: cannot be found ({reason}); check the path", 127) from None
    raise CommandError(f"{command}: is no file that can be executed; chmod +x, or run it with its interpreter", 126)


def hold_signals() -> set[int]:
    """From now on signals wait until :func:`wait` looks at them. For the main thread, before others; what was blocked before."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    return {int(one) for one in signal.pthread_sigmask(signal.SIG_BLOCK, _HELD)}


def start(
    file: str, command: Sequence[str], environment: Mapping[str, str], blocked: set[int], stdout: int = 1, ignored: int | None = None
) -> int:
    """Start a command with the signals blocked that were before, its output to ``stdout``; its process id. ``ignored``: a signal that does
    not end it, as long as it does nothing about it. Raises CommandError."""
    before = None if ignored is None else signal.signal(ignored, signal.SIG_IGN)  # is inherited; what is held here still arrives
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
    """Pass signals on until the child ends, but for those that a witness says it has. Stops with it, and goes on with it."""
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


def apart(work: Callable[[], None], said: Path) -> int:
    """Do something in a child of a session of its own, which no signal to this process's group or terminal reaches; its process id.
    What it prints goes to a file. For a process of one thread. Raises OSError."""
    output, nothing = os.open(said, os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC), os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
    try:
        sys.stderr.flush()
        child = os.fork()
        if child == 0:
            code = 1
            try:
                os.setsid()
                for number, place in ((0, nothing), (1, output), (2, output)):
                    os.dup2(place, number)
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
    """Wait for a child that signals do not reach. At the first that asks to end (or if ``asked`` before) ``going_on`` is called; at the
    next: None."""
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
    """Wait without a child, so long or until a signal asks to end."""
    arrived = signal.sigtimedwait(_ASK_TO_END, seconds)
    return None if arrived is None else End(128 + arrived.si_signo, arrived.si_signo)


def send(child: int, number: int) -> None:
    """A signal to a child that has not been waited for."""
    with suppress(PermissionError):  # it changed its user
        os.kill(child, number)


def leave(end: End) -> NoReturn:
    """End as the command did: with its exit code, or by its signal (without a memory dump of the recorder)."""
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
    """What became of the processes that changed: the end of the child. As process 1 of a container the recorder has others, too."""
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
            # Ctrl-Z: the shell that waits for the recorder sees the job stopped only when the recorder is, too.
            if os.WSTOPSIG(status) in _STOPS:
                os.kill(os.getpid(), signal.SIGSTOP)
        elif os.WIFSIGNALED(status):
            end = End(128 + os.WTERMSIG(status), os.WTERMSIG(status))
        else:
            end = End(os.WEXITSTATUS(status))
