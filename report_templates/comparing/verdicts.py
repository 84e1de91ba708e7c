"""Section "Rules" of a comparison: the verdicts of both runs."""

from __future__ import annotations

from typing import Final

from ...analysis.report.comparison import Comparison, VerdictChange
from ..blocks import Section, plain, say
from ..blocks.tables import Cell, Col, table
from ..text.formats import UNKNOWN
from ..text.signs import SIGNS
from . import words

_ORDER: Final = ("broken", "mended", "other", "same")
_OUTCOMES: Final = {"same": ("= same", "v-none"), "other": ("– not comparable", "v-none")}


def verdicts(made: Comparison) -> Section:
    if not made.rules:
        return Section("verdicts", "Rules", say("No rule ran for either run."))
    broken, mended = ([one.rule for one in made.rules if one.outcome == outcome] for outcome in ("broken", "mended"))
    told = [f"New issues: {', '.join(broken)}."] if broken else []
    told += [f"Mended: {', '.join(mended)}."] if mended else []
    found = Section("verdicts", "Rules", say("{}", " ".join(told) or "No rule went from fine to issue, or back."))
    found.add(
        table(
            "verdicts-table",
            "Verdicts of both runs",
            sorted(made.rules, key=lambda rule: _ORDER.index(rule.outcome)),
            Col("Rule", lambda rule: Cell(rule.rule, camel=True), kind="name"),
            Col("Base", lambda rule: _verdict(rule.base)),
            Col("New", lambda rule: _verdict(rule.new)),
            Col("Outcome", _outcome),
            Col("Of the new run", lambda rule: plain(rule.new_finding), limit=200),
            Col("Of the base run", lambda rule: plain(rule.base_finding), limit=200, html_only=True),
            pdf_rows=30,
        )
    )
    return found


def _verdict(verdict: str | None) -> Cell:
    if verdict not in SIGNS:
        return Cell(UNKNOWN)
    return Cell(SIGNS[verdict].text, mark=SIGNS[verdict].mark)


def _outcome(one: VerdictChange) -> Cell:
    if one.parameters_differ:
        return Cell("– other parameters", mark="v-none")
    if one.outcome in _OUTCOMES:
        text, mark = _OUTCOMES[one.outcome]
        return Cell(text, mark=mark)
    return words.state(one.outcome)
