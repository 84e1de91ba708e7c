"""Processes for Python scripts that read untrusted data: start, stop, and how one ended.

The process gets no environment but what the interpreter needs, so that no credential is in it, and no modules but those that the script
adds to its path itself. The script sets its own limits (``resource.setrlimit``).
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Final

_ENVIRONMENT: Final = ("LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH")  # By which the interpreter finds its own libraries
_END_SECONDS: Final = 10  # Between the end of the output of a process and its exit


def start(script: Path, *arguments: object) -> subprocess.Popen[bytes]:
    """Start a script with pipes for its input and output; OSError."""
    return subprocess.Popen(
        [sys.executable, "-I", "-S", str(script), *map(str, arguments)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        bufsize=0,
        cwd="/",
        env={name: os.environ[name] for name in _ENVIRONMENT if name in os.environ},
    )


def stop(process: subprocess.Popen[bytes]) -> None:
    """End the process at once, and close its pipes."""
    process.kill()
    for pipe in (process.stdin, process.stdout):
        if pipe is not None:
            with contextlib.suppress(OSError):  # of data that was not written yet
                pipe.close()
    process.wait()


def end_of(process: subprocess.Popen[bytes]) -> str | None:
    """Return the signal or exit code that ended a process; None if it has not ended."""
    try:
        code = process.wait(_END_SECONDS)
    except subprocess.TimeoutExpired:
        return None
    return signal.Signals(-code).name if -code in {int(number) for number in signal.Signals} else f"exit code {code}"
