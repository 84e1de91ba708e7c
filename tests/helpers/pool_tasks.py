"""Tasks for the tests of the pool: functions that a worker process can import."""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any, NoReturn

_KEPT: list[Any] = []


def add(number: int, two: int = 0) -> int:
    return number + two


def same(value: Any) -> Any:
    return value


def pid(_: object = None) -> int:
    return os.getpid()


def folder() -> str:
    import tempfile

    folder = tempfile.mkdtemp()
    Path(folder, "file").write_text("left behind", encoding="utf-8")
    return folder


def variable(name: str) -> str | None:
    return os.environ.get(name)


def sleep(seconds: float) -> float:
    time.sleep(seconds)
    return seconds


def touch_and_sleep(path: str, seconds: float) -> None:
    Path(path).write_text(str(os.getpid()), encoding="utf-8")
    time.sleep(seconds)


def exit_with(code: int) -> NoReturn:
    print("about to leave", flush=True)
    os._exit(code)


def system_exit(code: int) -> NoReturn:
    sys.exit(code)


def crash() -> None:
    ctypes.string_at(0)


def kill_self(name: str) -> None:
    os.kill(os.getpid(), getattr(signal, name))
    time.sleep(30)


def grow(count: int, seconds: float = 30.0) -> int:
    held = bytearray(count)
    held[::4096] = b"x" * len(held[::4096])
    time.sleep(seconds)
    return len(held)


def grow_in_child(count: int) -> int:
    code = f"import time; held = bytearray({count}); held[::4096] = b'x' * len(held[::4096]); time.sleep(30)"
    return subprocess.run([sys.executable, "-c", code], check=False).returncode


def keep(count: int) -> int:
    held = bytearray(count)
    held[::4096] = b"x" * len(held[::4096])
    _KEPT.append(held)
    return os.getpid()


def child_that_sleeps(path: str) -> None:
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
    Path(path).write_text(f"{os.getpid()} {child.pid}", encoding="utf-8")
    time.sleep(60)


def fork_and_die(path: str) -> None:
    """A child of the task outlives it and holds everything that was open."""
    child = os.fork()
    if child == 0:
        time.sleep(60)
        os._exit(0)
    Path(path).write_text(str(child), encoding="utf-8")
    os._exit(7)


def write_much(lines: int) -> None:
    for number in range(lines):
        print(f"line {number} " + "x" * 200)
    sys.stdout.flush()
    os._exit(1)


def end_soon(seconds: float) -> int:
    """Done, but the worker dies a moment later, while it is idle."""
    threading.Timer(seconds, os._exit, [9]).start()
    return os.getpid()


class PicklesBadlyError(Exception):
    """Pickles, and cannot be made again from it."""

    def __init__(self, first: str, two: str) -> None:
        super().__init__(f"{first} and {two}")


class NoPickleError(Exception):
    def __init__(self) -> None:
        super().__init__("holds a lock")
        self.lock = threading.Lock()


def fail(kind: str) -> NoReturn:
    if kind == "badly":
        raise PicklesBadlyError("this", "that")
    if kind == "lock":
        raise NoPickleError
    if kind == "local":

        class LocalError(Exception):
            pass

        raise LocalError("of a function")
    raise {"value": ValueError, "memory": MemoryError, "interrupt": KeyboardInterrupt}[kind](f"a {kind}")


def lose_the_error() -> NoReturn:
    """Fail as a library does that has no memory for its exception."""
    raise SystemError("error return without exception set")


def unpicklable() -> Any:
    return threading.Lock()


class CrashesWhenRead:
    """Ends the process in which it is unpickled."""

    def __reduce__(self) -> Any:
        return os._exit, (5,)


def allocate(count: int) -> int:
    """One allocation, all of which is written to at once."""
    return len(b"x" * count)


def allocate_in_a_library(count: int) -> int:
    """As :func:`allocate`, in Rust, which ends the process when it gets no memory."""
    import polars as pl

    return len(pl.repeat(1, count // 8, eager=True))


def write_beyond_the_limit(path: str) -> None:
    with Path(path).open("wb") as file:
        file.truncate(limits()[1] + 1)


def limits() -> tuple[int, int]:
    """Of the size of a core dump and of a file."""
    import resource

    return resource.getrlimit(resource.RLIMIT_CORE)[0], resource.getrlimit(resource.RLIMIT_FSIZE)[0]


def run_out_of_memory_outside_the_task() -> None:
    sys.stderr.write("MemoryError\n")
    sys.stderr.flush()
    os._exit(1)
