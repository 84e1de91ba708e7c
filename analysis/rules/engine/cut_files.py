"""Rules that lack the missing part of a file that broke off: their advice is to copy the file again, not another capture."""

from __future__ import annotations

import dataclasses
import posixpath
from collections.abc import Sequence
from typing import Final

from ....ingest.store.store import Store
from ...report.rules import NOT_EVALUATED
from ...toolkit.contents import RUN
from ...toolkit.wording import count
from ..evidence.base import Outcome, Rule

CODES: Final = ("truncated", "cut_stream", "corrupt_stream", "lost_event")  # codes of readers' notes: a part of the file is missing

_STEPS: Final = "steps"
_LOADER: Final = "loader"
_DEVICES: Final = "devices"
_FRAMEWORK: Final = "framework"

_NEEDS: Final = {"StepOutlier": _STEPS, "MaxInitializationTime": _STEPS, "Dataloader": _LOADER, "OverallFrameworkMetrics": _FRAMEWORK}
"""Data needed by rules over traces; the others need device activity."""
_TRACED: Final = ("trace", "framework")

_EVERY: Final = frozenset({_STEPS, _LOADER, _DEVICES, _FRAMEWORK})
_TIMELINE: Final = "hosted framework timeline"
_HOLDS: Final = {
    "PyTorch profiler trace": _EVERY,
    "postrun capture": _EVERY,
    "TensorFlow trace": _EVERY,
    "Nsight Systems export": _EVERY,
    _TIMELINE: _EVERY - {_DEVICES},
}
"""Data of rules over traces that files of a format can contain; others contain none."""
_COLLECTIVES: Final = frozenset({_FRAMEWORK})  # timelines of Horovod and smdataparallel, whose ranges are all of collectives

# Ranges that nothing but Horovod's own timelines have, and the names of such files of the hosted profiler.
_HOROVOD: Final = "^(CYCLE_START$|NEGOTIATE_)"
_NAMED: Final = r"(horovod|smdataparallel)_timeline\.json$"


def copy_again(rules: Sequence[Rule], outcomes: Sequence[Outcome], store: Store) -> list[Outcome]:
    """Advise in ``capture`` to copy broken files that can contain the needed data.

    Only rules over traces are concerned. The advice replaces another capture if the rule found no data, and precedes it if the rule found
    too little."""
    broken = _broken(store)
    if not broken:
        return list(outcomes)
    return [
        _with(outcome, _sentence([file for file, holds in broken if _NEEDS.get(rule.name, _DEVICES) in holds]))
        if rule.category in _TRACED and outcome.verdict == NOT_EVALUATED and outcome.capture
        else outcome
        for rule, outcome in zip(rules, outcomes, strict=True)
    ]


def _with(outcome: Outcome, sentence: str) -> Outcome:
    reason = outcome.reason or ""
    if not sentence:
        return outcome
    if reason.startswith("no "):
        return dataclasses.replace(outcome, capture=sentence)
    return dataclasses.replace(outcome, capture=f"{sentence} {outcome.capture}") if " needed" in reason else outcome


def _broken(store: Store) -> list[tuple[str, frozenset[str]]]:
    """Return the files that broke off and their possible data (unknown format: all)."""
    if not store.has_rows("ingest_note") or "partial" not in store.frame(RUN)["status"]:
        return []
    codes = ", ".join(f"'{code}'" for code in CODES)
    files = store.frame(
        f"""
        WITH horovod AS (
            SELECT p.source FROM annotation AS a JOIN name AS n ON n.id = a.name JOIN process AS p ON p.id = a.process
            GROUP BY p.source
            HAVING bool_or(regexp_matches(n.text, ?)) AND NOT bool_or(starts_with(coalesce(a.phase, ''), 'Step:'))
        )
        SELECT i.file, any_value(s.format) AS format,
            bool_or(regexp_matches(coalesce(s.path, ''), ?) OR coalesce(i.source IN (SELECT source FROM horovod), false)) AS collectives
        FROM ingest_note AS i LEFT JOIN source AS s ON s.id = i.source
        WHERE i.code IN ({codes}) AND i.file IS NOT NULL
        GROUP BY i.file ORDER BY i.file
        """,
        [_HOROVOD, _NAMED],
    )
    broken = []
    for file, format, collectives in files.rows():
        possible = _EVERY if format is None else _HOLDS.get(format, frozenset())
        broken.append((file, _COLLECTIVES if format == _TIMELINE and collectives else possible))
    return broken


def _sentence(files: Sequence[str]) -> str:
    """Write the advice; empty without files."""
    if not files:
        return ""
    named = f"`{posixpath.basename(files[0])}`"
    if len(files) == 1:
        return f"Copy the whole of {named} again: it breaks off, and what this rule needs may stand behind the break."
    return f"Copy {count(len(files))} files again as a whole, {named} among them: they break off, and what this rule needs may be missing."
