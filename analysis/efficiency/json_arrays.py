"""JSON arrays of inputs of operators, read so that a report can contain them."""

from __future__ import annotations

import json
from math import isfinite
from typing import Any, Final, NoReturn

MOST_TEXT: Final = 1 << 18  # characters of one column; more than any program of the tests writes for a list of all its parameters
_MOST_DEPTH: Final = 16  # of arrays within arrays; a list of tensors has three


def json_array(text: str | None) -> list[Any] | None:
    """Return the array of a text.

    None for another value, a text that is too long or too deep, and for numbers that JSON does not have: NaN and infinite ones."""
    if not isinstance(text, str) or len(text) > MOST_TEXT:
        return None
    try:
        value = json.loads(text, parse_constant=_refuse, parse_float=_finite)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, list) and _depth(value) < _MOST_DEPTH else None


def _depth(value: list[Any]) -> int:
    """Return the depth of arrays and objects, at most ``_MOST_DEPTH``."""
    level: list[Any] = [value]
    for depth in range(_MOST_DEPTH):
        level = [item for part in level for item in (part.values() if isinstance(part, dict) else part) if isinstance(item, list | dict)]
        if not level:
            return depth
    return _MOST_DEPTH


def _refuse(text: str) -> NoReturn:
    raise ValueError(f"{text} is not a number of JSON")


def _finite(text: str) -> float:
    value = float(text)
    return value if isfinite(value) else _refuse(text)
