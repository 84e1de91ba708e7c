"""What do the rules say of both runs?"""

from __future__ import annotations

from typing import Final

from ...analysis.comparison import Comparison, VerdictChange
from ..blocks import Cell, Column, Section, plain, say, table, word
from ..formats import UNKNOWN
from ..signs import SIGNS
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
            [
                Column("Rule", "name"),
                Column("Base"),
                Column("New"),
                Column("Outcome"),
                Column("Of the new run"),
                Column("Of the base run", html_only=True),
            ],
            [_row(one) for one in sorted(made.rules, key=lambda one: _ORDER.index(one.outcome))],
            pdf_rows=30,
        )
    )
    return found


def _row(one: VerdictChange) -> list[Cell]:
    return [
        Cell(one.rule, camel=True),
        _verdict(one.base),
        _verdict(one.new),
        _outcome(one),
        word(plain(one.new_finding), limit=200),
        word(plain(one.base_finding), limit=200),
    ]


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
