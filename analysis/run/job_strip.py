"""Report and run store -> the strip of the job: phases, the curve of utilization, its dips with what explains them, the profile window.

A dip is compared with the median of the training loop, so that a long idle tail does not hide it. Only evidence from the time of the dip
explains it: slow steps that cover it, I/O wait that rose in it, or a finding on just this time.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from ...ingest.store.store import Store
from ..report.first_page import Dip, JobPhase, JobStrip
from ..report.machine import Series
from ..report.model import Report
from ..report.rules import ISSUES
from ..report.sample_details import LowGPUUtilizationDetails
from ..toolkit.quantiles import usual_distance
from .dip_causes import DipCauses

_WINDOW: Final = 1.5  # job / profiled time above which the profile is a window of the job
_LOW: Final = 0.5  # of the median utilization; a dip is below it
_LEAST_TYPICAL: Final = 10.0  # percent; below this median nothing is a dip
_LEAST_LENGTH: Final = 0.01  # of the job; a dip is at least this long
_LEAST_POINTS: Final = 2
_MOST_DIPS: Final = 5
_STRETCHES: Final = 200  # of the curve of several nodes that were not sampled at the same times
_GAP: Final = 3  # stretches without samples that end a dip

Curve = list[tuple[int, float]]
"""Start of a stretch and its mean, in percent."""


def longer_than_profile(report: Report) -> bool:
    """Return whether the job is known to be longer than its profile window."""
    job, gpu_time = report.job_statistics, report.gpu_time
    if job.duration_ns is None or job.captured_only:
        return False
    return gpu_time is None or job.duration_ns > _WINDOW * (gpu_time.last_ns - gpu_time.first_ns)


def job_strip(store: Store, report: Report) -> JobStrip | None:
    """Return the strip; None if nothing is known beyond the profile window."""
    job, gpu_time = report.job_statistics, report.gpu_time
    start, end = job.started_at_ns, job.ended_at_ns
    if start is None or end is None or end <= start or not longer_than_profile(report):
        return None
    metric, curve = _curve(report.system_usage.series)
    window = (gpu_time.first_ns, gpu_time.last_ns) if gpu_time is not None else (None, None)
    loop = (job.loop_started_at_ns, job.loop_ended_at_ns)
    if not curve and window[0] is None and None in loop:
        return None
    width = usual_distance([at for at, _ in curve])
    compared = (loop[0], loop[1]) if loop[0] is not None and loop[1] is not None else (start, end)
    inside = [(at, value) for at, value in curve if compared[0] <= at and at + width <= compared[1]]
    typical = statistics.median(value for _, value in inside) if inside else 0.0
    dips = list(_dips(inside, width, typical, _LEAST_LENGTH * (end - start))) if metric == "gpu" else []
    longest = sorted(sorted(dips, key=lambda dip: dip.start_ns - dip.end_ns)[:_MOST_DIPS], key=lambda dip: dip.start_ns)
    causes = DipCauses(store, report, compared, [(dip.start_ns, dip.end_ns) for dip in dips]) if longest else None
    return JobStrip(
        start_ns=start,
        end_ns=end,
        phases=tuple(_phases(report, start, end, curve, width, typical if metric == "gpu" else 0.0)),
        metric=metric,
        time_ns=tuple(at for at, _ in curve),
        utilization=tuple(value for _, value in curve),
        dips=tuple(causes.explained(dip) for dip in longest) if causes else (),
        dip_count=len(dips),
        window_start_ns=window[0],
        window_end_ns=window[1],
    )


def _curve(series: Iterable[Series]) -> tuple[str | None, Curve]:
    """Return the sampled metric, gpu or else cpu, and its mean over the nodes."""
    for metric in ("gpu", "cpu"):
        sampled = [row for row in series if row.metric == metric and not row.derived and len(row.time_ns) > 1]
        if sampled:
            return metric, _mean_curve(sampled)
    return None, []


def _mean_curve(sampled: Sequence[Series]) -> Curve:
    if all(row.time_ns == sampled[0].time_ns for row in sampled):
        return [(at, statistics.fmean(values)) for at, *values in zip(sampled[0].time_ns, *(row.mean for row in sampled), strict=True)]
    first, last = min(row.time_ns[0] for row in sampled), max(row.time_ns[-1] for row in sampled)
    count = min(_STRETCHES, *(len(row.time_ns) for row in sampled))
    width = (last - first) // count + 1
    means: dict[int, list[float]] = {}
    for row in sampled:
        values: dict[int, list[float]] = {}
        for at, value in zip(row.time_ns, row.mean, strict=True):
            values.setdefault((at - first) // width, []).append(value)
        for number, points in values.items():
            means.setdefault(number, []).append(statistics.fmean(points))
    return [(first + number * width, statistics.fmean(means[number])) for number in sorted(means)]


def _dips(curve: Curve, width: int, typical: float, least_ns: float) -> Iterator[Dip]:
    """Yield the maximal stretches below half of ``typical`` that are long enough."""
    if typical < _LEAST_TYPICAL:
        return
    run: Curve = []
    for at, value in [*curve, (curve[-1][0] + _GAP * width, typical)]:
        if run and (value >= _LOW * typical or at - run[-1][0] >= _GAP * width):
            start, end = run[0][0], run[-1][0] + width
            if len(run) >= _LEAST_POINTS and end - start >= least_ns:
                yield Dip(start, end, statistics.fmean(value for _, value in run), typical)
            run = []
        if value < _LOW * typical:
            run.append((at, value))


def _phases(report: Report, start: int, end: int, curve: Curve, width: int, typical: float) -> Iterator[JobPhase]:
    job = report.job_statistics
    first, last = job.loop_started_at_ns, job.loop_ended_at_ns
    if first is None or last is None:
        return
    issues = {rule.rule: rule for rule in report.rules if rule.verdict == ISSUES}
    for name, begin, until in (("initialization", start, first), ("training", first, last), ("finalization", last, end)):
        values = [value for at, value in curve if begin <= at and at + width <= until]
        mean = statistics.fmean(values) if values else None
        rule = "MaxInitializationTime" if name == "initialization" and "MaxInitializationTime" in issues else None
        if name == "finalization" and mean is not None and mean < _LOW * typical:
            name = "idle tail"
            details = issues["LowGPUUtilization"].details if "LowGPUUtilization" in issues else None
            if isinstance(details, LowGPUUtilizationDetails):
                tails = [row.idle_tail_ns or 0 for row in details.devices if row.triggered]
                rule = "LowGPUUtilization" if max(tails, default=0) > _LOW * (until - begin) else None
        if until > begin:
            yield JobPhase(name, begin, until, mean, rule)
