"""How is a dump of cProfile read so that a damaged or hostile one cannot hurt? In a process of its own, with limits.

What comes back is checked as if it were hostile, too. One process reads the dumps of one run; after a crash a new one is started.
"""

from __future__ import annotations

import os
import selectors
import struct
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from . import isolated_process

if TYPE_CHECKING:
    import subprocess

    import polars as pl

CHILD: Final = Path(__file__).with_name("python_stats_child.py")
MOST_BYTES: Final = 64 << 20
"""Of one dump: some 400,000 functions."""
_MEMORY: Final = 2 << 30
_CPU_SECONDS: Final = 60
_WALL_SECONDS: Final = 180.0
_FUNCTIONS: Final = 100_000
_CALLS: Final = 1_000_000
_TEXT: Final = 4096
_ANSWER: Final = 128 << 20
_HEAD: Final = 7
"""Numbers at the beginning of an answer."""
_MOST_COUNT: Final = 10**12
_MOST_SECONDS: Final = 10**9


class StatsError(Exception):
    """Why a dump cannot be read, as a sentence's end: "the file ..."."""


@dataclass(frozen=True, slots=True)
class Stats:
    """What a dump of cProfile holds.

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


class StatsProcess:
    """The process that reads the dumps. It starts with the first one; close it or use it as a context manager."""

    def __init__(
        self, child: Path = CHILD, *, wall_seconds: float = _WALL_SECONDS, cpu_seconds: int = _CPU_SECONDS, memory: int = _MEMORY
    ) -> None:
        self._command = (child, memory, cpu_seconds, _FUNCTIONS, _CALLS, _TEXT)
        self._wall_seconds = wall_seconds
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> StatsProcess:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def close(self) -> None:
        """End the process, if there is one."""
        process, self._process = self._process, None
        if process is not None:
            isolated_process.stop(process)

    def read(self, data: bytes) -> Stats:
        """What the dump ``data`` holds. Raises StatsError."""
        if len(data) > MOST_BYTES:
            raise StatsError(f"has more than {MOST_BYTES >> 20} MiB, which no Python profile has")
        try:
            answer = self._ask(struct.pack("=q", len(data)) + data)
            if answer[:1] == b"\1":
                return _stats(answer[1:])
        except StatsError:
            self.close()
            raise
        except OSError as error:
            self.close()
            raise StatsError(f"cannot be read: the process that reads such files does not start ({error.strerror or error})") from error
        if answer[:1] != b"\0":  # it has ended itself
            self.close()
        raise StatsError(f"is no dump of cProfile, or a damaged one ({answer[1:400].decode('utf-8', 'replace')})")

    def _ask(self, question: bytes) -> bytes:
        """The answer to ``question``: both in one loop, as a process that does not do what it should may write before it has read."""
        process = self._started()
        assert process.stdin is not None
        assert process.stdout is not None
        out, into = process.stdout.fileno(), process.stdin.fileno()
        end = time.monotonic() + self._wall_seconds
        answer, left, wanted = bytearray(), memoryview(question), -1
        with selectors.DefaultSelector() as ready:
            ready.register(out, selectors.EVENT_READ)
            ready.register(into, selectors.EVENT_WRITE)
            while wanted < 0 or len(answer) < wanted:
                events = ready.select(end - time.monotonic())
                if time.monotonic() >= end:
                    raise StatsError(f"takes more than {self._wall_seconds:g} s to read: it is damaged or hostile")
                for key, _ in events:
                    if key.fd == into:
                        try:
                            left = left[os.write(into, left[: 1 << 20]) :]
                        except BrokenPipeError:
                            left = left[:0]
                        if not left:
                            ready.unregister(into)
                    elif piece := os.read(out, 1 << 20):
                        answer += piece
                    else:
                        raise StatsError(self._death())
                if wanted < 0 and len(answer) >= 8:
                    wanted = struct.unpack("=q", answer[:8])[0]
                    del answer[:8]
                    if not 1 <= wanted <= _ANSWER:
                        raise StatsError(_HOSTILE)
        if len(answer) != wanted:
            raise StatsError(_HOSTILE)
        return bytes(answer)

    def _started(self) -> subprocess.Popen[bytes]:
        if self._process is None:
            self._process = isolated_process.start(*self._command)
            for pipe in (self._process.stdin, self._process.stdout):
                assert pipe is not None
                os.set_blocking(pipe.fileno(), False)
        return self._process

    def _death(self) -> str:
        assert self._process is not None
        end = isolated_process.end_of(self._process)
        if end is None:
            return _HOSTILE
        if end == "SIGXCPU":
            return "takes too much processor time to read: it is damaged or hostile"
        return f"is damaged or hostile: reading it ended the process that reads such files ({end})"


_HOSTILE: Final = "is damaged or hostile: the process that reads such files gave no sound answer"


def _stats(answer: bytes) -> Stats:
    import numpy as np
    import polars as pl

    def take(place: int, count: int, kind: str) -> np.ndarray:
        return np.frombuffer(answer, kind, count, place)

    if len(answer) < 8 * _HEAD:
        raise StatsError(_HOSTILE)
    functions, calls, odd, negative, functions_left, calls_left, text = map(int, take(0, _HEAD, "=i8"))
    sound = 0 <= functions <= _FUNCTIONS and 0 <= calls <= _CALLS and text >= 0 and min(odd, negative, functions_left, calls_left) >= 0
    if not sound or len(answer) != 8 * (_HEAD + 5 * functions + 6 * calls) + text:
        raise StatsError(_HOSTILE)
    place = 8 * _HEAD
    columns: dict[str, np.ndarray] = {}
    for part, count, names in (
        ("f", functions, ("line", "calls", "primitive_calls", "total_s", "cumulative_s")),
        ("c", calls, ("caller", "callee", "calls", "primitive_calls", "total_s", "cumulative_s")),
    ):
        for name in names:
            seconds = name.endswith("_s")
            column = take(place, count, "=f8" if seconds else "=i8")
            place += 8 * count
            most = _MOST_SECONDS if seconds else functions - 1 if name in ("caller", "callee") else _MOST_COUNT
            if not bool(np.all((column >= 0) & (column <= most))):  # false of NaN, too
                raise StatsError(_HOSTILE)
            columns[part + name] = column
    try:
        texts = answer[place:].decode().split("\0") if functions else []
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
