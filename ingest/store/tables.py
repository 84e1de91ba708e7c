"""Tables of a run store: creating, filling, and reading them.

A run store is one DuckDB file (or an in-memory database) with the tables of ``SCHEMA``. Times are integer nanoseconds since the
Unix epoch (or since an anchor of 0 if a source has no epoch: see ``ingest_note``); durations are nanoseconds; bytes are bytes.
Loading is bulk Arrow only; reading returns Polars frames.
"""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal, Self

from ...errors import InputError, PostrunError, UsageError
from ...temporary import Folder
from .limits import LEFT_OUT, NAME_TEXT_BYTES, NAMES, cut_columns, cut_text, size_in_bytes
from .queries import Queries
from .views import views_script

if TYPE_CHECKING:
    import duckdb
    import polars as pl
    import pyarrow as pa

FORMAT_VERSION: Final = 7

Severity = Literal["info", "warning", "error"]

# One entry per table: its columns with their DuckDB types, in order. Ids (`node`, `process`, `name`, ...) point to the table of that name.
SCHEMA: Final[dict[str, dict[str, str]]] = {
    # one row: the run. JSON columns contain JSON text. status: completed, failed, stopped, partial, unknown
    "run": {
        "name": "VARCHAR", "status": "VARCHAR", "started_ns": "BIGINT", "ended_ns": "BIGINT", "framework": "VARCHAR",
        "instance_type": "VARCHAR", "resources": "VARCHAR", "hyperparameters": "VARCHAR", "labels": "VARCHAR", "metadata": "VARCHAR",
        # of its recorders (`postrun record`): when the command began and ended; null if unknown
        "job_started_ns": "BIGINT", "job_ended_ns": "BIGINT",
    },
    # one row per file of the run; format "unknown" if it has no reader (events 0). clock_offset_ns: added to the times of the file, which
    # are then those of the clock of the others, clock_evidence: the reason for this offset; null without an offset
    "source": {
        "id": "INTEGER", "path": "VARCHAR", "format": "VARCHAR", "bytes": "BIGINT", "sha256": "VARCHAR", "events": "BIGINT",
        "first_ns": "BIGINT", "last_ns": "BIGINT", "clock_offset_ns": "BIGINT", "clock_evidence": "VARCHAR",
    },
    # one row per machine
    "node": {"id": "INTEGER", "hostname": "VARCHAR", "cores": "INTEGER", "memory_bytes": "BIGINT", "gpus": "INTEGER", "quota": "DOUBLE"},
    # one row per process. label: the source's own name of it (file name field, worker name)
    "process": {
        "id": "INTEGER", "node": "INTEGER", "pid": "BIGINT", "rank": "INTEGER", "local_rank": "INTEGER", "world_size": "INTEGER",
        "command": "VARCHAR", "label": "VARCHAR", "source": "INTEGER",
    },
    # one row per trace file of a process: first start to last end of its events. A profiler with a schedule writes a file per cycle and
    # records nothing between them. Of recordings of the capture library one per GPU window. on_ns, off_ns: when the profiler was switched
    # on and off, if the file states it; without events nothing happened
    "profile_window": {
        "process": "INTEGER", "source": "INTEGER", "first_ns": "BIGINT", "last_ns": "BIGINT", "on_ns": "BIGINT", "off_ns": "BIGINT",
    },
    # one row per session of a process that the capture library recorded: from its start to its stop, and when the process began.
    # stopped: the last one of its process, which went on without being recorded, or may have
    "recorded_window": {
        "process": "INTEGER", "first_ns": "BIGINT", "last_ns": "BIGINT", "process_started_ns": "BIGINT", "stopped": "BOOLEAN",
    },
    # one row per GPU of a node; index as the trace counts it
    "device": {
        "node": "INTEGER", "index": "INTEGER", "uuid": "VARCHAR", "name": "VARCHAR", "memory_bytes": "BIGINT", "sm_count": "INTEGER",
        "compute_capability": "VARCHAR", "vendor": "VARCHAR",
    },
    # one row per distinct string; short, precision and category for kernels only (ingest/kernels/names.py)
    "name": {"id": "INTEGER", "text": "VARCHAR", "short": "VARCHAR", "precision": "VARCHAR", "category": "VARCHAR"},
    # one row per kernel execution, copy, memset or synchronization record. correlation links to the launch of the same process and device
    # context; null if the source has none (0 counts as none). pageable: for copies, whether host memory was pageable (null: unknown).
    "device_event": {
        "node": "INTEGER", "process": "INTEGER", "device": "INTEGER", "context": "BIGINT", "stream": "BIGINT", "kind": "DEVICE_KIND",
        "name": "INTEGER", "start_ns": "BIGINT", "duration_ns": "BIGINT", "correlation": "BIGINT", "external_id": "BIGINT",
        "bytes": "BIGINT", "copy_kind": "VARCHAR", "pageable": "BOOLEAN",
        "grid_x": "BIGINT", "grid_y": "BIGINT", "grid_z": "BIGINT", "block_x": "BIGINT", "block_y": "BIGINT", "block_z": "BIGINT",
        "registers": "BIGINT", "shared_memory": "BIGINT", "graph_node": "BIGINT",
    },
    # one row per record of a collective with its size: of its kernel (on_device; correlation and start_ns are those of the kernel) or of
    # the framework's call (tid, start and duration are those of the call). elements: of all tensors that this rank gives and gets
    "collective": {
        "node": "INTEGER", "process": "INTEGER", "on_device": "BOOLEAN", "tid": "BIGINT", "start_ns": "BIGINT", "duration_ns": "BIGINT",
        "correlation": "BIGINT", "external_id": "BIGINT", "operation": "VARCHAR", "element_type": "VARCHAR", "in_elements": "BIGINT",
        "out_elements": "BIGINT", "group_name": "VARCHAR", "group_ranks": "VARCHAR", "group_size": "BIGINT",
    },
    # one row per allocation (bytes > 0) or release of the framework's allocator on a device; allocated and reserved: its bytes after it
    "allocation": {
        "node": "INTEGER", "process": "INTEGER", "device": "INTEGER", "start_ns": "BIGINT", "bytes": "BIGINT", "allocated": "BIGINT",
        "reserved": "BIGINT",
    },
    # one row per host call or function. kind: launch (kernel, copy, memset, graph launch), sync (blocking synchronization), call (any
    # other runtime or driver call), operator, python, loader (data-loader wait), overhead (the profiler itself)
    "host_event": {
        "node": "INTEGER", "process": "INTEGER", "tid": "BIGINT", "kind": "HOST_KIND", "name": "INTEGER", "start_ns": "BIGINT",
        "duration_ns": "BIGINT", "correlation": "BIGINT", "external_id": "BIGINT",
    },
    # one row per begin/end range. side: host, or device if the profiler projected it onto a stream (then device and stream are set).
    # value: the number in the name or of the step (ProfilerStep#12 -> 12). phase: of sources that have one (Step:ModeKeys.TRAIN).
    # arguments: JSON object with facts that a rule needs (num_workers, pin_memory of a data loader), mostly null.
    "annotation": {
        "node": "INTEGER", "process": "INTEGER", "tid": "BIGINT", "side": "VARCHAR", "device": "INTEGER", "stream": "BIGINT",
        "name": "INTEGER", "value": "BIGINT", "start_ns": "BIGINT", "duration_ns": "BIGINT", "depth": "INTEGER", "phase": "VARCHAR",
        "complete": "BOOLEAN", "arguments": "VARCHAR",
    },
    # one row per training step, derived (steps.py). device_*: first start to last end of device work launched inside it; null without any
    "step": {
        "node": "INTEGER", "process": "INTEGER", "phase": "VARCHAR", "index": "BIGINT", "host_start_ns": "BIGINT",
        "host_duration_ns": "BIGINT", "device_start_ns": "BIGINT", "device_duration_ns": "BIGINT", "device_events": "BIGINT",
    },
    # one row per metric value. metric: see METRICS, or COUNTER and a name; unit: index of the core or GPU, null for the whole node; of a
    # counter the process that recorded it
    "sample": {"node": "INTEGER", "metric": "VARCHAR", "unit": "INTEGER", "time_ns": "BIGINT", "value": "DOUBLE"},
    # one row per file of a Python profile, with its begin and end by the name of its folder. profiler: cprofile, pyinstrument. timer:
    # total_time, cpu_time, off_cpu_time; null if unknown. modes: train, eval, predict, global, prestepzero, posthookclose;
    # phases: start, stepstart, forwardpassend, stepend, end. calls: null if the profiler samples. total_s: own time of all functions
    "python_window": {
        "id": "INTEGER", "source": "INTEGER", "node": "INTEGER", "process": "INTEGER", "profiler": "VARCHAR", "timer": "VARCHAR",
        "start_mode": "VARCHAR", "start_step": "BIGINT", "start_phase": "VARCHAR", "end_mode": "VARCHAR", "end_step": "BIGINT",
        "end_phase": "VARCHAR", "start_ns": "BIGINT", "duration_ns": "BIGINT", "functions": "BIGINT", "calls": "BIGINT",
        "total_s": "DOUBLE",
    },
    # one row per function of a Python profile. id: within its window. function: as pstats prints it; file, line: null for built-in ones.
    # first_step, last_step: of the window; total_s: own time; cumulative_s: with calls, of recursive calls the outermost only
    "python_profile": {
        "node": "INTEGER", "process": "INTEGER", "window": "INTEGER", "id": "INTEGER", "first_step": "BIGINT", "last_step": "BIGINT",
        "timer": "VARCHAR", "function": "VARCHAR", "file": "VARCHAR", "line": "BIGINT", "calls": "BIGINT", "primitive_calls": "BIGINT",
        "total_s": "DOUBLE", "cumulative_s": "DOUBLE",
    },
    # one row per pair of functions of a cProfile window if the first called the second; ids as in python_profile. The figures are
    # those of the callee in these calls
    "python_call": {
        "window": "INTEGER", "caller": "INTEGER", "callee": "INTEGER", "calls": "BIGINT", "primitive_calls": "BIGINT",
        "total_s": "DOUBLE", "cumulative_s": "DOUBLE",
    },
    # one row per frame of the call tree of a Pyinstrument window. id, parent (null: a root): within the window; function: python_profile.id
    "python_frame": {
        "window": "INTEGER", "id": "INTEGER", "parent": "INTEGER", "function": "INTEGER", "total_s": "DOUBLE", "cumulative_s": "DOUBLE",
    },
    # one row per kind of repair, loss or guess of a reader in one file
    "ingest_note": {
        "source": "INTEGER", "file": "VARCHAR", "severity": "VARCHAR", "code": "VARCHAR", "message": "VARCHAR", "count": "BIGINT",
        "first_ns": "BIGINT", "last_ns": "BIGINT",
    },
    "store_info": {"key": "VARCHAR", "value": "VARCHAR"},
}  # fmt: skip

