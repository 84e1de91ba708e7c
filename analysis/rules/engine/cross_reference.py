"""Sentences that keep the texts of several rules consistent: what one rule advises or finds refers to what another one measured.

Rules do not see each other's results; this step does, after all of them. It names no causes: those are in explanations.py.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal, TypeVar

from ...report import rule_details
from ...report.details import RuleDetails
from ...report.rules import FINE, ISSUES
from ...toolkit.wording import percent
from ..checks.bottleneck import IOBottleneck
from ..checks.dataloader import Dataloader
from ..checks.low_gpu_utilization import LowGPUUtilization
from ..checks.overall_system_usage import OverallSystemUsage
from ..checks.step_outlier import StepOutlier
from ..evidence.base import Outcome, Rule, required
from ..evidence.frameworks import MORE_WORKERS

Outcomes = Mapping[type[Rule], Outcome]
Sentence = Callable[[Outcome, Outcome, Outcomes], str | None]
"""Arguments: the outcome whose text is extended, the one that it refers to, and all."""

D = TypeVar("D", bound=RuleDetails)


@dataclass(frozen=True, slots=True)
class Reference:
    """The texts of ``later`` rules with an issue refer to ``first`` if its verdict is ``verdict``.

    ``text``: the extended one, which is the finding if the sentence is not about something to do. ``instead_of``: the part of it that the
    sentence replaces."""

    later: tuple[type[Rule], ...]
    first: type[Rule]
    sentence: Sentence
    verdict: str = ISSUES
    instead_of: str = ""
    text: Literal["recommendation", "finding"] = "recommendation"


def refer(rules: Sequence[Rule], outcomes: Sequence[Outcome]) -> list[Outcome]:
    """Add the sentences to ``outcomes``; of a rule that runs twice, the first counts."""
    known: dict[type[Rule], Outcome] = {}
    for rule, outcome in zip(rules, outcomes, strict=True):
        known.setdefault(type(rule), outcome)
    return [_extended(rule, outcome, known) for rule, outcome in zip(rules, outcomes, strict=True)]


def _extended(rule: Rule, outcome: Outcome, known: Outcomes) -> Outcome:
    for reference in REFERENCES if outcome.verdict == ISSUES else ():
        first, text = known.get(reference.first), getattr(outcome, reference.text)
        if type(rule) not in reference.later or first is None or first.verdict != reference.verdict or not text:
            continue
        if sentence := reference.sentence(outcome, first, known):
            extended: dict[str, Any] = {reference.text: f"{text.replace(reference.instead_of, '')} {sentence}"}
            outcome = dataclasses.replace(outcome, **extended)
    return outcome


def _details(outcome: Outcome, kind: type[D]) -> D:
    """Return the details of an outcome of a built-in rule that was evaluated."""
    assert isinstance(outcome.details, kind)
    return outcome.details


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
        "OverallSystemUsage reports these nodes as well used because it uses the median over the run; this rule uses p95 and p5 of"
        " each window."
    )


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
        f"Do not raise `num_workers`: the {most.loaders:g} loader processes are already"
        f" {percent(required(most.percent_of_cores))} of the number of cores of {most.node}, so loading itself is slow"
    )
    waits = known.get(IOBottleneck)
    nodes = waits.details.nodes if waits and isinstance(waits.details, rule_details.BottleneckDetails) else ()
    worst = max(nodes, key=lambda row: row.bottleneck_percent or 0.0, default=None)
    if worst is None or not worst.bottleneck_percent:
        return f"{text}. Check decoding and augmentation."
    return (
        f"{text}. Check the storage: a core of {worst.node} waits for I/O in {percent(required(worst.bottleneck_percent))}"
        " of the snapshots while a GPU is low (IOBottleneck)."
    )


def _names_loaders(outcome: Outcome) -> bool:
    return "`num_workers`" in (outcome.recommendation or "")


REFERENCES: Final = (
    Reference((StepOutlier, LowGPUUtilization), Dataloader, _loaders_first, instead_of=MORE_WORKERS),
    Reference((StepOutlier, LowGPUUtilization), Dataloader, _loaders_fine, FINE, MORE_WORKERS),
    Reference((LowGPUUtilization,), OverallSystemUsage, _well_used, FINE, text="finding"),
)
"""Whether more loader processes would help, and two definitions of the same word that disagree."""
