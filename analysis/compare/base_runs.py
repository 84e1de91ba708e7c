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

from ..report.comparison import (
    Comparison,
    DevicePair,
    Difference,
    KernelChange,
    Measure,
    OperatorChange,
    ShareChange,
    StepComparison,
    Verdict,
    VerdictChange,
)
from ..report.model import Report
from ..report.rules import FINE, ISSUES
from ..steps.ranges import LOADING
from ..toolkit import wording
from .alike import RECORDING, recording
from .basis import SAME, UNDECIDED, decide
from .parts import EXPOSED, IDLE
from .steps import FASTER, SLOWER, undecided_by_base_runs, within_base_runs
from .verdict import CANNOT_SAY, COUNTS, RANGES, STEPS, judged_by_interval, pace
from .verdicts import BROKEN, MEASURES, MENDED

# Student's t for 1, 2, ... degrees of freedom, two-sided 99%. That of ten is used for more: it is at most 23% too large.
_T: Final = (63.657, 9.925, 5.841, 4.604, 4.032, 3.707, 3.499, 3.355, 3.250, 3.169)
BaseRun = tuple[Report, str | None, str]
"""A further base run, with ``given`` and ``read_from`` of its :class:`Side`."""
_Row = TypeVar("_Row", bound=Any)
_Key = Callable[[Any], object]
_Lift = Callable[[Any, Sequence[Any]], Any]


def limit(values: Sequence[float]) -> float:
    """Return the largest difference of two equal runs by chance, from two or more."""
    return _T[min(len(values) - 1, len(_T)) - 1] * 2**0.5 * statistics.stdev(values)


def distinct(base: Report, new: Report, baselines: Sequence[BaseRun]) -> tuple[list[BaseRun], list[Difference]]:
    """Return the base runs with recordings of their own, and a line for each other.

    A recording that is given twice would count as two runs that do not differ.
    """
    recordings = {recording(base), recording(new)}
    kept, repeated = [], []
    for run in baselines:
        report, source, _ = run
        files = recording(report)
        if files and files in recordings:
            count, name = wording.plural(len(files), "file"), source or report.run.name
            limits = "a recording counts once: the spread of the base runs is without this repetition"
            repeated.append(Difference(f"{RECORDING} of a base run", count, f"the same ({name})", limits))
        else:
            kept.append(run)
        recordings.add(files)
    return kept, repeated


def among_base_runs(compared: Comparison, base_runs: Sequence[Comparison], communicating: Container[str]) -> Comparison:
    """Return the comparison with the noise of several base runs.

    ``base_runs``: comparisons of the base with each further base run. Those that are divided by another unit, have other evidence for the
    verdict or execute another program have no part in the spread. ``communicating``: operators that wait for other ranks.
    """
    alike = [run for run in base_runs if _used(compared, run)]
    compared = replace(
        compared, baselines=tuple(run.new for run in alike), differences=(*_limits(compared, base_runs), *compared.differences)
    )
    if not alike or compared.different_programs:
        return compared

    def lifted(rows: Callable[[Comparison], Iterable[Any]], key: _Key, lift: _Lift) -> tuple[Any, ...]:
        """Return the rows with the spread of those of the base runs, by ``key``."""
        known = [{key(row): row for row in rows(run)} for run in alike]
        return tuple(lift(row, [side.get(key(row)) for side in known]) for row in rows(compared))

    parts = lifted(lambda run: run.parts, _name, _lifted)
    floors = {part.name: (part.noise_ns, part.effect_ns) for part in parts if part.noise_ns is not None}

    def piece(row: _Row, part: str) -> _Row:
        """Give a piece of a part at least the noise of its part."""
        floor_ns, effect_ns = floors.get(part, (0.0, 0.0))
        return _with_noise(row, floor_ns) if effect_ns * row.effect_ns > 0 else row

    def waits(rows: Iterable[_Row], names: Container[str], part: str) -> tuple[_Row, ...]:
        return tuple(piece(row, part) if row.name in names else row for row in rows)

    def device(number: int, pair: DevicePair) -> DevicePair:
        # All comparisons have the devices of the base, in one order, or none.
        spread = lifted(lambda run: run.devices[number].parts if run.devices else (), _name, _lifted)
        return replace(pair, parts=tuple(piece(part, part.name) for part in spread))

    kernels = lifted(lambda run: run.kernels, lambda row: row.base_names or row.new_names, _kernel)
    host = waits(lifted(lambda run: run.host_parts, _name, _lifted), ("communication",), EXPOSED)
    judgment = _judged(compared, alike)
    same = {part.name for part in parts if part.state == SAME}
    return replace(
        compared,
        verdict=judgment.state if judgment is not None else compared.verdict,
        judgment=judgment,
        steps=_steps(compared.steps, [run.steps for run in alike]),
        device_steps=_steps(compared.device_steps, [run.device_steps for run in alike]),
        whole=next(iter(lifted(lambda run: [run.whole] if run.whole is not None else [], _name, _lifted)), None),
        parts=parts,
        within=waits(lifted(lambda run: run.within, _name, _lifted), ("communication",), EXPOSED),
        devices=tuple(device(number, pair) for number, pair in enumerate(compared.devices)),
        host_parts=waits(host, (LOADING,), IDLE),
        kernels=tuple(piece(row, EXPOSED) if row.category == "communication" else row for row in kernels),
        categories=waits(lifted(lambda run: run.categories, _name, _listed), ("communication",), EXPOSED),
        precision=lifted(lambda run: run.precision, _name, _share),
        operators=waits(lifted(lambda run: run.operators, _name, _lifted), communicating, EXPOSED),
        operator_calls=lifted(lambda run: run.operator_calls, _of_base, _call),
        memory_operations=lifted(lambda run: run.memory_operations, lambda row: (row.kind, row.memory), _listed),
        launches=lifted(lambda run: run.launches, _name, _measure),
        idle=tuple(piece(row, IDLE) for row in lifted(lambda run: run.idle, _name, _lifted)),
        gpu_memory=_measure(compared.gpu_memory, [run.gpu_memory for run in alike]) if compared.gpu_memory is not None else None,
        rules=tuple(_rule(rule, alike, same) for rule in compared.rules),
    )


