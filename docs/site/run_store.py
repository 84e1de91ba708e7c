"""Writes the tables and views of docs/run-store.md: ``schema.sql`` and ``views.sql`` -> the part between two comments.

python -P docs/site/run_store.py
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

from postrun.ingest.store.schema import ENUM_VALUES, EVENTS, SCHEMA, TABLES
from postrun.ingest.store.views import views

PAGE: Final = Path(__file__).resolve().parents[1] / "run-store.md"
BEGIN: Final = "<!-- written by docs/site/run_store.py -->\n"
END: Final = "<!-- end -->\n"


def page(text: str) -> str:
    """Return the page with its tables and views as the product defines them."""
    before, _, rest = text.partition(BEGIN)
    return before + BEGIN + "\n".join(_lines()) + "\n" + END + rest.partition(END)[2]


def _lines() -> Iterator[str]:
    yield from ("", "### Views", "")
    for view in views():
        types = SCHEMA[view.name] | {"id": "BIGINT", "source": "INTEGER"} if view.name in EVENTS else None
        yield from _columns(view.name, view.meaning, view.columns, types)
    yield from ("### Tables", "")
    for table in TABLES.values():
        yield from _columns(table.name, table.meaning, table.meanings, table.columns)


def _columns(name: str, meaning: str, columns: Mapping[str, str], types: Mapping[str, str] | None) -> Iterator[str]:
    yield from (f"#### {name}", "", f"{meaning[:1].upper()}{meaning[1:].rstrip('.')}.", "")
    yield from ("| column | type | meaning |", "|---|---|---|") if types else ("| column | meaning |", "|---|---|")
    for column, words in columns.items():
        kind = "" if types is None else f" {types[column] if types[column] not in ENUM_VALUES else 'ENUM'} |"
        yield f"| `{column}` |{kind} {_text(words)} |"
    yield ""


def _text(words: str) -> str:
    return words.replace("|", "\\|").replace("<", "&lt;")


if __name__ == "__main__":
    PAGE.write_text(page(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
