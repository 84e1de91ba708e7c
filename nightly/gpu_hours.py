"""GPU-hours of a job: a report -> columns of its row, in GPU-ns that add up exactly.

The parts are those of the goodput (docs/definitions.md). Nothing is estimated: without the limits of the job or without samples, the
columns are None.
"""

from __future__ import annotations

import re
import statistics
from collections.abc import Sequence
from itertools import pairwise
from typing import Any, Final

from ..analysis.report.model import Report
from ..analysis.run.goodput import EVALUATION_PHASE, HOUR_NS

LONGEST: Final = 2**63 - 1  # GPU-ns that a column of the index can have: 16,384 GPUs for 6 days
_LONGEST_INTERVAL: Final = 2.0  # x the median distance of samples; a longer time after a sample was not sampled


def column(part: str) -> str:
    """Return the name of the column of a part of the goodput."""
    return f"allocated_{part}_ns"


def columns(report: Report) -> dict[str, Any]:
    """Return the columns of a row about GPU-hours, activity and cost."""
    job = report.job_statistics
    start, end = job.started_at_ns, job.ended_at_ns
    gpus = sum(device.used for device in report.devices)
    if start is None or end is None or end <= start or job.captured_only or not gpus or gpus * (end - start) > LONGEST:
        return {}
    allocated = gpus * (end - start)
    return {"allocated_ns": allocated, **_parts(report, allocated), **_activity(report, start, end, allocated), **_cost(report, allocated)}


def _parts(report: Report, allocated: int) -> dict[str, int]:
    """Return the known parts of the allocated time, which add up to it."""
    times = {} if report.goodput is None else {part.name: part.time_ns for part in report.goodput.parts if part.time_ns is not None}
    if not sum(times.values()):
        return {}
    return {column(name): time for name, time in zip(times, apportioned(allocated, list(times.values())), strict=True)}


def apportioned(total: int, weights: Sequence[int]) -> list[int]:
    """Divide ``total`` in proportion to ``weights``, by the largest remainder.

    The results add up to ``total``. Of equal remainders, the first counts. Without weights, all are 0."""
    weight_sum = sum(weights)
    if not weight_sum:
        return [0] * len(weights)
    shares = [divmod(total * weight, weight_sum) for weight in weights]
    left = total - sum(share for share, _ in shares)
    first = sorted(range(len(shares)), key=lambda number: -shares[number][1])[:left]
    return [share + (number in first) for number, (share, _) in enumerate(shares)]


def _activity(report: Report, start: int, end: int, allocated: int) -> dict[str, int]:
    """Return the time with samples of the utilization, and that without activity.

    An interval from a sample to the next, or of many samples in a long job, has no activity if all of its samples are 0%."""
    sampled = inactive = 0
    for heat in report.system_usage.heat:
        if heat.metric == "gpu" and not heat.derived:
            lengths = _lengths(heat.time_ns, start, end)
            for values in heat.values:
                sampled += sum(length for length, value in zip(lengths, values, strict=True) if value is not None)
                inactive += sum(length for length, value in zip(lengths, values, strict=True) if value is not None and value <= 0)
    # Samples of more GPUs than the job used do not show which were allocated.
    return {"sampled_ns": sampled, "inactive_ns": inactive} if 0 < sampled <= allocated else {}


def _lengths(times: Sequence[int], start: int, end: int) -> list[int]:
    """Return the length of the interval after each time, within the job."""
    if len(times) < 2:
        return [0] * len(times)
    distances = [after - before for before, after in pairwise(times)]
    usual = int(statistics.median_low(distances))
    ends = [at + min(length, round(_LONGEST_INTERVAL * usual)) for at, length in zip(times, [*distances, usual], strict=True)]
    return [max(0, min(until, end) - max(at, start)) for at, until in zip(times, ends, strict=True)]


def _cost(report: Report, allocated: int) -> dict[str, Any]:
    """Return price and cost. The cost per step requires that all steps are known."""
    price = report.options.get("price_per_gpu_hour")
    if not price:
        return {}
    amount, currency = price
    cost = allocated / HOUR_NS * amount
    known = report.goodput is not None and report.goodput.percent is not None and not report.steps.left_out
    steps = _training_steps(report) if known else 0
    return {"price_per_gpu_hour": amount, "currency": currency, "cost": cost, "cost_per_step": cost / steps if steps else None}


def _training_steps(report: Report) -> int:
    """Count the training steps of the goodput, each once for all ranks and restarts."""
    steps = [step for step in report.steps.steps if step.phase is not None] or report.steps.steps
    return len({(step.again, step.index) for step in steps if not re.search(EVALUATION_PHASE, step.phase or "")})
