"""Dumps of cProfile -> ``Stats``, read in a child process with limits, so that a damaged or hostile dump does no harm.

Each dump gets its own process. Its answer is checked as if it were hostile.
"""

from __future__ import annotations

import contextlib
import io
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from ..store import isolated_process

if TYPE_CHECKING:
    import subprocess

    import polars as pl

CHILD: Final = Path(__file__).with_name("cprofile_child.py")
MOST_BYTES: Final = 64 << 20  # Of one dump: some 400,000 functions
_MEMORY: Final = 2 << 30
_CPU_SECONDS: Final = 60
_WALL_SECONDS: Final = 180.0
_FUNCTIONS: Final = 100_000
_CALLS: Final = 1_000_000
_TEXT: Final = 4096
_ANSWER: Final = 128 << 20
_HEAD: Final = 7  # Numbers at the beginning of an answer
_MOST_COUNT: Final = 10**12
_MOST_SECONDS: Final = 10**9


class StatsError(Exception):
    """Why a dump cannot be read, as the end of a sentence that begins with "the file"."""


@dataclass(frozen=True, slots=True)
class Stats:
    """Contents of a dump of cProfile.

    ``functions``: file, name, line, calls, primitive_calls, total_s (own time), cumulative_s; the row's number is the id. ``calls``:
    caller, callee (ids), calls, primitive_calls, total_s, cumulative_s of the callee in these calls. ``odd``: entries that no profiler
    writes and that are left out; ``negative``: times below zero, taken for zero; ``functions_left``, ``calls_left``: of too many.
    """

    functions: pl.DataFrame
    calls: pl.DataFrame
    odd: int
    negative: int
    functions_left: int
    calls_left: int


def read_stats(data: bytes, *, child: Path = CHILD, wall_seconds: float = _WALL_SECONDS, memory: int = _MEMORY) -> Stats:
    """Return the content of the dump ``data``. Raises StatsError."""
    if len(data) > MOST_BYTES:
        raise StatsError(f"has more than {MOST_BYTES >> 20} MiB, which no Python profile has")
    try:
        process = isolated_process.start(child, memory, _CPU_SECONDS, _FUNCTIONS, _CALLS, _TEXT)
    except OSError as error:
        raise StatsError(f"cannot be read: the process that reads such files does not start ({error.strerror or error})") from error
    deadline = time.monotonic() + wall_seconds
    timer = threading.Timer(wall_seconds, process.kill)
    writer = threading.Thread(target=_write, args=(process, data))
    try:
        timer.start()
        writer.start()
        answer = _read(process)
        late = time.monotonic() >= deadline
        end = isolated_process.end_of(process) if len(answer) <= _ANSWER else None
    finally:
        timer.cancel()
        process.kill()
        writer.join()
        isolated_process.stop(process)
    if late:
        raise StatsError(f"takes more than {wall_seconds:g} s to read: it is damaged or hostile")
    if end == "SIGXCPU":
        raise StatsError("takes too much processor time to read: it is damaged or hostile")
    if end not in (None, "exit code 0"):
        raise StatsError(f"is damaged or hostile: reading it ended the process that reads such files ({end})")
    if end is None or answer[:1] not in (b"\0", b"\1"):
        raise StatsError(_HOSTILE)
    if answer[:1] == b"\0":
        raise StatsError(f"is not a dump of cProfile, or a damaged one ({answer[1:400].decode('utf-8', 'replace')})")
    return _stats(answer[1:])


def _write(process: subprocess.Popen[bytes], data: bytes) -> None:
    """Write ``data`` in a thread; a hostile process may answer before it reads."""
    assert process.stdin is not None
    with contextlib.suppress(OSError), process.stdin as pipe:
        left = memoryview(data)
        while left:
            left = left[pipe.write(left) :]


def _read(process: subprocess.Popen[bytes]) -> bytes:
    """Return the answer, cut one byte beyond the limit."""
    answer = io.BytesIO()
    assert process.stdout is not None
    while answer.tell() <= _ANSWER and (piece := process.stdout.read(1 << 20)):
        answer.write(piece)
    return answer.getvalue()


_HOSTILE: Final = "is damaged or hostile: the process that reads such files gave no sound answer"


def _stats(answer: bytes) -> Stats:
    import numpy as np
    import polars as pl

    def take(offset: int, count: int, kind: str) -> np.ndarray:
        return np.frombuffer(answer, kind, count, offset)

    if len(answer) < 8 * _HEAD:
        raise StatsError(_HOSTILE)
    functions, calls, odd, negative, functions_left, calls_left, text = map(int, take(0, _HEAD, "=i8"))
    sound = 0 <= functions <= _FUNCTIONS and 0 <= calls <= _CALLS and text >= 0 and min(odd, negative, functions_left, calls_left) >= 0
    if not sound or len(answer) != 8 * (_HEAD + 5 * functions + 6 * calls) + text:
        raise StatsError(_HOSTILE)
    offset = 8 * _HEAD
    columns: dict[str, np.ndarray] = {}
    for part, count, names in (
        ("f", functions, ("line", "calls", "primitive_calls", "total_s", "cumulative_s")),
        ("c", calls, ("caller", "callee", "calls", "primitive_calls", "total_s", "cumulative_s")),
    ):
        for name in names:
            seconds = name.endswith("_s")
            column = take(offset, count, "=f8" if seconds else "=i8")
            offset += 8 * count
            most = _MOST_SECONDS if seconds else functions - 1 if name in ("caller", "callee") else _MOST_COUNT
            if not bool(np.all((column >= 0) & (column <= most))):  # also false for NaN
                raise StatsError(_HOSTILE)
            columns[part + name] = column
    try:
        texts = answer[offset:].decode().split("\0") if functions else []
    except UnicodeDecodeError as error:
        raise StatsError(_HOSTILE) from error
    if len(texts) != 2 * functions or max(map(len, texts), default=0) > 12 * _TEXT:
        raise StatsError(_HOSTILE)
    return Stats(
        pl.DataFrame(
            {"file": texts[::2], "name": texts[1::2], **{name[1:]: column for name, column in columns.items() if name[0] == "f"}},
            schema_overrides={"file": pl.String, "name": pl.String},
        ),
        pl.DataFrame({name[1:]: column for name, column in columns.items() if name[0] == "c"}),
        odd,
        negative,
        functions_left,
        calls_left,
    )
