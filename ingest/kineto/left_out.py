"""Drops the events of a Kineto trace that cannot be stored, repairs others, and writes a note for each kind."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

import polars as pl

from ..chrome_trace.names import Names
from ..kernels.categories import DEVICE_KINDS, SKIPPED
from ..store.limits import CATEGORIES
from ..store.store import Store
from ..store.tables import Severity
from ..store.time_limits import EARLIEST_NS, LATEST_NS, LONGEST_NS, ROUNDING_NS

_SESSION: Final = "trace"  # category, in lower case, of the markers of the profiler's own session
_PROFILER: Final = "PyTorch Profiler"
_READ_PHASES: Final = frozenset({"X", "B", "E", "M"})
_PHASES: Final = {
    "s": "flow arrows", "t": "flow arrows", "f": "flow arrows", "i": "instants", "I": "instants", "R": "instants", "C": "counters",
    "b": "asynchronous", "e": "asynchronous", "n": "asynchronous", "S": "asynchronous", "F": "asynchronous", "T": "asynchronous",
    "p": "asynchronous", "N": "object snapshots", "O": "object snapshots", "D": "object snapshots",
}  # fmt: skip

_MESSAGES: Final[dict[str, tuple[Severity, str]]] = {
    "category_not_read": ("info", "Events of category {category} are of no kind that is read; they are not stored."),
    "categories_not_read": ("info", "Events of many further categories are of no kind that is read; they are not stored."),
    "zero_time": ("warning", "Device events with start 0 and duration 0 were dropped: the profiler lost their times."),
    "absurd_time": ("warning", "Events whose times are of no possible day were dropped."),
    "absurd_duration": ("warning", "Events longer than seven days were dropped: their durations cannot be right."),
    "negative_duration": ("warning", "Events with a negative duration were dropped."),
    "rounded_duration": ("info", "Durations down to -1 us, a product of rounding, were taken as 0."),
    "no_duration": ("info", "Complete events without a duration were given the duration 0."),
    "device_unknown": ("warning", "Device events that name no device are shown as of the trace's only one, or else of device 0."),
    "stray_end": ("warning", "End events without a begin were dropped."),
    "unclosed_begin": ("warning", "Ranges that were begun and never ended were closed at the end of the trace."),
    "host_allocations": ("info", "Memory events of the processor, and those without totals, are not stored."),
    "base_time_ignored": ("warning", "The trace has absolute times and a base time; the base time was not added."),
}


@dataclass(slots=True)
class _Dropped:
    """Events of one kind that were dropped or repaired. ``starts``: first and last start of each batch."""

    count: int = 0
    starts: list[int] = field(default_factory=list)


class LeftOut:
    """The dropped and repaired events of one trace, by the codes of notes.

    ``on``: when the profiler was on, according to its markers, in nanoseconds of the trace's clock.
    """

    def __init__(self) -> None:
        self.dropped: dict[str, _Dropped] = {}
        self.on: tuple[int, int] | None = None

    def count(self, code: str, count: int, events: pl.DataFrame | None = None) -> None:
        """Add ``count`` events of one kind, which start within the starts of ``events``."""
        dropped = self.dropped.setdefault(code, _Dropped())
        dropped.count += count
        if events is not None:
            dropped.starts += events.select(pl.col("start_ns").min(), last=pl.col("start_ns").max()).row(0)

    def sane(self, events: pl.DataFrame, names: Names) -> pl.DataFrame:
        """Drop impossible events and repair durations; count both."""
        skipped = events.filter(pl.col("route") == SKIPPED)
        if skipped.height:
            for category, count in skipped.group_by("category").len().sort("category").iter_rows():
                text = names.text(category) if category is not None else ""
                if f"category_not_read:{text}" not in self.dropped and len(self.dropped) >= CATEGORIES:
                    self.count("categories_not_read", count)
                    continue
                markers = skipped.filter(pl.col("category").eq_missing(category))
                self.count(f"category_not_read:{text}", count, markers)
                if text.lower() == _SESSION:
                    self._session(markers, names)
            events = events.filter(pl.col("route") != SKIPPED)
        duration, start = pl.col("duration_ns"), pl.col("start_ns")
        device = pl.col("route").to_physical() < len(DEVICE_KINDS)
        drops = {
            "zero_time": device & (start == 0) & (duration.fill_null(0) == 0),
            "absurd_time": ~start.is_between(EARLIEST_NS, LATEST_NS),
            "absurd_duration": duration > LONGEST_NS,
            "negative_duration": duration < -ROUNDING_NS,
        }
        repairs = {"no_duration": duration.is_null(), "rounded_duration": duration.is_between(-ROUNDING_NS, -1)}
        counts = events.select(**{code: test.sum() for code, test in (drops | repairs).items()}).row(0, named=True)
        for code, test in drops.items():
            if counts[code]:
                self.count(code, counts[code], events.filter(test))
                events = events.filter(~test.fill_null(False))
        for code, test in repairs.items():
            if counts[code]:
                self.count(code, counts[code], events.filter(test))
        if counts["no_duration"] or counts["rounded_duration"]:
            events = events.with_columns(duration_ns=pl.max_horizontal(duration.fill_null(0), pl.lit(0)))
        return events

    def _session(self, markers: pl.DataFrame, names: Names) -> None:
        """Extend ``on`` by the profiler's own markers."""
        named = names.texts(markers["name"]).str.starts_with(_PROFILER)
        spans = markers.filter(named.fill_null(False) & pl.col("duration_ns").is_between(0, LONGEST_NS))
        for start, duration in spans.select("start_ns", "duration_ns").iter_rows():
            first, last = self.on or (start, start + duration)
            self.on = min(first, start), max(last, start + duration)

    def note(self, store: Store, source: int, file: str, base_ns: int) -> None:
        """Write one note per kind. ``base_ns``: offset to the trace's times."""
        for key, dropped in sorted(self.dropped.items()):
            code, _, category = key.partition(":")
            severity, text = _MESSAGES[code]
            if category.lower() == _SESSION:
                severity, text = "info", "Markers of the profiler's own session (category {category}) are not stored."
            text = text.format(category=repr(category[:60]) if category else "none")
            times = {} if not dropped.starts else {"first_ns": min(dropped.starts) + base_ns, "last_ns": max(dropped.starts) + base_ns}
            store.note(severity, code, text, count=dropped.count, source=source, file=file, **times)


def note_unread_phases(store: Store, source: int, file: str, event_counts: Mapping[tuple[str, str], int], instants_read: int) -> None:
    """Note how many events have no duration. ``event_counts``: by phase and category."""
    unread = sum(n for (phase, _), n in event_counts.items() if phase not in _READ_PHASES) - instants_read
    if unread:
        kinds = Counter[str]()
        for (phase, _), n in event_counts.items():
            kinds[_PHASES.get(phase, "other")] += n if phase not in _READ_PHASES else 0
        kinds["instants"] -= instants_read
        parts = ", ".join(f"{n:,} {kind}" for kind, n in sorted(kinds.items()) if n)
        text = f"Events without a duration are not stored: {parts}."
        store.note("info", "phase_not_read", text, count=unread, source=source, file=file)
