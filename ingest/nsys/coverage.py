"""Until when is the device activity of an Nsight Systems export known, of which a table can be read only in part?

A damaged table ends early while others go on: kernels that end at 0.7 s beside copies until 4 s would read as a GPU that stood idle. So all
device activity ends where that of the damaged table does. Which table is damaged is known before rows are stored: what is left out never
comes into the store.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

import polars as pl

from ..store.durations import duration

Place = tuple[int | None, int]  # The global process id and the GPU

_NOTHING: Final = -(2**62)  # An end before all times of a session: nothing is known
_PLACE: Final = ("process", "device")


@dataclass(slots=True)
class _Table:
    """``last_ns``: until when the rows go that can be read, in the order of the file; None where there are none. ``in_order``: each row
    begins no earlier than the one before it, so up to there all is known of every GPU; else of each GPU up to the last row of its own."""

    last_ns: int | None = None
    in_order: bool = True
    of_places: dict[Place, int] = field(default_factory=dict)

    def until(self, key: Place) -> int:
        if self.in_order and self.last_ns is not None:
            return self.last_ns
        return self.of_places.get(key, _NOTHING)


@dataclass(slots=True)
class Known:
    """What of the device activity is known, by the tables that are cut; all of it where none is. ``left_out``: rows left out so far."""

    left_out: int = 0
    _tables: dict[str, _Table] = field(default_factory=dict)
    _first_ns: int | None = None
    _ends: set[int] = field(default_factory=set)

    def cut(self, name: str, batches: Iterator[pl.DataFrame], *, busy: bool) -> None:
        """Take in a table that can be read only in part: its rows (process, device, start_ns, end_ns) as far as they can be read.
        ``busy``: the GPU is busy in its rows. Without a row of such a table nothing is known, without one of another as without the table.
        """
        table = _Table()
        before: int | None = None
        for rows in batches:
            if rows.is_empty():
                continue
            starts = rows["start_ns"]
            table.in_order = table.in_order and starts.is_sorted() and (before is None or starts[0] >= before)
            before, table.last_ns = starts[-1], rows["end_ns"][-1]
            for process, device, end in rows.group_by(_PLACE, maintain_order=True).agg(pl.col("end_ns").last()).rows():
                table.of_places[process, device] = end
        if busy or table.of_places:
            self._tables[name] = table

    def kept(self, rows: pl.DataFrame) -> pl.DataFrame:
        """Rows of device events without those that end after what is known of their GPU."""
        if not self._tables or rows.is_empty():
            return rows
        places = rows.select(_PLACE).unique()
        until = [min(table.until(place) for table in self._tables.values()) for place in places.rows()]
        limits = places.with_columns(until=pl.Series(until, dtype=pl.Int64))
        placed = rows.join(limits, on=_PLACE, how="left", nulls_equal=True, maintain_order="left")
        kept = placed.filter(pl.col("start_ns") + pl.col("duration_ns") <= pl.col("until"))
        self.left_out += rows.height - kept.height
        if kept.height:
            first = int(kept.select(pl.col("start_ns").min()).item())
            self._first_ns = first if self._first_ns is None else min(first, self._first_ns)
            self._ends.update(kept["until"].unique())
        return kept.drop("until")

    def told(self) -> str | None:
        """Until when device activity is known, as a note says it; None where no table is cut."""
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
