"""Results of rules -> verdicts in the order of importance, and findings with advice, evidence, cost, and possible saving."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from markupsafe import Markup

from ...analysis.report.model import Report
from ...analysis.report.rules import Finding, RuleResult
from ...analysis.toolkit import wording
from ..blocks import coded, name, plain
from ..blocks.tables import Cell
from ..text.formats import UNKNOWN, clip, duration, percent, sentences
from ..text.signs import ERROR, FINE, INFORMATION, ISSUE, NOT_EVALUATED, SIGNS, Sign

FIRST: Final = 3  # findings on the first page
ABSENT: Final = "rules-absent"  # id of the list of rules without a verdict
_ORDER: Final = list(SIGNS)
_IN_COUNT: Final = re.compile("(?<!,) ")  # between a count and its words


@dataclass(frozen=True, slots=True)
class Judged:
    """A rule, its ``kind`` (a key of SIGNS), the id of its section (if it has a verdict), and its rank among the findings."""

    rule: RuleResult
    kind: str
    id: str
    rank: int | None

    @property
    def sign(self) -> Sign:
        return SIGNS[self.kind]

    @property
    def informs(self) -> bool:
        """Whether the rule reports values without a verdict."""
        return self.kind == INFORMATION

    @property
    def evaluated(self) -> bool:
        return self.kind in (ISSUE, FINE, INFORMATION)

    @property
    def anchor(self) -> str:
        return self.id if self.evaluated else ABSENT

    @property
    def cell(self) -> Cell:
        return Cell(self.sign.text, mark=self.sign.mark, sort=_ORDER.index(self.kind))

    @property
    def name(self) -> Cell:
        return Cell(clip(self.rule.rule, 60), link=self.anchor, camel=True)


def judged(report: Report) -> list[Judged]:
    """Return the rules by verdict, except the summary of all: issues by cost first."""
    ranks = {finding.rule: finding.rank for finding in reversed(report.findings)}
    taken: Counter[str] = Counter()
    verdicts = []
    for rule in report.rules:
        if rule.category == "report":
            continue
        # No hyphen: the text after one names a figure or table of the section.
        id = "rule-" + re.sub(r"[^A-Za-z0-9_]", "_", rule.rule)
        taken[id] += 1
        unique_id = id if taken[id] == 1 else f"{id}__{taken[id]}"
        rank = ranks.get(rule.rule) if rule.verdict == ISSUE else None
        verdicts.append(Judged(rule, _kind(rule), unique_id, rank))
    return sorted(verdicts, key=lambda one: (_ORDER.index(one.kind), one.rank or len(report.rules)))


def _kind(rule: RuleResult) -> str:
    if rule.verdict == FINE and rule.informs:
        return INFORMATION
    return rule.verdict if rule.verdict in (ISSUE, FINE, NOT_EVALUATED) else ERROR


def counted(verdicts: Sequence[Judged]) -> str:
    """Write "4 issues, 9 passed, 2 informational, 5 not evaluated"."""
    numbers = Counter(verdict.kind for verdict in verdicts)
    text = wording.verdict_counts(*(numbers[kind] for kind in (ISSUE, ERROR, FINE, INFORMATION, NOT_EVALUATED)))
    return _IN_COUNT.sub("\u00a0", text)


@dataclass(frozen=True, slots=True)
class Advice:
    """A finding: its number in the list, advice, its rule (``anchor``: that section), the place, the evidence, two numbers, their bases.

    ``predicted``: the saving is predicted, not an upper bound. ``explains``: the findings that this one is the cause of, also through
    others."""

    number: int
    title: str
    rule: Markup
    anchor: str
    where: str | None
    evidence: Markup
    cost: str
    cost_of: str
    saving: str
    saving_of: str
    predicted: bool = False
    explained_by: Markup | None = None
    explains: tuple[Advice, ...] = ()

    @property
    def costs(self) -> bool:
        return self.cost != UNKNOWN

    @property
    def saves(self) -> bool:
        return self.saving != UNKNOWN


def findings(report: Report) -> list[Advice]:
    """Return the findings that no other explains by rank, each with those it explains."""
    anchors = {one.rule.rule: one.anchor for one in reversed(judged(report))}
    ordered = sorted(report.findings, key=lambda finding: finding.rank)
    roots = _roots(ordered)
    first = [finding for finding in ordered if roots[finding.rank] == finding.rank]
    return [
        _advice(
            number,
            finding,
            anchors,
            tuple(_advice(0, one, anchors) for one in ordered if one is not finding and roots[one.rank] == finding.rank),
        )
        for number, finding in enumerate(first, 1)
    ]


def _roots(ordered: Sequence[Finding]) -> dict[int, int]:
    """Map the rank of each finding to that of the finding that explains it in the end."""
    first = {finding.rule: finding for finding in reversed(ordered)}
    roots = {}
    for finding in ordered:
        root = finding
        for _ in ordered:  # a report.json from elsewhere can contain a circle
            if root.explained_by is None or root.explained_by not in first:
                break
            root = first[root.explained_by]
        roots[finding.rank] = root.rank if root.explained_by not in first else finding.rank
    return roots


def _advice(number: int, finding: Finding, anchors: Mapping[str, str], explains: tuple[Advice, ...] = ()) -> Advice:
    return Advice(
        number,
        clip((plain(finding.title) or "").removesuffix("."), 110),
        name(finding.rule, 40),
        anchors.get(finding.rule, "rules"),
        clip(finding.where, 90) if finding.where else None,
        coded(sentences(finding.text, 320)),
        *_cost(finding),
        *_saving(finding),
        finding.saving_kind == "predicted",
        name(finding.explained_by, 40) if finding.explained_by else None,
        explains,
    )


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
    every = [advice for first in advices for advice in (first, *first.explains)]
    notes = ["Times overlap and do not add up."] if len(every) > 1 else []
    if sum(advice.cost.endswith("per step") for advice in every) > 1:
        notes.append("Times per step are those of an average process.")
    return " ".join(notes)