def _name(row: Any) -> str:
    return str(row.name)


# -- spread of a row ----------------------------------------------------------------------------------------------------------


def _lifted(row: _Row, others: Sequence[_Row | None]) -> _Row:
    """Return a row with at least the noise of the base runs.

    ``others``: its row in each base run. It is undecided if a base run lacks it.
    """
    times = [other.new_ns for other in others if other is not None]
    if len(times) < len(others):
        return row if row.state == SAME else replace(row, state=UNDECIDED, noise_ns=None)
    return _with_noise(row, limit([row.base_ns, *times]))


def _listed(row: _Row, others: Sequence[_Row | None]) -> _Row:
    """As _lifted(), of rows that every run lists: an absent row took no time.

    With time in the base the row is not absent but has another key.
    """
    if row.base_ns:
        return _lifted(row, others)
    return _with_noise(row, limit([0.0, *(0.0 if other is None else other.new_ns for other in others)]))


def _kernel(row: KernelChange, others: Sequence[KernelChange | None]) -> KernelChange:
    """As _listed(), with duration and number of executions."""
    row = _listed(row, others)
    means = [row.base_mean_ns, *(None if other is None else other.new_mean_ns for other in others)]
    counts = [row.base_count, *(None if other is None else other.new_count for other in others)]
    duration_state = row.duration_state and _beyond(row.duration_state, means, row.new_mean_ns, unknown=None)
    count_state = row.count_state and _beyond(row.count_state, counts, row.new_count, unknown=None)
    return replace(row, duration_state=duration_state, count_state=count_state)


def _measure(row: Measure, others: Sequence[Measure | None]) -> Measure:
    values = [row.base, *(None if other is None else other.new for other in others)]
    return replace(row, state=_beyond(row.state, values, row.new, unknown=UNDECIDED))


def _share(row: ShareChange, others: Sequence[ShareChange | None]) -> ShareChange:
    absent = None if row.base_percent else 0.0  # every run with matrix kernels lists those of the base
    shares = [row.base_percent, *(other.new_percent if other is not None else absent for other in others)]
    return replace(row, state=_beyond(row.state, shares, row.new_percent, unknown=UNDECIDED))


def _call(row: OperatorChange, others: Sequence[OperatorChange | None]) -> OperatorChange:
    """Return calls that are slower or faster only beyond the spread of the base runs."""
    pace = next((reason for reason in row.reasons if reason in (SLOWER, FASTER)), None)
    if pace is None:
        return row
    times = [row.base_ns / row.base_calls]
    times += [
        other.new_ns / other.new_calls
        for other in others
        if other is not None and other.new_calls and (other.base_dims, other.base_types) == (other.new_dims, other.new_types)
    ]
    known = times if len(times) > len(others) else [None]
    state = _beyond(pace, known, row.new_ns / row.new_calls, unknown=UNDECIDED)
    reasons = tuple(state if reason == pace else reason for reason in row.reasons if reason != pace or state != SAME)
    return replace(row, reasons=reasons, state=reasons[0] if reasons else SAME)


def _of_base(row: OperatorChange) -> object:
    return row.base_module or row.module, row.operator, row.base_dims, row.base_types


