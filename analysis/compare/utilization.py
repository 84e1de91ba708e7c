"""Sampled utilization of GPUs and processors of two runs, averaged over the compared time. No verdict depends on it."""

from __future__ import annotations

from itertools import pairwise
from typing import Final

from ...ingest.store.metrics import METRICS
from ..report.comparison import Basis, SampledMean, Sampling
from ..report.machine import Series
from ..report.model import Report
from ..steps.step_time import main_steps

MEASURES: Final = (("gpu", "GPU utilization"), ("gpu_memory", "GPU memory"), ("cpu", "CPU utilization"), ("io_wait", "I/O wait"))
"""Metrics of the curves of a report, and their names."""
_IN_USE: Final = METRICS["gpu_memory_used_percent"]  # not the utilization of the memory controller
_MOST_OFF: Final = 1.0  # largest possible error, in percentage points, of a mean over a part of a curve
_Span = tuple[int, int]
_Mean = tuple[float, float]  # mean and its largest possible error


def sampling(base: Report, new: Report, on: Basis) -> Sampling:
    """Average the samples over the compared time.

    That time is from the start of the first to the end of the last step, the devices' profile windows if times are divided by seconds, or
    the whole run if one run has neither. A metric without samples in both runs has no row. A curve that is too coarse for an error below
    one percentage point gives no mean.
    """
    spans = [_span(report, on) for report in (base, new)]
    over = "run" if None in spans else "steps" if on.unit == "step" else "profile"
    means = []
    for metric, name in MEASURES:
        if any(_means(report, metric, None) for report in (base, new)):
            sampled = [
                _mean_over(report, metric, span if over != "run" else None, side)
                for report, span, side in zip((base, new), spans, ("base", "new"), strict=True)
            ]
            (before, _), (after, _) = sampled
            lacking = [why for _, why in sampled if why]
            moved = after - before if before is not None and after is not None else None
            means.append(SampledMean(name, before, after, moved, "; ".join(lacking) or None))
    return Sampling(over, tuple(means))


def sampled_mean(report: Report, metric: str) -> float | None:
    """Return the mean of one of MEASURES over a run's time and nodes, in percent."""
    return _mean_over(report, metric, None, "")[0]


def _span(report: Report, on: Basis) -> _Span | None:
    parts = (
        [(step.start_ns, step.duration_ns) for step in main_steps(report.steps.steps)]
        if on.unit == "step"
        else [(device.first_ns, device.span_ns) for device in report.time_breakdown]
    )
    return (min(start for start, _ in parts), max(start + length for start, length in parts)) if parts else None


def _mean_over(report: Report, metric: str, span: _Span | None, side: str) -> tuple[float | None, str]:
    """Return the mean over the sampled nodes, or None and the reason."""
    means = _means(report, metric, span)
    if not means:
        return None, f"{side} has no samples in the time that is compared" if _means(report, metric, None) else f"{side} has no samples"
    if sum(off for _, off in means) / len(means) > _MOST_OFF:
        return None, f"the curve of {side} is too coarse for the time that is compared"
    return sum(mean for mean, _ in means) / len(means), ""


def _means(report: Report, metric: str, span: _Span | None) -> list[_Mean]:
    """Return the mean of each node's curve in ``span``, for nodes with samples."""
    samples = {(one.node, one.metric): one.samples for one in report.system_usage.nodes}
    means = []
    for curve in report.system_usage.series:
        if curve.metric == metric and not curve.derived and (metric != "gpu_memory" or curve.unit == _IN_USE) and curve.mean:
            if span is not None and samples.get((curve.node, curve.metric), 0) > len(curve.mean):
                means.append(_mean_of_part(curve, span))
            else:
                points = zip(curve.time_ns, curve.mean, strict=True)
                values = [value for time, value in points if span is None or span[0] <= time <= span[1]]
                means.append((sum(values) / len(values), 0.0) if values else None)
    return [mean for mean in means if mean is not None]


def _mean_of_part(curve: Series, span: _Span) -> _Mean | None:
    """Average the part of a curve in ``span``, and bound the error.

    The points of the curve are means of intervals of equal length; each is weighted by its overlap with ``span``. The values of an interval
    that overlaps partly are only known to be between its lowest and its highest.
    """
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
