"""The common part of the rules that evaluate a share of each device's span: comparison, wording, sums and names."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

import polars as pl

from ...causes.program import INFERENCE
from ...report.details import RuleDetails
from ...report.device import DeviceTime
from ...toolkit import wording
from ...toolkit.labels import place_of
from .base import Cost, Outcome, concluded, not_evaluated
from .run_data import RunData

CAPTURE_DEVICES: Final = "Record the job on its GPUs with `postrun record`, or profile it with torch.profiler and activities=[CPU, CUDA]."

BASE: Final = "GPU time in the profile window"  # the span of all devices

Process = tuple[str, int | None, int | None]


@dataclass(frozen=True, slots=True)
class DeviceShare:
    """One device as one process saw it, and the time of something in its span. ``issue``: above the threshold (None: not evaluated)."""

    device: DeviceTime
    ns: int
    issue: bool | None

    @property
    def percent(self) -> float:
        return self.device.of_span(self.ns)


def no_device_activity() -> Outcome:
    """Return the result for a run without kernels, copies and memsets."""
    return not_evaluated("no device activity in this run", CAPTURE_DEVICES)


def above(part: float, total: float, threshold: float) -> bool:
    """Return whether a part exceeds ``threshold`` percent, exactly (no division)."""
    return 100 * part > threshold * total


def issues(shares: Iterable[DeviceShare]) -> list[DeviceShare]:
    """Return the devices with the issue, largest share first."""
    return sorted((share for share in shares if share.issue), key=lambda share: -share.percent)


def finding(run: RunData, shares: Sequence[DeviceShare], subject: str, threshold: float) -> str:
    """Write the finding: ``subject``, time, share and devices, with the threshold.

    With several devices, time and share are those of all of them, as in the cost of the finding.
    """
    judged = [share for share in shares if share.issue is not None]
    bad = issues(judged)
    limit = f"threshold {wording.threshold_text(threshold)}"
    top = max(judged, key=lambda share: share.percent)
    text = f"{wording.duration(top.ns)} of {wording.duration(top.device.span_ns)}, {wording.percent(top.percent)}"
    if len(judged) == 1:
        return f"{subject} {text} of the profile window of {place_of(top.device)} ({limit})."
    if not bad:
        return f"{subject} at most {text} of the profile window of one GPU ({place_of(top.device)}; {limit})."
    ns, span = _sum(run, shares)
    where = f"{place_of(top.device)} ({wording.percent(top.percent)})"
    over = f"of {len(judged)} GPUs, only {where} is" if len(bad) == 1 else f"{gpus(len(bad), len(judged))} are"
    most = "" if len(bad) == 1 else f", the highest on {where}"
    text = f"{wording.duration(ns)}, {wording.percent(100 * ns / span if span else 0.0)} of the {BASE}"
    return f"{subject} {text}; {over} above the threshold of {wording.threshold_text(threshold)}{most}."


def _sum(run: RunData, shares: Sequence[DeviceShare]) -> tuple[int, int]:
    """Return the time of all evaluated devices, and the span of all devices."""
    span = span_of_all(run)
    return min(sum(share.ns for share in shares if share.issue is not None), span), span


def gpus(bad: int, judged: int) -> str:
    """ "3 of 8 GPUs", "both GPUs", "all 8 GPUs" """
    if bad < judged:
        return f"{wording.count(bad)} of {wording.plural(judged, 'GPU')}"
    return "both GPUs" if judged == 2 else f"all {wording.count(judged)} GPUs"


def outcome(
    run: RunData,
    shares: Sequence[DeviceShare],
    *,
    details: RuleDetails,
    finding: str,
    title: str,
    recommendation: str,
    saving_ns: int | None,
    part: str | None = None,
) -> Outcome:
    """Return the result of a rule over these devices: an issue if any has one.

    The cost is the time of all devices. ``saving_ns``: None if the advice saves nothing by itself. ``part``: see :func:`per_step`.
    """
    bad = issues(shares)
    ns, total_ns = _sum(run, shares)
    where = None
    if len(bad) == 1:
        where = place_of(bad[0].device)
    elif bad and len(bad) < len(shares):
        where = f"{gpus(len(bad), len(shares))}, most on {place_of(bad[0].device)}"
    times = [(share.ns, (share.device.node, share.device.rank, share.device.pid)) for share in shares if share.issue is not None]
    saving = None if saving_ns is None else min(saving_ns, ns)
    return concluded(
        bad,
        sum(share.issue is not None for share in shares),
        [(share.device.first_ns, share.device.first_ns + share.device.span_ns) for share in bad],
        details=details,
        finding=finding,
        recommendation=recommendation if bad else None,
        cost=Cost(title, ns, total_ns, saving, per_step(run, times, part), where) if bad else None,
    )


def span_of_all(run: RunData) -> int:
    """Return the span of all devices; a device that processes shared counts once."""
    return sum(device.span_ns for device in run.whole_devices)


def steps_of(run: RunData) -> Counter[Process]:
    """Count the steps with device work of each process (node, rank, pid).

    An inference has iterations instead: its count is empty."""
    steps: Counter[Process] = Counter()
    if run.program.kind == INFERENCE:
        return steps
    for group in run.steps.groups:
        if group.on_device:
            steps[group.node, group.rank, group.pid] += group.quantiles.count
    return steps


def with_work_outside(run: RunData) -> set[Process]:
    """Return the processes with device work that was launched outside of their steps."""
    return {(work.node, work.rank, work.pid) for work in run.steps.outside}


def per_step(run: RunData, times: Iterable[tuple[int, Process]], part: str | None = None) -> float | None:
    """Average times over the steps with device work of all processes of the run.

    So the times of all findings have one base, a step of one process, whatever number of processes a finding is about. ``times``: time in
    the span of a device, and its process. ``part``: the column of :func:`...steps.times.step_times` that measures the same time in the
    steps alone; then the result is its sum in the steps of these processes. Without one it is None if a process has device work that was
    launched outside of its steps: how much of the time belongs to them is not known.
    """
    listed = list(times)
    if part is not None:
        return _mean_of(run, {process for _, process in listed}, part)
    unknown = with_work_outside(run)
    steps = steps_of(run)
    timed = [(ns, process) for ns, process in listed if steps[process]]
    if not timed or any(process in unknown for _, process in timed):
        return None
    return sum(ns for ns, _ in timed) / sum(steps.values())


def _mean_of(run: RunData, processes: set[Process], part: str) -> float | None:
    rows = run.step_times  # with first steps: the wait before them has no kernels
    known = [number for number in rows["process"].unique().to_list() if run.places.process(number) in processes]
    measured = rows.filter(pl.col("process").is_in(known))[part].drop_nulls()
    return float(measured.sum() / len(rows)) if len(measured) and run.program.kind != INFERENCE else None
