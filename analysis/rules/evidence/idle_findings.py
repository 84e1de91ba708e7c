"""The common part of the rules about idle devices: names of devices and kernels, the result, and its cost."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Final, TypeVar

from ....ingest.store.store import Store
from ...device.device_gaps import GapGroup, IdleDevice
from ...report.details import RuleDetails
from ...report.trace_details import HostBoundDevice, ShortKernelsDevice, SyncBoundDevice
from ...toolkit.wording import count, plural
from .base import Cost, Outcome, concluded
from .device_share import per_step
from .run_data import RunData

_NAMED: Final = 3

P = TypeVar("P")
R = TypeVar("R", HostBoundDevice, ShortKernelsDevice, SyncBoundDevice)
Judged = tuple[IdleDevice, R]  # A device and its row in the details of a rule, with an ``issue`` of None if it could not be evaluated


def in_order(judged: Iterable[Judged[R]]) -> list[Judged[R]]:
    """Sort by host name, rank, pid and device."""
    return sorted(judged, key=lambda one: one[0].order)


def looked_at(run: RunData, look: Callable[[GapGroup], tuple[list[Judged[R]], P]]) -> tuple[list[Judged[R]], list[P]]:
    """Return the devices of all groups in order, and what else ``look`` returns."""
    results = [look(group) for group in run.gaps.groups()]
    return in_order(device for devices, _ in results for device in devices), [part for _, part in results]


def with_issue(judged: Iterable[Judged[R]]) -> list[Judged[R]]:
    return [one for one in judged if one[1].issue]


def outcome(
    run: RunData,
    judged: Sequence[Judged[R]],
    *,
    cost_key: str,
    title: str,
    details: RuleDetails,
    finding: str,
    recommendation: str | None,
    saves: bool = True,
) -> Outcome:
    """Return the result of a rule; ``cost_key`` is the column of cost and saving.

    ``saves``: whether the advice saves time; recording more saves none."""
    bad = with_issue(judged)
    times = [(getattr(row, cost_key), (device.node, device.rank, device.pid)) for device, row in bad]
    ns = sum(time for time, _ in times)
    of_ns = sum(device.span_ns for device, _ in judged)
    where = None if len(bad) == len(judged) else _labels([device for device, _ in bad])
    return concluded(
        bad,
        sum(row.issue is not None for _, row in judged),
        [(device.first_ns, device.last_ns) for device, _ in bad],
        details=details,
        finding=finding,
        recommendation=recommendation if bad else None,
        cost=Cost(title, ns, of_ns, ns if saves else None, per_step(run, times), where) if bad else None,
    )


def _labels(devices: Sequence[IdleDevice]) -> str:
    named = "; ".join(device.label for device in devices[:_NAMED])
    more = len(devices) - _NAMED
    return f"{named} and {count(more)} more" if more > 0 else named


def unjudged(judged: Sequence[Judged[R]], why: str) -> str:
    """Return a clause on the devices that could not be evaluated; empty without any."""
    left = [device for device, row in judged if row.issue is None]
    return f"; {plural(len(left), 'GPU')} could not be evaluated ({_labels(left)}: {why})" if left else ""


def names(store: Store, ids: Iterable[int | None]) -> dict[int | None, str]:
    """Return the text of name ids (the short text of kernels)."""
    wanted = ", ".join(str(i) for i in sorted({i for i in ids if i is not None}))
    return dict(store.frame(f"SELECT id, coalesce(short, text) FROM name WHERE id IN ({wanted})").rows()) if wanted else {}
