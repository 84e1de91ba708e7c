"""Tables of a run store: ``schema.sql`` -> types, tables, columns and their meanings, and the statements that create them."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final, NamedTuple

FILE: Final = Path(__file__).with_name("schema.sql")
RAW: Final = "raw."
"""Prefix of the tables of events. A view of the same name without it has the process, node and time of each event."""
_TYPE: Final = re.compile(r"^CREATE TYPE (\w+) AS ENUM \((.*)\);$", re.MULTILINE)
_TABLE: Final = re.compile(r"((?:^-- [^\n]*\n)+)CREATE TABLE ([\w.]+) \(\n(.*?)^\);$", re.MULTILINE | re.DOTALL)
_COLUMN: Final = re.compile(r'^    ("?)(\w+)\1 (\w+),? -- (.*)$', re.MULTILINE)
_ROW: Final = ("id", "source_id")


class Table(NamedTuple):
    """A table: its meaning, and type and meaning of each column."""

    name: str
    meaning: str
    columns: dict[str, str]
    meanings: dict[str, str]


def _tables(text: str) -> dict[str, Table]:
    tables = {}
    for comment, name, body in _TABLE.findall(text):
        meaning = " ".join(line.removeprefix("-- ") for line in comment.splitlines())
        columns = [(column, kind, words) for _, column, kind, words in _COLUMN.findall(body)]
        tables[name] = Table(name, meaning, {column: kind for column, kind, _ in columns}, {column: words for column, _, words in columns})
    return tables


_TEXT: Final = FILE.read_text(encoding="utf-8")
ENUM_VALUES: Final[dict[str, tuple[str, ...]]] = {
    name: tuple(value.strip(" '") for value in values.split(",")) for name, values in _TYPE.findall(_TEXT)
}
TABLES: Final = _tables(_TEXT)
"""All tables by their names in the database, in the order of the file."""
STORED: Final = {name: table.columns for name, table in TABLES.items()}
"""Columns of each table with their DuckDB types."""
OF_EVENTS: Final = ("source_map", "left_out", "thread_alias", "device_alias", "name_alias", "text")
"""Tables that the views of events join."""
TEXTS: Final = {"annotation": ("arguments", "arguments"), "collective": ("group_name", "group_name"), "sample": ("metric", "counter")}
"""View of events -> its column with texts, and the column of the table with their ids in table ``text``."""


def _logical(table: Table) -> dict[str, str]:
    if not table.name.startswith(RAW):
        return table.columns
    name = table.name.removeprefix(RAW)
    owner = {"node": "INTEGER"} if name == "sample" else {"node": "INTEGER", "process": "INTEGER"}
    text, stored = TEXTS.get(name, ("", ""))
    payload = {column: kind for column, kind in table.columns.items() if column not in _ROW and (column == text or column != stored)}
    return owner | payload | ({text: "VARCHAR"} if text else {})


SCHEMA: Final = {table.name.removeprefix(RAW): _logical(table) for table in TABLES.values() if table.name not in OF_EVENTS}
"""Contents of a run: table or view of events -> columns with their DuckDB types. Views of events also have ``id`` and ``source``."""
EVENTS: Final = tuple(name.removeprefix(RAW) for name in TABLES if name.startswith(RAW))
"""Views of events; rows of each go to the table of this name in the schema ``raw``."""

RECORDED_TWICE: Final = "recorded twice"  # reason in left_out: another source has the same event
BEYOND_LIMIT: Final = "beyond a limit"  # reason in left_out: see limits.py


def stored_name(table: str) -> str:
    """Return the name of the table with the rows of a table or view of events."""
    return RAW + table if table in EVENTS else table


def table_script() -> list[str]:
    """Return the SQL statements that create the types and tables of a run store."""
    script = ["CREATE SCHEMA raw"]
    script += [f"CREATE TYPE {enum} AS ENUM ({', '.join(map(repr, values))})" for enum, values in ENUM_VALUES.items()]
    for table, columns in STORED.items():
        definitions = ", ".join(f'"{column}" {kind}' for column, kind in columns.items())
        script.append(f"CREATE TABLE {table} ({definitions})")
    return script


def comment_script() -> list[str]:
    """Return the SQL statements that store the meaning of each table and column."""
    script = []
    for table in TABLES.values():
        script.append(f"COMMENT ON TABLE {table.name} IS {quoted(table.meaning)}")
        script += [f'COMMENT ON COLUMN {table.name}."{column}" IS {quoted(words)}' for column, words in table.meanings.items()]
    return script


def quoted(text: str) -> str:
    """Return a text as an SQL literal."""
    return "'" + text.replace("'", "''") + "'"