ENUM_VALUES: Final[dict[str, tuple[str, ...]]] = {
    "DEVICE_KIND": ("kernel", "memcpy", "memset", "sync"),
    "HOST_KIND": ("launch", "sync", "call", "operator", "python", "loader", "overhead"),
}

# Names of the metrics in `sample`, with their units.
METRICS: Final[dict[str, str]] = {
    "cpu_utilization": "% of a core",
    "cpu_iowait": "% of a core",
    "gpu_utilization": "%",
    "gpu_memory_used_percent": "% of device memory",
    "gpu_memory_controller": "% of time the memory controller was busy",
    "gpu_memory_used_bytes": "B",
    "gpu_memory_total_bytes": "B",
    "gpu_power": "W",
    "gpu_sm_clock": "MHz",
    "gpu_throttle_reasons": "bits",
    "gpu_throttle_power": "% of the interval",
    "gpu_throttle_thermal": "% of the interval",
    "gpu_throttle_sync_boost": "% of the interval",
    "gpu_throttle_board_limit": "% of the interval",
    "gpu_throttle_reliability": "% of the interval",
    "gpu_temperature": "°C",
    "gpu_memory_temperature": "°C",
    "gpu_memory_clock": "MHz",
    "gpu_pcie_transmit": "B/s",
    "gpu_pcie_receive": "B/s",
    "gpu_nvlink_transmit": "B/s",
    "gpu_nvlink_receive": "B/s",
    "gpu_energy": "J",
    "gpu_ecc_corrected": "errors",
    "gpu_ecc_uncorrected": "errors",
    "gpu_ecc_corrected_lifetime": "errors",
    "gpu_ecc_uncorrected_lifetime": "errors",
    "gpu_remapped_rows_corrected": "rows",
    "gpu_remapped_rows_uncorrected": "rows",
    "gpu_row_remapping_pending": "0 or 1",
    "gpu_row_remapping_failed": "0 or 1",
    "gpu_xid": "XID",
    "gpu_engine_active": "% of time",
    "gpu_sm_active": "% of time, mean over the multiprocessors",
    "gpu_sm_occupancy": "% of the warps that fit, mean over time",
    "gpu_tensor_active": "% of cycles",
    "gpu_fp64_active": "% of cycles",
    "gpu_fp32_active": "% of cycles",
    "gpu_fp16_active": "% of cycles",
    "gpu_dram_active": "% of cycles",
    "memory_used_percent": "% of host memory",
    "disk_iops": "1/s",
    "disk_read": "B/s",
    "disk_write": "B/s",
    "network_receive": "B/s",
    "network_transmit": "B/s",
    "network_receive_platform": "B/s",
    "network_transmit_platform": "B/s",
    "infiniband_transmit": "B/s",
    "infiniband_receive": "B/s",
    "infiniband_link_active": "0 or 1",
    "infiniband_link_rate": "Gbit/s",
    "infiniband_symbol_errors": "errors",
    "infiniband_link_downed": "times",
    "infiniband_link_recoveries": "times",
    "infiniband_receive_errors": "packets",
    "infiniband_transmit_discards": "packets",
    "infiniband_transmit_wait": "ticks",
    "roce_out_of_sequence": "packets",
    "roce_sequence_errors": "packets",
    "roce_ack_timeouts": "times",
    "roce_congestion_notifications": "packets",
    "cgroup.cpu_quota_cores": "cores",
    "cgroup.throttled_percent": "% of periods",
    "cgroup.memory_limit_bytes": "B",
    "cgroup.memory_used_bytes": "B",
    "psi.cpu_some": "% of the interval",
    "psi.memory_some": "% of the interval",
    "psi.memory_full": "% of the interval",
    "psi.io_some": "% of the interval",
    "psi.io_full": "% of the interval",
    "perf.ref_cycles": "1/s",
    "perf.itlb_misses": "1/s",
    "perf.cycles": "1/s",
    "perf.instructions": "1/s",
    "sampler.cost_us": "us",
    "sampler.interval_ms": "ms",
}
_JSON_COLUMNS: Final = frozenset({"resources", "hyperparameters", "labels", "metadata"})  # of `run`; run_row.py cuts their values
COUNTER: Final = "counter."
"""Prefix of a counter that the program itself records; it has no unit, and values whenever the program records one."""
MEASURED: Final = f"NOT starts_with(metric, '{COUNTER}')"
"""Condition on `sample`: a sampler measured the value at its intervals; it is not a counter of the program."""


