"""Sentences that connect findings of several rules with one explanation: the recommendation of the later rule refers to the first.

Rules do not see each other's results; this step does, after all of them. A row of a table names the rules whose recommendations refer to
another rule, and returns the sentence, or None if the two findings are unrelated. At most one sentence of each table is added: that of
the first row that has one. Guesses of a recommendation that such a sentence replaces are left out.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, TypeVar

from ...report import rule_details
from ...report.model import FINE, ISSUES, RuleDetails
from ...toolkit.wording import duration, percent
from ..checks.batch_size import BatchSize
from ..checks.bottleneck import CPUBottleneck, IOBottleneck
from ..checks.dataloader import Dataloader
from ..checks.exposed_communication import ExposedCommunication
from ..checks.host_bound import HostBound
from ..checks.load_balancing import LoadBalancing
from ..checks.low_gpu_utilization import GUESSES, IDLE_ENDS, IDLE_HEAD, IDLE_TAIL, UNUSED, LowGPUUtilization
from ..checks.overall_system_usage import OverallSystemUsage
from ..checks.short_kernels import ShortKernels
from ..checks.step_outlier import StepOutlier
from ..checks.straggler_rank import StragglerRank
from ..checks.sync_bound import SyncBound
from ..evidence.base import Outcome, Rule, required
from ..evidence.frameworks import MORE_WORKERS
from ..evidence.gpus import OnGpu, where

Outcomes = Mapping[type[Rule], Outcome]
Sentence = Callable[[Outcome, Outcome, Outcomes], str | None]
"""Arguments: the outcome whose recommendation is extended, the one that comes first, and all."""

D = TypeVar("D", bound=RuleDetails)
P = TypeVar("P", rule_details.HostBoundDevice, rule_details.CommunicationDevice)


@dataclass(frozen=True, slots=True)
class Reference:
    """The recommendations of ``later`` rules with an issue refer to ``first`` if its verdict is ``verdict``."""

    later: tuple[type[Rule], ...]
    first: type[Rule]
    sentence: Sentence
    verdict: str = ISSUES


def refer(rules: Sequence[Rule], outcomes: Sequence[Outcome]) -> list[Outcome]:
    """Add the sentences to ``outcomes``; of a rule that runs twice, the first counts."""
    known: dict[type[Rule], Outcome] = {}
    for rule, outcome in zip(rules, outcomes, strict=True):
        known.setdefault(type(rule), outcome)
    return [_extended(rule, outcome, known) for rule, outcome in zip(rules, outcomes, strict=True)]


def _extended(rule: Rule, outcome: Outcome, known: Outcomes) -> Outcome:
    if outcome.verdict != ISSUES or not outcome.recommendation:
        return outcome
    warm = _sentence(WARM, rule, outcome, known)
    if warm:
        return dataclasses.replace(outcome, recommendation=f"{warm} {outcome.recommendation}")
    for table, guesses, instead in ((CAUSES, GUESSES, ","), (LOADERS, (MORE_WORKERS,), ""), (DEFINITIONS, (), "")):
        sentence = _sentence(table, rule, outcome, known)
        if sentence:
            sure = outcome.recommendation or ""
            for text in guesses:
                sure = sure.replace(text, instead)
            outcome = dataclasses.replace(outcome, recommendation=f"{sure} {sentence}")
    return outcome


def _sentence(table: Sequence[Reference], rule: Rule, outcome: Outcome, known: Outcomes) -> str | None:
    sentences = (
        reference.sentence(outcome, known[reference.first], known)
        for reference in table
        if type(rule) in reference.later and reference.first in known and known[reference.first].verdict == reference.verdict
    )
    return next((sentence for sentence in sentences if sentence), None)


# -- which places two findings share ---------------------------------------------------------------------------------------


def _details(outcome: Outcome, kind: type[D]) -> D:
    """Return the details of an outcome of a built-in rule that was evaluated."""
    assert isinstance(outcome.details, kind)
    return outcome.details


def _low(outcome: Outcome) -> Sequence[rule_details.BatchSizeGpu | rule_details.LowGpu]:
    """Return the GPUs of LowGPUUtilization or BatchSize with too little work."""
    details = outcome.details
    if isinstance(details, rule_details.BatchSizeDetails):
        return [row for row in details.devices if row.violations]
    if not isinstance(details, rule_details.LowGPUUtilizationDetails):
        return []
    elsewhere = (IDLE_TAIL, IDLE_HEAD, IDLE_ENDS)
    return [row for row in details.devices if row.triggered and row.state != UNUSED and row.pattern not in elsewhere]


def _unbalanced(outcome: Outcome) -> set[tuple[str, int]]:
    pairs = [pair for pair in _details(outcome, rule_details.LoadBalancingDetails).pairs if pair.violation]
    return {(gpu.node, gpu.device) for pair in pairs for gpu in (pair.a, pair.b) if gpu}


# -- the sentences ---------------------------------------------------------------------------------------------------------


def _divide_first(later: Outcome, first: Outcome, _: Outcomes) -> str | None:
    unbalanced = _unbalanced(first)
    shared = [row for row in _low(later) if (row.node, row.device) in unbalanced]
    if not shared:
        return None
    return f"First divide the work evenly (LoadBalancing): the load of {where(shared)} differs from that of other GPUs."


def _straggler_first(later: Outcome, first: Outcome, _: Outcomes) -> str | None:
    unbalanced = _unbalanced(later)
    slow = [
        row for row in _details(first, rule_details.StragglerRankDetails).ranks if row.straggler and (row.node, row.device) in unbalanced
    ]
    if not slow:
        return None
    return f"First look at {where(slow)} (StragglerRank): the other ranks wait for it in collectives."


def _well_used(later: Outcome, first: Outcome, _: Outcomes) -> str | None:
    low = {row.node for row in _details(later, rule_details.LowGPUUtilizationDetails).devices if row.triggered}
    well = [
        row
        for row in _details(first, rule_details.OverallSystemUsageDetails).nodes
        if row.node in low and (row.statement or "").startswith("Well used")
    ]
    if not well:
        return None
    return (
        "OverallSystemUsage calls such machines well used: it looks at the median over the whole run, this rule at p95 and p5 of single"
        " windows (both as documented)."
    )


def _cores_first(advice: str, state: str) -> Sentence:
    """Refer to the bottleneck rule's worst node among the nodes with a low GPU."""

    def sentence(later: Outcome, first: Outcome, _: Outcomes) -> str | None:
        low = {row.node for row in _low(later)}
        nodes = (row for row in _details(first, rule_details.BottleneckDetails).nodes if row.issue and row.node in low)
        worst = max(nodes, key=lambda row: row.bottleneck_percent or 0.0, default=None)
        if worst is None:
            return None
        share = percent(required(worst.bottleneck_percent))
        return f"First {advice}: a core of {worst.node} {state} in {share} of the snapshots while a GPU is low."

    return sentence


