"""The common part of the readers of nvidia-smi and DCGM logs: lines -> samples and notes.

A subclass cuts lines into columns and reports what a log lacks.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import ClassVar, Final

import polars as pl

from ...errors import InputError
from ..store.registry import ReadResult
from ..store.store import Store
from ..store.tables import Severity
from .lines import LogLines
from .rows import GpuLogs, Log

QUERY: Final = (
    "TZ=UTC nvidia-smi --query-gpu=timestamp,index,uuid,name,utilization.gpu,utilization.memory,memory.used,memory.total,power.draw,"
    "clocks.current.sm --format=csv -l 1 -f nvidia-smi.HOST.csv"
)
"""The command that makes the best log."""

NOTES: Final[dict[str, tuple[Severity, str]]] = {
    "before_header": ("info", "Lines before the header were left out."),
    "columns_change": ("info", "The log has a header in the middle with other columns; what follows was read by it."),
    "wrong_length": ("warning", "Lines with more or fewer fields than the header (cut off or mixed) were left out."),
    "cut_line": ("info", "The last line has no end; it was left out, since its last value may be cut."),
    "too_long": ("warning", "Lines longer than 64 KiB were left out."),
    "bad_time": ("warning", "Lines whose time could not be read were left out."),
    "no_value": ("info", "Values that the driver did not give ([N/A], [Not Supported], ERR!) are missing: {columns}."),
    "no_number": ("warning", "Values that are no number, or are beyond what can be, were left out."),
    "time_goes_back": (
        "warning",
        "The clock of the log goes back by more than a minute (the end of daylight saving time, or it was set): samples of two times have"
        " one. Log with TZ=UTC.",
    ),
    "unknown_metric": ("info", "Values of fields that are not used were left out: {columns}."),
    "part_of_gpu": ("info", "Values of parts of a GPU (MIG) were left out; those of whole GPUs are shown."),
    "no_gpu": ("warning", "Lines that name no GPU were left out."),
}


class LogReader:
    """One log on its way into the store. ``zoned``: its times are assumed to state their zone."""

    zoned: ClassVar[bool]

    def __init__(self, store: Store, logs: GpuLogs, path: Path, source: int) -> None:
        self.store, self.logs, self.path, self.source = store, logs, path, source
        self.lines = LogLines(path, store.max_unpacked)
        self.log: Log = logs.begin(source, path, zoned=self.zoned)
        self.counts: Counter[str] = Counter()  # omissions by the code of the note
        self.examples: dict[str, str] = {}
        self.absent: set[str] = set()  # columns with values that are missing
        self.unread: set[str] = set()  # columns that are not used
        self.alone: list[pl.Series] = []  # times of lines that name no GPU

    def add(self, lines: pl.Series) -> None:
        """Add some lines."""
        raise NotImplementedError

    def check(self) -> None:
        """Raise InputError if the complete log lacks something."""
        raise NotImplementedError

    def notes(self) -> None:
        """Write the notes on omissions."""
        raise NotImplementedError

    def read(self, progress: Callable[[float], None] | None) -> ReadResult:
        """Add the samples to ``logs`` and write the notes.

        Raises InputError if the log lacks something.
        """
        lines = self.lines
        try:
            for series in lines:
                self.add(series)
                if progress is not None:
                    progress(lines.part)
            self.check()
            if self.alone:
                _refuse_several(self.path, pl.concat(self.alone))
        except InputError:
            self.logs.discard(self.log)
            raise
        self.log.partial = lines.damaged
        lines.note_defects(self.store, self.source, self.path.name)
        self.count("cut_line", int(lines.cut))
        self.count("too_long", lines.too_long)
        self.notes()
        if not self.log.rows:
            self.note("warning", "no_events", "The log holds no value that is read.", 0)
        return ReadResult(self.log.rows, self.log.first_ns, self.log.last_ns, partial=lines.damaged)

    def count(self, code: str, count: int, lines: pl.Series | None = None) -> None:
        """Count omissions; the first of ``lines`` becomes the example."""
        if count:
            self.counts[code] += count
            if lines is not None and len(lines):
                self.examples.setdefault(code, str(lines[0])[:60])

    def checked(self, text: pl.Series, value: pl.Series, absent: pl.Series, name: str, high: float) -> pl.Series:
        """Return the values without absent, unreadable and too high ones, and count these."""
        if count := int(absent.sum()):
            self.count("no_value", count)
            self.absent.add(name)
        wrong = ~absent & (value.is_null() | (value > high)).fill_null(True)
        self.count("no_number", int(wrong.sum()), text.filter(wrong))
        return value.set(absent | wrong, None)

    def note(self, severity: Severity, code: str, text: str, count: int) -> None:
        self.store.note(severity, code, text, count=count, source=self.source, file=self.path.name)

    def note_counts(self, columns: Mapping[str, Iterable[str]], texts: Mapping[str, str]) -> None:
        """Write a note per code. ``columns``: names to insert; ``texts``: replacements."""
        for code, (severity, text) in NOTES.items():
            if self.counts[code]:
                message = texts.get(code, text).format(columns=", ".join(columns.get(code, ())))
                if code in self.examples:
                    message = f"{message[:-1]}; the first: {self.examples[code]!r}."
                self.note(severity, code, message, self.counts[code])

    def note_unread(self, names: Iterable[str]) -> None:
        """Note the columns that are not used."""
        if listed := sorted(names):
            more = f" and {len(listed) - 8} more" if len(listed) > 8 else ""
            self.note("info", "column_not_read", f"Columns that are not used: {', '.join(listed[:8])}{more}.", len(listed))


def _refuse_several(path: Path, times: pl.Series) -> None:
    """Raise InputError if lines come in bunches, one for each of several GPUs."""
    gaps = times.diff().drop_nulls()
    if len(gaps) < 3:
        several = len(gaps) > 0 and gaps.max() is not None and int((gaps < 100_000).sum()) > 0
    else:
        usual = gaps.sort()[int(0.9 * (len(gaps) - 1))]
        several = float((gaps <= usual // 10).mean() or 0.0) > 0.3
    if several:
        raise InputError(f"{path}: the log has lines of several GPUs and no column that tells which; add index: {QUERY}")