def _beyond(state: str, values: Sequence[float | None], new: float | None, *, unknown: Any) -> Any:
    """Return the state of a figure, which is same within the spread of ``values``.

    ``values``: of the base and the base runs; if one is None, the result is ``unknown``.
    """
    if state == SAME:
        return SAME
    known = [value for value in values if value is not None]
    if new is None or len(known) < len(values):
        return unknown
    return SAME if abs(new - known[0]) < limit(known) else state


def _with_noise(row: _Row, noise_ns: float) -> _Row:
    """Return a row with at least this noise; the noise decides what is undecided."""
    noise_ns = max(row.noise_ns or 0.0, noise_ns)
    # Whether the effect is large enough has been decided: less than that is the same with any noise.
    state = row.state if row.state == SAME else decide(row.base_ns, row.new_ns, 0.0, noise_ns)
    return replace(row, state=state, noise_ns=noise_ns or None)


# -- verdict ------------------------------------------------------------------------------------------------------------------


def _judged(compared: Comparison, base_runs: Sequence[Comparison]) -> Verdict | None:
    """Return the verdict: real only if beyond the spread of the base runs."""
    verdict = compared.judgment
    if verdict is None or verdict.evidence is None or verdict.percent is None or verdict.low_percent is None:
        return verdict
    assert verdict.high_percent is not None
    percent = limit([0.0, *((run.judgment.percent or 0.0) for run in base_runs if run.judgment is not None)])
    low, high = min(verdict.low_percent, verdict.percent - percent), max(verdict.high_percent, verdict.percent + percent)
    state = judged_by_interval(verdict.percent, low, high, compared.threshold_percent)
    judged = replace(verdict, state=state, low_percent=low, high_percent=high, runs_percent=percent)
    return replace(judged, text=f"{_text(compared, judged)} {differ(len(base_runs) + 1, percent)}")


def _text(compared: Comparison, verdict: Verdict) -> str:
    """Word the state of the verdict with both times and the interval."""
    assert verdict.base_ns is not None
    assert verdict.new_ns is not None
    assert verdict.percent is not None
    of_range = f"A range {compared.basis.name}" if compared.basis.name else "A range"
    subject = {STEPS: "A step", RANGES: of_range, COUNTS: "The same work"}[verdict.evidence or STEPS]
    words = "The base runs vary too much to tell" if verdict.state == CANNOT_SAY else pace(verdict.state, verdict.percent, subject)
    change, low, high = (
        wording.signed_percent(value) for value in (verdict.percent, verdict.low_percent or 0.0, verdict.high_percent or 0.0)
    )
    mean = {STEPS: "median, ", RANGES: "mean, "}.get(verdict.evidence or "", "")
    times = f"{wording.duration(verdict.base_ns)} before, {wording.duration(verdict.new_ns)} now"
    return f"{words}: {times} ({mean}{change}, {low} to {high} with the spread of the base runs)."


def _steps(steps: StepComparison | None, others: Sequence[StepComparison | None]) -> StepComparison | None:
    """Return the steps: slower or faster only beyond the spread of the base runs."""
    if steps is None or steps.verdict == UNDECIDED:
        return steps
    changes = [other.change_percent for other in others if other is not None and other.measure == steps.measure]
    if len(changes) < len(others):
        return undecided_by_base_runs(steps)
    percent = limit([0.0, *changes])
    return within_base_runs(steps) if percent and abs(steps.change_percent) <= percent else steps


def differ(runs: int, percent: float) -> str:
    """Word how much equal runs differ."""
    return f"Equal runs differ by up to {wording.percent(percent)} in 99 of 100 pairs, from {wording.count(runs)} base runs."


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
    return not run.different_programs and _same_unit(compared, run) and _evidence(compared) in (None, _evidence(run))


def _same_unit(compared: Comparison, run: Comparison) -> bool:
    return (run.basis.unit, run.basis.name) == (compared.basis.unit, compared.basis.name)


def _evidence(compared: Comparison) -> str | None:
    """Return the evidence of the verdict, for steps with the time that is measured."""
    evidence = compared.judgment.evidence if compared.judgment is not None else None
    return f"{evidence}, {compared.steps.measure}" if evidence == STEPS and compared.steps is not None else evidence


def _limits(compared: Comparison, base_runs: Sequence[Comparison]) -> Iterable[Difference]:
    """Yield the differences of the further base runs from the base."""
    for run in base_runs:
        used = _used(compared, run)
        why = "the spread of the base runs contains this difference" if used else "the spread of the base runs is without this run"
        rows = [(row.name, row.base, row.new) for row in run.differences if row.limits]
        if not run.different_programs and not _same_unit(compared, run):
            rows.insert(0, ("divisor", compared.basis.unit, run.basis.unit))
        elif not used and not run.different_programs:
            rows.insert(0, ("evidence", _evidence(compared) or "none", _evidence(run) or "none"))
        for name, base, new in rows:
            yield Difference(f"{name} of a base run", base, f"{new} ({run.new.name})", why)
