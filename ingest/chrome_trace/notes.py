"""Notes on the defects of a trace and on records that the profiler reports as missing."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from typing import Final

from ..store.limits import LEFT_OUT, NAME_TEXT_BYTES, NAMES, TEXT_BYTES
from ..store.store import Store
from ..store.tables import Severity
from .defect import Defect
from .scan import MEMBER_LIMIT

TRUNCATING: Final = frozenset({"truncated", "cut_stream", "corrupt_stream", "lost_event", "too_long", "too_deep", "unpacked_limit"})
"""Codes of defects that mean that a part of the run is missing."""
_OF_LIMIT: Final = frozenset({"truncated", "lost_bytes", "lost_event", "broken_member"})  # also follow from ``unpacked_limit``

_MESSAGES: Final[dict[str, tuple[Severity, str]]] = {
    "control_character": ("info", "Raw control characters inside texts were kept."),
    "invalid_escape": ("info", "Backslashes that start no JSON escape (Windows paths) were kept as they stand."),
    "invalid_utf8": ("info", "Bytes that are not UTF-8 were replaced."),
    "lone_surrogate": ("info", "Halves of surrogate pairs were replaced."),
    "bare_word": ("info", "Unquoted words (N/A, NaN) and malformed numbers were read as missing values."),
    "empty_value": ("info", "Members without a value were read as missing values."),
    "bare_quote": ("info", "Unescaped quotes inside texts were kept."),
    "trailing_comma": ("info", "Superfluous commas were ignored."),
    "missing_comma": ("info", "Missing commas between events were ignored."),
    "not_an_event": ("warning", "Values that are no event stood between the events; they were skipped."),
    "no_phase": ("info", "Events without a phase (\"ph\") were skipped."),
    "no_timestamp": ("warning", "Events without a usable time were dropped."),
    "number_out_of_range": ("warning", "Numbers beyond 64 bits were read as missing values."),
    "lost_event": ("warning", "Places that could not be read as events were skipped; at least one event each is missing."),
    "lost_bytes": ("warning", "Bytes of text could not be read as events."),
    "too_long": ("warning", "Events longer than the limit were skipped."),
    "too_deep": ("warning", "Events nested deeper than the limit were skipped."),
    "truncated": ("warning", "The trace breaks off (a killed job, a full disk); the events before the break are reported."),
    "broken_member": ("warning", "Members beside the events could not be read."),
    "trailing_garbage": ("info", "Bytes behind the end of the trace were ignored."),
    "not_json": ("warning", "No event could be found in the text."),
    "empty": ("warning", "The file is empty."),
    "text_cut": ("warning", f"Texts longer than {TEXT_BYTES >> 10} KiB were cut; each shows its length and a checksum."),
    "text_left_out": (
        "warning",
        f"The file has more than {NAMES:,} texts or {NAME_TEXT_BYTES >> 20} MiB of them, the limit; the others read {LEFT_OUT}.",
    ),
    "metadata_left_out": ("warning", f"Metadata events beyond the limit of {MEMBER_LIMIT >> 20} MiB were left out."),
    "combination_left_out": (
        "warning",
        f"The file has more than {NAMES:,} signatures of operators or {NAME_TEXT_BYTES >> 20} MiB of them, the limit; calls with further"
        " ones have no shapes and no stacks.",
    ),
    "no_extension": (
        "info",
        "The trace was read without the compiled extension, which takes many times as long; install postrun with a C compiler.",
    ),
    "cut_stream": ("warning", "The compressed file is cut off (a killed job, an unfinished copy); what comes before is reported."),
    "corrupt_stream": ("warning", "The compressed data is damaged; what comes before the damage is reported. Copy the file again."),
    "unpacked_limit": (
        "warning",
        "The file unpacks to more than the limit of --max-unpacked; the rest of it is missing. Raise the limit to read it all.",
    ),
    "checksum": ("warning", "The checksum of the compressed data does not match; figures may be wrong. Copy the file again."),
}  # fmt: skip

# "Record counts: Out-of-range = 3829, ..., CUPTI stopped early? = 1": counts of records that are missing from the trace.
_LOSSES: Final = {
    "out-of-range": ("out_of_range", "The profiler left out device records that lie outside its own time window."),
    "invalid ext correlations": ("invalid_correlations", "The profiler could not link device records to operators."),
    "cpu gpu out-of-order": ("out_of_order", "The profiler saw device work that starts before its launch and left it out."),
    "unexpected cuda events": ("unexpected_events", "The profiler saw device events that it did not expect."),
    "cupti stopped early?": ("stopped_early", "The device tracer stopped before the profile ended: device work is missing."),
}
_COUNT: Final = re.compile(r"([A-Za-z][A-Za-z ?-]*?)\s*=\s*(\d{1,15})")
_DROPPED: Final = re.compile(r"\b(dropp(?:ed|ing)|lost|overflow(?:ed)?)\b", re.IGNORECASE)
_NONE: Final = re.compile(r"\b(dropp(?:ed|ing)|lost|overflow(?:ed)?)\b\D{0,20}\b0\b|\b0\b\D{0,20}\b(dropp(?:ed|ing)|lost)\b", re.IGNORECASE)
_MOST_LINES: Final = 20


def note_defects(store: Store, source: int, file: str, defects: Iterable[Defect]) -> None:
    """Write one note per kind of damage, with the offset and text of the first."""
    defects = list(defects)
    limited = any(defect.code == "unpacked_limit" for defect in defects)
    for defect in defects:
        if limited and defect.code in _OF_LIMIT:
            continue
        severity, message = _MESSAGES.get(defect.code, ("warning", f"Damage of kind {defect.code} was found."))
        example = defect.example.encode("unicode_escape").decode("ascii")[:60]
        if defect.code not in {"empty", "cut_stream", "no_extension"}:
            message = f"{message[:-1]}; first at byte {defect.first_offset:,}" + (f" ({example})." if example else ".")
        store.note(severity, defect.code, message, count=defect.count, source=source, file=file)


def note_info_lines(store: Store, source: int, file: str, lines: object) -> None:
    """Warn of missing records that the profiler's log (member ``INFO``) reports."""
    losses = Counter[str]()
    dropped: list[str] = []
    for line in lines if isinstance(lines, list) else ():
        if not isinstance(line, str):
            continue
        counts = {key.strip().lower(): int(value) for key, value in _COUNT.findall(line[:10_000])}
        losses.update({key: counts[key] for key in _LOSSES.keys() & counts.keys()})
        if _DROPPED.search(line) and not _NONE.search(line) and len(dropped) < _MOST_LINES:
            dropped.append(line[:200])
    for key, (code, message) in _LOSSES.items():
        if losses[key]:
            store.note("warning", code, message, count=losses[key], source=source, file=file)
    for line in dropped:
        store.note("warning", "profiler_dropped", f"The profiler says that it lost records: {line}", source=source, file=file)
