"""Details of rules in tests: as report.json has them, and made from a few of their keys."""

from __future__ import annotations

import dataclasses
import types
import typing
from collections.abc import Mapping
from typing import Any

from postrun.analysis.report import RuleDetails, RuleResult, plain
from postrun.analysis.report.load import rule_details
from postrun.analysis.report.rule_details import DETAILS
from postrun.analysis.rules.evidence.base import Outcome


def plain_details(result: RuleResult | Outcome) -> dict[str, Any]:
    """Return the details as in report.json, except for the digits of floats."""
    details: dict[str, Any] = plain(result.details)
    return details


def details_from(rule: str, keys: Mapping[str, Any]) -> RuleDetails:
    """Return details of a rule; a missing key is None or the zero of its type."""
    details = rule_details(rule, "trace", _filled(DETAILS[rule], keys))
    assert isinstance(details, RuleDetails), keys
    return details


def _filled(kind: Any, value: Any) -> Any:
    if dataclasses.is_dataclass(kind) and isinstance(value, Mapping):
        hints = typing.get_type_hints(kind)
        optional = {field.name for field in dataclasses.fields(kind) if field.default is not dataclasses.MISSING}
        known = {name: _filled(hint, value.get(name, _zero(hint))) for name, hint in hints.items() if name in value or name not in optional}
        return {**value, **known}
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if origin in (typing.Union, types.UnionType) and value is not None:
        return _filled(next(argument for argument in arguments if argument is not type(None)), value)
    if origin is tuple and isinstance(value, list | tuple):
        return [_filled(arguments[0], item) for item in value]
    return value


def _zero(kind: Any) -> Any:
    if type(None) in typing.get_args(kind):
        return None
    return {} if dataclasses.is_dataclass(kind) else [] if typing.get_origin(kind) is tuple else kind()
