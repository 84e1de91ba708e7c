"""Results of reading traces and recordings, once their events are stored."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from .registry import ReadResult


@dataclass(frozen=True, slots=True)
class TraceResult(ReadResult):
    """``metadata``: small scalar members of the trace. ``process``: its row. ``framework``: PyTorch, or None if the trace lacks it."""

    metadata: dict[str, Any] = field(default_factory=dict)
    process: int | None = None
    framework: str | None = None

    @property
    def processes(self) -> tuple[int, ...]:
        """Rows of all processes whose rank can be determined."""
        return () if self.process is None else (self.process,)


@dataclass(frozen=True, slots=True)
class CaptureResult(ReadResult):
    """``process``: its row, None for a recorder. ``metadata``: of the recording and the run. ``job``: a recorder wrote it, so it counts
    even without events. ``session``, ``number``: the recording, and the number of the file in it."""

    process: int | None = None
    session: bytes | None = None
    number: int = 0
    metadata: dict[str, Any] = field(default_factory=dict)
    job: bool = False
