"""Trace files (.prt) -> rows, by the native reader and pyarrow, or by the plain reader of the tests if pyarrow is missing."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

Rows = list[dict[str, Any]]
Tables = dict[str, Rows]

TABLES = ("meta", "annotation", "counter", "api", "kernel", "memcpy", "memset", "sync", "metric", "loss", "external", "thread", "process")
DEVICE_TABLES = ("kernel", "memcpy", "memset")


def read(files: Sequence[Path], names: Sequence[str] = ()) -> Tables:
    """Return the rows of tables (default: all) of all files; times in Unix ns."""
    wanted = tuple(names) or TABLES
    tables: Tables = {name: [] for name in wanted}
    for file in files:
        for name, rows in _read_one(file, wanted).items():
            tables[name] += rows
    return tables


def facts(files: Sequence[Path]) -> dict[str, str]:
    """The metadata of all files; a later value replaces an earlier one."""
    return {row["key"]: row["value"] for row in read(files, ("meta",))["meta"]}


def count(files: Sequence[Path], table: str) -> int:
    """The rows of a table, counted without keeping them."""
    from postrun.native._native import TraceReader

    return sum(TraceReader(file).drain(table) for file in files)


def summary(tables: Tables) -> dict[str, Any]:
    """Return counts and sums that every reader of the same file must find."""
    sums: dict[str, Any] = {f"{table}_rows": len(tables[table]) for table in ("api", "annotation", "sync", "metric", "loss")}
    kernels: dict[str, list[int]] = {}
    for row in tables["kernel"]:
        entry = kernels.setdefault(row["name"] or "", [0, 0])
        entry[0] += 1
        entry[1] += round(row["duration_ns"])
    sums["kernels"] = {name: {"count": count, "total_ns": total} for name, (count, total) in sorted(kernels.items())}
    for table in ("memcpy", "memset"):
        rows = tables[table]
        sums[table] = {
            "count": len(rows),
            "bytes": sum(row["bytes"] for row in rows),
            "total_ns": sum(round(row["duration_ns"]) for row in rows),
        }
    return sums


def _read_one(file: Path, wanted: Sequence[str]) -> Tables:
    try:
        import pyarrow as pa
    except ImportError:
        return _read_plainly(file, wanted)
    from postrun.native._native import TraceReader

    reader = TraceReader(file)
    tables: Tables = {}
    for name in wanted:
        rows = pa.RecordBatchReader.from_stream(_Stream(reader.stream(name))).read_all()
        tables[name] = rows.to_pylist()
    return tables


class _Stream:
    """A capsule with an Arrow stream, as pyarrow takes it."""

    def __init__(self, capsule: object) -> None:
        self._capsule = capsule

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        return self._capsule


def _read_plainly(file: Path, wanted: Sequence[str]) -> Tables:
    if not any(count([file], name) for name in wanted):  # the plain reader needs minutes for all rows of a long recording
        return {name: [] for name in wanted}
    sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "helpers"))
    try:
        import prt_reader
    finally:
        sys.path.pop(0)
    tables = prt_reader.read(file.read_bytes())
    for rows in tables.values():
        for row in rows:
            for column, value in row.items():
                if type(value).__name__ == "Fraction":
                    row[column] = int(value)
    return {name: tables[name] for name in wanted}
