"""Kernels of two runs, matched and compared, and the precision of their matrix work.

Kernels are matched by their full name, the rest by short name and category, because template arguments and tile sizes follow the hardware
and the shapes. A report contains count, sum, shortest and longest of each kernel, but not its variance. Values between ``low`` and ``high``
with mean m have at most the variance (high - m)(m - low) (R. Bhatia, C. Davis, "A better bound on the variance", American Mathematical
Monthly 107, 2000). So a mean that moved by more than this bound allows has really changed.
"""

from __future__ import annotations

import dataclasses
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from ..report.comparison import Amount, Basis, KernelChange, ShareChange
from ..report.device import Kernel
from ..report.model import Report
from ..report.rows import Share
from .basis import SAME, SMALLEST_PERCENT, SURE, Noise, amount, changed, decide, more_often, per_unit, state
from .parts import EXPOSED

_NUMBERED: Final = re.compile(r" #\d+$")  # a report numbers kernels that would have the same name
_POINTS: Final = 5.0
_COMMUNICATION: Final = "communication"  # category of kernels that wait for other ranks


@dataclass(frozen=True, slots=True)
class _Group:
    """Kernels of one run that are compared with those of the other run as a single kernel."""

    names: tuple[str, ...]
    precision: str
    count: int
    total_ns: int
    min_ns: int
    max_ns: int

    @property
    def mean_ns(self) -> float:
        return self.total_ns / self.count

    @property
    def squared_error(self) -> float:
        """Upper bound of the squared standard error of the mean."""
        return max(0.0, (self.max_ns - self.mean_ns) * (self.mean_ns - self.min_ns)) / self.count


def kernels(base: Report, new: Report, on: Basis, whole_ns: float, threshold_percent: float, noise: Noise) -> tuple[KernelChange, ...]:
    """Compare every kernel of both runs, largest effect first. ``noise``: of waits."""
    sides = [{kernel.name: kernel for kernel in report.kernels} for report in (base, new)]
    pairs: list[tuple[list[Kernel], list[Kernel], str | None]]
    pairs = [([sides[0][name]], [sides[1][name]], "name") for name in sides[0].keys() & sides[1].keys()]
    left: list[dict[tuple[str, str], list[Kernel]]] = [{}, {}]
    for unmatched, kernels_of_side, counterpart in zip(left, sides, reversed(sides), strict=True):
        for name, kernel in kernels_of_side.items():
            if name not in counterpart:
                unmatched.setdefault((_NUMBERED.sub("", kernel.short_name), kernel.category), []).append(kernel)
    pairs += [(left[0][key], left[1][key], "short name") for key in left[0].keys() & left[1].keys()]
    for key in left[0].keys() ^ left[1].keys():
        pairs += [([kernel], [], None) for kernel in left[0].get(key, ())] + [([], [kernel], None) for kernel in left[1].get(key, ())]
    changes = [_change((before, after), matched, on, whole_ns, threshold_percent, noise) for before, after, matched in pairs]
    return _numbered(sorted(changes, key=lambda one: (-abs(one.effect_ns), one.short_name, one.base_names, one.new_names)))


def _numbered(changes: Sequence[KernelChange]) -> tuple[KernelChange, ...]:
    """Number the kernels that share a short name, as in the reports or by effect."""
    alike: dict[str, list[KernelChange]] = {}
    for change in changes:
        alike.setdefault(_NUMBERED.sub("", change.short_name), []).append(change)
    numbered: dict[int, str] = {}
    for plain, several in alike.items():
        if len(several) == 1:
            continue
        numbered_names = [one.short_name if _NUMBERED.search(one.short_name) else f"{plain} #1" for one in several]
        if len(set(numbered_names)) < len(numbered_names):
            numbered_names = [f"{plain} #{number}" for number in range(1, len(numbered_names) + 1)]
        numbered.update((id(one), name) for one, name in zip(several, numbered_names, strict=True))
    return tuple(dataclasses.replace(one, short_name=numbered.get(id(one), one.short_name)) for one in changes)


