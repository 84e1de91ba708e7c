"""Files for data frames: one Parquet or CSV file per table of the run store, and a README.md that describes them.

Ids are followed by their meaning: a name, a host name, rank and pid. Columns whose names do not show their unit are described.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal

from ..ingest.store.metrics import METRICS
from ..ingest.store.schema import SCHEMA
from ..ingest.store.store import Store
from .counts import Counts

if TYPE_CHECKING:
    import pyarrow as pa

BATCH: Final = 50_000
_ROWS: Final = {
    "run": "run (one)", "source": "input file", "node": "machine", "process": "process", "device": "GPU of a machine",
    "profile_window": "stretch of time that a process was profiled", "recorded_window": "session of a recorded process",
    "device_event": "kernel run, copy, memset or synchronization record on a device", "host_event": "call or function of a thread",
    "annotation": "range that the program or its framework named", "step": "training step", "sample": "value of a metric or counter",
    "python_window": "file of a Python profile", "python_profile": "function of a Python profile",
    "python_call": "pair of functions of a Python profile of which one called the other",
    "python_frame": "frame of the call tree of a Python profile", "ingest_note": "kind of repair, loss or guess in one file",
    "compilation": "compilation of a function by torch.compile",
    "signature": "distinct set of inputs, stack and module that operators were called with",
    "store_info": "fact about the run store",
    "collective": "call of a collective, or kernel of one, whose sizes are known",
    "allocation": "change of the memory that the framework's allocator holds on a device",
}  # fmt: skip
_UNITS: Final = {
    "cores": "processors", "gpus": "GPUs", "quota": "processors that the machine's limits leave", "sm_count": "multiprocessors",
    "registers": "registers per thread", "multiprocessors": "multiprocessors", "kernel_flop": "floating-point operations",
    "occupancy": "percent", "grid_x": "blocks", "grid_y": "blocks", "grid_z": "blocks",
    "block_x": "threads", "block_y": "threads", "block_z": "threads", "events": "events", "device_events": "events", "calls": "calls",
    "primitive_calls": "calls", "count": "cases", "depth": "ranges that hold this one", "in_elements": "elements",
    "out_elements": "elements", "group_size": "ranks", "allocated": "bytes", "reserved": "bytes",
    "value": "see the metric (sample), else a number",
}  # fmt: skip
_WHAT: Final = {
    "run.name": "name of the run", "run.status": "completed, failed, stopped, partial or unknown",
    "run.framework": "framework and its version", "run.instance_type": "kind of machine, as the job says it",
    "run.resources": "JSON: names of the machines and of what the job used", "run.hyperparameters": "JSON: of the job",
    "run.labels": "JSON: of the job", "run.metadata": "JSON: whatever else the sources say of the run",
    "source.path": "file, as it was given or found", "source.format": "format of the file; unknown where no reader knows it",
    "source.sha256": "digest of the file", "node.hostname": "name of the machine",
    "process.pid": "number that the machine gave the process", "process.rank": "rank in the whole job",
    "process.local_rank": "rank among the processes of its machine", "process.world_size": "ranks of the whole job",
    "process.command": "command line", "process.label": "the source's own name of the process",
    "profile_window.on_ns": "when the profiler was switched on; empty where it does not say",
    "profile_window.off_ns": "when the profiler was switched off; empty where it does not say",
    "recorded_window.stopped": "the last session of its process, which went on without being recorded, or may have",
    "device.index": "number of the GPU in its machine, as the trace counts", "device.uuid": "the vendor's number of this very GPU",
    "device.name": "model", "device.compute_capability": "of the GPU, as its vendor counts", "device.vendor": "who makes the GPU",
    "device": "number of the GPU in its machine, as the trace counts", "context": "of the device, as the profiler numbers it",
    "stream": "queue of the device on which it ran", "correlation": "number that a launch call and the work it started share",
    "external_id": "number that an operator and the work it started share",
    "device_event.kind": "kernel, memcpy, memset or sync", "device_event.copy_kind": "from and to which memory, such as HtoD",
    "device_event.pageable": "of copies: whether the host's memory was pageable",
    "device_event.graph_node": "node of the graph that launched it",
    "collective.on_device": "true: of its kernel, false: of the framework's call", "collective.operation": "such as all_reduce",
    "collective.element_type": "such as Float or BFloat16", "collective.group_name": "the framework's name of the group of ranks",
    "collective.group_ranks": "ranks of the group", "collective.group_description": "what the group is for, such as mesh_dp",
    "collective.peer": "rank at the other end of a send or receive", "collective.sequence": "the framework's number of it in its group",
    "tid": "thread", "host_event.kind":
    "launch, sync (blocking), call (any other of the driver), operator, python, loader (wait for data), overhead (of the profiler)",
    "signature": "id in signature", "host_event.sequence": "number that an operator and its autograd node share",
    "host_event.forward_thread": "framework's number of the thread of the forward operator",
    "signature.input_dims": "JSON: sizes of each input", "signature.input_types": "JSON: type of each input",
    "signature.input_strides": "JSON: strides of each input, in elements",
    "signature.concrete_inputs": "JSON: values of the inputs that are no tensors",
    "signature.call_stack": "Python frames of the call", "signature.module_hierarchy": "modules of the call",
    "signature.kernel_file": "source file of a compiled kernel",
    "compilation.frame": "number of the function in the process", "compilation.version": "number of the compilation, from 0",
    "compilation.backward": "of the backward pass", "compilation.function": "name of the function", "compilation.file": "source file",
    "compilation.line": "first line of the function", "compilation.reason": "guard that did not fit",
    "compilation.graph_breaks": "breaks of the graph", "compilation.graph_break": "place and reason of the first break of the graph",
    "compilation.failure": "why the compilation failed", "compilation.limit_reached": "the function had too many compilations",
    "compilation.finished": "the log has the end of the compilation",
    "annotation.side": "host, or device where the profiler projected the range onto a stream",
    "annotation.complete": "false: the range has no end in the source", "annotation.arguments": "JSON: what else the source says of it",
    "phase": "TRAIN, EVAL or what else the source calls it", "step.index": "number of the step",
    "sample.metric": "name of the metric, listed below", "python_profile.first_step": "number of the first step of the profile",
    "python_profile.last_step": "number of the last step of the profile", "python_profile.timer": "what was timed",
    "python_profile.function": "file, line and name", "python_profile.file": "source file; empty for built-in functions",
    "python_profile.line": "where the function begins in it", "python_profile.id": "number of the function within its window",
    "python_profile.total_s": "own time, seconds", "python_profile.cumulative_s": "time with what it called, seconds",
    "window": "id of the window", "python_window.profiler": "cprofile or pyinstrument",
    "python_window.timer": "total_time, cpu_time or off_cpu_time; empty: not stated", "python_window.start_mode": "such as train or eval",
    "python_window.start_step": "number of the step; empty before the first", "python_window.start_phase": "point of the step",
    "python_window.end_mode": "such as train or eval", "python_window.end_step": "number of the step; empty after the last",
    "python_window.end_phase": "point of the step", "python_window.functions": "functions",
    "python_window.total_s": "own time of all functions, seconds", "python_call.caller": "number of the function within its window",
    "python_call.callee": "number of the function within its window", "python_frame.id": "number of the frame within its window",
    "python_frame.parent": "number of the frame that called it; empty: it is a root",
    "python_frame.function": "number of the function within its window",
    "source.clock_offset_ns": "nanoseconds that were added to its times to bring them to the clock of the other files",
    "source.clock_evidence": "by what that was found", "ingest_note.file": "the first file in which it was found",
    "ingest_note.severity": "info, warning or error", "ingest_note.code": "short name of what was found",
    "ingest_note.message": "what was found, in words", "store_info.key": "name of the fact", "store_info.value": "the fact, as text",
}  # fmt: skip
"""Columns of one table, and those with one meaning in all tables, if neither the name nor its ending shows it."""
_RENAMED: Final = {"shared_memory": "shared_memory_bytes", "bytes": "bytes"}
_INLINED: Final = {"name"}  # Tables whose rows are next to their ids in the other tables

Kind = Literal["parquet", "csv"]
_FORMULA: Final = r"^[\t\r\n]|(?:^|[;\t])[\x00-\x20\x7F\x{A0}\x{200B}\x{FEFF}]*[=+\-@\x{FF1D}\x{FF0B}\x{FF0D}\x{FF20}]"
"""Texts that spreadsheets take for formulas, also in full width, behind blanks, or behind the separator of lists in some languages: OWASP,
CSV Injection."""


def write(folder: Path, store: Store, kind: Kind, *, raw: bool = False) -> Counts:
    """Write every table to a file in ``folder``; unless ``raw``, formulas get a quote."""
    counts = Counts()
    described = [
        "# The tables of a training run", "",
        "Times (`_ns`) are nanoseconds since the Unix epoch, or since an unknown moment where the run has no clock; durations are",
        "nanoseconds; `_bytes` and `bytes` are bytes; `_s` are seconds. An empty field is a value that is not known.",
    ]  # fmt: skip
    for table in SCHEMA:
        if table in _INLINED:
            continue
        columns = _columns(table)
        counts.rows[table] = _write(folder / f"{table}.{kind}", store, _query(table, columns), kind, plain=kind == "csv" and not raw)
        described += ["", f"## {table}.{kind}", "", f"{counts.rows[table]} rows. One per {_ROWS.get(table, table.replace('_', ' '))}.", ""]
        described += ["| column | type | what |", "|---|---|---|"]
        described += [f"| {name} | {sort} | {what} |" for name, _, sort, what in columns]
    described += ["", "## Metrics of `sample`", "", "| metric | unit |", "|---|---|"]
    described += [f"| {metric} | {unit} |" for metric, unit in METRICS.items()]
    described += ["| counter.NAME | the program's own |", ""]
    (folder / "README.md").write_text("\n".join(described), encoding="utf-8")
    return counts


def file_names(kind: Kind) -> set[str]:
    """Return the names of the files that :func:`write` writes."""
    return {"README.md", *(f"{table}.{kind}" for table in SCHEMA if table not in _INLINED)}


def _columns(table: str) -> list[tuple[str, str, str, str]]:
    """Return name, SQL, type and description of each column of a file."""
    columns = []
    for column, sort in SCHEMA[table].items():
        expression = f't."{column}"'
        if sort in ("DEVICE_KIND", "HOST_KIND"):
            expression, sort = f"{expression}::VARCHAR", "VARCHAR"
        if column == "name" and sort == "INTEGER":
            columns.append(("name", "n.text", "VARCHAR", "what ran, in full"))
            if table == "device_event":
                columns += [
                    ("short_name", "n.short", "VARCHAR", "the kernel as reports show it"),
                    ("precision", "n.precision", "VARCHAR", "of kernels"),
                    ("category", "n.category", "VARCHAR", "of kernels"),
                ]
            continue
        columns.append((_RENAMED.get(column, column), expression, sort, _meaning(table, column)))
        if column == "node" and table != "node":
            columns.append(("hostname", "o.hostname", "VARCHAR", "of the machine"))
        if column == "process":
            columns.append(("rank", "p.rank", "INTEGER", "of the process"))
            columns.append(("pid", "p.pid", "BIGINT", "of the process"))
    return columns


def _query(table: str, columns: list[tuple[str, str, str, str]]) -> str:
    stored = SCHEMA[table]
    joins = ""
    if stored.get("name") == "INTEGER":
        joins += " LEFT JOIN name AS n ON n.id = t.name"
    if "node" in stored and table != "node":
        joins += " LEFT JOIN node AS o ON o.id = t.node"
    if "process" in stored:
        joins += " LEFT JOIN process AS p ON p.id = t.process"
    chosen = ", ".join(f'{expression} AS "{name}"' for name, expression, _, _ in columns)
    times = [column for column in stored if column in ("start_ns", "time_ns", "host_start_ns", "first_ns")]
    order = ", ".join(f't."{column}"' for column in [*times, *(column for column in stored if column not in times)])
    return f"SELECT {chosen} FROM {table} AS t{joins} ORDER BY {order}"


def _meaning(table: str, column: str) -> str:
    if meaning := _WHAT.get(f"{table}.{column}", _WHAT.get(column)):
        return meaning
    if column in _UNITS:
        return _UNITS[column]
    if column.endswith("_ns"):
        return "nanoseconds" + ("" if "duration" in column else " since the epoch")
    if column.endswith("_bytes") or column in ("bytes", "shared_memory"):
        return "bytes"
    if column.endswith("_s"):
        return "seconds"
    if column in ("node", "process", "source") or column == "id":
        return f"id of the {table if column == 'id' else column}"
    if column == "unit":
        return "index of the core or GPU; of a counter the id of the process; empty for the whole machine"
    return ""


def _write(file: Path, store: Store, sql: str, kind: Kind, *, plain: bool) -> int:
    import pyarrow as pa
    from pyarrow import csv
    from pyarrow import parquet as pq

    reader = store.connection.sql(sql).to_arrow_reader(BATCH)
    written = 0
    writer = pq.ParquetWriter(file, reader.schema, compression="zstd") if kind == "parquet" else csv.CSVWriter(file, reader.schema)
    with writer:
        for rows in _groups(reader):
            table = pa.Table.from_batches(rows, reader.schema)
            writer.write_table(_without_formulas(table) if plain else table)
            written += sum(len(batch) for batch in rows)
    return written


def _without_formulas(table: pa.Table) -> pa.Table:
    """Put an apostrophe before each text that a spreadsheet would take for a formula."""
    import pyarrow as pa
    import pyarrow.compute as pc

    for index, column in enumerate(table.columns):
        if pa.types.is_string(column.type) and pc.any(risky := pc.match_substring_regex(column, _FORMULA)).as_py():
            quoted = pc.binary_join_element_wise("'", column, "")
            table = table.set_column(index, table.schema.field(index), pc.if_else(pc.fill_null(risky, False), quoted, column))
    return table


def _groups(reader: Any) -> Iterator[list[Any]]:
    """Yield batches together, because readers are slow with row groups of a few rows."""
    batches: list[Any] = []
    for batch in reader:
        batches.append(batch)
        if sum(map(len, batches)) >= 2 * BATCH:
            yield batches
            batches = []
    if batches:
        yield batches
