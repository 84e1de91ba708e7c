"""The figures of runs that a night compares with the runs before: their column of the index, their limit, and what is worse."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final, Literal

from ..analysis.toolkit import wording
from ..errors import UsageError

Unit = Literal["ns", "percent", "bytes", "money"]
_FLOOR: Final = 0.01
_MOST: Final = 10_000.0


@dataclass(frozen=True, slots=True)
class Metric:
    """``key``: its name in --regression. ``label``: in texts. ``limit``: a regression exceeds it; percent of the base, or with ``points``
    percentage points. ``more_is_worse``: the direction of a regression. ``within``: columns that runs must share to be compared."""

    key: str
    column: str
    label: str
    unit: Unit
    limit: float
    more_is_worse: bool = True
    points: bool = False
    within: tuple[str, ...] = ()

    @property
    def floor(self) -> tuple[float, float]:
        """Return the least spread of the base: a share of it, and an absolute part."""
        return (0.0, 1.0) if self.points else (_FLOOR, 0.0)

    def text(self, value: float, currency: str | None = None) -> str:
        """Write a value with its unit."""
        if self.unit == "money":
            return f"{wording.significant(value)} {currency or ''}".rstrip()
        return {"ns": wording.duration, "percent": wording.percent, "bytes": wording.size}[self.unit](value)

    def difference(self, change: float) -> str:
        """Write a change, which is in percent of the base or in points: "12% more"."""
        size = f"{round(abs(change), 1):g} points" if self.points else wording.percent(abs(change))
        return f"{size} {'more' if change > 0 else 'less'}"

    def moved(self, change: float) -> str:
        """Write a change of the level of a series: "12% slower", "12% less"."""
        if self.unit != "ns":
            return self.difference(change)
        return f"{wording.percent(abs(change))} {'slower' if change > 0 else 'faster'}"

    def change(self, before: float, after: float) -> float:
        """Return a change in percent of ``before``, or in points."""
        return after - before if self.points else 100.0 * (after - before) / before


STEP: Final = Metric("step", "step_median_ns", "step time", "ns", 10.0)
METRICS: Final = (
    STEP,
    Metric("iteration", "iteration_median_ns", "iteration time", "ns", 10.0),
    Metric("gpu-busy", "gpu_busy_percent", "GPU busy", "percent", 10.0, more_is_worse=False, points=True),
    Metric("gpu-utilization", "gpu_utilization_percent", "GPU utilization", "percent", 10.0, more_is_worse=False, points=True),
    Metric("mfu", "mfu_percent", "MFU", "percent", 10.0, more_is_worse=False),
    Metric("exposed-communication", "exposed_communication_percent", "exposed communication", "percent", 10.0, points=True),
    Metric("data-loading", "data_loading_percent", "data loading", "percent", 10.0, points=True),
    Metric("gpu-memory", "gpu_memory_percent", "GPU memory, highest sample", "percent", 10.0, points=True),
    Metric("gpu-memory-peak", "gpu_memory_peak_bytes", "GPU memory, peak", "bytes", 10.0),
    Metric("cost", "cost_per_step", "cost per step", "money", 10.0, within=("price_per_gpu_hour", "currency")),
)


def with_limits(texts: Sequence[str], step_limit: float) -> tuple[Metric, ...]:
    """Return the metrics with the limits of --regression. Raise UsageError.

    ``texts``: such as "gpu-busy=5" or "mfu=off"."""
    limits: dict[str, float | None] = {STEP.key: step_limit}
    known = {metric.key: metric for metric in METRICS}
    for text in texts:
        key, equals, value = (part.strip() for part in text.partition("="))
        if key not in known or not equals:
            raise UsageError(f"{text!r} names no figure; write it like gpu-busy=5 or mfu=off; figures: {', '.join(known)}")
        try:
            limits[key] = None if value == "off" else float(value)
        except ValueError:
            limits[key] = -1.0
        if (limit := limits[key]) is not None and not 0 <= limit <= _MOST:
            unit = "percentage points" if known[key].points else "percent"
            raise UsageError(f"{text!r}: {value!r} is not a limit; write a number of {unit}, or off")
    chosen = (replace(metric, limit=limit) for metric in METRICS if (limit := limits.get(metric.key, metric.limit)) is not None)
    return tuple(chosen)
