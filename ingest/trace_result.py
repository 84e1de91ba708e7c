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
