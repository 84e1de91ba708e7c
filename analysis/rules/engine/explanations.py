"""Causes among findings: for each finding that another one explains, the finding that is its cause.

Two kinds of evidence count. A rule can name the rules that it explains (``Rule.explains``), because it looked for the cause of their
finding. A general finding on idle devices is explained by a specific one if the specific one covers most of the idle time of the same
devices: the names of the rules alone prove nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final

from ...report.cause_details import HostPausesDetails, StragglerRankDetails
from ...report.communication_details import SlowCollectivesDetails
from ...report.loop_details import DataloaderDetails
from ...report.rule_details import UnfusedAttentionDetails, UnfusedElementwiseDetails
from ...report.rules import ISSUES
from ...report.sample_details import BatchSizeDetails, BottleneckDetails, LoadBalancingDetails, LowGPUUtilizationDetails
from ...report.trace_details import ExposedCopiesDetails, HostBoundDetails, PageableCopiesDetails, ShortKernelsDetails, SyncBoundDetails
from ..checks.low_gpu_utilization import IDLE_ENDS, IDLE_HEAD, IDLE_TAIL, UNUSED
from ..evidence.base import Outcome, Rule
from ..evidence.host_time import UNRECORDED

MOST: Final = 0.5  # of the idle time of a general finding, from which a specific one explains it
PART: Final = 0.25  # of the cost of a finding, from which a rule that names it is its cause

Devices = Mapping[tuple[str, int | None], float]
"""Share of the time of each device (host name, index), 0 to 1."""


def causes(rules: Sequence[Rule], outcomes: Sequence[Outcome]) -> dict[int, int]:
    """Map the position of each explained finding to that of its cause.

    A cause can be explained in turn; there are no circles."""
    issues = [number for number, outcome in enumerate(outcomes) if outcome.verdict == ISSUES]
    explained: dict[int, int] = {}
    for later in issues:
        weights = {first: _weight(rules, outcomes, first, later) for first in issues if first != later}
        first = max(weights, key=lambda number: weights[number], default=later)
        if weights.get(first, 0.0) > 0 and not _leads_to(explained, first, later):
            explained[later] = first
    return explained


def _leads_to(explained: Mapping[int, int], first: int, later: int) -> bool:
    """Return whether the chain of causes of ``first`` contains ``later``."""
    while first in explained:
        first = explained[first]
        if first == later:
            return True
    return False


def _weight(rules: Sequence[Rule], outcomes: Sequence[Outcome], first: int, later: int) -> float:
    """Return how much of a finding another explains, 0 for too little of it.

    A cause that its rule names comes before one that only covers the time. If the covered time can be measured, it decides."""
    name = rules[later].name
    covers = _COVERS.get((rules[first].name, name))
    if covers is None:
        return _named(outcomes[first], outcomes[later]) if name in rules[first].explains else 0.0
    try:
        share = covers(outcomes[first], outcomes[later])
    except (AssertionError, AttributeError, TypeError):  # details of a rule from outside that has the name of a built-in one
        return 0.0
    return share if share >= MOST else 0.0


def _named(first: Outcome, later: Outcome) -> float:
    """Return above 1 if the cause is worth a part of the finding, else 0."""
    if first.cost is None or later.cost is None or not first.cost.of_ns or not later.cost.of_ns:
        return 1.5
    worth = first.cost.ns if first.cost.saving_ns is None else first.cost.saving_ns
    ratio = (worth / first.cost.of_ns) / (later.cost.ns / later.cost.of_ns) if later.cost.ns else 1.0
    return 1 + min(ratio, 1.0) if ratio >= PART else 0.0


def _covered(specific: Devices, general: Devices) -> float:
    """Return the share of the general finding's idle time that the other covers."""
    total = sum(general.values())
    return sum(min(share, specific.get(device, 0.0)) for device, share in general.items()) / total if total else 0.0


# -- idle shares of devices ------------------------------------------------------------------------------------------------


