"""Results of rules -> verdicts in the order of importance, with their places on the page."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from ...analysis.report.model import Report, RuleResult
from ..blocks.tables import Cell
from ..text.formats import clip, plural
from ..text.signs import ERROR, FINE, INFORMATION, ISSUE, NOT_EVALUATED, SIGNS, Sign

ABSENT: Final = "rules-absent"  # Where rules without a verdict are told of


_ORDER: Final = list(SIGNS)


@dataclass(frozen=True, slots=True)
class Judged:
    """A rule, its ``kind`` (a key of SIGNS), the id of its own section (where it has a verdict), and its place among the findings, if it
    has one."""

    rule: RuleResult
    kind: str
    id: str
    rank: int | None

    @property
    def sign(self) -> Sign:
        return SIGNS[self.kind]

    @property
    def informs(self) -> bool:
        """It tells figures and finds no issue."""
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
    """The rules in the order of their importance: issues by what they cost, errors, fine, information, not evaluated. Not the summary of
    all."""
    ranks = {finding.rule: finding.rank for finding in reversed(report.findings)}
    taken: Counter[str] = Counter()
    found = []
    for rule in report.rules:
        if rule.category == "report":
            continue
        # No hyphen: what stands behind one names a figure or table within the section.
        id = "rule-" + re.sub(r"[^A-Za-z0-9_]", "_", rule.rule)
        taken[id] += 1
        own = id if taken[id] == 1 else f"{id}__{taken[id]}"
        rank = ranks.get(rule.rule) if rule.verdict == ISSUE else None
        found.append(Judged(rule, _kind(rule), own, rank))
    return sorted(found, key=lambda one: (_ORDER.index(one.kind), one.rank or len(report.rules)))


def _kind(rule: RuleResult) -> str:
    if rule.verdict == FINE and rule.informs:
        return INFORMATION
    return rule.verdict if rule.verdict in (ISSUE, FINE, NOT_EVALUATED) else ERROR


def counted(found: Sequence[Judged]) -> str:
    """ "4 issues · 9 fine · 2 for information · 5 not evaluated"."""
    numbers = Counter(one.sign.mark for one in found)
    texts = [plural(numbers["v-issue"], "issue")]
    if numbers["v-error"]:
        texts.append(plural(numbers["v-error"], "error"))
    texts.append(f"{numbers['v-fine']}\u00a0fine")
    if numbers["v-info"]:
        texts.append(f"{numbers['v-info']}\u00a0for\u00a0information")
    texts.append(f"{numbers['v-none']}\u00a0not\u00a0evaluated")
    return " · ".join(texts)
