"""Device and host events of recordings, kept until all files are known: blocks of rows -> corrected rows in the store, each written once.

Only all files show the full count of calls, and which call is inside which. Blocks wait in memory up to
``_IN_MEMORY``, then in files of the store's private folder.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import polars as pl

from ..chrome_trace.cycle_ids import CYCLE_IDS
from ..store.store import Store
from .correlations import full_counts
from .processes import RecordedProcess

STAGED: Final = ("device_event", "host_event")
DRIVER: Final = "cu[A-Z]"  # The names of calls of the driver begin so
_IN_MEMORY: Final = 64 << 20  # Bytes of the blocks that wait in memory


@dataclass(slots=True)
class _Block:
    """Rows of one file, or the file that contains them."""

    table: str
    source: int
    node: int
    process: int
    rows: pl.DataFrame | Path

    def read(self, *columns: str) -> pl.DataFrame:
        """Return some columns, without names all."""
        if isinstance(self.rows, Path):
            with _of_the_run():
                return pl.read_ipc(self.rows, columns=list(columns) or None)
        return self.rows.select(columns) if columns else self.rows


@contextmanager
def _of_the_run() -> Iterator[None]:
    """Raise failures of a staged file as duckdb.IOException.

    They concern the run, as those of the database do, not one recording.
    """
    import duckdb

    try:
        yield
    except (OSError, pl.exceptions.ComputeError) as error:
        raise duckdb.IOException(f"IO Error: a temporary file of recorded events: {error}") from error


class StagedRows:
    """The events of all recordings of a run: :meth:`add` blocks, then :meth:`write`."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self._blocks: list[_Block] = []
        self._rows = 0
        self._bytes = 0

    def add(self, table: str, rows: pl.DataFrame, process: RecordedProcess, source: int) -> None:
        """Add rows of a file, with columns of ``table``."""
        rows = rows.with_columns(row=pl.int_range(self._rows, self._rows + rows.height, dtype=pl.Int64))
        block = _Block(table, source, process.node, process.id, rows)
        self._bytes += int(rows.estimated_size())
        if self._bytes > _IN_MEMORY:
            block.rows = self.store.private_folder() / f"staged-{self._rows}.arrow"
            with _of_the_run():
                rows.write_ipc(block.rows, compression="lz4")
        self._rows += rows.height
        self._blocks.append(block)

    def discard(self, source: int) -> None:
        """Remove the rows of a file."""
        self._blocks = [block for block in self._blocks if block.source != source]

    def write(self, recorded: Collection[RecordedProcess]) -> None:
        """Store all rows, corrected."""
        staged = {block.process for block in self._blocks}
        rewound = staged & {process.id for process in recorded if process.many_calls}
        counted = {number: self._counted(number, recorded) for number in rewound}
        inside = {number: self._inside(number) for number in {process.id for process in recorded if process.calls_driver}}
        for block in self._blocks:
            rows = block.read()
            of_block = pl.col("row").is_between(rows["row"][0], rows["row"][-1])
            if (counts := counted.get(block.process)) is not None:
                rows = rows.join(counts.filter(of_block), on="row", how="left", maintain_order="left")
                rows = rows.with_columns(correlation=pl.coalesce("full", "correlation")).drop("full")
            if block.table == "host_event" and (calls := inside.get(block.process)) is not None:
                is_inside = pl.col("row").is_in(calls.filter(of_block)["row"].implode())
                rows = rows.with_columns(kind=pl.when(is_inside).then(pl.lit("call", rows.schema["kind"])).otherwise("kind"))
            owner = {"node": block.node, "process": block.process}
            rows = rows.drop("row").with_columns(pl.lit(value, pl.Int32).alias(column) for column, value in owner.items())
            self.store.append(block.table, rows, source=block.source)
            if isinstance(block.rows, Path):
                block.rows.unlink()
        self._blocks.clear()

    def _counted(self, process: int, recorded: Collection[RecordedProcess]) -> pl.DataFrame:
        """Return ``row`` and ``full`` correlation of counts that began again."""
        rows = pl.concat(
            block.read("row", "start_ns", "correlation").with_columns(host=pl.lit(block.table == "host_event"))
            for block in self._blocks
            if block.process == process
        )
        cycles = sorted({cycle for of in recorded if of.id == process for cycle in of.cycles.values()})
        return pl.concat(full_counts(rows, cycle * CYCLE_IDS, CYCLE_IDS) for cycle in cycles).rename({"correlation": "full"})

    def _inside(self, process: int) -> pl.DataFrame:
        """Return ``row`` of driver calls inside a launch of the runtime, which counts."""
        columns = ("row", "kind", "name", "correlation", "start_ns", "duration_ns")
        blocks = [block for block in self._blocks if block.process == process and block.table == "host_event"]
        if not blocks:
            return pl.DataFrame(schema={"row": pl.Int64})
        launches = pl.concat(
            block.read(*columns).filter(pl.col("kind") == "launch", pl.col("correlation").is_not_null()).drop("kind") for block in blocks
        ).sort("correlation", "start_ns", maintain_order=True)
        outermost = pl.col("correlation").ne_missing(pl.col("correlation").shift(1))
        start, end = pl.col("start_ns"), pl.col("start_ns") + pl.col("duration_ns")
        of_driver = self.store.frame("SELECT id FROM name WHERE regexp_matches(text, ?)", [f"^{DRIVER}"])["id"]
        inside = launches.filter(
            start > pl.when(outermost).then(start).forward_fill(),
            end <= pl.when(outermost).then(end).forward_fill(),
            pl.col("name").is_in(of_driver.implode()),
        )
        return inside.select("row")
