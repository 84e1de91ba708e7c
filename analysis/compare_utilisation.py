"""How much were GPUs and processors used in the time that is compared? Means of what was sampled; no verdict follows from them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from ..ingest.store import METRICS
from .comparison import Basis, SampledMean, Sampling
from .report import Report
from .steps import main_steps

MEASURES: Final = (("gpu", "GPU utilisation"), ("gpu_memory", "GPU memory"), ("cpu", "CPU utilisation"), ("io_wait", "I/O wait"))
"""Metrics of the curves of a report, and their names."""
_IN_USE: Final = METRICS["gpu_memory_used_percent"]  # and not how busy the memory controller was
_Span = tuple[int, int]


def sampling(base: Report, new: Report, on: Basis) -> Sampling:
    """Means over the time from the begin of the first to the end of the last step, where times are divided by steps; of the GPUs' spans,
    where by their seconds; over all samples, where a run has neither. Of a metric that neither has there is no row."""
    spans = [_span(report, on) for report in (base, new)]
    over = "run" if None in spans else "steps" if on.unit == "step" else "profile"
    found = []
    for metric, name in MEASURES:
        if any(_values(report, metric, None) for report in (base, new)):
            pair = [
                _mean(_values(report, metric, span if over != "run" else None)) for report, span in zip((base, new), spans, strict=True)
            ]
            lacking = [
                _lacks(report, metric, side) for report, side, mean in zip((base, new), ("base", "new"), pair, strict=True) if mean is None
            ]
            before, after = pair
            moved = after - before if before is not None and after is not None else None
            found.append(SampledMean(name, before, after, moved, "; ".join(lacking) or None))
    return Sampling(over, tuple(found))


def sampled_mean(report: Report, metric: str) -> float | None:
    """The mean over time of a metric of :data:`MEASURES` in a whole run, in percent; every machine that was sampled counts the same. None
    where it was not sampled."""
    return _mean(_values(report, metric, None))


def _span(report: Report, on: Basis) -> _Span | None:
    parts = (
        [(step.start_ns, step.duration_ns) for step in main_steps(report.steps.steps)]
        if on.unit == "step"
        else [(device.first_ns, device.span_ns) for device in report.time_breakdown]
    )
    return (min(start for start, _ in parts), max(start + length for start, length in parts)) if parts else None


def _values(report: Report, metric: str, span: _Span | None) -> list[Sequence[float]]:
    """The points of each machine's curve in ``span``, of the machines that have some."""
    found = []
    for one in report.system_usage.series:
        if one.metric == metric and not one.derived and (metric != "gpu_memory" or one.unit == _IN_USE):
            found.append([value for time, value in zip(one.time_ns, one.mean, strict=True) if span is None or span[0] <= time <= span[1]])
    return [values for values in found if values]


def _mean(machines: Sequence[Sequence[float]]) -> float | None:
    return sum(sum(values) / len(values) for values in machines) / len(machines) if machines else None


def _lacks(report: Report, metric: str, side: str) -> str:
    """Why a run has no mean: "new has no samples"."""
    if _values(report, metric, None):
        return f"{side} has no samples in the time that is compared"
    return f"{side} has no samples"
