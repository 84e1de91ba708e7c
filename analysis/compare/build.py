"""Comparison of two runs: two Reports -> Comparison. docs/compare.md has the definitions."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Final, TypeVar

from ..report.comparison import Amount, Basis, Change, Comparison, Difference, KernelChange, Side, StepComparison, Verdict
from ..report.model import Report
from ..report.run import Generator
from ..steps.ranges import LOADING
from ..steps.step_time import FROM_STEP_TO_STEP
from ..toolkit import wording
from .alike import ACTIVITY, GPU, WORLD, differences, short_models
from .basis import ADDED, GROWN, SAME, SHRUNK, UNDECIDED, VANISHED, basis
from .calls import operator_calls
from .classes import comparable
from .kernels import categories, kernels, operators, precision
from .launches import idle, launches
from .memory import gpu_memory, memory_operations
from .parts import devices, host_name, host_parts, parts, total_span
from .steps import FASTER, SLOWER, compare_steps, mean_error
from .utilization import sampling
from .verdict import none, of_steps, repeated_ranges, same_work
from .verdicts import BROKEN, MENDED, verdicts

THRESHOLD_PERCENT: Final = 3.0  # default: the same job on the same node varies by about this much from run to run

_MOST: Final = 3  # parts and kernels that the headline names
_NAMED: Final = 0.25  # of the largest change, from which the headline also names the next ones
_CHANGED: Final = {GROWN: "grew", SHRUNK: "shrank", ADDED: "came up", VANISHED: "vanished"}
_VERDICTS: Final = {BROKEN: "an issue that was not there", MENDED: "no issue any more"}


def compare(
    base: Report,
    new: Report,
    *,
    generator: Generator,
    threshold_percent: float = THRESHOLD_PERCENT,
    given: tuple[str | None, str | None] = (None, None),
    read_from: tuple[str, str] = ("traces", "traces"),
) -> Comparison:
    """Compare two reports; equal reports and arguments give equal comparisons.

    A change is listed if it exceeds the spread of the values in the reports and ``threshold_percent``: of a step for steps, parts and data
    loading, of the value itself for kernels and copies. ``generator``: author and time of the comparison. ``given``, ``read_from``: see
    :class:`Side`.
    """
    base, new = comparable(base, new)
    steps, device_steps, absent = compare_steps(base, new, threshold_percent)
    on, judgment = _judged(base, new, steps, absent, threshold_percent)
    of_steps = mean_error(base, new)
    error = of_steps if on.unit == "step" else 0.0  # the spread of seconds is unknown
    span = total_span(base, new, on, threshold_percent, error)
    whole_ns = span.base_ns if span else 0.0
    least = whole_ns * threshold_percent / 100
    summed, within = parts(base, new, on, least, error, _shift(steps, on))
    compared = Comparison(
        generator=generator,
        base=_side(base, given[0], read_from[0]),
        new=_side(new, given[1], read_from[1]),
        headline="",
        verdict=judgment.state,
        threshold_percent=threshold_percent,
        differences=differences(base, new),
        changes=(),
        basis=on,
        steps=steps,
        device_steps=device_steps,
        steps_absent=absent,
        whole=span,
        parts=summed,
        within=within,
        devices=devices(base, new, on, least, error),
        host_parts=host_parts(base, new, threshold_percent, of_steps, summed),
        # GPU activity of only one run is not an addition.
        kernels=kernels(base, new, on, whole_ns, threshold_percent) if span else (),
        categories=categories(base, new, on, least) if span else (),
        precision=precision(base, new),
        memory_operations=memory_operations(base, new, on, whole_ns, threshold_percent) if span else (),
        launches=launches(base, new, on, threshold_percent),
        idle=idle(base, new, on, least, error),
        gpu_memory=gpu_memory(base, new),
        sampling=sampling(base, new, on),
        rules=verdicts(base, new),
        operators=operators(base, new, on, least) if span else (),
        judgment=judgment,
        operator_calls=operator_calls(base, new, on, whole_ns, threshold_percent) if span else (),
    )
    compared = replace(compared, changes=tuple(replace(change, rank=rank) for rank, change in enumerate(_changes(compared), 1)))
    return replace(compared, headline=_headline(base, new, compared))


def _judged(base: Report, new: Report, steps: StepComparison | None, absent: str | None, threshold_percent: float) -> tuple[Basis, Verdict]:
    """Return the unit of the comparison, and the verdict with its evidence."""
    on = basis(base, new)
    if (judgment := of_steps(steps, threshold_percent)) is not None:
        return on, judgment
    if (repeated := repeated_ranges(base, new, threshold_percent)) is None and steps is None and on.unit == "second":
        repeated = same_work(base, new, threshold_percent)
    if repeated is None:
        return on, none(steps, absent, on)
    return (repeated.basis if on.unit == "second" else on), repeated.verdict


def _shift(steps: StepComparison | None, on: Basis) -> tuple[float, float] | None:
    """Return the interval of the shift of the step times in ns, if known."""
    if on.unit != "step" or steps is None or steps.measure != FROM_STEP_TO_STEP or steps.verdict == UNDECIDED:
        return None
    if steps.shift_low_percent is None or steps.shift_high_percent is None:
        return None
    return steps.base.p50 * steps.shift_low_percent / 100, steps.base.p50 * steps.shift_high_percent / 100


def _side(report: Report, source: str | None, read_from: str) -> Side:
    summary = report.summary
    return Side(report.run.name, source, read_from, report.run.status, summary.headline, summary.subtitle, summary.warnings)


def per(on: Basis) -> str:
    """Word the unit behind a duration: "a step", "a second of GPU time"."""
    units = {"step": "a step", "range": f"for each {on.name}", "work": "for the work of a second of GPU time in base"}
    return units.get(on.unit, "a second of GPU time")


def _changes(compared: Comparison) -> Iterator[Change]:
    """Yield the changes: steps, times by effect, precision, memory, verdicts."""
    steps, memory = compared.steps, compared.gpu_memory
    if steps is not None and steps.verdict in (SLOWER, FASTER):
        yield Change(0, "step", "step time", steps.verdict, steps.change_ns, steps.text)
    times = [*_part_changes(compared), *_kernel_changes(compared), *_copy_changes(compared)]
    yield from sorted(times, key=lambda change: -abs(change.effect_ns or 0.0))
    for share in compared.precision:
        if share.state != SAME:
            shares = f"{wording.percent(share.new_percent)} of the time in matrix kernels, {wording.percent(share.base_percent)} before"
            yield Change(0, "precision", share.name, share.state, None, f"{share.name} takes {shares}.")
    if memory is not None and memory.state != SAME and memory.base is not None and memory.new is not None:
        peaks = f"from {wording.percent(memory.base)} to {wording.percent(memory.new)}"
        text = f"The highest sample of GPU memory {_CHANGED[memory.state]} {peaks}."
        yield Change(0, "gpu memory", memory.name, memory.state, None, text)
    for rule in compared.rules:
        if rule.outcome in _VERDICTS:
            text = f"{rule.rule} finds {_VERDICTS[rule.outcome]}. {rule.new_finding or ''}".strip()
            yield Change(0, "verdict", rule.rule, rule.outcome, None, text)


def _part_changes(compared: Comparison) -> Iterator[Change]:
    for part in filter(_decided, compared.parts):
        text = _of_amount(part.name.capitalize(), part, per(compared.basis))
        yield Change(0, "part", part.name, part.state, part.effect_ns, text)
    for part in filter(_decided, _host_parts(compared)):
        name = host_name(part.name)
        area = "data loading" if part.name == LOADING else "host part"
        yield Change(0, area, name, part.state, part.effect_ns, _of_amount(wording.capitalized(name), part, "a step"))


def _host_parts(compared: Comparison) -> list[Amount]:
    """Return the parts of the host that do not repeat those of the GPU time."""
    return [part for part in compared.host_parts if part.name == LOADING or not compared.parts]


def _decided(part: Amount) -> bool:
    return part.state not in (SAME, UNDECIDED)


def _of_amount(name: str, part: Amount, unit: str) -> str:
    if part.state in (ADDED, VANISHED):
        here, there = ("now", "before") if part.state == ADDED else ("before", "now")
        return f"{name}: {wording.duration(max(part.base_ns, part.new_ns))} {unit} {here}, none {there}."
    effect, before, after = (wording.duration(ns) for ns in (abs(part.effect_ns), part.base_ns, part.new_ns))
    return f"{name} {_CHANGED[part.state]} by {effect} {unit}, from {before} to {after} ({wording.change(part.base_ns, part.new_ns)})."


def _kernel_changes(compared: Comparison) -> Iterator[Change]:
    for kernel in compared.kernels:
        if kernel.state != SAME:
            yield Change(0, "kernel", kernel.short_name, kernel.state, kernel.effect_ns, _of_kernel(kernel, compared.basis))


def _of_kernel(kernel: KernelChange, on: Basis) -> str:
    name, unit = kernel.short_name, per(on)
    if kernel.state == ADDED:
        return f"{name} was added: {wording.duration(kernel.new_ns)} {unit} in {_runs(kernel.new_count)}."
    if kernel.state == VANISHED:
        return f"{name} vanished: it took {wording.duration(kernel.base_ns)} {unit} in {_runs(kernel.base_count)}."
    why = []
    if kernel.base_mean_ns is not None and kernel.new_mean_ns is not None:
        why.append(f"a run takes {wording.duration(kernel.base_mean_ns)} before, {wording.duration(kernel.new_mean_ns)} now")
    if abs(kernel.new_count - kernel.base_count) > 0.005 * kernel.base_count:
        rate = " a second of GPU time" if on.unit == "second" else ""
        why.append(f"{_runs(kernel.base_count)} before, {_runs(kernel.new_count)} now{rate}")
    effect = f"{wording.duration(abs(kernel.effect_ns))} {unit} ({wording.change(kernel.base_ns, kernel.new_ns)})"
    waits = " Its time holds the wait for other ranks." if kernel.category == "communication" else ""
    return f"{name} {_CHANGED[kernel.state]} by {effect}: {'; '.join(why)}.{waits}"


def _runs(count: float) -> str:
    rounded = round(count)
    return wording.plural(rounded, "run") if abs(count - rounded) < 0.005 * max(count, 1e-9) else f"{wording.significant(count)} runs"


def _copy_changes(compared: Comparison) -> Iterator[Change]:
    for copy in compared.memory_operations:
        if copy.state != SAME:
            name = f"{copy.kind} {copy.memory}" if copy.memory else copy.kind
            label = f"{name} {'copies' if copy.kind != 'Memset' else 'operations'}"
            amount = Amount(name, copy.base_ns, copy.new_ns, copy.effect_ns, copy.change_percent, copy.state)
            yield Change(0, "memory operation", label, copy.state, copy.effect_ns, _of_amount(label, amount, per(compared.basis)))


def _headline(base: Report, new: Report, compared: Comparison) -> str:
    names = {difference.name for difference in compared.differences}
    assert compared.judgment is not None
    text = compared.judgment.text
    if limit := _limit(base, new, compared.differences):
        text = f"{limit}: {text[:1].lower()}{text[1:]}"
    if ACTIVITY in names:
        return f"{text} What ran on GPUs is known of one run only."
    undecided = _undecided(compared)
    largest = _largest(compared, undecided=bool(undecided), same_gpu=GPU not in names)
    return " ".join(sentence for sentence in (text, undecided, largest) if sentence)


def _open(compared: Comparison) -> list[Amount]:
    """Return the parts that too few steps leave undecided, largest first."""
    amounts = [part for part in (*compared.parts, *_host_parts(compared)) if part.state == UNDECIDED]
    return sorted(amounts, key=lambda part: -abs(part.effect_ns))


def _undecided(compared: Comparison) -> str:
    """Word the undecided parts: "Too few steps to tell: idle is 64 ms a step longer."."""
    clauses: list[str] = []
    for part in _open(compared)[:2]:
        length, way = wording.duration(abs(part.effect_ns)), "longer" if part.effect_ns > 0 else "shorter"
        clauses.append(f"{host_name(part.name)} {length} {way}" if clauses else f"{host_name(part.name)} is {length} a step {way}")
    too = compared.steps is not None and compared.steps.verdict == UNDECIDED
    return f"{'Undecided, too:' if too else 'Too few steps to tell:'} {', '.join(clauses)}." if clauses else ""


def _limit(base: Report, new: Report, alike: Sequence[Difference]) -> str:
    """Word the main difference: "On different GPUs (V100 and A100)"; else empty."""
    names = {one.name: one for one in alike}
    clauses = []
    if GPU in names:
        models = [short_models(report) for report in (base, new)]
        if models[0] == models[1]:
            models = [names[GPU].base, names[GPU].new]
        clauses.append(f"different GPUs ({models[0]} and {models[1]})")
    if WORLD in names:
        clauses.append(f"{'' if clauses else 'different numbers of '}ranks ({names[WORLD].base} and {names[WORLD].new})")
    return f"On {' and '.join(clauses)}" if clauses else ""


C = TypeVar("C", Amount, KernelChange)


def _on_the_way(compared: Comparison, changes: Sequence[C]) -> Sequence[C]:
    """Return the changes in the direction of the verdict, else all."""
    sign = {SLOWER: 1, FASTER: -1}.get(compared.verdict, 0)
    return [change for change in changes if change.effect_ns * sign > 0] or changes


def _leading(changes: Sequence[C]) -> list[C]:
    """Return the largest change and those of its direction that are comparable."""
    ordered = sorted(changes, key=lambda change: -abs(change.effect_ns))
    return [change for change in ordered if change.effect_ns * ordered[0].effect_ns >= _NAMED * ordered[0].effect_ns ** 2][:_MOST]


def _gaps(compared: Comparison, longer: bool) -> list[str]:
    """Name the cause with most of the change of the gaps."""
    causes = [cause for cause in compared.idle if _decided(cause) and (cause.effect_ns > 0) == longer]
    if not causes:
        return []
    most = max(causes, key=lambda cause: abs(cause.effect_ns))
    by = f"{wording.duration(abs(most.effect_ns))} {per(compared.basis)}"
    return [f"In the gaps of the streams, {most.name} {_CHANGED[most.state]} most, by {by}."]


def _why(kernel: KernelChange) -> str:
    return {ADDED: "added", VANISHED: "vanished"}.get(kernel.state) or wording.change(kernel.base_ns, kernel.new_ns)


def _largest(compared: Comparison, *, undecided: bool, same_gpu: bool) -> str:
    on = compared.basis
    if not any(one.area != "step" for one in compared.changes):
        more = "else " if compared.steps or undecided else ""
        return f"Nothing {more}changed by more than its spread and {wording.threshold_text(compared.threshold_percent)}."
    sentences = []
    parts = [part for part in compared.parts or compared.host_parts if _decided(part)]
    if parts:
        most, *others = _leading(_on_the_way(compared, parts))
        by, unit = wording.duration(abs(most.effect_ns)), per(on) if compared.parts else "a step"
        larger = unit == "a step" and any(abs(part.effect_ns) > abs(most.effect_ns) for part in _open(compared))
        more = "".join(f", {host_name(part.name)} by {wording.duration(abs(part.effect_ns))}" for part in others)
        sentences.append(
            f"{wording.capitalized(host_name(most.name))} {_CHANGED[most.state]} {'' if larger else 'most, '}by {by} {unit}{more}."
        )
        if any(part.name == "idle" for part in (most, *others)):
            sentences += _gaps(compared, most.effect_ns > 0)
    sentences += [one.text for one in compared.changes if one.area == "data loading" and compared.parts]
    # Another GPU has kernels of other names: those in both runs are more informative.
    kernels = _leading(_on_the_way(compared, [one for one in compared.kernels if one.state != SAME and (one.matched or same_gpu)]))
    if kernels:
        unit = f" {per(on)}"
        clauses = [
            f"{kernel.short_name}, {wording.signed_duration(kernel.effect_ns)}{'' if number else unit} ({_why(kernel)})"
            for number, kernel in enumerate(kernels)
        ]
        sentences.append(f"Of the kernels most: {'; '.join(clauses)}.")
    if not sentences and undecided:
        return ""  # a changed verdict matters less than an undecided time
    return " ".join(sentences) or next(one.text for one in compared.changes if one.area != "step")
