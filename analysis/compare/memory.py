"""Copies, memsets and GPU memory of two runs, compared."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Final

from ...ingest.store.metrics import METRICS
from ..report.comparison import Basis, Measure, MemoryChange
from ..report.device import MemoryOperation
from ..report.machine import MetricUsage
from ..report.model import Report
from .basis import GROWN, SAME, SHRUNK, SMALLEST_PERCENT, changed, per_unit, state

_COPIES_PERCENT: Final = 10.0  # a report has no spread of copies: those of the same size must differ by this much
_POINTS: Final = 5.0
_IN_USE: Final = METRICS["gpu_memory_used_percent"]  # not the utilization of the memory controller
_PEAK: Final = "highest sample of GPU memory"


def memory_operations(base: Report, new: Report, on: Basis, whole_ns: float, threshold_percent: float) -> tuple[MemoryChange, ...]:
    """Compare the copies by kind and memory, largest effect first."""
    sides = [{(one.kind, one.memory): _counted(one, on) for one in report.memory_operations} for report in (base, new)]
    changes = []
    for kind, memory in dict.fromkeys([*sides[0], *sides[1]]):
        pair = [side.get((kind, memory)) for side in sides]
        time = _each(pair, on, lambda one: one.total_ns)
        sizes = _each(pair, on, lambda one: one.total_bytes or 0)
        counts = _each(pair, on, lambda one: one.count)
        effect, change = time[1] - time[0], changed(*time)
        resized = changed(*sizes) or 0.0
        needed = threshold_percent if abs(resized) >= threshold_percent or change is None else _COPIES_PERCENT
        real = abs(effect) >= whole_ns * SMALLEST_PERCENT / 100 and (change is None or abs(change) >= needed)
        changes.append(
            MemoryChange(
                kind=kind,
                memory=memory,
                state=state(*time) if real else SAME,
                base_count=counts[0],
                new_count=counts[1],
                base_ns=time[0],
                new_ns=time[1],
                effect_ns=effect,
                change_percent=change,
                base_bytes=sizes[0] if pair[0] and pair[0].total_bytes is not None else None,
                new_bytes=sizes[1] if pair[1] and pair[1].total_bytes is not None else None,
                base_gb_per_s=pair[0].bandwidth_gb_per_s if pair[0] else None,
                new_gb_per_s=pair[1].bandwidth_gb_per_s if pair[1] else None,
            )
        )
    return tuple(sorted(changes, key=lambda one: (-abs(one.effect_ns), one.kind, one.memory or "")))


def _counted(operation: MemoryOperation, on: Basis) -> MemoryOperation:
    """Leave operations outside of the steps out of figures per step."""
    if on.unit != "step":
        return operation
    return replace(
        operation,
        count=operation.count - operation.outside_count,
        total_ns=operation.total_ns - operation.outside_ns,
        total_bytes=None if operation.total_bytes is None else operation.total_bytes - operation.outside_bytes,
    )


def _each(pair: Sequence[MemoryOperation | None], on: Basis, figure: Callable[[MemoryOperation], int]) -> tuple[float, float]:
    return per_unit([figure(one) if one else 0 for one in pair], on)


def gpu_memory(base: Report, new: Report) -> Measure | None:
    """Compare the highest samples of GPU memory in percent; None without any."""
    before, after = (_peak(report.system_usage.nodes) for report in (base, new))
    if before is None or after is None:
        return None if before is None and after is None else Measure(_PEAK, "percent", before, after, None, SAME)
    moved = GROWN if after > before else SHRUNK
    return Measure(_PEAK, "percent", before, after, changed(before, after), moved if abs(after - before) >= _POINTS else SAME)


def _peak(nodes: Iterable[MetricUsage]) -> float | None:
    sampled = [one for one in nodes if one.metric == "gpu_memory" and not one.derived and one.unit == _IN_USE]
    return max((one.max for one in sampled), default=None)
