"""What do the rules have in common that judge every device by a share of its span: how they compare, word, add up and name devices?"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from ...report.model import DeviceTime, RuleDetails
from ...toolkit import wording
from ...toolkit.labels import place_of
from .base import Cost, Outcome, not_evaluated, of_the_run
from .run_data import RunData

CAPTURE_DEVICES: Final = "Record the job on its GPUs with `postrun record`, or profile it with torch.profiler and activities=[CPU, CUDA]."

Process = tuple[str, int | None, int | None]


@dataclass(frozen=True, slots=True)
class DeviceShare:
    """One device as one process saw it, and how long something took of its span. ``issue``: more than the threshold (None: not judged)."""

    device: DeviceTime
    ns: int
    issue: bool | None

    @property
    def percent(self) -> float:
        return 100 * self.ns / self.device.span_ns if self.device.span_ns else 0.0

    def identity(self) -> dict[str, Any]:
        """The fields of :class:`.rule_details.ProfiledDevice`."""
        device = self.device
        return {"node": device.node, "rank": device.rank, "pid": device.pid, "device": device.device, "span_ns": device.span_ns}


def no_device_activity() -> Outcome:
    """The answer for a run without kernels, copies and memsets."""
    return not_evaluated("no device activity in this run", CAPTURE_DEVICES)


def above(part: float, whole: float, threshold: float) -> bool:
    """Whether ``part`` is more than ``threshold`` percent of ``whole``. Nothing is divided, so that what is equal stays equal."""
    return 100 * part > threshold * whole


def issues(shares: Iterable[DeviceShare]) -> list[DeviceShare]:
    """The devices with the issue, largest share first."""
    return sorted((share for share in shares if share.issue), key=lambda share: -share.percent)


def finding(shares: Sequence[DeviceShare], subject: str, threshold: float) -> str:
    """One sentence: ``subject`` ("Exposed communication costs"), how long of how much and where, against the threshold."""
    judged = [share for share in shares if share.issue is not None]
    bad = issues(judged)
    limit = f"threshold {wording.percent(threshold)}"
    top = max(judged, key=lambda share: share.percent)
    ns, span = (top.ns, top.device.span_ns) if not bad else (sum(s.ns for s in bad), sum(s.device.span_ns for s in bad))
    part = wording.percent(100 * ns / span if span else 0.0)
    text = f"{wording.duration(ns)} of {wording.duration(span)}, {part}"
    if len(judged) == 1:
        return f"{subject} {text} of the profile of {place_of(top.device)} ({limit})."
    if not bad:
        return f"{subject} at most {text} of the profile of one GPU ({place_of(top.device)}; {limit})."
    if len(bad) == 1:
        return f"{subject} {text} of the profile of {place_of(top.device)}, the only one of {len(judged)} GPUs above the {limit}."
    share = wording.percent(top.percent)
    return f"{subject} {text} of the profile of {gpus(len(bad), len(judged))}, most on {place_of(top.device)} ({share}; {limit})."


def gpus(bad: int, judged: int) -> str:
    """ "3 of 8 GPUs", "both GPUs", "all 8 GPUs" """
    if bad < judged:
        return f"{wording.count(bad)} of {wording.plural(judged, 'GPU')}"
    return "both GPUs" if judged == 2 else f"all {wording.count(judged)} GPUs"


def outcome(
    run: RunData, shares: Sequence[DeviceShare], *, details: RuleDetails, finding: str, title: str, recommendation: str,
    saving_ns: int | None,
) -> Outcome:  # fmt: skip
    """The answer of a rule that judged these devices: an issue where any has one."""
    bad = issues(shares)
    return of_the_run(
        bad,
        sum(share.issue is not None for share in shares),
        [(share.device.first_ns, share.device.first_ns + share.device.span_ns) for share in bad],
        details=details,
        finding=finding,
        recommendation=recommendation if bad else None,
        cost=_cost(run, shares, bad, title, saving_ns) if bad else None,
    )


def span_of_all(run: RunData) -> int:
    """Span of all devices; one that several processes shared counts once."""
    return sum(device.span_ns for device in run.whole_devices)


def steps_of(run: RunData) -> dict[Process, int]:
    """How many steps with device work each process (node, rank, pid) has."""
    steps: dict[Process, int] = {}
    for group in run.steps.groups:
        if group.on_device:
            process = (group.node, group.rank, group.pid)
            steps[process] = steps.get(process, 0) + group.quantiles.count
    return steps


def per_step(run: RunData, times: Iterable[tuple[int, Process]]) -> float | None:
    """Per step and device, of the times of devices whose process has steps with device work."""
    steps = steps_of(run)
    timed = [(ns, steps.get(process, 0)) for ns, process in times]
    number = sum(n for _, n in timed)
    return sum(ns for ns, n in timed if n) / number if number else None


def _cost(run: RunData, shares: Sequence[DeviceShare], bad: Sequence[DeviceShare], title: str, saving_ns: int | None) -> Cost:
    """Time of the devices with the issue, of the span of all; never more than that, also where several processes shared a device."""
    whole = span_of_all(run)
    ns = min(sum(share.ns for share in bad), whole)
    where = None
    if len(bad) == 1:
        where = place_of(bad[0].device)
    elif len(bad) < len(shares):
        where = f"{gpus(len(bad), len(shares))}, most on {place_of(bad[0].device)}"
    return Cost(
        title=title,
        ns=ns,
        of_ns=whole,
        saving_ns=None if saving_ns is None else min(saving_ns, ns),
        per_step_ns=per_step(run, [(share.ns, (share.device.node, share.device.rank, share.device.pid)) for share in bad]),
        where=where,
    )
