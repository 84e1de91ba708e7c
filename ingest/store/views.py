"""Views of a run store: ``views.sql`` -> the statements that create them, and the meaning of each view and column."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, Final, NamedTuple

from .schema import quoted

FILE: Final = Path(__file__).with_name("views.sql")
_BLOCK: Final = re.compile(r"((?:^-- \S+: [^\n]*\n)+)(CREATE VIEW (\w+) AS\n.*?;)$", re.MULTILINE | re.DOTALL)
_JOIN: Final = re.compile(r"\n(?:LEFT |ANTI )?JOIN (?:\(SELECT id FROM )?(\w+) [^\n]*")
_NOT_MOVED: Final = re.compile(r"CASE WHEN r\.\w+ BETWEEN \d+ AND \d+ THEN (r\.\w+) ELSE \1 END AS \w+")
_MAPPED: Final = ("source", "process", "node", "shift_ns", "id_offset", "device")


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


@cache
def views_script() -> tuple[str, ...]:
    """Return the statements that create the views, each with its meaning as comment.

    The comment of a view lists its columns: a comment on each column would take longer than creating all views.
    """
    script = []
    for view in views():
        text = "\n".join([view.meaning, *(f"{column}: {meaning}" for column, meaning in view.columns.items())])
        script += [view.statement, f"COMMENT ON VIEW {view.name} IS {quoted(text)}"]
    return tuple(script)


def faster_events(rows: Callable[[str], Sequence[tuple[Any, ...]]], sources: Mapping[str, set[int]]) -> list[str]:
    """Return statements that replace the views of events by faster, equal ones.

    Joins with tables that are empty, or have one value for all rows, are left out. Then a condition on times selects blocks of rows. The
    views are valid until one of these tables changes. ``rows``: returns the rows of a query. ``sources``: rows of ``source_map`` that each
    table of events has.
    """
    mapped = {source_id: facts for source_id, *facts in rows(f"SELECT source_id, {', '.join(_MAPPED)} FROM source_map")}
    unused = {table for table in ("thread_alias", "device_alias", "name_alias") if not rows(f"SELECT 1 FROM {table} LIMIT 1")}
    left_out = {table for (table,) in rows("SELECT DISTINCT table_name FROM left_out")}
    script = []
    for view in views():
        if (used := sources.get(view.name)) and used <= mapped.keys():
            distinct = zip(_MAPPED, map(set, zip(*(mapped[source_id] for source_id in used), strict=True)), strict=True)
            constants = {column: values.pop() for column, values in distinct if len(values) == 1}
            script.append(_faster(view.statement, constants, unused if view.name in left_out else unused | {"left_out"}))
    return script


def _faster(statement: str, constants: Mapping[str, int | None], unused: set[str]) -> str:
    for column, number in constants.items():
        value = "NULL" if number is None else number
        if column in ("shift_ns", "id_offset"):
            statement = re.sub(rf" \+ m\.{column}\b", f" + {value}" if number else "", statement)
        elif column == "device":
            statement = re.sub(r"\bm\.device\b", f"{value}::INTEGER", statement)
        else:
            statement = re.sub(rf"\bm\.{column}\b", f"{value}::INTEGER AS {column}", statement)
    statement = _NOT_MOVED.sub(r"\1", statement)
    if not re.search(r"\bm\.", statement.partition("JOIN source_map AS m")[0]):
        unused = unused | {"source_map"}
    for alias, table in (("t", "thread_alias"), ("d", "device_alias"), ("n", "name_alias")):
        if table in unused:
            statement = re.sub(rf"coalesce\({alias}\.alias, (r\.\w+)\) AS \w+", r"\1", statement).replace(f"{alias}.alias, ", "")
    statement = _JOIN.sub(lambda join: "" if join[1] in unused else join[0], statement)
    return statement.replace("CREATE VIEW", "CREATE OR REPLACE VIEW", 1)
