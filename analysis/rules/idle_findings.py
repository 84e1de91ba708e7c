"""How do the rules about idle devices name the devices, their kernels and what an issue costs?"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final

from ...ingest.store import Store
from ..report import FINE, ISSUES
from ..wording import count, plural
from .base import Cost, Outcome, not_evaluated
from .device_gaps import IdleDevice
from .run_data import RunData

_NAMED: Final = 3

Judged = tuple[IdleDevice, dict[str, Any]]
"""A device and its row in the details of a rule: "issue" is True, False, or None where it could not be judged."""


def no_device_activity() -> Outcome:
    """The answer for a run without kernels, copies and memsets."""
    return not_evaluated(
        "no device activity in this run",
        "Record the job on its GPUs with `postrun record`, or profile it with torch.profiler and activities=[CPU, CUDA].",
    )


def in_order(judged: Iterable[Judged]) -> list[Judged]:
    """By host name, rank, pid and device."""
    return sorted(judged, key=lambda one: one[0].order)


def with_issue(judged: Iterable[Judged]) -> list[Judged]:
    return [one for one in judged if one[1]["issue"]]


def outcome(
    run: RunData,
    judged: Sequence[Judged],
    *,
    cost_key: str,
    title: str,
    details: dict[str, Any],
    finding: str,
    recommendation: str | None,
) -> Outcome:
    """The answer of a rule that judged these devices; the rows' ``cost_key`` is what the issue costs each, and could save at most."""
    bad = with_issue(judged)
    rows = [row for _, row in judged]
    return Outcome(
        ISSUES if bad else FINE,
        triggered=len(bad),
        violations=len(bad),
        datapoints=sum(row["issue"] is not None for row in rows),
        windows=1,
        windows_triggered=1 if bad else 0,
        first_ns=min((device.first_ns for device, _ in bad), default=None),
        last_ns=max((device.last_ns for device, _ in bad), default=None),
        details={"devices": rows, **details},
        finding=finding,
        recommendation=recommendation if bad else None,
        cost=_cost(run, judged, bad, cost_key, title) if bad else None,
    )


def _cost(run: RunData, judged: Sequence[Judged], bad: Sequence[Judged], key: str, title: str) -> Cost:
    ns = sum(row[key] for _, row in bad)
    return Cost(
        title=title,
        ns=ns,
        of_ns=sum(device.span_ns for device, _ in judged),
        saving_ns=ns,
        per_step_ns=_per_step(run, bad, key),
        where=None if len(bad) == len(judged) else _labels([device for device, _ in bad]),
    )


def _per_step(run: RunData, bad: Sequence[Judged], key: str) -> float | None:
    """Per step and device, of the devices whose process has steps with device work."""
    steps: dict[tuple[str, int | None, int | None], int] = {}
    for group in run.steps.groups:
        if group.on_device:
            process = (group.node, group.rank, group.pid)
            steps[process] = steps.get(process, 0) + group.quantiles.count
    timed = [(row[key], steps.get((device.node, device.rank, device.pid), 0)) for device, row in bad]
    number = sum(n for _, n in timed)
    return sum(ns for ns, n in timed if n) / number if number else None


def _labels(devices: Sequence[IdleDevice]) -> str:
    named = "; ".join(device.label for device in devices[:_NAMED])
    more = len(devices) - _NAMED
    return f"{named} and {count(more)} more" if more > 0 else named


def gpus(bad: Sequence[Judged], judged: Sequence[Judged]) -> str:
    """ "3 of 8 GPUs", "Both GPUs", "All 8 GPUs" """
    if len(bad) < len(judged):
        return f"{count(len(bad))} of {plural(len(judged), 'GPU')}"
    return "Both GPUs" if len(judged) == 2 else f"All {count(len(judged))} GPUs"


def unjudged(judged: Sequence[Judged], why: str) -> str:
    """A clause on the devices that could not be judged; empty where all were."""
    left = [device for device, row in judged if row["issue"] is None]
    return f"; {plural(len(left), 'GPU')} could not be judged ({_labels(left)}: {why})" if left else ""


def names(store: Store, ids: Iterable[int | None], *, short: bool = True) -> dict[int | None, str]:
    """Text by name id (the short one of kernels)."""
    wanted = ", ".join(str(i) for i in sorted({i for i in ids if i is not None}))
    text = "coalesce(short, text)" if short else "text"
    return dict(store.frame(f"SELECT id, {text} FROM name WHERE id IN ({wanted})").rows()) if wanted else {}
