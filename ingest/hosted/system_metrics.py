"""Reads the hosted profiler's system metric files: JSON lines of utilization, memory, disk and network -> ``sample``.

A file covers one minute of one machine, so a long job has thousands of them: DuckDB's JSON reader reads many at a time.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from ...errors import InputError, UsageError
from ..store.database import NO_EXTENSIONS, native_path
from ..store.limits import FURTHER_NODES, NODES_PER_FILE
from ..store.registry import UNKNOWN_HOST, ReadResult, Registry
from ..store.store import Store
from ..store.tables import Severity
from ..store.time_limits import EARLIEST_NS, LATEST_NS, MOST_VALUE

if TYPE_CHECKING:
    import duckdb

# Metrics are told apart by Type and Dimension (cpu, gpu: Name is the unit), Type and Name (memory, i/o), or all three (network).
METRIC_OF: Final[dict[str, str]] = {
    "cpu/CPUUtilization": "cpu_utilization",
    "cpu/I/OWaitPercentage": "cpu_iowait",
    "gpu/GPUUtilization": "gpu_utilization",
    "gpu/GPUMemoryUtilization": "gpu_memory_controller",
    "memory/MemoryUsedPercent": "memory_used_percent",
    "i/o/IOPS": "disk_iops",
    "i/o/ReadThroughputInBytesPerSecond": "disk_read",
    "i/o/WriteThroughputInBytesPerSecond": "disk_write",
    "network/ReceiveBytesPerSecond/Algorithm": "network_receive",
    "network/TransmitBytesPerSecond/Algorithm": "network_transmit",
    "network/ReceiveBytesPerSecond/Platform": "network_receive_platform",
    "network/TransmitBytesPerSecond/Platform": "network_transmit_platform",
}

_NAME: Final = r"(?:^|/)\d{10}\.([^/]+?)\.json(?:\.corrupt)?$"
_FIELDS: Final = (b'"Type"', b'"Value"', b'"NodeId"', b'"Timestamp"')
_BATCH_BYTES: Final = 128 << 20
_NOTES_PER_KIND: Final = 20
_LONGEST_HOST: Final = 255  # letters; DNS allows 253

# The time is taken from the text: as a JSON number it would go through a double, whose steps are 256 ns in this century.
_PARSE: Final = rf"""
WITH line AS (
    SELECT filename AS file, json,
        json_extract_string(json, ['$.Type', '$.Name', '$.Dimension', '$.Value', '$.NodeId']) AS field,
        regexp_extract(json, '"Timestamp"\s*:\s*"?([-+0-9.eE]+)', 1) AS seconds
    FROM read_ndjson_objects($files, filename = true, ignore_errors = true, hive_partitioning = false)
), typed AS (
    SELECT file, json IS NULL AS corrupt, field[1] AS type, nullif(field[5], '') AS node, try_cast(field[4] AS DOUBLE) AS value,
        CASE WHEN field[1] IN ('cpu', 'gpu') THEN field[1] || '/' || field[3]
            WHEN field[1] = 'network' THEN field[1] || '/' || field[2] || '/' || field[3]
            ELSE field[1] || '/' || field[2] END AS key,
        CASE WHEN field[1] IN ('cpu', 'gpu') THEN try_cast(regexp_extract(field[2], '(\d+)$', 1) AS INTEGER) END AS unit,
        try_cast(try_cast(seconds AS DECIMAL(28, 9)) * 1000000000 AS BIGINT) AS time_ns
    FROM line
)
SELECT file, unit, time_ns, value, metric, coalesce(key, type) AS key,
    left(coalesce(node, nullif(regexp_extract(file, '{_NAME}', 1), ''), '{UNKNOWN_HOST}'), {_LONGEST_HOST}) AS hostname,
    CASE WHEN corrupt THEN 'corrupt'
        WHEN type IS NULL OR time_ns IS NULL OR value IS NULL OR NOT isfinite(value)
            OR abs(value) > {MOST_VALUE} OR time_ns NOT BETWEEN {EARLIEST_NS} AND {LATEST_NS} THEN 'incomplete'
        WHEN metric IS NULL THEN 'unknown'
        ELSE 'stored' END AS verdict,
    node IS NULL AS nameless
