"""Conversion of the content of a report.json back to a Report."""

from __future__ import annotations

import dataclasses
import math
import types
import typing
from collections.abc import Mapping
from functools import cache
from typing import Any, Final

from .details import RuleDetails
from .model import SCHEMA_VERSION, Report
from .rule_details import DETAILS
from .rules import RuleResult

_ADDED_TO_COLLECTIVES: Final = ("group", "group_description", "skew_ns", "last_rank", "last_count")


def is_report(data: object) -> bool:
    """Return whether ``data`` is the content of a postrun report.json of any version."""
    return (
        isinstance(data, Mapping)
        and isinstance(data.get("generator"), Mapping)
        and data["generator"].get("name") == "postrun"
        and {"schema_version", "run", "kernels"} <= data.keys()
    )


def report_of(data: Mapping[str, Any]) -> Report:
    """Return the report that ``Report.to_dict`` wrote.

    Fields of later versions are left out. Raises ValueError with the location of a field that is missing or has another type, and for
    another version of the schema."""
    version = data.get("schema_version")
    if version != SCHEMA_VERSION:
        raise ValueError(
            f"its schema_version is {version!r}, this version of postrun reads {SCHEMA_VERSION}: make the report again from the traces"
        )
    report = _value(_with_collective_rows(data), Report, "report")
    assert isinstance(report, Report)
    return report


def _with_collective_rows(data: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the content with ``collectives`` as a list.

    Earlier versions wrote one object with rows and totals.
    """
    former = data.get("collectives")
    if former is None:
        return {key: value for key, value in data.items() if key != "collectives"}
    if not isinstance(former, Mapping):
        return data
    rows = [
        {
            **dict.fromkeys(_ADDED_TO_COLLECTIVES),
            **row,
            "transfer_ns": row.get("shortest_ns"),
            "waiting_ns": row.get("wait_ns"),
            "at_least": row.get("ranks") == 1,
        }
        for row in former.get("rows") or ()
        if isinstance(row, Mapping)
    ]
    return {**data, "collectives": rows, "collective_totals": {key: value for key, value in former.items() if key != "rows"}}


def rule_details(rule: str, category: str, data: dict[str, Any]) -> RuleDetails | dict[str, Any]:
    """Return the details of a built-in rule, or ``data`` itself."""
    kind = DETAILS.get(rule) if category != "custom" else None
    try:
        return _object(data, kind, "details") if kind else data
    except ValueError:
        return data


@cache
def _fields(kind: type) -> tuple[tuple[str, Any, bool], ...]:
    """Return name and type of each field, and whether it is required."""
    hints = typing.get_type_hints(kind)
    return tuple(
        (f.name, hints[f.name], f.default is dataclasses.MISSING and f.default_factory is dataclasses.MISSING)
        for f in dataclasses.fields(kind)
    )


def _value(value: Any, kind: Any, location: str) -> Any:
    if kind is Any:
        return value
    if dataclasses.is_dataclass(kind):
        return _object(value, typing.cast(type, kind), location)
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if origin in (typing.Union, types.UnionType):
        if value is None and type(None) in arguments:
            return None
        others = [one for one in arguments if one is not type(None)]
        if len(others) == 1:
            return _value(value, others[0], location)
        if isinstance(value, bool) or not any(isinstance(value, one) for one in others):
            raise _wrong(value, location)
        return value
    if origin is tuple:
        if not isinstance(value, list | tuple):
            raise _wrong(value, location)
        if len(arguments) == 2 and arguments[1] is Ellipsis:
            return tuple(_value(one, arguments[0], f"{location}[{i}]") for i, one in enumerate(value))
        if len(value) != len(arguments):
            raise _wrong(value, location)
        return tuple(_value(one, of, f"{location}[{i}]") for i, (one, of) in enumerate(zip(value, arguments, strict=True)))
    if origin is list:
        if not isinstance(value, list):
            raise _wrong(value, location)
        return [_value(one, arguments[0], f"{location}[{i}]") for i, one in enumerate(value)]
    if origin is typing.Literal:
        if value not in arguments:
            raise _wrong(value, location)
        return value
    if origin is dict:
        if not isinstance(value, Mapping):
            raise _wrong(value, location)
        return {str(key): _value(one, arguments[1], f"{location}.{key}") for key, one in value.items()}
    if kind is float and isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value):
        return float(value)
    if kind in (int, str, bool) and isinstance(value, kind) and (kind is bool or not isinstance(value, bool)):
        return value
    raise _wrong(value, location)


def _object(value: Any, kind: type, location: str) -> Any:
    if not isinstance(value, Mapping):
        raise _wrong(value, location)
    values: dict[str, Any] = {}
    for name, of, needed in _fields(kind):
        if name in value and kind is RuleResult and name == "details":
            mapping = _value(value[name], dict[str, Any], f"{location}.{name}")
            values[name] = rule_details(values["rule"], values["category"], mapping)
        elif name in value:
            values[name] = _value(value[name], of, f"{location}.{name}")
        elif needed:
            raise ValueError(f"{location}.{name} is missing")
    return kind(**values)


def _wrong(value: Any, location: str) -> ValueError:
    text = repr(value)
    return ValueError(f"{location} is {text if len(text) <= 40 else text[:37] + '...'}, which it cannot be")