class Tables(Queries):
    """The tables of an open run store. Use :meth:`create` or :meth:`temporary`; close it or use it as a context manager."""

    def __init__(self, connection: duckdb.DuckDBPyConnection, path: Path | None) -> None:
        self.connection = connection
        self.path = path
        self._names: dict[str, int] = {}
        self._name_bytes = 0
        self.max_unpacked: str | None = None
        self.limited = Counter[str]()  # texts and names that met a bound (limits.py), by kind
        self._next: dict[str, int] = {"node": 0, "process": 0, "source": 0}
        self._folder: Folder | None = None  # spilled rows, and the file of a temporary store
        self._in_folder = False
        self.copied_from: str | None = None  # the run store that a temporary store is a copy of
        self.left_out = 0
        """Rows of impossible times or values that :meth:`append` left out since a reader last noted them."""
        self._added: Counter[str] = Counter()
        self._removed: Counter[str] = Counter()

    # -- opening -------------------------------------------------------------------------------------------------------

    @classmethod
    def create(
        cls,
        path: Path | None,
        *,
        memory_limit: str = "600MB",
        threads: int | None = None,
        temp_directory: Path | None = None,
        packed: bool = True,
    ) -> Self:
        """Create an empty store at ``path`` (replacing a file), or in memory for None.

        ``memory_limit`` bounds DuckDB's buffers; beyond it DuckDB spills to ``temp_directory`` (default: the
        system's temporary folder). Rows that are not ``packed`` are written in half the time and take three times the space.
        Raises InputError if the path cannot be written or another program has the file open,
        UsageError for a size or number that the database does not take.
        """
        import duckdb

        settings = _settings(memory_limit, threads)
        folder = None if temp_directory is not None else _private_folder()
        spill = temp_directory or Path(folder.name if folder is not None else "")
        database = ":memory:" if path is None else native_path(path)
        try:
            if path is not None:
                _make_way(path)
            connection = _connected(database, settings, spill, _LOCKED if packed else {**_NOT_PACKED, **_LOCKED})
        except BaseException as error:
            if folder is not None:
                folder.cleanup()
            if not isinstance(error, duckdb.Error):
                raise
            if user := who_has_it_open(error):
                raise InputError(f"{path}: {user}; wait for it or choose another place with -o") from error
            if path is None or not isinstance(error, duckdb.IOException):
                raise UsageError(f"--memory-limit {memory_limit}: not possible ({_first_line(error)})") from error
            if temp_directory is not None:
                raise  # a temporary store: its place is not the user's choice
            raise InputError(f"{path}: cannot create the run store ({_first_line(error)}); choose another place with -o") from error
        store = cls(connection, path)
        store._folder = folder
        try:
            # In one transaction: a commit of its own for each table would write to the disk each time.
            connection.execute(";\n".join(["BEGIN", *schema_script(), "COMMIT"]))
            connection.execute("INSERT INTO store_info VALUES ('format', 'postrun'), ('format_version', ?)", [str(FORMAT_VERSION)])
        except BaseException:
            store.close()
            store.remove()
            raise
        return store

    @classmethod
    def temporary(cls, *, memory_limit: str = "600MB", threads: int | None = None, packed: bool = True) -> Self:
        """Create an empty store in a temporary file (TMPDIR) that closing it removes."""
        folder = _private_folder()
        try:
            store = cls.create(
                Path(folder.name) / "run.duckdb",
                memory_limit=memory_limit,
                threads=threads,
                temp_directory=Path(folder.name),
                packed=packed,
            )
        except BaseException:
            folder.cleanup()
            raise
        store._folder = folder
        store._in_folder = True
        return store

    def close(self) -> None:
        """Close the database for good, and remove a temporary store."""
        self.connection.close()
        if self._folder is not None:
            self._folder.cleanup()

    def checkpoint(self) -> None:
        """Write everything to the file of the store, if it has one that stays.

        Closing would also do it, but would not report a full disk. Raises duckdb.Error.
        """
        if self.path is not None and not self._in_folder:
            self.connection.execute("CHECKPOINT")

    def remove(self) -> None:
        """Delete the file of a closed store, if it has one."""
        if self.path is not None:
            for file in _files(self.path):
                file.unlink(missing_ok=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        """Close the store; report an unexpected error from a copied store as InputError."""
        self.close()
        if error is not None and self.copied_from is not None and _unexpected(error):
            raise InputError(
                f"{self.copied_from}: the run store has contradictory contents ({type(error).__name__}: {_first_line(error)[:200]});"
                " ingest the sources again"
            ) from error

    # -- filling -------------------------------------------------------------------------------------------------------

    def append(self, table: str, data: pa.Table | pa.RecordBatch | pl.DataFrame) -> None:
        """Add rows in bulk; missing columns become null, unknown columns are an error.

        Rows of impossible times or values are left out and counted in ``left_out``.
        """
        import pyarrow as pa

        from .time_limits import storable_rows

        rows, dropped = storable_rows(data if isinstance(data, pa.Table | pa.RecordBatch) else data.to_arrow())
        self.left_out += dropped
        unknown = [column for column in rows.schema.names if column not in SCHEMA[table]]
        if unknown:
            raise ValueError(f"table {table} has no column {unknown}")
        rows, cut = cut_columns(rows)
        self.limited["text_cut"] += cut
        self.append_unchanged(table, rows)

    def append_unchanged(self, table: str, rows: pa.Table | pa.RecordBatch) -> None:
        """Like :meth:`append` for rows of another store: nothing is cut or left out."""
        names = ", ".join(f'"{column}"' for column in rows.schema.names)
        self.connection.register("incoming_rows", rows)
        try:
            self.connection.execute(f"INSERT INTO {table} ({names}) SELECT {names} FROM incoming_rows")
        finally:
            self.connection.unregister("incoming_rows")
        self._added[table] += rows.num_rows

    def insert(self, table: str, row: dict[str, Any]) -> None:
        """Add one row to a small table (run, source, node, process, device, ingest_note).

        Texts that no database can store are escaped: see :func:`storable`. A number that does not fit its column becomes null.
        """
        names = ", ".join(f'"{c}"' for c in row)
        values = [
            self._cut(fitting) if isinstance(fitting, str) and column not in _JSON_COLUMNS else fitting
            for column, value in row.items()
            for fitting in [_storable(value, SCHEMA[table][column])]
        ]
        self.connection.execute(f"INSERT INTO {table} ({names}) VALUES ({', '.join('?' * len(row))})", values)
        self._added[table] += 1

    def mark(self) -> Counter[str]:
        """Return the number of rows of each table so far, for :meth:`remove_since`."""
        return self._added.copy()

    def remove_since(self, mark: Counter[str], tables: Iterable[str]) -> None:
        """Remove rows added to ``tables`` after ``mark``, if nothing else changed them."""
        for table in tables:
            if count := self._added[table] - mark[table]:
                last = f"SELECT rowid FROM {table} ORDER BY rowid DESC LIMIT {count}"
                self.connection.execute(f"DELETE FROM {table} WHERE rowid IN ({last})")
                self._added[table] -= count
                self._removed[table] += count

    def next_row(self, table: str) -> int:
        """Return the rowid of the next row of a table, while files are read."""
        return int(self.connection.execute(f"SELECT count(*) FROM {table}").fetchall()[0][0]) + self._removed[table]

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """Insert many rows of small tables at once; :meth:`frame` sees them at the end."""
        self.connection.execute("BEGIN")
        try:
            yield
        except BaseException:
            self.connection.execute("ROLLBACK")
            raise
        self.connection.execute("COMMIT")

    def next_id(self, table: str) -> int:
        """Return the next free id of ``node``, ``process`` or ``source``, from 0."""
        self._next[table] += 1
        return self._next[table] - 1

    def peek_id(self, table: str) -> int:
        """Return the id that :meth:`next_id` will return."""
        return self._next[table]

    def name_ids(self, texts: Sequence[str]) -> list[int]:
        """Return store-wide ids of strings, in their order; add new ones to ``name``."""
        fresh: dict[str, int] = {}
        ids = []
        for text in map(self._cut, map(storable, texts)):
            known = self._names.get(text)
            if known is None and self._has_room(text):
                known = len(self._names)
                self._names[text] = known
                fresh[text] = known
            elif known is None:
                self.limited[LEFT_OUT] += 1
                known = self._names.get(LEFT_OUT)
                if known is None:
                    known = self._names[LEFT_OUT] = fresh[LEFT_OUT] = len(self._names)
            ids.append(known)
        if fresh:
            import pyarrow as pa

            self.append(
                "name",
                pa.table({"id": pa.array(list(fresh.values()), pa.int32()), "text": pa.array(list(fresh), pa.string())}),
            )
        return ids

    def _cut(self, text: str) -> str:
        short = cut_text(text)
        self.limited["text_cut"] += short is not text
        return short

    def _has_room(self, text: str) -> bool:
        """Whether a new name is within the limits of the run; if so, count it."""
        size = len(text) if text.isascii() else len(text.encode())
        if len(self._names) >= NAMES or self._name_bytes + size > NAME_TEXT_BYTES:
            return False
        self._name_bytes += size
        return True

    def note(
        self, severity: Severity, code: str, message: str, *, count: int = 1, source: int | None = None, file: str | None = None,
        first_ns: int | None = None, last_ns: int | None = None,
    ) -> None:  # fmt: skip
        """Record a repair, loss or guess; ``message`` is a sentence for the report."""
        row = {"source": source, "file": file, "severity": severity, "code": code, "message": message, "count": count}
        self.insert("ingest_note", {**row, "first_ns": first_ns, "last_ns": last_ns})


def storable(text: str) -> str:
    """Escape undecodable bytes and lone surrogates, so that a text is valid UTF-8.
    Bytes of a file name that are not UTF-8 become ``\\xe9``, lone surrogates ``\\ud800``.
    A name that Python could not decode in the locale of the machine (LC_ALL=C), but that is UTF-8, is decoded.
    """
    try:
        text.encode()
    except UnicodeEncodeError:
        try:
            return text.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")
        except UnicodeEncodeError:  # surrogates that stand for no byte
            return text.encode("utf-8", "backslashreplace").decode()
    return text


def _storable(value: Any, kind: str) -> Any:
    """Return a value that fits a column of the type; None for a number beyond it."""
    from .time_limits import clamped

    if isinstance(value, str):
        return storable(value)
    if isinstance(value, int) and kind in ("INTEGER", "BIGINT"):
        return clamped(value, 2**31 - 1 if kind == "INTEGER" else 2**63 - 1)
    return value


def native_path(path: Path) -> str:
    """Return ``path`` as DuckDB opens it in any locale; UsageError if it is not UTF-8."""
    try:
        return os.fsencode(path).decode()
    except UnicodeDecodeError as error:
        raise UsageError(f"{storable(str(path))}: the database opens no name that is not UTF-8; rename it, or choose another") from error


def _files(path: Path) -> tuple[Path, Path]:
    """Return the file of a run store and its log, which exists during writing."""
    return path, path.with_name(path.name + ".wal")


def _make_way(path: Path) -> None:
    """Make the folder of a new store and remove an old one that no program is writing."""
    from .files import writer

    if path.is_file() and (user := writer(path)):
        raise InputError(f"{path}: {user}; wait for it or choose another place with -o")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        for old in _files(path):
            old.unlink(missing_ok=True)
    except OSError as error:
        raise InputError(f"{path}: cannot write the run store there ({error.strerror}); choose another place with -o") from error


def who_has_it_open(error: Exception | str) -> str | None:
    """Return the program that has the database open, if ``error`` reports one."""
    text = str(error)
    if "Could not set lock" in text:
        pid = re.search(r"\(PID (\d+)\)", text)
        if pid and int(pid[1]) == os.getpid():
            return f"this program has it open already (PID {pid[1]})"
        return "another program has it open" + (f" (PID {pid[1]})" if pid else "")
    if "same database file with a different configuration" in text:
        return f"this program has it open already (PID {os.getpid()})"
    return None


def _settings(memory_limit: str, threads: int | None) -> dict[str, str | bool | int | float | list[str]]:
    try:
        size_in_bytes(memory_limit)
    except UsageError as error:
        raise UsageError(f"--memory-limit {error}") from None
    if threads is not None and threads < 1:
        raise UsageError(f"--threads {threads}: at least 1 is needed")
    return {
        "memory_limit": memory_limit,
        "threads": threads or min(os.cpu_count() or 1, 8),
        "preserve_insertion_order": "false",
        "checkpoint_threshold": "1GB",  # of the log; bulk rows hardly use it, and with less a store in memory also stops for checkpoints
        **NO_EXTENSIONS,
    }


NO_EXTENSIONS: Final = {
    "autoinstall_known_extensions": "false",
    "autoload_known_extensions": "false",
    "allow_community_extensions": "false",
}
_NOT_PACKED: Final = {"disabled_compression_methods": "'bitpacking'"}  # The one that takes time; runs of equal values are still packed
_LOCKED: Final = {"enable_external_access": "false", "lock_configuration": "true"}
"""A database with these settings reads and writes its own file and its spill folder only, and no statement can change that."""


def _connected(database: str, settings: dict[str, Any], spill: Path, last: Mapping[str, str]) -> duckdb.DuckDBPyConnection:
    """Connect, then set the ``last`` settings, which DuckDB does not take in one call."""
    import duckdb

    connection = duckdb.connect(database, config={**settings, "temp_directory": native_path(spill / "spill")})
    try:
        connection.execute("; ".join(f"SET {name} = {value}" for name, value in last.items()))
    except BaseException:
        connection.close()
        raise
    return connection


def schema_script() -> list[str]:
    """Return the SQL statements that create the types, tables and views of a store."""
    script = [f"CREATE TYPE {enum} AS ENUM ({', '.join(map(repr, values))})" for enum, values in ENUM_VALUES.items()]
    for table, columns in SCHEMA.items():
        definitions = ", ".join(f'"{column}" {kind}' for column, kind in columns.items())
        script.append(f"CREATE TABLE {table} ({definitions})")
    return [*script, *views_script()]


def _private_folder() -> Folder:
    """Create a private folder with an unpredictable name, or raise InputError."""
    try:
        return Folder()
    except OSError as error:
        raise InputError(f"no temporary folder can be made ({error.strerror or error}); set TMPDIR to a folder with space") from error


def _unexpected(error: BaseException) -> bool:
    """Whether no caller handles an exception (messages, exits, the system)."""
    if type(error).__name__ == "PanicException":  # of Polars; derives from BaseException
        return True
    if not isinstance(error, Exception) or isinstance(error, PostrunError | OSError | MemoryError):
        return False
    if type(error).__module__.partition(".")[0] == "click" or type(error).__name__ in {"OutOfMemoryException", "IOException"}:
        return False
    return not (type(error) is RuntimeError and "interrupted" in str(error))  # how DuckDB answers to Ctrl-C


def _first_line(error: BaseException) -> str:
    return str(error).splitlines()[0] if str(error) else type(error).__name__
