"""Warnings of the first page: a partial or failed run, relative times, errors and urgent notes of the readers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Final

from ..report.run import Note, Run
from ..toolkit import wording
from .capture_notes import CODES
from .summary_steps import SEVERAL

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


def data_state(run: Run, notes: Sequence[Note], captured: int) -> str:
    """Word the state of the data: "complete", "3 of 8 ranks", "cut", "2 warnings".

    ``captured``: number of ranks in the data, 0 if unknown."""
    if run.status == "partial":
        return "incomplete"
    parts = []
    if captured and run.world_size and captured < run.world_size:
        parts.append(f"{wording.count(captured)} of {wording.count(run.world_size)} ranks")
    parts += note_counts(note for note in notes if note.severity != "info")
    return ", ".join(parts) or "complete"


def note_counts(notes: Iterable[Note]) -> list[str]:
    """Count notes by severity: ["1 error", "2 warnings", "4 notes"]."""
    severities = Counter(note.severity for note in notes)
    nouns = (("error", "error"), ("warning", "warning"), ("info", "note"))
    return [wording.plural(severities[severity], noun) for severity, noun in nouns if severities[severity]]


def caveats(run: Run, ranks: Sequence[int], profiled_steps: int | None, window_ns: int) -> tuple[str, ...]:
    """Return the limits of the recording that weaken the conclusions.

    ``ranks``: in the data; ``profiled_steps``: number of steps with device work, None if the run has none."""
    lines = []
    if ranks and run.world_size and len(ranks) < run.world_size:
        named = f"rank {ranks[0]} of {{}} was" if len(ranks) == 1 else f"{wording.count(len(ranks))} of {{}} ranks were"
        lines.append(f"Only {named.format(wording.count(run.world_size))} captured: waits for other ranks count as communication.")
    if profiled_steps is not None and profiled_steps < SEVERAL and window_ns:
        steps = wording.plural(profiled_steps, "step")
        lines.append(f"Only {steps} ({wording.duration(window_ns)}) {'was' if profiled_steps == 1 else 'were'} profiled.")
    return tuple(lines)


def warnings(run: Run, notes: Sequence[Note]) -> tuple[str, ...]:
    """Return the warnings in the order of the first page."""
    lines = []
    if run.status == "partial":
        lines.append(_PARTIAL[missing_part(run, notes)])
    elif run.status in ("failed", "stopped"):
        lines.append(f"the run {'failed' if run.status == 'failed' else 'was stopped'}")
    if run.relative_times:
        lines.append("no wall-clock time in the input; times start at 0")
    lines += [note.message for note in notes if note.severity == "error"][:_ERRORS]
    lesser = [note for note in notes if note.severity == "warning"]
    lines += [note.message for note in lesser if note.code in _URGENT]
    if rest := sum(note.code not in _URGENT for note in lesser):
        lines.append(f"{wording.plural(rest, 'input warning')}; see Data quality")
    return tuple(lines)
