"""Collects the samples in logs of GPU monitors -> rows of ``sample``.

Readers (:mod:`.nvidia_smi`, :mod:`.dcgm`) add rows to a temporary table. They wait there until all files are read, because the machine
(:mod:`..joining.log_machine`) and the number of a GPU (:mod:`..joining.log_devices`) often follow only from other files of the run.
"""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import polars as pl

from ..store.devices import MOST_DEVICES
from ..store.limits import NODES_PER_FILE
from ..store.registry import ReadResult, Registry
from ..store.schema import RECORDED_TWICE
from ..store.store import Store
from ..store.texts import storable
from ..store.time_limits import MOST_VALUE, possible_times
from .metrics import FREE, PERCENT, RESERVED, TOTAL, USED

KEYS: Final = ("host", "index", "uuid", "bus", "name")  # columns that identify the GPU of a row
MOST_GPUS: Final = 4096  # of one log; rows of further GPUs are left out

_ROWS_OF_TRANSACTION: Final = 1_000_000

_TABLE: Final = "CREATE TEMP TABLE IF NOT EXISTS log_sample (log INTEGER, gpu INTEGER, metric VARCHAR, time_ns BIGINT, value DOUBLE)"

# Memory of a GPU, once when it is first stated. DCGM's exporter reports used and free memory, but not the total. Several lines of one time
# count as one.
_TOTALS: Final = f"""
    CREATE OR REPLACE TEMP TABLE log_total AS
    SELECT unit, value, min(time_ns) AS time_ns FROM (
        SELECT unit, value, time_ns FROM log_unit WHERE metric = '{TOTAL}'
        UNION ALL
        SELECT unit, sum(value), time_ns FROM (
            SELECT unit, metric, time_ns, avg(value) AS value FROM log_unit
            WHERE metric IN ('{USED}', '{FREE}', '{RESERVED}') AND unit NOT IN (SELECT unit FROM log_unit WHERE metric = '{TOTAL}')
            GROUP BY unit, metric, time_ns)
        GROUP BY unit, time_ns HAVING bool_or(metric = '{USED}') AND bool_or(metric = '{FREE}')
    ) GROUP BY unit, value
"""
_LARGEST: Final = "SELECT unit, max(value) AS total FROM log_total WHERE value > 0 GROUP BY unit"
_DEVICE_MEMORY: Final = f"""
    UPDATE device SET memory_bytes = coalesce(memory_bytes, total::BIGINT) FROM ({_LARGEST}) AS t
    WHERE device.node = ? AND device."index" = t.unit
"""
# Memory in percent follows from bytes if the total is known. Samples that another file has of the same GPU at the same time count once.
_ROWS: Final = f"""
    CREATE OR REPLACE TEMP TABLE log_row AS
    SELECT r.unit, r.metric, r.time_ns, r.value, coalesce(r.time_ns BETWEEN s.first AND s.last, false) AS twice FROM (
        SELECT unit, metric, time_ns, value FROM log_unit WHERE metric NOT IN ('{FREE}', '{RESERVED}', '{TOTAL}')
        UNION ALL
        SELECT unit, '{TOTAL}', time_ns, value FROM log_total
        UNION ALL
        SELECT unit, '{PERCENT}', time_ns, 100 * value / total FROM log_unit JOIN ({_LARGEST}) USING (unit)
        WHERE metric = '{USED}' AND value <= total AND unit NOT IN (SELECT unit FROM log_unit WHERE metric = '{PERCENT}')
    ) AS r
    LEFT JOIN (
        SELECT unit, metric, min(time_ns) AS first, max(time_ns) AS last FROM sample
        WHERE node = ? AND starts_with(metric, 'gpu_') GROUP BY ALL
    ) AS s ON s.unit = r.unit AND s.metric = r.metric
"""


@dataclass(slots=True)
class Gpu:
    """One GPU, as its log names it."""

    number: int  # in this log, in the order of first lines
    host: str | None
    index: int | None
    uuid: str | None
    bus: str | None
    name: str | None = None
    unit: int = 0  # the number on its machine, known when all files are read
    by_uuid: bool = False  # ``unit`` comes from a UUID that other files also have


@dataclass(slots=True)
class Log:
    """One file. ``zoned``: its times state their zone or count from the epoch."""

    source: int
    path: Path
    zoned: bool
    gpus: dict[tuple[str | None, ...], Gpu] = field(default_factory=dict)
    hosts: set[str | None] = field(default_factory=set)
    rows: int = 0
    first_ns: int | None = None
    last_ns: int | None = None
    beyond: int = 0
    partial: bool = False

    @property
    def file(self) -> str:
        return storable(self.path.name)


@dataclass(slots=True)
class Placed:
    """The GPUs of one machine in one log."""

    log: Log
    node: int
    gpus: list[Gpu]


