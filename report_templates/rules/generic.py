"""Blocks of a rule that no other file knows: its values by name, and its lists as tables."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any

from ...analysis.report.model import plain
from ..blocks.tables import Cell, Col, Table, table, word
from ..text.formats import UNKNOWN, count, duration, significant
from .rule_context import Blocks, RuleContext

_LISTED = 12


def own_report(context: RuleContext) -> Blocks:
    details = plain(context.rule.details)
    if not isinstance(details, Mapping):
        return []
    lists = {key: value for key, value in details.items() if _is_table(value)}
    pairs = list(_pairs({key: value for key, value in details.items() if key not in lists}))
    return [
        table(
            f"{context.id}-values",
            "What the rule reports",
            pairs[:200],
            Col("Value", lambda pair: pair[0], kind="name", limit=60),
            Col("Reported", lambda pair: pair[1], limit=200),
            sortable=False,
        ),
        *(_table(f"{context.id}-list-{i}", str(key), value) for i, (key, value) in enumerate(list(lists.items())[:8], 1)),
    ]


def _is_table(value: object) -> bool:
    return isinstance(value, list | tuple) and len(value) > 0 and all(isinstance(row, Mapping) and row for row in value)


def _table(id: str, caption: str, rows: list[Mapping[str, Any]]) -> Table | None:
    names = list(dict.fromkeys(str(key) for row in rows for key in row))[:8]
    columns = [Col(_label(name), partial(_cell, name), kind="text" if number else "name") for number, name in enumerate(names)]
    return table(id, _label(caption), rows, *columns)


def _cell(name: str, row: Mapping[str, Any]) -> Cell:
    value = next((item for key, item in row.items() if str(key) == name), None)
    cell = word(written(name, value), limit=60)
    if isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value):
        return Cell(cell.text, sort=value)
    return cell


def _pairs(data: Mapping[Any, Any], before: str = "", depth: int = 0) -> Iterator[tuple[str, str]]:
    for key, value in data.items():
        name = f"{before}{_label(str(key))}"
        if isinstance(value, Mapping) and value and depth < 3:
            yield from _pairs(value, f"{name} · ", depth + 1)
        else:
            yield name, written(str(key), value)


def _label(key: str) -> str:
    return key.removesuffix("_ns").replace("_", " ").strip() or "value"


def written(key: str, value: object) -> str:
    """Write a value as text; a number whose key ends in _ns is a time."""
    if value is None:
        return UNKNOWN
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int | float):
        if not math.isfinite(value):
            return UNKNOWN
        if key.endswith("_ns"):
            return duration(value)
        return count(value) if isinstance(value, int) else significant(value)
    if isinstance(value, list | tuple):
        text = ", ".join(written(key, item) for item in value[:_LISTED])
        return f"{text}, … ({count(len(value))} in all)" if len(value) > _LISTED else text or "none"
    if isinstance(value, Mapping):
        return ", ".join(f"{name}: {written(str(name), item)}" for name, item in list(value.items())[:_LISTED]) or "none"
    return str(value)
