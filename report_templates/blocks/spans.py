"""Spans of the timeline that findings, cells and captions link to."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from ...analysis.report.loop_details import SlowStep
from ...analysis.report.steps import Step

_MS: Final = 1_000_000


@dataclass(frozen=True, slots=True)
class Span:
    """A stretch of time, in ns of the clock of the run, and the rank that it is about."""

    start_ns: int
    end_ns: int
    rank: int | None = None


def step_span(step: Step | SlowStep) -> Span:
    return Span(step.start_ns, step.start_ns + step.duration_ns, step.rank)


@dataclass(frozen=True, slots=True)
class Clock:
    """The time that a timeline shows."""

    origin_ns: int
    span_ns: int

    def fragment(self, span: Span | None) -> str | None:
        """Return "t=1200.5-1250&rank=3", in ms since the origin.

        None outside of the timeline.
        """
        if span is None:
            return None
        start, end = (ns - self.origin_ns for ns in (span.start_ns, span.end_ns))
        if end < max(start, 0) or start >= self.span_ns:
            return None
        rank = "" if span.rank is None else f"&rank={span.rank}"
        return f"t={_ms(max(start, 0))}-{_ms(min(end, self.span_ns))}{rank}"


def _ms(ns: int) -> str:
    ms, rest = divmod(ns, _MS)
    return f"{ms}.{rest:06d}".rstrip("0").rstrip(".")
