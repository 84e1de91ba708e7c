"""Formats and columns of changes in the tables and figures of a comparison."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from pathlib import PurePath
from typing import Any, Final, TypeVar

from ...analysis.report.comparison import Basis, Comparison, KernelChange
from ...analysis.toolkit import wording
from ..blocks.tables import Cell, Col, Table, table
from ..figures.donut import Sector
from ..text.formats import UNKNOWN, duration, glued, percent, plural, signed_percent, threshold_text

T = TypeVar("T", bound=Any)

_STATES: Final = {
    "grown": ("▲ grew", "v-changed"),
    "shrunk": ("▼ shrank", "v-changed"),
    "added": ("+ added", "v-changed"),
    "vanished": ("✕ vanished", "v-changed"),
    "undecided": ("? undecided", "v-none"),
    "same": ("= same", "v-none"),
    "mended": ("✓ fixed", "v-fine"),
    "broken": ("✕ new issue", "v-issue"),
}
_MEANINGS: Final = {
    "computation": "computation", "exposed communication": "communication", "communication": "communication",
    "exposed memory operations": "memory", "memory operations": "memory", "idle": "idle", "kernel": "computation", "memcpy": "memory",
    "memset": "memory", "runtime": "host", "data_loader": "loading", "cpu_op": "operator",
}  # fmt: skip
_LONGEST_BAR: Final = 92.0  # percent of its room, so that it ends before the number
_NEGATIVE: Final = re.compile(r"(?<![\w.-])-(?=\d)")
_ORDER: Final = ("added", "grown", "shrunk", "vanished", "undecided", "same")


def state(name: str) -> Cell:
    text, mark = _STATES[name]
    return Cell(text, mark=mark, sort=_ORDER.index(name) if name in _ORDER else None)


def in_noise(row: Any) -> bool:
    """Return whether the effect is smaller than its known noise."""
    return getattr(row, "noise_ns", None) is not None and abs(row.effect_ns) < row.noise_ns


def least(comparison: Comparison) -> str:
    """Word the smallest effect on a part of the time that is a change: "3% of a step"."""
    base = {"step": "a step", "range": "a range"}.get(comparison.basis.unit, "the GPU time")
    return f"{threshold_text(comparison.threshold_percent)} of {base}"


def amount_state(row: Any, least: str = "the threshold") -> Cell:
    """Write the state of an amount; a change that is not a finding has its reason."""
    if row.state != "same" or not getattr(row, "effect_ns", 0):
        return state(row.state)
    if in_noise(row):
        return Cell(f"≈ within ±{duration(row.noise_ns)}", mark="v-none", sort=_ORDER.index("same"))
    return Cell(f"≈ below {least}", mark="v-none", sort=_ORDER.index("same"))


def kernel_state(row: KernelChange, *, large: bool) -> Cell:
    """Write the state of a kernel; a ``large`` effect without a change has its reason."""
    if row.state != "same" or not large:
        return state(row.state)
    return amount_state(row) if in_noise(row) else Cell("≈ in the spread", mark="v-none", sort=_ORDER.index("same"))


def change(value: float | None) -> Cell:
    """Write a change in percent; above twice the base as a factor, as ``ratio``."""
    text = ratio(100.0, 100.0 + value) if value is not None and value > 100 else signed_percent(value)
    return Cell(text, sort="" if value is None else value)


def meaning(part: str) -> str:
    """Return the key of the palette for a part of the time."""
    return _MEANINGS.get(part, "other")


def effect(nanoseconds: float) -> Cell:
    nanoseconds = round(nanoseconds, 3) + 0.0  # a sum of parts that cancel leaves what floats round
    return Cell(signed(nanoseconds), sort=nanoseconds)


def effect_bar(effects: Iterable[float | None]) -> Callable[[float, str], Cell]:
    """Make a format of effects with bars, whose lengths are those of ``effects``.

    The second argument of the format is the meaning of the bar.
    """
    largest = max((abs(value) for value in effects if value is not None), default=0.0)

    def write(nanoseconds: float, meaning: str) -> Cell:
        cell = effect(nanoseconds)
        return (
            replace(cell, bar=Sector("", _LONGEST_BAR * min(1.0, abs(nanoseconds) / largest), meaning)) if largest and cell.sort else cell
        )

    return write


def signed(nanoseconds: float) -> str:
    """Write a change of a duration with its sign."""
    return _minus(wording.signed_duration(nanoseconds))


def ratio(before: float, after: float) -> str:
    return _minus(wording.change(before, after))


def known(form: Callable[[Any], str]) -> Callable[[Any], Cell]:
    """Extend a format to cells; cells without a value sort last."""
    return lambda value: Cell(form(value), sort="" if value is None else value)


time: Final = known(duration)
share: Final = known(percent)


def number(value: float | None) -> Cell:
    """Write a count per unit, without decimals if it is nearly an integer."""
    if value is None:
        return Cell(UNKNOWN, sort="")
    integer = abs(value - round(value)) < 0.005 * max(abs(value), 1e-9)
    text = wording.count(round(value)) if integer else wording.significant(value)
    return Cell(_minus(text), sort=value)


def per(basis: Basis) -> str:
    """Return "per step", "per second of GPU time", or "" if neither is known."""
    if basis.unit == "step":
        return "per step"
    if basis.unit == "range":
        return f"per {basis.name}"
    if basis.unit == "work":
        return "for the same work, per second of base"
    return "per second of GPU time" if basis.base or basis.new else ""


def sources(comparison: Comparison) -> tuple[str, str] | None:
    """Return the shortest ends that differ of the paths of two runs with equal names.

    None if the names differ, or the paths are unknown or equal.
    """
    inputs = [side.given for side in (comparison.base, comparison.new) if side.given]
    if comparison.base.name != comparison.new.name or len(inputs) < 2:
        return None
    paths = [PurePath(text) for text in inputs]
    parts = [(path.parent if path.name == "report.json" else path).parts for path in paths]
    for folders in range(1, max(map(len, parts)) + 1):
        base, new = ("/".join(names[-folders:]).replace("//", "/") for names in parts)
        if base != new:
            return (base, new) if base and new else None
    return None


def with_minus_signs(sentence: str) -> str:
    """Replace the hyphen before a negative number by a minus sign."""
    return glued(_NEGATIVE.sub("−", sentence))


def _minus(text: str) -> str:
    return glued(text.replace("-", "−"))


def worst_first(rows: Iterable[T]) -> list[T]:
    """Order amounts by their effect, the largest first."""
    return sorted(rows, key=lambda row: -abs(row.effect_ns))


def amount_columns(comparison: Comparison, rows: Iterable[Any], meaning: Callable[[Any], str]) -> tuple[Col[Any], ...]:
    """Make the columns of a time in both runs. ``meaning``: of the bar of a row."""
    bar = effect_bar(row.effect_ns for row in rows)
    return (
        Col("Base", lambda row: row.base_ns, time),
        Col("New", lambda row: row.new_ns, time),
        Col("Effect", lambda row: bar(row.effect_ns, meaning(row)), kind="number"),
        Col("Change", lambda row: row.change_percent, change, when=not comparison.different_programs),
    )


def verdict(comparison: Comparison, least: str = "the threshold") -> Col[Any]:
    """Make the column of states; different programs have none."""
    return Col("Verdict", lambda row: amount_state(row, least), when=not comparison.different_programs)


def changes_table(
    id: str, caption: str, rows: Sequence[Any], *columns: Col[Any], note: str = "", most: int | None = None, **flags: Any
) -> Table | None:
    """Make a table of the ``most`` first rows with an effect; count those without one."""
    kept = [row for row in rows if row.state != "same" or round(row.effect_ns)]
    if left := len(rows) - len(kept):
        note = f"{plural(left, 'other')} unchanged. {note}".strip()
    return table(id, caption, kept[:most], *columns, note=note or None, **flags)
