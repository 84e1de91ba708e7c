"""The values of command-line options as texts -> checked values, except for options about rules."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any, Final

from .errors import UsageError

FORMATS: Final = ("html", "pdf", "json", "md", "junit", "rule-json")


def words(value: Any) -> list[str]:
    """Split a text, or each text of a list, at commas. Raise UsageError."""
    if not isinstance(value, str | list | tuple):
        raise UsageError(f"{value!r} is not a list of names")
    texts = [value] if isinstance(value, str) else value
    return [word for text in texts for part in str(text).split(",") if (word := part.strip())]


def choices(value: Any, accepted: Sequence[str], refusal: str) -> tuple[str, ...]:
    """Return a list's lower-case words, each once; else raise "docx is <refusal>"."""
    chosen = tuple(dict.fromkeys(word.lower() for word in words(value)))
    wrong = [word for word in chosen if word not in accepted]
    if wrong or not chosen:
        raise UsageError(f"{', '.join(wrong) or 'nothing'} is {refusal}; choose from {','.join(accepted)}")
    return chosen


def formats(value: Any) -> tuple[str, ...]:
    """Return the words of --format, each once. Raise UsageError."""
    return choices(value, FORMATS, "not a report format")


def redactions(value: Any) -> tuple[str, ...]:
    """Return the words of --redact, each once. Raise UsageError."""
    from .native.recording.host_name import KINDS

    chosen = [word.lower() for word in words(value)]
    wrong = [word for word in chosen if word not in KINDS]
    if wrong:
        import difflib

        near = difflib.get_close_matches(wrong[0], KINDS, n=1)
        meant = f" (did you mean {near[0]}?)" if near else ""
        raise UsageError(f"{', '.join(wrong)} cannot be redacted{meant}; choose from {','.join(KINDS)}")
    return tuple(dict.fromkeys(chosen))


def memory_size(value: str) -> str:
    """Check a --memory-limit or --max-unpacked for the database."""
    if not re.fullmatch(r"\d+(\.\d+)?\s*([KMGT]i?B)", value, re.IGNORECASE):
        raise UsageError(f"{value!r} is not a size; write it like 600MB or 2GB")
    return value


def same(value: str) -> tuple[str, ...]:
    """Return the file names of one --same. Raise UsageError for fewer than two."""
    names = tuple(words(value))
    if len(names) < 2:
        raise UsageError(f"{value!r} names fewer than two files; write it like smi.csv,trace.json")
    return names


def peak(value: str) -> tuple[str, str]:
    """Return the name and the text of the value of one --peak."""
    name, separator, number = value.partition("=")
    if not separator or not name.strip() or not number.strip():
        raise UsageError(f"{value!r} is not a peak; write it like bf16=989 (TFLOPS) or memory=3350 (GB/s)")
    return name.strip(), number.strip()


def price(value: str) -> tuple[float, str]:
    """Return the amount and the currency of --price-per-gpu-hour."""
    match = re.fullmatch(r"\s*(\d{1,12}(?:\.\d{1,12})?)\s*([^\d\s.,+-][^\d\s]{0,9})\s*", value)
    if match is None:
        raise UsageError(f"{value!r} is not a price; write it with its currency, like '2.50 USD'")
    return float(match[1]), match[2]


_UNITS: Final = {"ns": 1, "us": 10**3, "ms": 10**6, "s": 10**9, "min": 60 * 10**9, "h": 3600 * 10**9}


def clock_offset(value: str) -> tuple[str, int]:
    """Return the file name and the nanoseconds of one --clock-offset."""
    match = re.fullmatch(rf"(.+)=\s*([+-]?\d{{1,20}}(?:\.\d{{1,20}})?)\s*({'|'.join(_UNITS)})\s*", value)
    nanoseconds = Decimal(match[2]) * _UNITS[match[3]] if match else Decimal("NaN")
    if match is None or nanoseconds != nanoseconds.to_integral_value() or abs(nanoseconds) >= 2**62:
        raise UsageError(f"{value!r} is not a file and an offset in whole nanoseconds; write it like smi.csv=-1.5s ({', '.join(_UNITS)})")
    return match[1].strip(), int(nanoseconds)


def generated_at(text: str | None) -> int | None:
    """Return --generated-at or SOURCE_DATE_EPOCH in nanoseconds, or None."""
    if text is None:
        epoch = os.environ.get("SOURCE_DATE_EPOCH")
        if not epoch:
            return None
        if not epoch.isdigit():
            raise UsageError(f"SOURCE_DATE_EPOCH is {epoch!r}; it must be whole seconds since 1970")
        return int(epoch) * 1_000_000_000
    try:
        moment = datetime.fromisoformat(text)
    except ValueError as error:
        raise UsageError(f"--generated-at {text!r} is not a time; write it like 2026-11-21T06:40:00") from error
    moment = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
    return int(moment.timestamp()) * 1_000_000_000