def _change(
    pair: tuple[Sequence[Kernel], Sequence[Kernel]],
    matched: str | None,
    on: Basis,
    whole_ns: float,
    threshold_percent: float,
    noise: Noise,
) -> KernelChange:
    before, after = (_group(side) for side in pair)
    first = (pair[1] or pair[0])[0]
    per_step = on.unit == "step"
    total = per_unit([_total(kernels, per_step=per_step) for kernels in pair], on)
    counts = [_count(kernels, per_step=per_step) for kernels in pair]
    runs = per_unit(counts, on)
    change = changed(*total)
    effect = total[1] - total[0]
    longer = _longer(before, after, threshold_percent) if before and after else None
    more = more_often(counts[0], counts[1], on, threshold_percent) if before and after and on.unit != "second" else None
    moved = matched is None or (abs(change or 0.0) >= threshold_percent and (longer != SAME or more not in (SAME, None)))
    # A kernel of only one run does not appear by chance.
    noise_ns = noise.of(EXPOSED, effect) if matched is not None and first.category == _COMMUNICATION else 0.0
    return KernelChange(
        short_name=_NUMBERED.sub("", first.short_name) if matched == "short name" else first.short_name,
        category=first.category,
        state=decide(*total, whole_ns * SMALLEST_PERCENT / 100, noise_ns) if moved else SAME,
        matched=matched,
        base_names=before.names if before else (),
        new_names=after.names if after else (),
        base_precision=before.precision if before else None,
        new_precision=after.precision if after else None,
        base_count=runs[0],
        new_count=runs[1],
        base_mean_ns=before.mean_ns if before else None,
        new_mean_ns=after.mean_ns if after else None,
        base_ns=total[0],
        new_ns=total[1],
        effect_ns=effect,
        change_percent=change,
        duration_state=longer,
        count_state=more,
        noise_ns=noise_ns or None,
    )


def _total(kernels: Sequence[Kernel], *, per_step: bool) -> int:
    return sum(kernel.total_ns - (kernel.outside_ns if per_step else 0) for kernel in kernels)


def _count(kernels: Sequence[Kernel], *, per_step: bool) -> int:
    return sum(kernel.count - (kernel.outside_count if per_step else 0) for kernel in kernels)


def _group(kernels: Sequence[Kernel]) -> _Group | None:
    if not kernels:
        return None
    precisions = list(dict.fromkeys(kernel.precision for kernel in kernels))
    return _Group(
        names=tuple(kernel.name for kernel in kernels),
        precision=precisions[0] if len(precisions) == 1 else "several",
        count=sum(kernel.count for kernel in kernels),
        total_ns=sum(kernel.total_ns for kernel in kernels),
        min_ns=min(kernel.min_ns for kernel in kernels),
        max_ns=max(kernel.max_ns for kernel in kernels),
    )


def _longer(base: _Group, new: _Group, threshold_percent: float) -> str:
    """Return whether one execution takes longer or shorter, beyond its spread."""
    moved = new.mean_ns - base.mean_ns
    if abs(moved) <= SURE * (base.squared_error + new.squared_error) ** 0.5 or abs(moved) < base.mean_ns * threshold_percent / 100:
        return SAME
    return "longer" if moved > 0 else "shorter"


def operators(base: Report, new: Report, on: Basis, least_ns: float, noise: Noise) -> tuple[Amount, ...]:
    """Compare the GPU time by the operator that launched it, largest effect first.

    Only operators that both reports list: a report lists those with the longest time. The GPU time of an operator that mostly
    communicates has the ``noise`` of a wait.
    """
    sides = [{row.name: row for row in report.operators.rows} if report.operators else {} for report in (base, new)]
    waiting = communicating(base, new)
    amounts = []
    for name in sides[0].keys() & sides[1].keys():
        times, counts = zip(*((float(side[name].total_ns), side[name].calls) for side in sides), strict=True)
        of_waits = noise if name in waiting else None
        amounts.append(amount(name, times, on, least_ns=least_ns, noise=of_waits, part=EXPOSED, counts=counts))
    return tuple(sorted(amounts, key=lambda one: (-abs(one.effect_ns), one.name)))


