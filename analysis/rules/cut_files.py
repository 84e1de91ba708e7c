"""Which rules lack what was in a file that broke off, so that the whole file is what they need and not another capture?"""

from __future__ import annotations

import dataclasses
import posixpath
from collections.abc import Sequence
from typing import Final

from ...ingest.store import Store
from ..wording import count
from .base import NOT_EVALUATED, Outcome, Rule

CODES: Final = ("truncated", "cut_stream", "corrupt_stream", "lost_event")
"""Of the readers' notes: a part of the file is missing."""

_TRACED: Final = ("trace", "framework")


def copy_again(rules: Sequence[Rule], outcomes: Sequence[Outcome], store: Store) -> list[Outcome]:
    """``outcomes`` whose ``capture`` says to copy the file again that broke off: of the rules over traces that found nothing to look at, in
    place of another capture, and of those that found too little, in front of it."""
    sentence = _sentence(store)
    if not sentence:
        return list(outcomes)
    return [
        _with(outcome, sentence) if rule.category in _TRACED and outcome.verdict == NOT_EVALUATED and outcome.capture else outcome
        for rule, outcome in zip(rules, outcomes, strict=True)
    ]


def _with(outcome: Outcome, sentence: str) -> Outcome:
    reason = outcome.reason or ""
    if reason.startswith("no "):
        return dataclasses.replace(outcome, capture=sentence)
    return dataclasses.replace(outcome, capture=f"{sentence} {outcome.capture}") if " needed" in reason else outcome


def _sentence(store: Store) -> str:
    """Empty where no trace of a partial run broke off."""
    codes = ", ".join(f"'{code}'" for code in CODES)
    files = store.frame(f"""
        SELECT DISTINCT file FROM ingest_note WHERE code IN ({codes}) AND file IS NOT NULL AND EXISTS (FROM run WHERE status = 'partial')
        ORDER BY file
    """)["file"].to_list()
    if not files:
        return ""
    named = f"`{posixpath.basename(files[0])}`"
    if len(files) == 1:
        return f"Copy the whole of {named} again: it breaks off, and what this rule needs may stand behind the break."
    return f"Copy {count(len(files))} files again as a whole, {named} among them: they break off, and what this rule needs may be missing."