def _idle(outcome: Outcome) -> Devices:
    """Return the idle share of the devices of a general finding.

    An idle start or end of the run and a device that was never used have causes of their own."""
    details = outcome.details
    if isinstance(details, LowGPUUtilizationDetails):
        elsewhere = (IDLE_TAIL, IDLE_HEAD, IDLE_ENDS)
        low = [row for row in details.devices if row.triggered]
        if any(row.state == UNUSED or row.pattern in elsewhere for row in low):
            return {}
        return {(row.node, row.device): row.unused_samples / row.samples for row in low if row.samples}
    if isinstance(details, BatchSizeDetails):
        return {(row.node, row.device): max(100 - row.boxes.gpu.mean, 0.0) / 100 for row in details.devices if row.violations}
    if isinstance(details, ShortKernelsDetails):
        return {(row.node, row.device): row.gap_percent / 100 for row in details.devices if row.issue}
    assert isinstance(details, HostBoundDetails)
    return {(row.node, row.device): row.host_wait_ns / row.span_ns for row in details.devices if row.issue and row.span_ns}


def _by_host(first: Outcome, later: Outcome) -> float:
    return _covered(_idle(first), _idle(later))


def _by_blocking(first: Outcome, later: Outcome) -> float:
    assert isinstance(first.details, SyncBoundDetails)
    blocked = {(row.node, row.device): row.percent / 100 for row in first.details.devices if row.issue}
    return _covered(blocked, _idle(later))


def _uploads(pageable: Outcome, later: Outcome) -> float:
    """Return the share of the blocked idle time that uploads of pageable memory cause."""
    assert isinstance(pageable.details, PageableCopiesDetails)
    assert isinstance(later.details, SyncBoundDetails)
    caused = {
        (row.node, row.device): (row.caused_idle_ns or 0) / row.span_ns for row in pageable.details.devices if row.issue and row.span_ns
    }
    return _covered(caused, {(row.node, row.device): row.percent / 100 for row in later.details.devices if row.issue})


def _by_blocking_call(first: Outcome, later: Outcome) -> float:
    """Return the idle part of the cost of pageable copies, unless they lead.

    The idle time of blocking calls contains it."""
    if later.cost is None or not later.cost.ns or _uploads(later, first) >= MOST:
        return 0.0
    assert isinstance(first.details, SyncBoundDetails)
    assert isinstance(later.details, PageableCopiesDetails)
    blocked = {(row.node, row.device) for row in first.details.devices if row.issue}
    rows = [row for row in later.details.devices if row.issue and (row.node, row.device) in blocked]
    return sum(row.caused_idle_ns or 0 for row in rows) / later.cost.ns


def _by_pageable(first: Outcome, later: Outcome) -> float:
    """Return the share of the exposed copies that are from or to pageable memory."""
    assert isinstance(first.details, PageableCopiesDetails)
    assert isinstance(later.details, ExposedCopiesDetails)
    pageable = {(row.node, row.device): (row.exposed_ns or 0) / row.span_ns for row in first.details.devices if row.issue and row.span_ns}
    return _covered(pageable, {(row.node, row.device): row.percent / 100 for row in later.details.devices if row.issue})


def _by_transfers(first: Outcome, later: Outcome) -> float:
    """Return the share of exposed communication in slow transfers and waits for them.

    A saving of a part of it is enough, as for other rules that look for a cause."""
    assert isinstance(first.details, SlowCollectivesDetails)
    cost = later.cost.ns if later.cost is not None else 0
    return max(_named(first, later), min((first.details.explained_ns or 0) / cost, 1.0) if cost else 0.0)


def _by_attention(first: Outcome, later: Outcome) -> float:
    """Return the share of elementwise chains that work on scores of attention."""
    assert isinstance(first.details, UnfusedAttentionDetails)
    assert isinstance(later.details, UnfusedElementwiseDetails)
    chained = sum(row.time_ns for row in later.details.devices if row.issue)
    on_scores = sum(chain.softmax_ns + chain.between_ns for chain in first.details.chains)
    return min(on_scores / chained, 1.0) if chained else 0.0


def _by_pauses(first: Outcome, later: Outcome) -> float:
    """A device that runs empty at a blocking call is idle while the host pauses."""
    assert isinstance(first.details, HostPausesDetails)
    return min(first.details.idle_ns / later.cost.ns, 1.0) if later.cost is not None and later.cost.ns else 0.0


def _by_bottleneck(first: Outcome, later: Outcome) -> float:
    """A bottleneck snapshot has a low GPU, so its share is idle time of its machine."""
    assert isinstance(first.details, BottleneckDetails)
    limited = {row.node: (row.bottleneck_percent or 0.0) / 100 for row in first.details.nodes if row.issue}
    idle = _idle(later)
    return _covered({device: limited.get(device[0], 0.0) for device in idle}, idle)


