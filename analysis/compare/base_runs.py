"""Several base runs: the spread between equal runs, as a lower bound of the noise of each time.

Base runs of one job differ by other nodes, clocks and neighbors, which no spread within a run shows. A difference of two runs is real if
chance causes it in fewer than 1 of 100 pairs of equal runs: the repeatability limit (ISO 5725-6), with Student's t for few runs,

    limit = t(99%, k - 1) · √2 · s,     s the standard deviation of the values of k base runs.

The values contain the noise within each run. But s of few runs can be small by chance, so the larger of both is the noise.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Container, Iterable, Sequence
from dataclasses import replace
from typing import Any, Final, TypeVar

from ..report.comparison import Comparison, Difference, KernelChange, Measure, VerdictChange
from ..report.rules import FINE, ISSUES
from ..steps.ranges import LOADING
from ..toolkit import wording
from .basis import SAME, decide
from .parts import EXPOSED, IDLE
from .steps import FASTER, SLOWER, within_base_runs
from .verdict import judged_by_interval
from .verdicts import BROKEN, MEASURES, MENDED

# Student's t for 1, 2, ... degrees of freedom, two-sided 99%. That of ten is used for more: it is at most 23% too large.
_T: Final = (63.657, 9.925, 5.841, 4.604, 4.032, 3.707, 3.499, 3.355, 3.250, 3.169)
_Row = TypeVar("_Row", bound=Any)
_Key = Callable[[Any], object]


def limit(values: Sequence[float]) -> float:
    """Return the largest difference of two equal runs by chance, from two or more."""
    return _T[min(len(values) - 1, len(_T)) - 1] * 2**0.5 * statistics.stdev(values)


def among_base_runs(compared: Comparison, base_runs: Sequence[Comparison], communicating: Container[str]) -> Comparison:
    """Return the comparison with the noise of several base runs.

    ``base_runs``: comparisons of the base with each further base run. Those that are divided by another unit or execute another program
    have no part in the spread. ``communicating``: operators that wait for other ranks.
    """
    alike = [run for run in base_runs if _used(compared, run)]
    compared = replace(
        compared, baselines=tuple(run.new for run in base_runs), differences=(*_limits(compared, base_runs), *compared.differences)
    )
    if not alike or compared.different_programs:
        return compared

    def lifted(rows: Callable[[Comparison], Iterable[_Row]], key: _Key) -> tuple[_Row, ...]:
        known = [{key(row): row for row in rows(run)} for run in alike]
        return tuple(_lifted(row, [side[key(row)].new_ns for side in known if key(row) in side], len(alike)) for row in rows(compared))

    parts = lifted(lambda run: run.parts, _name)
    floors = {part.name: (part.noise_ns, part.effect_ns) for part in parts if part.noise_ns is not None}

    def piece(row: _Row, part: str) -> _Row:
        """Give a piece of a wait at least the noise of its part."""
        floor_ns, effect_ns = floors.get(part, (0.0, 0.0))
        return _with_noise(row, floor_ns) if effect_ns * row.effect_ns > 0 else row

    def waits(rows: Iterable[_Row], names: Container[str], part: str) -> tuple[_Row, ...]:
        return tuple(piece(row, part) if row.name in names else row for row in rows)

    kernels = tuple(piece(row, EXPOSED) if row.category == "communication" else row for row in lifted(lambda run: run.kernels, _kernel))
    host = waits(lifted(lambda run: run.host_parts, _name), ("communication",), EXPOSED)
    judgment, steps = _judged(compared, alike)
    same = {part.name for part in parts if part.state == SAME}
    return replace(
        compared,
        verdict=judgment.state if judgment is not None else compared.verdict,
        judgment=judgment,
        steps=steps,
        whole=next(iter(lifted(lambda run: [run.whole] if run.whole is not None else [], _name)), None),
        parts=parts,
        within=waits(lifted(lambda run: run.within, _name), ("communication",), EXPOSED),
        devices=tuple(replace(device, parts=waits(waits(device.parts, (EXPOSED,), EXPOSED), (IDLE,), IDLE)) for device in compared.devices),
        host_parts=waits(host, (LOADING,), IDLE),
        kernels=kernels,
        categories=waits(lifted(lambda run: run.categories, _name), ("communication",), EXPOSED),
        operators=waits(lifted(lambda run: run.operators, _name), communicating, EXPOSED),
        memory_operations=lifted(lambda run: run.memory_operations, lambda row: (row.kind, row.memory)),
        idle=tuple(piece(row, IDLE) for row in lifted(lambda run: run.idle, _name)),
        gpu_memory=_peak(compared.gpu_memory, [run.gpu_memory for run in alike]),
        rules=tuple(_rule(rule, alike, same) for rule in compared.rules),
    )


def _name(row: Any) -> str:
    return str(row.name)


def _kernel(row: KernelChange) -> tuple[str, ...]:
    return row.base_names or row.new_names


def _lifted(row: _Row, others: Sequence[float], runs: int) -> _Row:
    """Return a row with at least the noise of the base runs, if all have its time."""
    return _with_noise(row, limit([row.base_ns, *others])) if len(others) == runs else row


def _with_noise(row: _Row, noise_ns: float) -> _Row:
    """Return a row with at least this noise; the noise decides what is undecided."""
    noise_ns = max(row.noise_ns or 0.0, noise_ns)
    # Whether the effect is large enough has been decided: less than that is the same with any noise.
    state = row.state if row.state == SAME else decide(row.base_ns, row.new_ns, 0.0, noise_ns)
    return replace(row, state=state, noise_ns=noise_ns or None)


def _judged(compared: Comparison, base_runs: Sequence[Comparison]) -> tuple[Any, Any]:
    """Return verdict and steps: real only if beyond the spread of the base runs."""
    verdict, steps = compared.judgment, compared.steps
    changes = [run.judgment.percent for run in base_runs if run.judgment is not None and run.judgment.evidence is not None]
    if verdict is None or verdict.evidence is None or verdict.percent is None or verdict.low_percent is None:
        return verdict, steps
    assert verdict.high_percent is not None
    if len(changes) < len(base_runs) or any(run.judgment.evidence != verdict.evidence for run in base_runs if run.judgment is not None):
        return verdict, steps
    percent = limit([0.0, *(change for change in changes if change is not None)])
    low, high = min(verdict.low_percent, verdict.percent - percent), max(verdict.high_percent, verdict.percent + percent)
    state = judged_by_interval(verdict.percent, low, high, compared.threshold_percent)
    text = f"{verdict.text} {differ(len(base_runs) + 1, percent)}"
    judgment = replace(verdict, state=state, low_percent=low, high_percent=high, text=text, runs_percent=percent)
    if steps is not None and steps.verdict in (SLOWER, FASTER) and steps.verdict != state:
        steps = within_base_runs(steps)
    return judgment, steps


def differ(runs: int, percent: float) -> str:
    """Word how much equal runs differ."""
    return f"Equal runs differ by up to {wording.percent(percent)} in 99 of 100 pairs, from {wording.count(runs)} base runs."


def _peak(peak: Measure | None, base_runs: Sequence[Measure | None]) -> Measure | None:
    known = [run.new for run in base_runs if run is not None and run.new is not None]
    if peak is None or peak.base is None or peak.new is None or len(known) < len(base_runs):
        return peak
    return replace(peak, state=SAME) if abs(peak.new - peak.base) < limit([peak.base, *known]) else peak


def _rule(rule: VerdictChange, base_runs: Sequence[Comparison], same: Container[str]) -> VerdictChange:
    """Compare no rule whose new verdict another base run already has.

    ``same``: the parts of the GPU time that did not change.
    """
    already = {BROKEN: ISSUES, MENDED: FINE}.get(rule.outcome)
    verdicts = {known.new for run in base_runs for known in run.rules if known.rule == rule.rule}
    if already is None:
        return rule
    return replace(rule, outcome="other") if already in verdicts else replace(rule, measure_same=MEASURES.get(rule.rule) in same)


def _used(compared: Comparison, run: Comparison) -> bool:
    """Return whether the times of a further base run are of the same work."""
    return (run.basis.unit, run.basis.name) == (compared.basis.unit, compared.basis.name) and not run.different_programs


def _limits(compared: Comparison, base_runs: Sequence[Comparison]) -> Iterable[Difference]:
    """Yield the differences of the further base runs from the base."""
    for run in base_runs:
        used = _used(compared, run)
        why = "the spread of the base runs contains this difference" if used else "the spread of the base runs is without this run"
        rows = [(row.name, row.base, row.new) for row in run.differences if row.limits]
        if not used and not run.different_programs:
            rows.insert(0, ("divisor", compared.basis.unit, run.basis.unit))
        for name, base, new in rows:
            yield Difference(f"{name} of a base run", base, f"{new} ({run.new.name})", why)