def _warm_first(later: Outcome, first: Outcome, _: Outcomes) -> str | None:
    """Refer to a profile of the first use of the devices."""
    bound = _details(first, rule_details.HostBoundDetails)
    call = bound.first_use
    rows: list[OnGpu] = [row for row in _low(later) if row.derived]
    if isinstance(later.details, rule_details.ShortKernelsDetails):
        rows += [row for row in later.details.devices if row.issue]
    if not call or not _shared(rows, bound.devices):
        return None
    return (
        f"Judge this by a profile that leaves the first steps out (HostBound): in this one a single `{call.name}` held the GPU up for"
        f" {duration(call.time_ns)}. If it holds there, too:"
    )


def _host_first(later: Outcome, first: Outcome, _: Outcomes) -> str | None:
    shared = _shared(_low(later), _details(first, rule_details.HostBoundDetails).devices)
    if not shared:
        return None
    worst = max(shared, key=_host_percent)
    return (
        f"First look at what the host does meanwhile (HostBound): {where([worst])} waits for it in {percent(_host_percent(worst))} of the"
        " profile."
    )


def _host_percent(row: rule_details.HostBoundDevice) -> float:
    return 100 * row.host_wait_ns / row.span_ns if row.span_ns else 0.0


def _communication_first(later: Outcome, first: Outcome, _: Outcomes) -> str | None:
    shared = _shared(_low(later), _details(first, rule_details.ExposedCommunicationDetails).devices)
    if not shared:
        return None
    worst = max(shared, key=lambda row: row.exposed_percent)
    return (
        f"First overlap the communication (ExposedCommunication): it is all that {where([worst])} does in"
        f" {percent(worst.exposed_percent)} of the profile."
    )


