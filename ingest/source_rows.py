"""What is known of each source of a run while the sources are joined: its rows, its clock, its result?"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final

from .store import Store, storable

if TYPE_CHECKING:
    from .gpu_log import GpuLogs
    from .registry import ReadResult

TABLES: Final = ("device_event", "host_event", "annotation", "collective", "allocation")
"""Tables of events whose rows are known by the source that they came from."""


@dataclass(slots=True)
class SourceRows:
    """What one file brought into the store. ``rows``: first and last rowid + 1 in each table of ``TABLES``."""

    id: int
    format: str
    path: Path
    result: ReadResult
    rows: Mapping[str, tuple[int, int]] = field(default_factory=dict)

    @property
    def file(self) -> str:
        return storable(self.path.name)


@dataclass(frozen=True, slots=True)
class Clock:
    """What was added to the times of a source, in nanoseconds, and why."""

    offset_ns: int
    evidence: str


def row_counts(store: Store) -> dict[str, int]:
    """The next rowid of every table of ``TABLES``."""
    return {table: store.connection.execute(f"SELECT coalesce(max(rowid) + 1, 0) FROM {table}").fetchall()[0][0] for table in TABLES}


class Sources:
    """The sources of one run. ``clocks`` (of those that were shifted) and ``results``, by id: what became of each.

    ``tracers``: formats of which two can have the same device activity.
    """

    def __init__(self, store: Store, logs: GpuLogs, sources: Sequence[SourceRows], several_tracers: Iterable[str]) -> None:
        self.store = store
        self.logs = logs
        self.sources = list(sources)
        self.tracers = frozenset(several_tracers)
        self.clocks: dict[int, Clock] = {}
        self.results: dict[int, ReadResult] = {source.id: source.result for source in sources}
