"""Views of a run store: ``views.sql`` -> the statements that create them, and the meaning of each view and column."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, Final, NamedTuple

from .schema import EVENTS, TABLES, quoted, stored_name

FILE: Final = Path(__file__).with_name("views.sql")
_BLOCK: Final = re.compile(r"((?:^-- \S+: [^\n]*\n)+)(CREATE VIEW (\w+) AS\n.*?;)$", re.MULTILINE | re.DOTALL)
_JOIN: Final = re.compile(r"\n(?P<kind>LEFT |ANTI |)(?P<join>JOIN (?:\(SELECT id FROM )?(?P<table>\w+) .*?\bAS (?P<alias>\w) ON .*)")
_COLUMN: Final = re.compile(r"\b[a-z]\.\w+")
_MAPPED: Final = ("source", "process", "node", "shift_ns", "id_offset", "device")
# Other tables that are joined, with the column that is used.
_OTHERS: Final = {"thread_alias": "alias", "device_alias": "alias", "name_alias": "alias", "text": "text", "left_out": "id"}


class View(NamedTuple):
    """A view: the statement that creates it, its meaning, and the meaning of each column."""

    name: str
    statement: str
    meaning: str
    columns: dict[str, str]


@cache
def views() -> tuple[View, ...]:
    """Return the views in the order of the file; a view uses only those before it."""
    parsed = []
    for comments, statement, name in _BLOCK.findall(FILE.read_text(encoding="utf-8")):
        lines = dict(line.removeprefix("-- ").split(": ", 1) for line in comments.splitlines())
        parsed.append(View(name, statement.removesuffix(";"), lines.pop(name), lines))
    return tuple(parsed)


def views_script() -> list[str]:
    """Return the statements that create the views."""
    return [view.statement for view in views()]


def view_comment_script() -> list[str]:
    """Return the statements that store the meaning of each view and its columns.

    The comment of a view lists its columns: DuckDB has no comments on columns of views.
    """
    script = []
    for view in views():
        text = "\n".join([view.meaning, *(f"{column}: {meaning}" for column, meaning in view.columns.items())])
        script.append(f"COMMENT ON VIEW {view.name} IS {quoted(text)}")
    return script


def event_script() -> list[str]:
    """Return statements that set the views of events to their definitions."""
    return [_replacing(view.statement) for view in views() if view.name in EVENTS]


def faster_events(rows: Callable[[str], Sequence[tuple[Any, ...]]]) -> list[str]:
    """Return statements that replace the views of events by faster, equal ones.

    ``rows``: returns the rows of a query. A column of ``source_map`` that is the same for all sources of the events becomes a constant, a
    column of another joined table that has no row for these events becomes null, and joins without a column in use are left out. Then a
    condition on times selects blocks of rows. The views are valid until one of these tables changes, or events are added.
    """
    mapped = {source_id: facts for source_id, *facts in rows(f"SELECT source_id, {', '.join(_MAPPED)} FROM source_map")}
    filled = {table for (table,) in rows(" UNION ALL ".join(f"SELECT '{table}' WHERE EXISTS (FROM {table})" for table in _OTHERS))}
    script = []
    for view in views():
        if view.name in EVENTS:
            events = stored_name(view.name)
            used = {source_id for (source_id,) in rows(f"SELECT DISTINCT source_id FROM {events}")}
            constants = {}
            if used and used <= mapped.keys():
                for column, *values in zip(_MAPPED, *(mapped[source_id] for source_id in used), strict=True):
                    if len(set(values)) == 1:
                        constants[f"m.{column}"] = f"{'NULL' if values[0] is None else values[0]}::{TABLES['source_map'].columns[column]}"
            for _, join, table, alias in _JOIN.findall(view.statement):
                if (column := _OTHERS.get(table)) and not (table in filled and rows(f"SELECT 1 FROM {events} AS r SEMI {join} LIMIT 1")):
                    constants[f"{alias}.{column}"] = f"NULL::{TABLES[table].columns[column]}"
            script.append(_faster(view.statement, constants))
    return script


def _faster(statement: str, constants: Mapping[str, str]) -> str:
    end = statement.index("\nFROM ")
    columns = _COLUMN.sub(lambda column: constants.get(column[0], column[0]), statement[:end])
    used = {column.partition(".")[0] for column in _COLUMN.findall(columns)}

    def needed(join: re.Match[str]) -> bool:
        return join["alias"] in used or (join["kind"] == "ANTI " and f"{join['alias']}.id" not in constants)

    return _replacing(columns + _JOIN.sub(lambda join: join[0] if needed(join) else "", statement[end:]))


def _replacing(statement: str) -> str:
    return statement.replace("CREATE VIEW", "CREATE OR REPLACE VIEW", 1)