def _shared(rows: Sequence[OnGpu], devices: Sequence[P]) -> list[P]:
    """Return the ``devices`` with an issue that are among ``rows``."""
    places = {(row.node, row.device) for row in rows}
    return [row for row in devices if row.issue and (row.node, row.device) in places]


def _blocking_first(later: Outcome, first: Outcome, _: Outcomes) -> str | None:
    bound = {(row.node, row.rank, row.device) for row in _details(later, rule_details.HostBoundDetails).devices if row.issue}
    devices = _details(first, rule_details.SyncBoundDetails).devices
    shared = [row for row in devices if row.issue and (row.node, row.rank, row.device) in bound]
    if not shared:
        return None
    worst = max(shared, key=lambda row: row.percent)
    return f"First remove the blocking calls (SyncBound): {where([worst])} stands idle in them for {percent(worst.percent)} of the profile."


def _loaders_first(later: Outcome, first: Outcome, _: Outcomes) -> str | None:
    worst = next((row for row in _details(first, rule_details.DataloaderDetails).nodes if row.issue), None)
    if worst is None or not _names_loaders(later):
        return None
    return (
        f"For `num_workers` follow Dataloader, which finds loader processes for {percent(required(worst.percent_of_cores))} of the cores of"
        f" {worst.node}."
    )


def _loaders_fine(later: Outcome, first: Outcome, known: Outcomes) -> str | None:
    judged = [row for row in _details(first, rule_details.DataloaderDetails).nodes if row.issue is False]
    if not judged or not _names_loaders(later):
        return None
    most = max(judged, key=lambda row: row.percent_of_cores or 0.0)
    text = (
        f"Leave `num_workers` as it is: Dataloader finds {most.loaders:g} loader processes,"
        f" {percent(required(most.percent_of_cores))} of the cores of {most.node}, so loading itself is slow"
    )
    waits = known.get(IOBottleneck)
    nodes = waits.details.nodes if waits and isinstance(waits.details, rule_details.BottleneckDetails) else ()
    worst = max(nodes, key=lambda row: row.bottleneck_percent or 0.0, default=None)
    if worst is None or not worst.bottleneck_percent:
        return f"{text}: look at decoding and augmentation."
    return (
        f"{text}: look at the storage (IOBottleneck: a core of {worst.node} waits for I/O in {percent(required(worst.bottleneck_percent))}"
        " of the snapshots while a GPU is low)."
    )


def _names_loaders(outcome: Outcome) -> bool:
    return "`num_workers`" in (outcome.recommendation or "")


WARM: Final = (Reference((LowGPUUtilization, BatchSize, ShortKernels), HostBound, _warm_first),)
"""Findings to check again with another profile; the sentence begins the recommendation."""

DEFINITIONS: Final = (Reference((LowGPUUtilization,), OverallSystemUsage, _well_used, FINE),)
"""Two definitions of the same word that disagree."""

CAUSES: Final = (
    Reference((LowGPUUtilization, BatchSize), LoadBalancing, _divide_first),
    Reference(
        (LowGPUUtilization, BatchSize), CPUBottleneck, _cores_first("take work off the processor (CPUBottleneck)", "is at its limit")
    ),
    Reference((LowGPUUtilization, BatchSize), IOBottleneck, _cores_first("shorten the waits for I/O (IOBottleneck)", "waits for it")),
    Reference((LowGPUUtilization, BatchSize), HostBound, _host_first),
    Reference((LowGPUUtilization, BatchSize), ExposedCommunication, _communication_first),
    Reference((LoadBalancing,), StragglerRank, _straggler_first),
    Reference((HostBound,), SyncBound, _blocking_first),
)
"""Causes of a finding."""

LOADERS: Final = (
    Reference((StepOutlier, LowGPUUtilization), Dataloader, _loaders_first),
    Reference((StepOutlier, LowGPUUtilization), Dataloader, _loaders_fine, FINE),
)
"""Whether more loader processes would help."""