FROM typed LEFT JOIN (VALUES {", ".join(str(pair) for pair in METRIC_OF.items())}) AS known(key, metric) USING (key)
"""

_PER_FILE: Final = """
SELECT file,
    count(*) FILTER (verdict = 'stored') AS stored,
    min(time_ns) FILTER (verdict = 'stored') AS first_ns,
    max(time_ns) FILTER (verdict = 'stored') AS last_ns,
    count(*) FILTER (verdict = 'corrupt') AS corrupt,
    count(*) FILTER (verdict = 'incomplete') AS incomplete,
    count(*) FILTER (verdict = 'unknown') AS unknown,
    count(*) FILTER (verdict = 'stored' AND nameless) AS nameless,
    list_sort(list(DISTINCT key) FILTER (verdict = 'unknown')) AS keys
FROM system_line GROUP BY file
"""

# Whether a machine is among the first NODES_PER_FILE of one of the files that name it.
_HOSTNAMES: Final = f"""
SELECT hostname, bool_or(place <= {NODES_PER_FILE}) FROM (
    SELECT hostname, row_number() OVER (PARTITION BY file ORDER BY hostname) AS place
    FROM (SELECT DISTINCT file, hostname FROM system_line WHERE verdict = 'stored')
)
GROUP BY hostname ORDER BY hostname
"""

_OWNERS: Final = """
SELECT DISTINCT file, hostname, node.id AS node FROM system_line JOIN node USING (hostname) WHERE verdict = 'stored' ORDER BY ALL
"""

_STORED: Final = """
SELECT source_id, metric, unit, time_ns, value FROM system_line JOIN line_owner USING (file, hostname) WHERE verdict = 'stored'
"""

_UNITS: Final = """
UPDATE node SET cores = greatest(node.cores, seen.cores), gpus = greatest(node.gpus, seen.gpus)
FROM (
    SELECT hostname, nullif(count(DISTINCT unit) FILTER (metric = 'cpu_utilization'), 0) AS cores,
        nullif(count(DISTINCT unit) FILTER (metric = 'gpu_utilization'), 0) AS gpus
    FROM system_line WHERE verdict = 'stored' GROUP BY hostname
) AS seen WHERE seen.hostname = node.hostname
"""

# column of _PER_FILE -> code and sentence of its note
_NOTES: Final = {
    "corrupt": ("corrupt_line", "Lines that are no JSON (cut off or garbled) were left out."),
    "incomplete": ("incomplete_record", "Records without Type, Timestamp or a finite Value were left out."),
    "unknown": ("unknown_metric", "Records of metrics that postrun does not know were left out: {keys}."),
    "nameless": ("no_node", "Records without NodeId were given to the machine in the file's name."),
}


def recognizes_system_metrics(head: bytes, name: str) -> bool:
    """Return whether a file has the hosted profiler's system metrics.

    An empty or broken file with the right name counts, so that it is reported as such.
    """
    if re.search(_NAME, name):
        return not head.lstrip().startswith(b"[")
    return any(all(field in line for field in _FIELDS) for line in head.splitlines()[:20])


def parse_lines(connection: duckdb.DuckDBPyConnection, files: Sequence[str]) -> None:
    """Read the lines of files into the temporary table ``system_line``.

    ``connection`` must not read files: another one, which may read only these files, parses them. Raises duckdb.Error.
    """
    with _reader(connection, files) as reader:
        rows = reader.sql(_PARSE, params={"files": [_literal(file) for file in files]}).to_arrow_reader()
        connection.register("parsed_line", rows)
        try:
            connection.execute("CREATE OR REPLACE TEMP TABLE system_line AS FROM parsed_line")
        finally:
            connection.unregister("parsed_line")


def _reader(connection: duckdb.DuckDBPyConnection, files: Sequence[str]) -> duckdb.DuckDBPyConnection:
    """Open a database in memory that may only read these files."""
    import duckdb

    names = ("memory_limit", "threads", "preserve_insertion_order")
    values = connection.execute(f"SELECT {', '.join(f'current_setting({name!r})' for name in names)}").fetchall()[0]
    config = {name: str(value) for name, value in zip(names, values, strict=True)}
    reader = duckdb.connect(":memory:", config={**config, **NO_EXTENSIONS, "temp_directory": ""})
    reader.execute("SET allowed_paths = $files", {"files": list({*files, *map(_literal, files)})})
    reader.execute("SET enable_external_access = false; SET enable_progress_bar = false; SET lock_configuration = true")
    return reader


def _size(file: str) -> int:
    try:
        return os.stat(file.encode()).st_size  # noqa: PTH116 - a Path would encode the name in the locale
    except OSError:
        return 0


@dataclass(frozen=True, slots=True)
class Lines:
    """The source of the lines of files, by native path. ``parse``: as :func:`parse_lines`."""

    parse: Callable[[duckdb.DuckDBPyConnection, Sequence[str]], None] = parse_lines
    size: Callable[[str], int] = _size


def read_system_metrics(store: Store, path: Path, source_id: int, registry: Registry) -> ReadResult:
    """Store the samples of one file; see :func:`read_system_metrics_many`."""
    return read_system_metrics_many(store, [(path, source_id)], registry)[0]


def read_system_metrics_many(
    store: Store, files: Sequence[tuple[Path, int]], registry: Registry, lines: Lines | None = None
) -> list[ReadResult]:
    """Store the samples of (path, source id) pairs; return the results in order.

    Times are exact nanoseconds from the text. Lines that are not JSON, lack a field or name an unknown metric are left out and counted in
    ``ingest_note``; a line without NodeId belongs to the machine of the file name. Repeated records are kept. The units seen determine
    ``cores`` and ``gpus`` of the machines. An unreadable file gets a note and an empty, partial result; lost lines do not make a result
    partial.
    """
    results: dict[str, ReadResult] = {}
    names = [_native(store, path, source) if lines is not None else _readable(store, path, source) for path, source in files]
    lines = lines or Lines()
    for batch in _batches([(name, source) for name, (_, source) in zip(names, files, strict=True) if name is not None], lines):
        _read_batch(store, batch, registry, results, lines)
    return [ReadResult(0, None, None, partial=True) if name is None else results[name] for name in names]


def _native(store: Store, path: Path, source: int) -> str | None:
    """Return the path as DuckDB opens it; None, with a note, if it cannot."""
    try:
        return native_path(path)
    except UsageError as error:
        _note_unreadable(store, f"{error}.", path, source)
        return None


def _readable(store: Store, path: Path, source: int) -> str | None:
    """Return the path as :func:`_native`; None if the file unpacks to too much."""
    from ..chrome_trace.inflate import over_limit

    try:
        why = over_limit(path, store.max_unpacked)  # DuckDB unpacks without a limit
    except (InputError, OSError):
        why = None  # DuckDB reports the reason
    if why is not None:
        _note_unreadable(store, f"{why}.", path, source)
        return None
    return _native(store, path, source)


def _note_unreadable(store: Store, why: str, path: Path, source: int) -> None:
    store.note("error", "unreadable", f"The file could not be read as system metrics: {why}", source=source, file=path.name)


def _batches(files: Sequence[tuple[str, int]], lines: Lines) -> Iterator[dict[str, int]]:
    """Yield files with their source ids in portions that fit DuckDB's memory limit."""
    batch: dict[str, int] = {}
    size = 0
    for path, source in files:
        batch[path] = source
        size += lines.size(path)
        if size >= _BATCH_BYTES:
            yield batch
            batch, size = {}, 0
    if batch:
        yield batch


