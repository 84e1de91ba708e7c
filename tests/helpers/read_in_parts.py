"""A run that is read file by file, and the same run that one process reads."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from postrun.errors import InputError
from postrun.ingest import ingest, partial
from postrun.ingest.discover import find_files
from postrun.ingest.load import load
from postrun.ingest.store import Store
from postrun.ingest.store.schema import SCHEMA

NAMED = ("device_event", "host_event", "annotation")


def contents(store: Store) -> dict[str, list[Any]]:
    """Return all rows of all tables.

    Names are texts, because their ids may be assigned in another order.
    """
    results: dict[str, list[Any]] = {}
    for table, columns in SCHEMA.items():
        wanted = [f'"{column}"' for column in columns if (table, column) != ("name", "id")]
        if table in NAMED:
            wanted = [f"(SELECT text FROM name AS n WHERE n.id = t.name) AS {one}" if one == '"name"' else one for one in wanted]
        order = "" if table == "ingest_note" else " ORDER BY ALL"  # notes come in the order in which they were made
        results[table] = store.frame(f"SELECT {', '.join(wanted)} FROM {table} AS t{order}").rows()
    return results


def in_parts(folder: Path, tables: Path) -> dict[str, list[Any]] | str:
    """Return the store's contents from files that are read separately, or an error."""
    tables.mkdir(parents=True)
    actual = find_files([folder])
    read = [one for one in actual if one.path.suffix != ".prt" and one.path.name != "job.json"]
    entries = {}
    for position in range(0, len(read), 7):
        some = read[position : position + 7]
        for file, entry in zip(some, partial.write(some, tables, f"{position}-", threads=1), strict=True):
            entries[file.path] = (json.loads(json.dumps(entry)), tables)
    partials = partial.Partials(entries)
    try:
        with load([*actual], [folder], partials=partials, threads=1) as store:
            return contents(store)
    except InputError as error:
        return str(error)


def read_at_once(folder: Path) -> dict[str, list[Any]] | str:
    try:
        with ingest([folder], threads=1) as store:
            return contents(store)
    except InputError as error:
        return str(error)


def assert_same(folder: Path, tables: Path) -> dict[str, list[Any]] | str:
    expected, actual = read_at_once(folder), in_parts(folder, tables)
    if isinstance(expected, str) or isinstance(actual, str):
        assert actual == expected
        return expected
    for table in SCHEMA:
        assert actual[table] == expected[table], table
    return expected


def cut(trace: dict[str, Any], **members: Any) -> dict[str, Any]:
    """Some events of a trace, under other members."""
    some = [event for event in trace["traceEvents"] if event.get("ph") == "X"][:400]
    return {**{key: value for key, value in trace.items() if key not in ("traceEvents", *members)}, **members, "traceEvents": some}


def files(folder: Path) -> dict[str, bytes]:
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}
