"""Views of a run store: ``views.sql`` -> the statements that create them, and the meaning of each view and column."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path
from typing import Final, NamedTuple

FILE: Final = Path(__file__).with_name("views.sql")
_BLOCK: Final = re.compile(r"((?:^-- \S+: [^\n]*\n)+)(CREATE VIEW (\w+) AS\n.*?;)$", re.MULTILINE | re.DOTALL)


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
        text = "\n".join([view.meaning, *(f"{column}: {meaning}" for column, meaning in view.columns.items())]).replace("'", "''")
        script += [view.statement, f"COMMENT ON VIEW {view.name} IS '{text}'"]
    return tuple(script)
