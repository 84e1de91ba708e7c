"""How much were GPUs and processors used in the time that is compared? Means of what was sampled; no verdict follows from them."""

from __future__ import annotations

from itertools import pairwise
from typing import Final

from ...ingest.store.tables import METRICS
from ..report.comparison import Basis, SampledMean, Sampling
from ..report.model import Report, Series
from ..steps.steps import main_steps

MEASURES: Final = (("gpu", "GPU utilisation"), ("gpu_memory", "GPU memory"), ("cpu", "CPU utilisation"), ("io_wait", "I/O wait"))
"""Metrics of the curves of a report, and their names."""
_IN_USE: Final = METRICS["gpu_memory_used_percent"]  # and not how busy the memory controller was
_MOST_OFF: Final = 1.0
"""Percentage points that a mean of a part of a curve may at most be off, by what the curve says of the points at the begin and the end."""
_Span = tuple[int, int]
_Mean = tuple[float, float]  # A mean, and by how much it may be off


def sampling(base: Report, new: Report, on: Basis) -> Sampling:
    """Means over the time from the begin of the first to the end of the last step, where times are divided by steps; of the GPUs' spans,
    where by their seconds; over all samples, where a run has neither. Of a metric that neither has there is no row; of a part of a curve
    there is no mean where the curve is too coarse to tell it within one percentage point."""
    spans = [_span(report, on) for report in (base, new)]
    over = "run" if None in spans else "steps" if on.unit == "step" else "profile"
    found = []
    for metric, name in MEASURES:
        if any(_means(report, metric, None) for report in (base, new)):
            told = [
                _told(report, metric, span if over != "run" else None, side)
                for report, span, side in zip((base, new), spans, ("base", "new"), strict=True)
            ]
            (before, _), (after, _) = told
            lacking = [why for _, why in told if why]
            moved = after - before if before is not None and after is not None else None
            found.append(SampledMean(name, before, after, moved, "; ".join(lacking) or None))
    return Sampling(over, tuple(found))


def sampled_mean(report: Report, metric: str) -> float | None:
    """The mean over time of a metric of :data:`MEASURES` in a whole run, in percent; every machine that was sampled counts the same. None
    where it was not sampled."""
    return _told(report, metric, None, "")[0]


def _span(report: Report, on: Basis) -> _Span | None:
    parts = (
        [(step.start_ns, step.duration_ns) for step in main_steps(report.steps.steps)]
        if on.unit == "step"
        else [(device.first_ns, device.span_ns) for device in report.time_breakdown]
    )
    return (min(start for start, _ in parts), max(start + length for start, length in parts)) if parts else None


def _told(report: Report, metric: str, span: _Span | None, side: str) -> tuple[float | None, str]:
    """The mean over the machines that have samples; None and why, "new has no samples", where there is none to be told."""
    found = _means(report, metric, span)
    if not found:
        return None, f"{side} has no samples in the time that is compared" if _means(report, metric, None) else f"{side} has no samples"
    if sum(off for _, off in found) / len(found) > _MOST_OFF:
        return None, f"the curve of {side} is too coarse for the time that is compared"
    return sum(mean for mean, _ in found) / len(found), ""


def _means(report: Report, metric: str, span: _Span | None) -> list[_Mean]:
    """Of each machine's curve in ``span``, of the machines that have samples there."""
    samples = {(one.node, one.metric): one.samples for one in report.system_usage.nodes}
    found = []
    for one in report.system_usage.series:
        if one.metric == metric and not one.derived and (metric != "gpu_memory" or one.unit == _IN_USE) and one.mean:
            if span is not None and samples.get((one.node, one.metric), 0) > len(one.mean):
                found.append(_mean_of_part(one, span))
            else:
                values = [value for time, value in zip(one.time_ns, one.mean, strict=True) if span is None or span[0] <= time <= span[1]]
                found.append((sum(values) / len(values), 0.0) if values else None)
    return [mean for mean in found if mean is not None]


def _mean_of_part(curve: Series, span: _Span) -> _Mean | None:
    """Where each point is the mean of a stretch of equal length: weighed by how much of it lies in ``span``. Of a stretch that lies there
    in part nothing says how its values are divided, but that all are between its lowest and its highest."""
    width = min((after - before for before, after in pairwise(curve.time_ns)), default=0)
    total = weighed = off = 0.0
    for begin, mean, low, high in zip(curve.time_ns, curve.mean, curve.low, curve.high, strict=True):
        inside = min(begin + width, span[1]) - max(begin, span[0])
        if inside <= 0:
            continue
        share = inside / width
        least, most = max(low, (mean - (1 - share) * high) / share), min(high, (mean - (1 - share) * low) / share)
        total, weighed, off = total + inside, weighed + inside * mean, off + inside * max(most - mean, mean - least, 0.0)
    return (weighed / total, off / total) if total else None
