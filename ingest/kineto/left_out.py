"""Which events of a Kineto trace are not stored, or not as they stand, and how is that told?"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import polars as pl

from ..chrome_trace.names import Names
from ..kernels.categories import DEVICE_KINDS, SKIPPED
from ..store.limits import CATEGORIES
from ..store.store import Store
from ..store.tables import Severity
from ..store.time_limits import EARLIEST_NS, LATEST_NS, LONGEST_NS, ROUNDING_NS

_SESSION: Final = "trace"  # Category, in small letters, of the markers of the profiler's own session
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
    """Events of one kind that were not stored, or not as they stand."""

    count: int = 0
    first_ns: int | None = None
    last_ns: int | None = None


class LeftOut:
    """What was left out of one trace or repaired, by the codes of notes. ``on``: when the profiler was on, by its own markers; in the
    trace's own times, in nanoseconds."""

    def __init__(self) -> None:
        self.dropped: dict[str, _Dropped] = {}
        self.on: tuple[int, int] | None = None

    def count(self, code: str, count: int, events: pl.DataFrame | None = None) -> None:
        """``count`` more of one kind, from the first to the last start of ``events``."""
        times = [] if events is None else [_int(events["start_ns"].min()), _int(events["start_ns"].max())]
        known = self.dropped.setdefault(code, _Dropped())
        known.count += count
        known.first_ns = min((t for t in [known.first_ns, *times] if t is not None), default=None)
        known.last_ns = max((t for t in [known.last_ns, *times] if t is not None), default=None)

    def sane(self, events: pl.DataFrame, names: Names) -> pl.DataFrame:
        """Without the events that cannot be, each kind counted; small repairs of durations, counted too."""
        skipped = events.filter(pl.col("route") == SKIPPED)
        if skipped.height:
            for category, count in skipped.group_by("category").len().sort("category").iter_rows():
                text = names.text(category) if category is not None else ""
                if f"category_not_read:{text}" not in self.dropped and len(self.dropped) >= CATEGORIES:
                    self.count("categories_not_read", count)
                    continue
                own = skipped.filter(pl.col("category").eq_missing(category))
                self.count(f"category_not_read:{text}", count, own)
                if text.lower() == _SESSION:
                    self._session(own, names)
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
        """When the profiler was on, by its own markers."""
        named = names.of(markers["name"], ["text"])["text"].str.starts_with(_PROFILER)
        spans = markers.filter(named.fill_null(False) & pl.col("duration_ns").is_between(0, LONGEST_NS))
        for start, duration in spans.select("start_ns", "duration_ns").iter_rows():
            first, last = self.on or (start, start + duration)
            self.on = min(first, start), max(last, start + duration)

    def note(self, store: Store, source: int, file: str, base_ns: int) -> None:
        """One note per kind. ``base_ns``: what is to be added to the trace's times."""
        for code, dropped in sorted(self.dropped.items()):
            _note(store, source, file, base_ns, code, dropped)


def note_unread_phases(store: Store, source: int, file: str, event_counts: Mapping[tuple[str, str], int], instants_read: int) -> None:
    """How many events of which phases have no duration and are not read. ``event_counts``: by phase and category."""
    unread = sum(n for (phase, _), n in event_counts.items() if phase not in _READ_PHASES) - instants_read
    if unread:
        kinds = Counter[str]()
        for (phase, _), n in event_counts.items():
            kinds[_PHASES.get(phase, "other")] += n if phase not in _READ_PHASES else 0
        kinds["instants"] -= instants_read
        parts = ", ".join(f"{n:,} {kind}" for kind, n in sorted(kinds.items()) if n)
        store.note(
            "info", "phase_not_read", f"Events without a duration are not stored: {parts}.",
            count=unread, source=source, file=file,
        )  # fmt: skip


def _note(store: Store, source: int, file: str, base_ns: int, code: str, dropped: _Dropped) -> None:
    code, _, category = code.partition(":")
    severity, text = _MESSAGES[code]
    if code == "category_not_read":
        shown = repr(category[:60]) if category else "none"
        if category.lower() == _SESSION:
            severity, text = "info", "Markers of the profiler's own session (category {category}) are not stored."
        text = text.format(category=shown)
    store.note(
        severity, code, text, count=dropped.count, source=source, file=file,
        first_ns=None if dropped.first_ns is None else dropped.first_ns + base_ns,
        last_ns=None if dropped.last_ns is None else dropped.last_ns + base_ns,
    )  # fmt: skip


def _int(value: object) -> int:
    """An aggregate of an integer column without nulls."""
    assert isinstance(value, int)
    return value
