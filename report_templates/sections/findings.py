"""Findings of the rules -> rows with advice, evidence, cost, and possible saving, the most costly first."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from markupsafe import Markup

from ...analysis.report.model import Finding, Report
from ..blocks import coded, name, plain
from ..text.formats import UNKNOWN, clip, duration, percent, sentences
from .verdicts import judged

FIRST: Final = 3
_LONG = 320


@dataclass(frozen=True, slots=True)
class Advice:
    """A finding: advice, its rule (``anchor``: that section), the place, the evidence, and two numbers with their bases."""

    rank: int
    title: str
    rule: Markup
    anchor: str
    where: str | None
    evidence: Markup
    cost: str
    cost_of: str
    saving: str
    saving_of: str

    @property
    def costs(self) -> bool:
        return self.cost != UNKNOWN


def findings(report: Report) -> list[Advice]:
    """Return all findings, the most costly first."""
    anchors = {one.rule.rule: one.anchor for one in reversed(judged(report))}
    return [
        Advice(
            finding.rank,
            clip((plain(finding.title) or "").removesuffix("."), 110),
            name(finding.rule, 40),
            anchors.get(finding.rule, "rules"),
            clip(finding.where, 90) if finding.where else None,
            coded(sentences(finding.text, _LONG)),
            *_cost(finding),
            *_saving(finding),
        )
        for finding in sorted(report.findings, key=lambda finding: finding.rank)
    ]


def _cost(finding: Finding) -> tuple[str, str]:
    """Write the time per step, or else the share, and its base."""
    share = percent(finding.cost_percent) if finding.cost_percent is not None else None
    of = f" of the {clip(finding.base, 60)}" if finding.base else ""
    if finding.cost_per_step_ns is not None:
        return f"{duration(finding.cost_per_step_ns)} per step", f"{share}{of}" if share else ""
    if share:
        return share, of.strip()
    return (duration(finding.cost_ns), of.strip()) if finding.cost_ns is not None else (UNKNOWN, "")


def _saving(finding: Finding) -> tuple[str, str]:
    if finding.saving_percent is not None:
        return percent(finding.saving_percent), duration(finding.saving_ns) if finding.saving_ns is not None else ""
    return (duration(finding.saving_ns), "") if finding.saving_ns is not None else (UNKNOWN, "")


def overlap(advices: Sequence[Advice]) -> str:
    return "Times overlap and do not add up." if len(advices) > 1 else ""
