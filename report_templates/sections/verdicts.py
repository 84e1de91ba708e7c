"""Results of rules -> verdicts in the order of importance."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from ...analysis.report.model import Report
from ...analysis.report.rules import RuleResult
from ...analysis.toolkit import wording
from ..blocks.tables import Cell
from ..text.formats import clip
from ..text.signs import ERROR, FINE, INFORMATION, ISSUE, NOT_EVALUATED, SIGNS, Sign, kind_of

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
        verdicts.append(Judged(rule, kind_of(rule.verdict, informs=rule.informs), unique_id, rank))
    return sorted(verdicts, key=lambda one: (_ORDER.index(one.kind), one.rank or len(report.rules)))


def counted(verdicts: Sequence[Judged]) -> str:
    """Write "4 issues, 9 passed, 2 informational, 5 not evaluated"."""
    numbers = Counter(verdict.kind for verdict in verdicts)
    text = wording.verdict_counts(*(numbers[kind] for kind in (ISSUE, ERROR, FINE, INFORMATION, NOT_EVALUATED)))
    return _IN_COUNT.sub("\u00a0", text)
