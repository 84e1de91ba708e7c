"""Classifies the lanes of a TensorFlow (XLA, JAX) trace: threads of the host, streams of a GPU, and lines derived from streams.

Processes are named ``/host:CPU`` and ``/device:GPU:k``; threads of a device are its streams (``Stream #13(Compute,MemcpyD2D)``, in older
traces ``stream:13`` or ``Compute``) and lines that the profiler derives from them (``Steps``, ``TensorFlow Ops``, ``XLA Modules``, ...),
which show the same device time again.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Final, Literal

from ..store.time_limits import HIGHEST_DEVICE

Kind = Literal["host", "stream", "steps", "derived"]

_GPU: Final = re.compile(r"/device:GPU:(\d{1,6})\b(?P<rest>.*)", re.IGNORECASE | re.DOTALL)
_STREAM: Final = re.compile(r"/?stream ?[#:]? ?(\d{1,18})\b", re.IGNORECASE)
_QUEUE: Final = re.compile(r"(compute|kernels?|mem(cpy|set)[ _-]?\w*)", re.IGNORECASE)
_FIRST_DERIVED: Final = 0xDEADBEEF  # threads with this number or a higher one are lines that the profiler derives


@dataclass(frozen=True, slots=True)
class Lane:
    """``device`` is None on the host; ``stream`` is None outside streams. ``line``: the name of the lane."""

    kind: Kind
    device: int | None
    stream: int | None
    line: str


@dataclass(slots=True)
class Lanes:
    """The names of the processes and threads of one file that have been read so far."""

    processes: dict[str, str] = field(default_factory=dict)
    threads: dict[tuple[str, str], str] = field(default_factory=dict)

    def add(self, metadata: Iterable[tuple[int, dict[str, Any]]]) -> None:
        for _, event in metadata:
            arguments = event.get("args")
            name = arguments.get("name") if isinstance(arguments, dict) else None
            if not isinstance(name, str):
                continue
            if event.get("name") == "process_name":
                self.processes[str(event.get("pid"))] = name[:300]
            elif event.get("name") == "thread_name":
                self.threads[str(event.get("pid")), str(event.get("tid"))] = name[:300]

    def devices(self) -> set[int]:
        """Return the indices of the GPUs that the file names."""
        matches = (_GPU.search(name) for name in self.processes.values())
        return {index for match in matches if match and (index := int(match[1])) < HIGHEST_DEVICE}

    def is_named(self, pid: str, tid: str) -> bool:
        """Return whether the names that :meth:`of` needs are known."""
        name = self.processes.get(pid)
        return name is not None and ("/device:" not in name or (pid, tid) in self.threads)

    def of(self, pid: str, tid: str) -> Lane:
        """Return the lane of a thread. A thread without a name belongs to the host."""
        process = self.processes.get(pid, "")
        thread = self.threads.get((pid, tid), "")
        gpu = _GPU.search(process)
        number = int(tid) if re.fullmatch(r"\d{1,18}", tid, re.ASCII) else None
        if gpu is None or int(gpu[1]) >= HIGHEST_DEVICE:
            # For other accelerators it is not known which lines are work and which repeat it.
            return Lane("derived" if "/device:" in process and "/device:CPU" not in process else "host", None, None, thread or process)
        device, parts = int(gpu[1]), [part for part in (gpu["rest"].strip(), thread.strip()) if part]
        line = " ".join(parts)
        if thread.lower().startswith("steps"):
            return Lane("steps", device, None, line)
        if process.startswith("/job:") and "stream:" not in process:  # how long the host was with operators of this device
            return Lane("host", None, None, line)
        if stream := next((match for part in parts if (match := _STREAM.match(part))), None):
            return Lane("stream", device, int(stream[1]), line)
        nameless = not line and (number is None or number < _FIRST_DERIVED)
        if nameless or _QUEUE.fullmatch(line):
            return Lane("stream", device, number, line)
        return Lane("derived", device, None, line or "lines without a name")
