"""Warnings of the first page: a partial or failed run, relative times, errors and urgent notes of the readers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from ..report.run import Note, Run
from ..toolkit import wording
from .capture_notes import CODES

# How the headline describes the missing part of a partial run.
CUT: Final = "the trace was cut off"
UNREAD: Final = "a part of it could not"

_PARTIAL: Final = {
    CUT: "partial: the run or a trace of it was cut off",
    UNREAD: "partial: a part of the files could not be read",
}
# Codes of notes on files that broke off, and on files that could not be read in part or at all.
_BROKE_OFF: Final = frozenset({"truncated", "cut_stream", "corrupt_stream", "no_end", "missing_blocks"})
_NOT_READ: Final = frozenset(
    {"odd_entries", "functions_left_out", "not_readable", "unreadable", "lost_event", "too_long", "damaged", "undecodable"}
)
_URGENT: Final = frozenset({"several_runs", "checksum"}) | CODES  # codes of warnings that put figures of every section in doubt
_ERRORS: Final = 3  # errors of the readers on the first page; data quality lists all


def missing_part(run: Run, notes: Sequence[Note]) -> str:
    """Return the missing part of a partial run, CUT or UNREAD; else ""."""
    if run.status != "partial":
        return ""
    codes = {note.code for note in notes}
    return UNREAD if codes & _NOT_READ and not codes & _BROKE_OFF else CUT


def warnings(run: Run, notes: Sequence[Note]) -> tuple[str, ...]:
    """Return the warnings in the order of the first page."""
    lines = []
    if run.status == "partial":
        lines.append(_PARTIAL[missing_part(run, notes)])
    elif run.status in ("failed", "stopped"):
        lines.append(f"the run {'failed' if run.status == 'failed' else 'was stopped'}")
    if run.relative_times:
        lines.append("times are relative: no source has the time of day")
    lines += [note.message for note in notes if note.severity == "error"][:_ERRORS]
    lesser = [note for note in notes if note.severity == "warning"]
    lines += [note.message for note in lesser if note.code in _URGENT]
    if rest := sum(note.code not in _URGENT for note in lesser):
        lines.append(f"{wording.plural(rest, 'warning')} of the readers: see data quality")
    return tuple(lines)
