"""Signs of verdicts, as the first page, the findings, and comparisons show them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

ISSUE: Final = "IssuesFound"
ERROR: Final = "Error"
FINE: Final = "NoIssuesFound"
INFORMATION: Final = "Information"  # not a verdict: rules that only inform, if they did not fail
NOT_EVALUATED: Final = "NotEvaluated"


@dataclass(frozen=True, slots=True)
class Sign:
    """Sign and word of a verdict, and the class of style.css that gives its color."""

    text: str
    mark: str


# Most important first.
SIGNS: Final = {
    ISSUE: Sign("✕ Issue", "v-issue"),
    ERROR: Sign("! Error", "v-error"),
    FINE: Sign("✓ Passed", "v-fine"),
    INFORMATION: Sign("i Informational", "v-info"),
    NOT_EVALUATED: Sign("– Not evaluated", "v-none"),
}


def kind_of(verdict: str, *, informs: bool) -> str:
    """Return the key of SIGNS for a verdict. ``informs``: the rule finds no issues."""
    if verdict == FINE and informs:
        return INFORMATION
    return verdict if verdict in SIGNS else ERROR
