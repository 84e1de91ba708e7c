"""Measures the bytes of an event in the trace format and in others, and how many events a second are read.

    python benchmarks/trace_format.py [TRACE.json.gz ...] [--rows 8192] [--repeat 5] [--events 8000000]

Without traces, those of the shared test data are taken ($POSTRUN_TEST_DATA, else ../shared/data; nothing without traces).
Kernels, copies, memsets, synchronizations, launches and annotations of each PyTorch profiler trace are loaded into a run store and
written in our format. Bytes per event, headers and names included, next to the JSON of the same events, its gzip, and Parquet (delta
encoding, zstd). "all" also has launch geometry; "core" has kind, name, start, duration, device, context, stream or thread, correlation,
bytes, in both formats.

Then the events of the largest trace are repeated up to --events and read: decoded and thrown away (processor seconds), and each of three
tables, a quarter as long, loaded into a run store, compared with DuckDB alone: its INSERT of the decoded columns. Best of --repeat.

Last result (2-core 2.4 GHz virtual machine, busy with other work): docs/trace-format.md has the sizes. Decode, M/s: kernel 52, memcpy 55,
memset 80, api 100, all tables together 73; core columns: kernel 88, together 84. Loading, M/s by processor time, DuckDB alone / run store
in memory / in a file: annotation 10 / 2.7 / 1.0, api 10.5 / 3.5 / 1.5, kernel 4.8 / 1.6 / 0.6.
"""

from __future__ import annotations

import argparse
import gzip
import io
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from postrun.ingest.prt.format import TraceFile
from postrun.ingest.prt.reader import Captures
from postrun.ingest.store import Store
from postrun.ingest.store.identity import Placement
from postrun.ingest.store.registry import Registry
from postrun.native import _native

INT, TIME, DURATION, TEXT = 0, 1, 2, 4
GEOMETRY = ("grid_x", "grid_y", "grid_z", "block_x", "block_y", "block_z", "registers", "shared_memory", "graph_node")
CUDA_PLACE = {1: "name", 2: "start_ns", 3: "duration_ns", 4: "device", 5: "context", 6: "stream", 7: "correlation"}
# table of the format -> (type, query, column ids)
TABLES: dict[str, tuple[int, str, dict[int, str]]] = {
    "kernel": (9, "FROM device_event WHERE kind = 'kernel'", CUDA_PLACE | dict(enumerate(GEOMETRY, 8))),
    "memcpy": (10, "FROM device_event WHERE kind = 'memcpy'", CUDA_PLACE | {9: "bytes", 10: "pageable"}),
    "memset": (11, "FROM device_event WHERE kind = 'memset'", CUDA_PLACE | {9: "bytes"}),
    "sync": (12, "FROM device_event WHERE kind = 'sync'", CUDA_PLACE),
    "api": (
        8,
        "FROM host_event WHERE kind IN ('launch', 'sync', 'call')",
        {1: "name", 2: "start_ns", 3: "duration_ns", 4: "correlation", 5: "kind", 6: "tid"},
    ),
    "annotation": (6, "FROM annotation WHERE side = 'host'", {1: "name", 2: "start_ns", 3: "duration_ns", 4: "value"}),
}
JSON_CATEGORIES = {
    *("kernel", "gpu_memcpy", "gpu_memset", "cuda_sync", "cuda_runtime", "cuda_driver", "user_annotation"),
    *("Kernel", "Memcpy", "Memset", "Runtime"),
}
CORE_LEFT_OUT = {*GEOMETRY, "pageable", "value"}
Columns = dict[str, tuple[int, dict[int, np.ndarray[Any, Any]]]]


def default_traces() -> list[Path]:
    named = os.environ.get("POSTRUN_TEST_DATA")
    folder = Path(named) if named else Path(__file__).resolve().parents[2] / "shared" / "data"
    return sorted((folder / "kineto" / "h100").glob("*.json.gz")) + sorted((folder / "kineto" / "diff_pair").glob("*.json.gz"))


def events_of(trace: Path, folder: Path) -> tuple[Columns, list[str]]:
    """The columns of each table, by column id, and the names."""
    store = folder / "run.duckdb"
    store.unlink(missing_ok=True)
    subprocess.run([sys.executable, "-P", "-m", "postrun", "ingest", str(trace), "-o", str(store)], check=True, capture_output=True)
    columns: Columns = {}
    with duckdb.connect(str(store), read_only=True) as connection:
        names = [text for (text,) in connection.sql("SELECT text FROM name ORDER BY id").fetchall()]
        for table, (kind, query, ids) in TABLES.items():
            rows = connection.sql(f"SELECT {', '.join(ids.values())} {query} ORDER BY start_ns").to_arrow_table()
            present = {
                number: as_integers(rows.column(name), name) for number, name in ids.items() if rows.column(name).null_count < len(rows)
            }
            if rows.num_rows:
                columns[table] = kind, present
    used = np.unique(np.concatenate([values[1] for _, values in columns.values()]))
    for _, values in columns.values():
        values[1] = np.searchsorted(used, values[1]) + 1
    return columns, [names[number - 1] for number in used]


