"""Conversion for rules from outside: values of parameters, outcomes and exceptions -> plain data for the report."""

from __future__ import annotations

import contextlib
import inspect
import math
import traceback
from collections import deque
from collections.abc import Mapping
from dataclasses import asdict, is_dataclass, replace
from enum import Enum
from pathlib import Path
from typing import Any, Final

from ....ingest.store.texts import storable
from ...report.rules import VERDICTS
from ..evidence.base import Cost, Outcome

LISTED: Final = 1000  # Entries of a list or dict in the details
_DEPTH: Final = 20
_TEXT: Final = 500


class MisuseError(Exception):
    """A rule file is loaded with values that its class does not accept: a mistake of the caller, not of the file."""

    def __init__(self, message: str, kind: str = "TypeError") -> None:
        super().__init__(message)
        self.kind = kind


def number(value: Any) -> Any:
    """Convert a text that is a number to this number; keep everything else."""
    if isinstance(value, str):
        for kind in (int, float):
            with contextlib.suppress(ValueError):
                return kind(value)
    return value


def sound_outcome(outcome: object) -> Outcome:
    """Return an outcome that a report can show. Raises TypeError for other objects."""
    if not isinstance(outcome, Outcome):
        raise TypeError(f"evaluate() must return a postrun.Outcome, not {type(outcome).__name__}")
    if outcome.verdict not in VERDICTS:
        raise ValueError(f"the verdict must be one of {', '.join(VERDICTS)}, not {outcome.verdict!r}")
    if outcome.cost is not None and not isinstance(outcome.cost, Cost):
        raise TypeError(f"cost must be a postrun.Cost, not {type(outcome.cost).__name__}")
    counts = ("triggered", "violations", "datapoints", "windows", "windows_triggered")
    numbers: dict[str, Any] = {key: _integer(key, getattr(outcome, key)) for key in counts}
    times: dict[str, Any] = {key: _integer(key, value) for key in ("first_ns", "last_ns") if (value := getattr(outcome, key)) is not None}
    texts: dict[str, Any] = {
        key: storable(str(value)) for key in ("reason", "finding", "recommendation", "capture") if (value := getattr(outcome, key))
    }
    if not isinstance(outcome.details, Mapping):
        raise TypeError(f"details must be a dict, not {type(outcome.details).__name__}")
    cost = outcome.cost
    if cost is not None:
        where = None if cost.where is None else storable(str(cost.where))
        saving = None if cost.saving_ns is None else _integer("saving_ns", cost.saving_ns)
        step = None if cost.per_step_ns is None or not math.isfinite(cost.per_step_ns) else float(cost.per_step_ns)
        cost = replace(
            cost, title=storable(str(cost.title)), ns=_integer("ns", cost.ns), of_ns=_integer("of_ns", cost.of_ns), saving_ns=saving,
            per_step_ns=step, where=where, base=storable(str(cost.base)),
        )  # fmt: skip
    return replace(outcome, **numbers, **times, **texts, details=plain(outcome.details), cost=cost)


def _integer(key: str, value: Any) -> int:
    try:
        return int(value)
    except (TypeError, ValueError, OverflowError):
        raise TypeError(f"{key} must be a whole number, not {value!r}") from None


def described(error: BaseException, file: str | None = None) -> str:
    """Describe an exception: "ValueError: no data (my_rule.py, line 12)"."""
    try:
        text = str(error).strip().splitlines()
    except Exception:
        text = []
    line = None
    if isinstance(error, SyntaxError):
        text = [str(error.msg)]
        line, file = error.lineno, error.filename or file
    elif file is not None:
        lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == file]
        line = lines[-1] if lines else None
    kind = error.kind if isinstance(error, MisuseError) else type(error).__name__
    message = f"{kind}: {text[0][:_TEXT]}" if text else kind
    location = f" ({Path(file).name}, line {line})" if file and line else ""
    return storable(message + location)


def plain(value: Any, depth: int = 0) -> Any:
    """Convert ``value`` to dicts, lists, texts, numbers and None for report.json.

    Long lists are cut, with a note; numbers that are not finite become None; other objects become their text."""
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, Enum):
        return plain(value.value, depth + 1)
    if isinstance(value, str):
        return storable(str(value))
    if isinstance(value, int):
        return int(value)
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else None
    if depth > _DEPTH:
        return f"<{type(value).__name__}>"
    if is_dataclass(value) and not isinstance(value, type):
        return plain(asdict(value), depth + 1)
    if isinstance(value, Mapping):
        items = list(value.items())
        converted = {storable(str(plain(key, depth + 1))): plain(item, depth + 1) for key, item in items[:LISTED]}
        return {**converted, "...": f"and {len(items) - LISTED} more"} if len(items) > LISTED else converted
    if isinstance(value, set | frozenset):
        value = sorted(value, key=str)
    if isinstance(value, list | tuple | deque):
        listed = [plain(item, depth + 1) for item in list(value)[:LISTED]]
        return [*listed, f"... and {len(value) - LISTED} more"] if len(value) > LISTED else listed
    if not isinstance(value, type):
        for method in ("tolist", "to_list", "to_dicts", "to_dict"):  # arrays, numbers, series and frames
            if callable(convert := getattr(value, method, None)):
                return plain(convert(), depth + 1)
    return storable(str(value)[:_TEXT])


def first_line(kind: type) -> str | None:
    text = inspect.cleandoc(kind.__doc__ or "").split("\n\n")[0].replace("\n", " ").strip() if kind.__doc__ else ""
    return storable(text[:_TEXT]) or None