def _read_batch(store: Store, batch: dict[str, int], registry: Registry, results: dict[str, ReadResult], lines: Lines) -> None:
    import duckdb

    connection = store.connection
    try:
        lines.parse(connection, list(batch))
    except duckdb.Error as error:
        if len(batch) == 1:
            [(file, source)] = batch.items()
            _note_unreadable(store, str(error).splitlines()[0], Path(file), source)
            results[file] = ReadResult(0, None, None, partial=True)
            return
        files = list(batch.items())  # an unreadable file must not cost the other files
        for half in (files[: len(batch) // 2], files[len(batch) // 2 :]):
            _read_batch(store, dict(half), registry, results, lines)
        return
    hostnames = connection.execute(_HOSTNAMES).fetchall()
    with store.transaction():
        for hostname, within in hostnames:
            registry.begin_file()  # the query bounds the machines of each file
            registry.node(hostname) if within else registry.further_node()
    _store_samples(store, batch)
    connection.execute(_UNITS)
    if FURTHER_NODES in registry.hostnames:  # beyond the bound of nodes: they have no row to join
        unplaced = "SELECT count(*) FROM system_line WHERE verdict = 'stored' AND hostname NOT IN (SELECT hostname FROM node)"
        store.limited["unplaced"] += connection.execute(unplaced).fetchall()[0][0]
    rows_by_file = {row["file"]: row for row in connection.sql(_PER_FILE).pl().sort("file").to_dicts()}
    connection.execute("DROP TABLE system_line")
    for file in batch:
        row = rows_by_file.get(file, {"stored": 0, "first_ns": None, "last_ns": None})
        results[file] = ReadResult(row["stored"], row["first_ns"], row["last_ns"])
    _write_notes(store, batch, rows_by_file)


def _store_samples(store: Store, batch: dict[str, int]) -> None:
    import polars as pl

    owners = store.connection.sql(_OWNERS).pl()
    files = pl.Series([batch[file] for file in owners["file"]], dtype=pl.Int32)
    keys = owners.select(source=files, node="node", process=pl.lit(None, pl.Int32))
    store.connection.register("line_owner", owners.with_columns(source_id=store.mapped(keys)).to_arrow())
    try:
        store.append_samples(_STORED)
    finally:
        store.connection.unregister("line_owner")


def _literal(file: str) -> str:
    """Escape DuckDB's wildcards ``*``, ``?`` and ``[`` in a file name."""
    return re.sub(r"([*?\[])", r"[\1]", file)


def _write_notes(store: Store, sources: dict[str, int], rows_by_file: dict[str, dict[str, Any]]) -> None:
    for column, (code, message) in _NOTES.items():
        rows = [row for row in rows_by_file.values() if row[column]]
        severity: Severity = "warning" if column == "corrupt" else "info"
        for row in rows[:_NOTES_PER_KIND]:
            text = message.format(keys=", ".join(row["keys"] or ()))
            store.note(severity, code, text, count=row[column], source=sources[row["file"]], file=Path(row["file"]).name,
                       first_ns=row["first_ns"], last_ns=row["last_ns"])  # fmt: skip
        if rest := rows[_NOTES_PER_KIND:]:
            keys = sorted({key for row in rest for key in row["keys"] or ()})
            text = f"{message.format(keys=', '.join(keys))} The same in {len(rest)} more files."
            store.note(severity, code, text, count=sum(row[column] for row in rest))
    empty = [file for file in sources if file not in rows_by_file]
    for file in empty[:_NOTES_PER_KIND]:
        store.note("info", "empty_file", "The file holds no record.", source=sources[file], file=Path(file).name)
    if len(empty) > _NOTES_PER_KIND:
        store.note("info", "empty_file", "More files hold no record.", count=len(empty) - _NOTES_PER_KIND)
