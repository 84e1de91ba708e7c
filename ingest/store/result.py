"""What is known of a trace of a profiler once its events are stored?"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from .registry import ReadResult


@dataclass(frozen=True, slots=True)
class TraceResult(ReadResult):
    """``metadata``: the small scalar members of the trace. ``process``: its row. ``framework``: PyTorch, or None where not said."""

    metadata: dict[str, Any] = field(default_factory=dict)
    process: int | None = None
    framework: str | None = None

    @property
    def processes(self) -> tuple[int, ...]:
        """The rows of all processes whose rank can be asked for."""
        return () if self.process is None else (self.process,)


@dataclass(frozen=True, slots=True)
class CaptureResult(ReadResult):
    """``process``: its row, None for a recorder. ``metadata``: what the recording says of itself and of the run. ``job``: it is that of a
    recorder, which has something to say where it holds no event. ``session`` and ``number``: of which recording the file is which part."""

    process: int | None = None
    session: bytes | None = None
    number: int = 0
    metadata: dict[str, Any] = field(default_factory=dict)
    job: bool = False
