"""Finds the time up to which the device activity of an Nsight Systems export with damaged tables is complete.

A damaged table ends early while others go on: kernels that end at 0.7 s next to copies until 4 s would look like an idle GPU. So all device
activity is cut off at the end of the damaged table. Damaged tables are known before rows are stored, so no such row reaches the store.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

import polars as pl

from ..store.durations import duration

ProcessDevice = tuple[int | None, int]  # global process id and GPU

_NOTHING: Final = -(2**62)  # an end before all times of a session: nothing is known
_KEYS: Final = ("process", "device")


@dataclass(slots=True)
class _Table:
    """``last_ns``: end of the last readable row in the order of the file; None without rows.

    ``in_order``: rows are sorted by start, so every GPU is known up to ``last_ns``; otherwise each GPU up to its last row (``ends``).
    """

    last_ns: int | None = None
    in_order: bool = True
    ends: dict[ProcessDevice, int] = field(default_factory=dict)

    def until(self, key: ProcessDevice) -> int:
        if self.in_order and self.last_ns is not None:
            return self.last_ns
        return self.ends.get(key, _NOTHING)


@dataclass(slots=True)
class Known:
    """The device activity that is known, given the tables that are cut. ``left_out``: rows left out so far."""

    left_out: int = 0
    _tables: dict[str, _Table] = field(default_factory=dict)
    _first_ns: int | None = None
    _ends: set[int] = field(default_factory=set)

    def cut(self, name: str, batches: Iterator[pl.DataFrame], *, busy: bool) -> None:
        """Add a damaged table by its readable rows: process, device, start_ns, end_ns.

        ``busy``: its rows are work of the GPU. If such a table has no readable row, nothing is known; other empty tables are ignored.
        """
        table = _Table()
        before: int | None = None
        for rows in batches:
            if rows.is_empty():
                continue
            starts = rows["start_ns"]
            table.in_order = table.in_order and starts.is_sorted() and (before is None or starts[0] >= before)
            before, table.last_ns = starts[-1], rows["end_ns"][-1]
            for process, device, end in rows.group_by(_KEYS, maintain_order=True).agg(pl.col("end_ns").last()).rows():
                table.ends[process, device] = end
        if busy or table.ends:
            self._tables[name] = table

    def kept(self, rows: pl.DataFrame) -> pl.DataFrame:
        """Drop the device events that end after the known time of their GPU."""
        if not self._tables or rows.is_empty():
            return rows
        keys = rows.select(_KEYS).unique()
        until = [min(table.until(key) for table in self._tables.values()) for key in keys.rows()]
        limits = keys.with_columns(until=pl.Series(until, dtype=pl.Int64))
        limited = rows.join(limits, on=_KEYS, how="left", nulls_equal=True, maintain_order="left")
        kept = limited.filter(pl.col("start_ns") + pl.col("duration_ns") <= pl.col("until"))
        self.left_out += rows.height - kept.height
        if kept.height:
            first = int(kept.select(pl.col("start_ns").min()).item())
            self._first_ns = first if self._first_ns is None else min(first, self._first_ns)
            self._ends.update(kept["until"].unique())
        return kept.drop("until")

    def note(self) -> str | None:
        """Return the text of the note on cut tables; None if no table is cut."""
        if not self._tables:
            return None
        names = sorted(self._tables)
        tables = f"table{'s' if len(names) > 1 else ''} {' and '.join(names)}"
        rest = "Device activity after that was left out; all figures of GPUs are of the time before."
        if self._first_ns is None:
            return f"What the GPUs did is not known, as {tables} cannot be read; what other tables hold of it was left out."
        low, high = (duration(end - self._first_ns) for end in (min(self._ends), max(self._ends)))
        until = low if low == high else f"{low} to {high}, depending on the GPU,"
        return f"Device activity is known until {until} after its begin, as {tables} could not be read to the end. {rest}"
