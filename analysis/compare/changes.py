"""List of the changes of a comparison, ranked: steps, times by effect, precision, memory, verdicts of rules; and their words."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from ..report.comparison import (
    Amount,
    Basis,
    Change,
    Comparison,
    KernelChange,
    Measure,
    MemoryChange,
    OperatorChange,
    ShareChange,
)
from ..steps.ranges import LOADING
from ..toolkit import wording
from .basis import ADDED, GROWN, SAME, SHRUNK, UNDECIDED, VANISHED
from .parts import host_name
from .steps import FASTER, SLOWER
from .verdicts import BROKEN, MENDED

CHANGED: Final = {GROWN: "grew", SHRUNK: "shrank", ADDED: "came up", VANISHED: "vanished"}
_VERDICTS: Final = {BROKEN: "finds an issue that was not there", MENDED: "finds no issue any more"}
_ALIKE: Final = 0.5  # of the larger effect, from which two changes have one cause
_UNSURE: Final = {
    BROKEN: "is above its threshold now, but its time did not change beyond noise and threshold",
    MENDED: "is below its threshold now, but its time did not change beyond noise and threshold",
}


def per(on: Basis) -> str:
    """Word the unit behind a duration: "a step", "a second of GPU time"."""
    units = {"step": "a step", "range": f"for each {on.name}", "work": "for the work of a second of GPU time in base"}
    return units.get(on.unit, "a second of GPU time")


def changes(compared: Comparison) -> Iterator[Change]:
    """Yield the changes: steps, times by effect, precision, memory, verdicts."""
    steps, memory = compared.steps, compared.gpu_memory
    if steps is not None and steps.verdict in (SLOWER, FASTER):
        yield Change(0, "step", "step time", steps.verdict, steps.change_ns, steps.text)
    times = [*_part_changes(compared), *_kernel_changes(compared), *_copy_changes(compared)]
    yield from sorted(times, key=lambda change: -abs(change.effect_ns or 0.0))
    for share in compared.precision:
        if decided(share):
            shares = f"{wording.percent(share.new_percent)} of the time in matrix kernels, {wording.percent(share.base_percent)} before"
            yield Change(0, "precision", share.name, share.state, None, f"{share.name} takes {shares}.")
    if memory is not None and decided(memory) and memory.base is not None and memory.new is not None:
        peaks = f"from {wording.percent(memory.base)} to {wording.percent(memory.new)}"
        text = f"The highest sample of GPU memory {CHANGED[memory.state]} {peaks}."
        yield Change(0, "gpu memory", memory.name, memory.state, None, text)
    for rule in compared.rules:
        if rule.outcome in _VERDICTS:
            words = (_UNSURE if rule.measure_same else _VERDICTS)[rule.outcome]
            text = f"{rule.rule} {words}. {rule.new_finding or ''}".strip()
            yield Change(0, "verdict", rule.rule, rule.outcome, None, text)


def _part_changes(compared: Comparison) -> Iterator[Change]:
    causes = _causes(compared)
    for part in filter(decided, compared.parts):
        name, effect_ns = causes.get(part.name, ("", 0.0))
        contents = f", including {name}" if _alike(part.effect_ns, effect_ns) else ""
        text = _of_amount(part.name.capitalize(), part, per(compared.basis), contents)
        yield Change(0, "part", part.name, part.state, part.effect_ns, text)
    for part in filter(decided, host_parts_alone(compared)):
        name = host_name(part.name)
        area = "data loading" if part.name == LOADING else "host part"
        yield Change(0, area, name, part.state, part.effect_ns, _of_amount(wording.capitalized(name), part, "a step"))


def _causes(compared: Comparison) -> dict[str, tuple[str, float]]:
    """Return changes that parts can contain: part -> name and effect in ns."""
    causes = {}
    loading = next((part for part in compared.host_parts if part.name == LOADING and decided(part)), None)
    if loading is not None:
        causes["idle"] = "the wait for data", loading.effect_ns
    copies = list(filter(decided, compared.memory_operations))
    if copies:
        most = max(copies, key=lambda copy: abs(copy.effect_ns))
        causes["exposed memory operations"] = copy_label(most), most.effect_ns
    return causes


def _alike(first_ns: float, second_ns: float) -> bool:
    """Test for one direction and a ratio of at least ``_ALIKE``."""
    return first_ns * second_ns > 0 and _ALIKE * max(abs(first_ns), abs(second_ns)) <= min(abs(first_ns), abs(second_ns))


def host_parts_alone(compared: Comparison) -> list[Amount]:
    """Return the parts of the host that do not repeat those of the GPU time."""
    return [part for part in compared.host_parts if part.name == LOADING or not compared.parts]


def decided(row: Amount | KernelChange | MemoryChange | Measure | ShareChange | OperatorChange) -> bool:
    return row.state not in (SAME, UNDECIDED)


def scarce(compared: Comparison) -> str:
    """Word the observations that are too few to decide on an undecided time."""
    return "steps or base runs" if compared.baselines else "steps"


def _of_amount(name: str, part: Amount, unit: str, contents: str = "") -> str:
    if part.state in (ADDED, VANISHED):
        here, there = ("now", "before") if part.state == ADDED else ("before", "now")
        return f"{name}: {wording.duration(max(part.base_ns, part.new_ns))} {unit} {here}, none {there}."
    effect, before, after = (wording.duration(ns) for ns in (abs(part.effect_ns), part.base_ns, part.new_ns))
    change = wording.change(part.base_ns, part.new_ns)
    return f"{name} {CHANGED[part.state]} by {effect} {unit}, from {before} to {after} ({change}){contents}."


def _kernel_changes(compared: Comparison) -> Iterator[Change]:
    for kernel in compared.kernels:
        if decided(kernel):
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
    waits = " Its time contains the wait for other ranks." if kernel.category == "communication" else ""
    return f"{name} {CHANGED[kernel.state]} by {effect}: {'; '.join(why)}.{waits}"


def _runs(count: float) -> str:
    rounded = round(count)
    return wording.plural(rounded, "run") if abs(count - rounded) < 0.005 * max(count, 1e-9) else f"{wording.significant(count)} runs"


def _copy_changes(compared: Comparison) -> Iterator[Change]:
    for copy in compared.memory_operations:
        if decided(copy):
            label = copy_label(copy)
            amount = Amount(label, copy.base_ns, copy.new_ns, copy.effect_ns, copy.change_percent, copy.state)
            yield Change(0, "memory operation", label, copy.state, copy.effect_ns, _of_amount(label, amount, per(compared.basis)))


def copy_label(copy: MemoryChange) -> str:
    """Name the copies or memsets of a row: "HtoD pinned copies"."""
    name = f"{copy.kind} {copy.memory}" if copy.memory else copy.kind
    return f"{name} {'copies' if copy.kind != 'Memset' else 'operations'}"