def as_integers(column: pa.ChunkedArray, name: str) -> np.ndarray[Any, Any]:
    if name == "kind":
        return np.array([["launch", "sync", "call"].index(value) for value in column.to_pylist()], np.int64)
    values = column.cast(pa.int64()).fill_null(-(2**63)).to_numpy()
    return values + 1 if name == "name" else values


def scale(columns: Columns) -> int:
    """Return the nanoseconds of a tick: 1000 if all times are whole microseconds."""
    times = [values[number] for _, values in columns.values() for number in (2, 3)]
    return 1000 if all((some % 1000 == 0).all() for some in times) else 1


def written(columns: Columns, names: list[str], rows: int, level: int, *, core: bool = False, copies: int = 1) -> bytes:
    tick = scale(columns)
    first = min(int(values[2][0]) for _, values in columns.values()) // tick
    span = max(int(values[2][-1]) for _, values in columns.values()) // tick - first + 1000
    parts = [_native.write_trace_header(bytes(16), 1, 0, 1, first * tick)]

    def block(kind: int, count: int, columns: list[tuple[int, int, Any]], first_time: int = 0, level: int = level) -> None:
        parts.append(_native.write_trace_block(kind, 0, count, len(parts) - 1, first_time, columns, level))

    block(1, 1, [(1, TEXT, [b"clock.ticks_per_second"]), (2, TEXT, [str(10**9 // tick).encode()])])
    anchor = np.array([first, first + span * copies + 10**9])
    block(3, 2, [(1, TIME, anchor), (2, INT, anchor * tick), (3, INT, anchor * tick), (4, INT, anchor * 0)])
    for at in range(0, len(names), rows):
        piece = [name.encode() for name in names[at : at + rows]]
        block(2, len(piece), [(1, INT, np.arange(at + 1, at + 1 + len(piece))), (2, TEXT, piece)])
    for copy in range(copies):
        for table, (kind, values) in columns.items():
            ids = TABLES[table][2]
            for at in range(0, len(values[2]), rows):
                some = {n: np.ascontiguousarray(v[at : at + rows]) for n, v in values.items() if not (core and ids[n] in CORE_LEFT_OUT)}
                some[2] = some[2] // tick + copy * span
                some[3] = some[3] // tick
                kinds = {2: TIME, 3: DURATION}
                block(kind, len(some[2]), [(n, kinds.get(n, INT), v) for n, v in some.items()], int(some[2][0]))
    block(15, 1, [(n, INT, np.array([len(parts) - 1])) for n in (1, 2, 3)])
    return b"".join(parts)


def repeated(kind: int, values: dict[int, np.ndarray[Any, Any]], rows: int) -> tuple[int, dict[int, np.ndarray[Any, Any]]]:
    """Repeat rows in time up to at least ``rows``, so that blocks are full."""
    count = len(values[2])
    copies = max(1, -(-rows // count))
    longer = {number: np.tile(column, copies) for number, column in values.items()}
    span = (int(values[2][-1] - values[2][0]) // 1000 + 1000) * 1000
    longer[2] += np.repeat(np.arange(copies), count) * span
    return kind, longer


def parquet(columns: Columns, names: list[str], *, core: bool) -> int:
    size = 0
    for table, (_, values) in columns.items():
        ids = TABLES[table][2]
        arrays = {ids[n]: pa.array(v) for n, v in values.items() if not (core and ids[n] in CORE_LEFT_OUT)}
        arrays["name"] = pa.DictionaryArray.from_arrays(pa.array(values[1] - 1, pa.int32()), pa.array(names)).cast(pa.string())
        delta = {name: "DELTA_BINARY_PACKED" for name in ("start_ns", "duration_ns", "correlation") if name in arrays}
        dictionary = [name for name in arrays if name not in delta]
        out = io.BytesIO()
        pq.write_table(pa.table(arrays), out, compression="zstd", compression_level=3, use_dictionary=dictionary, column_encoding=delta)
        size += len(out.getvalue())
    return size


def json_of(trace: Path) -> tuple[bytes, int]:
    """Return the converted events as the profiler writes them, and their number."""
    text = gzip.decompress(trace.read_bytes()).decode("utf-8", "replace")
    events = [e for e in json.loads(text, strict=False)["traceEvents"] if e.get("ph") == "X" and e.get("cat") in JSON_CATEGORIES]
    return json.dumps(events, indent=1).encode(), len(events)


def best(repeat: int, clock: Callable[[], float], action: Callable[[], object]) -> float:
    shortest = float("inf")
    for _ in range(repeat):
        began = clock()
        action()
        shortest = min(shortest, clock() - began)
    return shortest


def rates(count: int, repeat: int, action: Callable[[], object]) -> str:
    """Millions a second, by wall and by processor time."""
    return " / ".join(f"{count / best(repeat, clock, action) / 1e6:.1f}" for clock in (time.perf_counter, time.process_time))


def measure_decoding(paths: dict[str, Path], repeat: int) -> None:
    for label, path in paths.items():
        reader = _native.TraceReader(path, 0, True)
        contents = TraceFile(path).contents
        total = sum(contents[table].rows for table in TABLES)
        opening = best(repeat, time.process_time, lambda path=path: _native.TraceReader(path))  # type: ignore[misc]
        size = path.stat().st_size / 1e6
        print(f"{label}: {total:,} events, {size:.0f} MB; checking every block on opening: {total / opening / 1e6:.0f} M/s")
        cells, seconds = [], 0.0
        for table in TABLES:
            count = contents[table].rows
            least = best(repeat, time.process_time, lambda table=table, reader=reader: reader.drain(table))  # type: ignore[misc]
            seconds += least
            if count >= 50_000:
                cells.append(f"{table} {count / least / 1e6:.0f}")
        print(f"  decode, M/s: {', '.join(cells)}; all tables together {total / seconds / 1e6:.0f}")


def measure_loading(path: Path, table: str, repeat: int) -> None:
    """Print rates of loading a table into a run store, and into DuckDB alone."""
    trace = TraceFile(path, name_ids=True)
    count, rows = trace.contents[table].rows, trace.table(table).arrow()

    def alone() -> None:
        with Store.create(None, memory_limit="4GB") as store:
            store.connection.register("rows", rows)
            store.connection.execute("CREATE TABLE t AS FROM rows LIMIT 0").fetchall()
            store.connection.execute("INSERT INTO t SELECT * FROM rows").fetchall()

    def loaded(folder: str | None) -> None:
        with Store.create(Path(folder) / "run.duckdb" if folder else None, memory_limit="4GB") as store:
            Captures(store, Placement(Registry(store))).read(path, store.next_id("source"))
            store.checkpoint()

    print(f"  {table}, {count:,} events, M/s by wall / processor time: DuckDB alone {rates(count, repeat, alone)};", end=" ")
    print(f"run store in memory {rates(count, repeat, lambda: loaded(None))};", end=" ")
    with tempfile.TemporaryDirectory() as folder:
        print(f"in a file {rates(count, repeat, lambda: loaded(folder))}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("traces", nargs="*", type=Path)
    parser.add_argument("--rows", type=int, default=8192, help="rows of a block")
    parser.add_argument("--repeat", type=int, default=5)
    parser.add_argument("--events", type=int, default=8_000_000)
    options = parser.parse_args()
    traces = options.traces or default_traces()
    if not traces:
        print("no traces: name some, or set POSTRUN_TEST_DATA")
        return
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        largest: tuple[Columns, list[str]] = {}, []
        for trace in traces:
            columns, names = events_of(trace, folder)
            events = sum(len(values[2]) for _, values in columns.values())
            text, text_events = json_of(trace)
            if events > sum(len(values[2]) for _, values in largest[0].values()):
                largest = columns, names
            texts = sum(len(name.encode()) for name in names)
            print(f"{trace.name}: {events:,} events, {scale(columns)} ns ticks, {len(names)} names; bytes per event:")
            print(f"  texts of names {texts / events:.2f}")
            print(f"  JSON {len(text) / text_events:.0f}, its gzip {len(gzip.compress(text)) / text_events:.1f}")
            for core in (True, False):
                sizes = [len(written(columns, names, options.rows, level, core=core)) / events for level in (0, 3)]
                parquet_bytes = parquet(columns, names, core=core) / events
                print(f"  {'core' if core else 'all'}: plain {sizes[0]:.2f}, zstd {sizes[1]:.2f}; Parquet {parquet_bytes:.2f}")
        events = sum(len(values[2]) for _, values in largest[0].values())
        paths = {"all": folder / "all.prt", "core": folder / "core.prt"}
        for label, path in paths.items():
            path.write_bytes(written(*largest, options.rows, 0, core=label == "core", copies=max(1, options.events // events)))
        measure_decoding(paths, options.repeat)
        print("loading:")
        for table in ("annotation", "api", "kernel"):
            if table in largest[0]:
                path = folder / f"{table}.prt"
                path.write_bytes(written({table: repeated(*largest[0][table], options.events // 4)}, largest[1], options.rows, 0))
                measure_loading(path, table, options.repeat)


if __name__ == "__main__":
    main()