def communicating(*reports: Report) -> set[str]:
    """Return the operators with more than half of their GPU time in communication."""
    return {name for report in reports for name in _communicating(report)}


def _communicating(report: Report) -> set[str]:
    if report.operators is None:
        return set()
    names = {_NUMBERED.sub("", kernel.short_name) for kernel in report.kernels if kernel.category == _COMMUNICATION}
    times: Counter[str] = Counter()
    for row in report.operators.kernels:
        if _NUMBERED.sub("", row.kernel) in names:
            times[row.operator] += row.total_ns
    return {row.name for row in report.operators.rows if 2 * times[row.name] > row.total_ns}


def categories(base: Report, new: Report, on: Basis, least_ns: float, noise: Noise) -> tuple[Amount, ...]:
    """Compare the summed kernel time by category, largest effect first.

    Communication contains the wait for other ranks: its effect must be at least its ``noise``, see :func:`.basis.amount`.
    """
    sides = [_by_category(report, per_step=on.unit == "step") for report in (base, new)]
    amounts = []
    for name in dict.fromkeys([*sides[0], *sides[1]]):
        pair = [side.get(name, (0.0, 0.0)) for side in sides]
        times, counts = ([figures[index] for figures in pair] for index in (0, 1))
        of_waits = noise if name == _COMMUNICATION else None
        amounts.append(amount(name, times, on, least_ns=least_ns, noise=of_waits, part=EXPOSED, counts=counts))
    return tuple(sorted(amounts, key=lambda one: (-abs(one.effect_ns), one.name)))


def _by_category(report: Report, *, per_step: bool) -> dict[str, tuple[float, float]]:
    """Return kernel time (ns) and number of runs by category.

    ``per_step``: without work that was launched outside of the steps."""
    outside: dict[str, tuple[int, int]] = {}
    for kernel in report.kernels if per_step else ():
        time, count = outside.get(kernel.category, (0, 0))
        outside[kernel.category] = time + kernel.outside_ns, count + kernel.outside_count
    figures = {}
    for share in report.categories:
        time, count = outside.get(share.name, (0, 0))
        figures[share.name] = float(max(0, share.total_ns - time)), float(max(0, share.count - count))
    return figures


def precision(base: Report, new: Report) -> tuple[ShareChange, ...]:
    """Compare the precisions of the matrix kernels; empty without such in both.

    A share has changed if its time and its runs both moved by five percentage points in the same direction. A kernel that only became
    slower moves only the time.
    """
    sides = [_matrix(report.precision.matrix) for report in (base, new)]
    if not all(sides):
        return ()
    changes = []
    for name in dict.fromkeys([*sides[0], *sides[1]]):
        (base_time, base_runs), (new_time, new_runs) = (side.get(name, (0.0, 0.0)) for side in sides)
        time, runs = new_time - base_time, new_runs - base_runs
        real = min(abs(time), abs(runs)) >= _POINTS and time * runs > 0
        changes.append(ShareChange(name, base_time, new_time, base_runs, new_runs, state(base_time, new_time) if real else SAME))
    return tuple(sorted(changes, key=lambda one: (-max(one.base_percent, one.new_percent), one.name)))


def _matrix(listed: Sequence[Share]) -> dict[str, tuple[float, float]]:
    """Return the percentages of time and runs of matrix kernels, by precision."""
    time, runs = sum(share.total_ns for share in listed), sum(share.count for share in listed)
    return {share.name: (100 * share.total_ns / time, 100 * share.count / runs) for share in listed} if time else {}
