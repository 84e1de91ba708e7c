"""Validation of an entry that :func:`.partial.write` stored, before :class:`.partial.Partials` reads it back.

Entries are read from an output that others may write to. :func:`sound` accepts an entry only if :func:`.partial.write` could have written
every name, type and column in it; the names of tables must be among those of the same marker.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import fields
from typing import Any, Final

from .discover import FORMATS
from .partial import MAPPED
from .store.format_names import TRACE
from .store.identity import Identity
from .store.registry import ReadResult
from .store.result import TraceResult
from .store.schema import SCHEMA

_SHA256: Final = re.compile(r"[0-9a-f]{64}")
_KEYS: Final = ("node", "process", "source")
_NUMBERS: Final = ("INTEGER", "BIGINT")
_KINDS: Final = frozenset({"name", "signature", "device_event", "host_event", "annotation", "collective", "allocation"})
_TIMELINE_KINDS: Final = frozenset({"event", "text"})
_FORMATS: Final = frozenset(known.name for known in FORMATS)
_NOTE_TYPES: Final = (str, str, str, int, int | None, int | None)


def sound(entry: Any, tables: Collection[str]) -> bool:
    """Whether ``entry`` is valid; ``tables``: the tables that were written with it."""
    try:
        return _entry(entry, tables)
    except (KeyError, TypeError, ValueError, AttributeError):
        return False


def _entry(entry: Mapping[str, Any], tables: Collection[str]) -> bool:
    name = entry["format"]
    if not (name is None or name in _FORMATS) or not _is(entry["bytes"], int | None) or not _is(entry["problem"], str | None):
        return False
    digest = entry.get("sha256")
    if digest is not None and not _SHA256.fullmatch(digest):
        return False
    if (lines := entry.get("lines")) is not None and not (
        _is(lines["error"], str) if "error" in lines else lines["table"] in tables and _is(lines["place"], int)
    ):
        return False
    read = entry.get("read")
    return read is None or (name in MAPPED and _read(read, tables, trace=name == TRACE))


def _read(read: Mapping[str, Any], tables: Collection[str], *, trace: bool) -> bool:
    kinds = _KINDS if trace else _TIMELINE_KINDS
    return (
        _is(read.get("error"), str | None)
        and all(kind in kinds and table in tables for kind, table in read["tables"].items())
        and (read["result"] is None or _result(read["result"], TraceResult if trace else ReadResult))
        and all(len(note) == len(_NOTE_TYPES) and all(map(_is, note, _NOTE_TYPES)) for note in read["notes"])
        and (
            not trace
            or (all(map(_is_placement, read["told"])) and _rows(read["devices"], "device") and _rows(read["windows"], "profile_window"))
        )
    )


def _result(result: Mapping[str, Any], kind: type[ReadResult]) -> bool:
    known = {field.name for field in fields(kind)}
    return (
        set(result) <= known
        and _is(result["events"], int)
        and all(_is(result[name], int | None) for name in ("first_ns", "last_ns"))
        and all(_is(result.get(name, False), bool) for name in ("relative", "partial"))
        and all(
            isinstance(key, str) and isinstance(value, str | int | float | bool | None) for key, value in result.get("metadata", {}).items()
        )
        and _is(result.get("process"), int | None)
        and _is(result.get("framework"), str | None)
    )


def _is_placement(call: list[Any]) -> bool:
    what, *arguments = call
    if what == "cycle":
        return not arguments
    identity, facts = arguments
    first, last = facts["span"]
    return (
        what in ("place", "replace")
        and set(identity) == {field.name for field in fields(Identity)}
        and all(_is(value, str | None if name == "hostname" else int | None) for name, value in identity.items())
        and all(_is(index, int) and _is(name, str) for index, name in facts["device_names"])
        and all(_is(index, int) for index in facts["used"])
        and _is(first, int)
        and _is(last, int)
    )


def _rows(rows: list[Mapping[str, Any]], table: str) -> bool:
    """Whether these can be rows of a table: their columns become part of a query."""
    columns = {column: kind for column, kind in SCHEMA[table].items() if column not in _KEYS}
    return all(
        set(row) == set(columns) and all(_is(value, int | None if columns[name] in _NUMBERS else str | None) for name, value in row.items())
        for row in rows
    )


def _is(value: Any, kind: Any) -> bool:
    """Like isinstance, but a bool is not a number, and integers fit into 64 bits."""
    if isinstance(value, bool):
        return kind is bool
    if isinstance(value, int) and not -(2**63) <= value < 2**63:
        return False
    return isinstance(value, kind)