def _by_loading(first: Outcome, later: Outcome) -> float:
    """The waits for data of the machines whose number of loaders is wrong."""
    assert isinstance(first.details, DataloaderDetails)
    if first.cost is None or not first.cost.of_ns:
        return 0.0
    waits = {row.node: first.cost.ns / first.cost.of_ns for row in first.details.nodes if row.issue}
    idle = _idle(later)
    return _covered({device: waits.get(device[0], 0.0) for device in idle}, idle)


def _by_imbalance(first: Outcome, later: Outcome) -> float:
    """The time by which a GPU is less busy than the busiest of them."""
    details = first.details
    assert isinstance(details, LoadBalancingDetails)
    unequal: set[tuple[str, int | None]] = {
        (gpu.node, gpu.device) for pair in details.pairs if pair.violation for gpu in (pair.a, pair.b) if gpu
    }
    busiest = max((row.mean for row in details.devices if row.evaluated), default=0.0)
    less: Devices = {(row.node, row.device): (busiest - row.mean) / 100 for row in details.devices if (row.node, row.device) in unequal}
    return _covered(less, _idle(later))


def _by_straggler(first: Outcome, later: Outcome) -> float:
    """Return the share of the unequal pairs of GPUs that have a straggler.

    GPUs that are unequal by less than the predicted saving wait for it."""
    assert isinstance(first.details, StragglerRankDetails)
    assert isinstance(later.details, LoadBalancingDetails)
    slow, saved = _slow(first.details), _predicted(first)
    pairs = [pair for pair in later.details.pairs if pair.violation]
    due = [
        not slow.isdisjoint({(gpu.node, gpu.device) for gpu in (pair.a, pair.b) if gpu}) or abs(pair.mean_difference) <= 100 * saved
        for pair in pairs
    ]
    return sum(due) / len(due) if due else 0.0


def _by_waiting(first: Outcome, later: Outcome) -> float:
    """Return the share of idle time of the others that goes with the straggler.

    Only idle time in which the trace shows no work of the host counts."""
    assert isinstance(first.details, StragglerRankDetails)
    if isinstance(later.details, HostBoundDetails) and not any(
        row.activity == UNRECORDED and row.percent > 100 * MOST for row in later.details.host
    ):
        return 0.0
    slow, saved, idle = _slow(first.details), _predicted(first), _idle(later)
    return _covered({device: saved for device in idle if device not in slow}, idle)


def _slow(details: StragglerRankDetails) -> set[tuple[str, int | None]]:
    return {(row.node, row.device) for row in details.ranks if row.straggler}


def _predicted(outcome: Outcome) -> float:
    """Return the share of a step that a simulation saves; 0 without a simulation."""
    cost = outcome.cost
    return cost.saving_ns / cost.of_ns if cost and cost.saving_ns and cost.of_ns and cost.saving_kind == "predicted" else 0.0


# Communication is device work, so that neither utilization nor these idle times contain it: ExposedCommunication covers none of them.
_COVERS: Final[dict[tuple[str, str], Callable[[Outcome, Outcome], float]]] = {
    ("SyncBound", "HostBound"): _by_blocking,
    ("HostPauses", "SyncBound"): _by_pauses,
    ("PageableCopies", "SyncBound"): _uploads,
    ("PageableCopies", "ExposedCopies"): _by_pageable,
    ("SyncBound", "PageableCopies"): _by_blocking_call,
    ("SlowCollectives", "ExposedCommunication"): _by_transfers,
    ("StragglerRank", "LoadBalancing"): _by_straggler,
    ("StragglerRank", "HostBound"): _by_waiting,
    ("HostBound", "ShortKernels"): _by_host,
    ("UnfusedAttention", "UnfusedElementwise"): _by_attention,
    **{
        (specific, general): covers
        for general in ("LowGPUUtilization", "BatchSize")
        for specific, covers in {
            "HostBound": _by_host,
            "SyncBound": _by_blocking,
            "CPUBottleneck": _by_bottleneck,
            "IOBottleneck": _by_bottleneck,
            "Dataloader": _by_loading,
            "LoadBalancing": _by_imbalance,
        }.items()
    },
}