class GpuLogs:
    """The logs of one run: :meth:`add` rows of each, assign machines (:mod:`..joining.log_machine`), then :meth:`store_samples`."""

    def __init__(self, store: Store, registry: Registry) -> None:
        self.store = store
        self.registry = registry
        self.logs: list[Log] = []
        self.placed: list[Placed] = []

    def begin(self, source: int, path: Path, *, zoned: bool) -> Log:
        self.store.connection.execute(_TABLE)
        log = Log(source, path, zoned)
        self.logs.append(log)
        return log

    def add(self, log: Log, rows: pl.DataFrame) -> None:
        """Add rows with ``time_ns``, any of ``KEYS``, and a column per metric."""
        metrics = [column for column in rows.columns if column not in KEYS and column != "time_ns"]
        rows = rows.with_columns(pl.lit(None, pl.String).alias(key) for key in KEYS if key not in rows.columns)
        keys = [key for key in KEYS if key != "name"]
        known = rows.group_by(keys, maintain_order=True).agg(pl.col("name").drop_nulls().first())
        numbers = [self._number(log, dict(zip((*keys, "name"), row, strict=True))) for row in known.iter_rows()]
        rows = rows.join(known.with_columns(gpu=pl.Series(numbers, dtype=pl.Int32)), on=keys, how="left", nulls_equal=True)
        log.beyond += rows["gpu"].null_count()
        rows = possible_times(rows.filter(pl.col("gpu").is_not_null()))
        long = (
            rows.unpivot(on=metrics, index=["gpu", "time_ns"], variable_name="metric", value_name="value")
            .filter(pl.col("value").is_not_null())
            .with_columns(log=pl.lit(log.source, pl.Int32))
        )
        if long.is_empty():
            return
        first, last = long.select(pl.col("time_ns").min(), last=pl.col("time_ns").max()).row(0)
        log.first_ns = first if log.first_ns is None else min(log.first_ns, first)
        log.last_ns = last if log.last_ns is None else max(log.last_ns, last)
        log.rows += len(long)
        connection = self.store.connection
        connection.register("log_rows", long.to_arrow())
        try:
            connection.execute("INSERT INTO log_sample SELECT log, gpu, metric, time_ns, value FROM log_rows")
        finally:
            connection.unregister("log_rows")

    def _number(self, log: Log, labels: dict[str, str | None]) -> int | None:
        """Return the log's number of a GPU; None beyond the limits."""
        host, index, uuid, bus = (_some(labels[key]) for key in ("host", "index", "uuid", "bus"))
        key = (host, uuid or index or bus)
        if (gpu := log.gpus.get(key)) is None:
            if len(log.gpus) >= MOST_GPUS or (host not in log.hosts and len(log.hosts) >= NODES_PER_FILE):
                return None
            log.hosts.add(host)
            gpu = log.gpus[key] = Gpu(len(log.gpus), host, _index(index), uuid, bus)
        gpu.index = _index(index) if gpu.index is None else gpu.index
        gpu.name = gpu.name or _some(labels["name"])
        return gpu.number

    def discard(self, log: Log) -> None:
        """Remove a log."""
        self.store.connection.execute("DELETE FROM log_sample WHERE log = ?", [log.source])
        self.logs.remove(log)

    def shift(self, log: Log, by: int) -> None:
        """Add ``by`` nanoseconds to the times of a log."""
        self.store.connection.execute("UPDATE log_sample SET time_ns = time_ns + ? WHERE log = ?", [by, log.source])
        log.first_ns = None if log.first_ns is None else log.first_ns + by
        log.last_ns = None if log.last_ns is None else log.last_ns + by

    def store_samples(self) -> dict[int, ReadResult]:
        """Store the rows of all placed logs as samples; return results by source."""
        results: dict[int, ReadResult] = {}
        for log in self.logs:
            stored = 0
            # A transaction helps with many machines that have few rows each; it would keep many rows in memory.
            with self.store.transaction() if log.rows < _ROWS_OF_TRANSACTION else nullcontext():
                for placed in [placed for placed in self.placed if placed.log is log]:
                    stored += self._store(placed)
            results[log.source] = ReadResult(stored, log.first_ns, log.last_ns, partial=log.partial)
            self.store.connection.execute("DELETE FROM log_sample WHERE log = ?", [log.source])
        return results

    def _store(self, placed: Placed) -> int:
        execute = self.store.connection.execute
        log, node = placed.log, placed.node
        units = ", ".join(f"({gpu.number}, {gpu.unit})" for gpu in placed.gpus)
        execute(
            f"""
            CREATE OR REPLACE TEMP TABLE log_unit AS
            SELECT units.unit::INTEGER AS unit, metric, time_ns, value FROM log_sample
            JOIN (VALUES {units}) AS units(gpu, unit) USING (gpu) WHERE log = ? AND abs(value) <= {MOST_VALUE}
            """,
            [log.source],
        )
        execute(_TOTALS)
        execute(_DEVICE_MEMORY, [node])
        execute(_ROWS, [node])
        source_id = self.store.map_source(log.source, node=node)
        query = "SELECT ?::INTEGER AS source_id, metric, unit, time_ns, value FROM log_row WHERE twice = ?"
        stored = self.store.append_samples(query, [source_id, False])
        first = self.store.next_event("sample")
        if twice := self.store.append_samples(query, [source_id, True]):
            self.store.leave_out("sample", RECORDED_TWICE, f"SELECT id FROM raw.sample WHERE id >= {first}")
            text = "Values that another file of the run has of the same GPU at the same time were left out; one counts."
            self.store.note("info", "sampled_twice", text, count=twice, source=log.source, file=log.file)
        for table in ("log_unit", "log_total", "log_row"):
            execute(f"DROP TABLE {table}")
        return stored


def _some(text: Any) -> str | None:
    return text if isinstance(text, str) and text.strip() else None


def _index(text: str | None) -> int | None:
    return int(text) if text is not None and text.isascii() and text.isdecimal() and len(text) < 6 and int(text) < MOST_DEVICES else None
