"""Operator calls of two runs, aligned by module and operator: two lists of rows -> pairs, and how each pair differs.

Rows with the same module, operator and inputs are pairs. Modules of only one run are aligned first if they do the same work: they were
renamed. Of the rest, those of the same module and operator have other inputs, and those with the same inputs moved to another module.
Other rows are gone or new.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Final

from ..report.comparison import Basis, OperatorChange
from ..report.model import Report
from ..report.operator_calls import OperatorCall, OperatorCalls
from .basis import SAME, SMALLEST_PERCENT, changed, more_often, per_unit

GONE: Final = "gone"
NEW: Final = "new"
_SEVERAL: Final = "several"  # value of ``matched``
_PAIRED: Final = 8  # rows of one module and operator with other inputs that are paired; more come from sizes that depend on the data
_ALIKE: Final = 0.5  # share of equal sizes, from which inputs of operators without a module are the same tensors in another size
_LONGER: Final = 4.0  # most times as long, for calls without a module and with other sizes to be the same work
_INSTEAD: Final = 3
_SIZE: Final = re.compile(r"\d+")

_Pair = tuple[OperatorCall | None, OperatorCall | None, str | None]
_Rows = list[OperatorCall]


def operator_calls(base: Report, new: Report, on: Basis, whole_ns: float, threshold_percent: float) -> tuple[OperatorChange, ...]:
    """Compare the operator calls of both runs, largest effect first.

    Empty if a report has none.
    ``whole_ns``: the time of a unit; a call is slower or faster if the row's effect is a noticeable part of it.
    """
    sides = base.operator_calls, new.operator_calls
    if not (sides[0].rows and sides[1].rows):
        return ()
    pairs = _aligned(*_with_modules(*(list(side.rows) for side in sides)), on)
    compared = _Compared(on, whole_ns * SMALLEST_PERCENT / 100, threshold_percent, tuple(map(_least, sides)))
    changes = [change for pair in pairs if (change := compared.change(*pair)) is not None]
    return tuple(sorted(_instead(changes), key=lambda row: (-abs(row.effect_ns), row.operator, row.module or "", row.new_dims or "")))


def _least(calls: OperatorCalls) -> float:
    """Return the device time below which rows may be missing from the list."""
    return calls.rows[-1].device_ns if calls.further else 0.0


def _with_modules(base: _Rows, new: _Rows) -> tuple[_Rows, _Rows]:
    """Drop the modules if only one run knows any."""
    if any(row.module for row in base) == any(row.module for row in new):
        return base, new
    return _summed(base), _summed(new)


def _summed(rows: _Rows) -> _Rows:
    groups: dict[tuple[str, str, str], _Rows] = {}
    for row in rows:
        groups.setdefault((row.operator, row.dims, row.types), []).append(row)
    return [_pooled(group, module=None) for group in groups.values()]


def _pooled(rows: _Rows, *, module: str | None, dims: str | None = None) -> OperatorCall:
    first = max(rows, key=lambda row: row.device_ns)
    return replace(
        first,
        module=module,
        dims=first.dims if dims is None else dims,
        types=", ".join(dict.fromkeys(kind for row in rows for kind in row.types.split(", ") if kind)),
        kernels=tuple(dict.fromkeys(kernel for row in sorted(rows, key=lambda row: -row.device_ns) for kernel in row.kernels)),
        calls=sum(row.calls for row in rows),
        device_ns=sum(row.device_ns for row in rows),
    )


# -- alignment ----------------------------------------------------------------------------------------------------------------


def _aligned(base: _Rows, new: _Rows, on: Basis) -> list[_Pair]:
    renamed = _renamed(base, new)
    names = {id(row): renamed.get(row.module or "", row.module) for row in base}
    units = {id(row): count for rows, count in ((base, on.new), (new, on.base)) for row in rows}  # equal products: equal calls per unit
    left = base, new
    pairs: list[_Pair] = []

    def match(matched: str, key: Callable[[OperatorCall, str | None], object]) -> None:
        """Pair the rows with equal keys; of several the longest first."""
        nonlocal left
        groups: dict[object, _Rows] = {}
        for row in left[0]:
            groups.setdefault(key(row, names[id(row)]), []).append(row)
        rest = []
        for row in left[1]:
            if same := groups.get(key(row, row.module)):
                pairs.append((same.pop(0), row, matched))
            else:
                rest.append(row)
        left = [row for rows in groups.values() for row in rows], rest

    match("inputs", lambda row, module: (module, row.operator, row.dims, row.types))
    by_operator: list[dict[tuple[str | None, str], _Rows]] = [{}, {}]
    for row in left[0]:
        by_operator[0].setdefault((names[id(row)], row.operator), []).append(row)
    for row in left[1]:
        by_operator[1].setdefault((row.module, row.operator), []).append(row)
    left = (
        [row for key, rows in by_operator[0].items() if key not in by_operator[1] for row in rows],
        [row for key, rows in by_operator[1].items() if key not in by_operator[0] for row in rows],
    )
    # Without sizes, and with other calls, it can be other work.
    match("moved", lambda row, module: (row.operator, row.dims, row.types, row.calls * units[id(row)]) if row.dims else id(row))
    for key in sorted(by_operator[0].keys() & by_operator[1].keys(), key=lambda key: (key[0] or "", key[1])):
        pairs += _other_inputs(by_operator[0][key], by_operator[1][key], on, known=key[0] is not None)
    return pairs + [(row, None, None) for row in left[0]] + [(None, row, None) for row in left[1]]


def _renamed(base: _Rows, new: _Rows) -> dict[str, str]:
    """Pair the modules of one run only that do the same work: base -> new.

    The same work is the same operators with the same inputs, else the same operators. Of modules that are alike the first ones are pairs.
    """
    sides = [_by_module(rows) for rows in (base, new)]
    only = [{module: rows for module, rows in side.items() if module not in other} for side, other in zip(sides, sides[::-1], strict=True)]
    renamed: dict[str, str] = {}
    works: tuple[Callable[[OperatorCall], tuple[str, ...]], ...]
    works = (lambda row: (row.operator, row.dims, row.types)), (lambda row: (row.operator,))
    for work in works:
        alike: list[dict[tuple[tuple[str, ...], ...], list[str]]] = [{}, {}]
        for groups, modules in zip(alike, only, strict=True):
            for module in sorted(modules, key=_natural):
                groups.setdefault(tuple(sorted(map(work, modules[module]))), []).append(module)
        for key in alike[0].keys() & alike[1].keys():
            if len(alike[0][key]) == len(alike[1][key]):
                renamed.update(zip(alike[0][key], alike[1][key], strict=True))
        paired = set(renamed), set(renamed.values())
        only = [{module: rows for module, rows in side.items() if module not in names} for side, names in zip(only, paired, strict=True)]
    return renamed


def _by_module(rows: Iterable[OperatorCall]) -> dict[str, _Rows]:
    groups: dict[str, _Rows] = {}
    for row in rows:
        if row.module:
            groups.setdefault(row.module, []).append(row)
    return groups


def _natural(path: str) -> tuple[tuple[int, int | str], ...]:
    """Sort numbers in a path by value."""
    return tuple((0, int(part)) if part.isdecimal() else (1, part) for part in re.split(r"(\d{1,18})", path))


def _other_inputs(base: _Rows, new: _Rows, on: Basis, *, known: bool) -> list[_Pair]:
    """Pair the rows of one module and operator whose inputs are not in both runs.

    ``known``: the module is known; without one, the inputs or the calls must be alike.
    """
    if max(len(base), len(new)) > _PAIRED:
        shapes = [_pooled(rows, module=rows[0].module, dims=f"{len(rows)} shapes") if rows[1:] else rows[0] for rows in (base, new)]
        return [(shapes[0], shapes[1], _SEVERAL)]
    single = known and len(base) == len(new) == 1
    scored = sorted(((_alike(a, b, on), -i, -j) for i, a in enumerate(base) for j, b in enumerate(new)), reverse=True)
    pairs: list[_Pair] = []
    taken: tuple[set[int], set[int]] = set(), set()
    for alike, i, j in scored:
        if -i not in taken[0] and -j not in taken[1] and (alike >= _ALIKE or single):
            taken[0].add(-i)
            taken[1].add(-j)
            pairs.append((base[-i], new[-j], "operator"))
    pairs += [(row, None, None) for i, row in enumerate(base) if i not in taken[0]]
    return pairs + [(None, row, None) for j, row in enumerate(new) if j not in taken[1]]


def _alike(base: OperatorCall, new: OperatorCall, on: Basis) -> float:
    """Return the share of equal sizes; 0 for other numbers of sizes.

    It is at least ``_ALIKE`` for as many calls of similar time."""
    sizes = [_SIZE.findall(row.dims) for row in (base, new)]
    if len(sizes[0]) != len(sizes[1]) or not sizes[0]:
        return 0.0
    equal = (Counter(sizes[0]) & Counter(sizes[1])).total() / len(sizes[0])
    calls, times = (per_unit(pair, on) for pair in ((base.calls, new.calls), (base.device_ns, new.device_ns)))
    if calls[0] == calls[1] and base.types == new.types and max(times) <= _LONGER * min(times):
        return max(equal, _ALIKE)
    return equal


# -- how a pair differs -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Compared:
    """``least_ns``: per unit, from which a call is slower or faster; ``missing_ns``: device time below which each list has gaps."""

    on: Basis
    least_ns: float
    threshold_percent: float
    missing_ns: tuple[float, ...]

    def change(self, base: OperatorCall | None, new: OperatorCall | None, matched: str | None) -> OperatorChange | None:
        """Return how a pair differs; None for a row that the other list may have left out."""
        times = per_unit([row.device_ns if row else 0.0 for row in (base, new)], self.on)
        calls = per_unit([row.calls if row else 0.0 for row in (base, new)], self.on)
        units = self.on.base, self.on.new
        if (new is None and times[0] * units[1] <= self.missing_ns[1]) or (base is None and times[1] * units[0] <= self.missing_ns[0]):
            return None
        reasons = self._reasons(base, new, times[1] - times[0], matched) if base and new else (GONE if base else NEW,)
        row = new or base
        assert row is not None
        return OperatorChange(
            operator=row.operator,
            module=row.module,
            base_module=base.module if base and base.module != row.module else None,
            state=reasons[0] if reasons else SAME,
            reasons=reasons,
            matched=matched,
            base_dims=base.dims if base else None,
            new_dims=new.dims if new else None,
            base_types=base.types if base else None,
            new_types=new.types if new else None,
            base_kernels=base.kernels if base else (),
            new_kernels=new.kernels if new else (),
            base_precision=base.precision if base else None,
            new_precision=new.precision if new else None,
            base_calls=calls[0],
            new_calls=calls[1],
            base_ns=times[0],
            new_ns=times[1],
            effect_ns=times[1] - times[0],
            change_percent=changed(*times),
        )

    def _reasons(self, base: OperatorCall, new: OperatorCall, effect_ns: float, matched: str | None) -> tuple[str, ...]:
        other_shape = base.dims != new.dims
        reasons = ["other shape"] if other_shape else []
        if base.types != new.types:
            reasons.append("other type")
        more = more_often(base.calls, new.calls, self.on, self.threshold_percent) if self.on.unit != "second" else SAME
        if more != SAME and base.calls and new.calls:
            reasons.insert(0 if matched == _SEVERAL else len(reasons), f"{more} calls")
        if _other_kernel(base.kernels, new.kernels):
            reasons.append("other kernel")
        if base.module != new.module:
            reasons.append("other module")
        if not other_shape and base.calls and new.calls and abs(effect_ns) >= self.least_ns:
            change = changed(base.device_ns / base.calls, new.device_ns / new.calls)
            if change is not None and abs(change) >= self.threshold_percent:
                reasons.append("slower" if change > 0 else "faster")
        return tuple(reasons)


def _other_kernel(base: Sequence[str], new: Sequence[str]) -> bool:
    """Return whether the main kernel of each run does not run in the other."""
    return bool(base and new) and base[0] not in new and new[0] not in base


def _instead(changes: Sequence[OperatorChange]) -> list[OperatorChange]:
    """Name the operators that are new in the module of a gone one, longest first."""
    added: dict[str, list[OperatorChange]] = {}
    for change in sorted(changes, key=lambda row: (-row.new_ns, row.operator)):
        if change.state == NEW and change.module:
            added.setdefault(change.module, []).append(change)
    return [
        replace(change, instead=tuple(dict.fromkeys(row.operator for row in added.get(change.module or "", ())))[:_INSTEAD])
        if change.state == GONE
        else change
        for change in changes
    ]
