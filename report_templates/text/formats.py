"""How does a number, a time or a name stand in a table or a sentence?

The wording is that of :mod:`postrun.analysis.toolkit.wording`, with no-break spaces, and a dash for what is not known.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import Final

from ...analysis.toolkit import wording

UNKNOWN: Final = "–"
NARROW_SPACE: Final = "\u202f"  # between groups of digits
_UNIT: Final = re.compile(r"(?<=\d) (?=(?:%|ns|µs|ms|s|min|h|d|[KMGT]iB|GB/s|B)(?![\w/]))")
_SENTENCE_END: Final = re.compile(r"[.!?](?=\s+[A-Z0-9`\"(])")
_LONGEST_SENTENCE: Final = 900
_GLUE: Final = str.maketrans({" ": "\u00a0", wording.THIN_SPACE: NARROW_SPACE, "-": "−"})


def count(value: int | None) -> str:
    return UNKNOWN if value is None else wording.count(value).translate(_GLUE)


def capitalized(text: str) -> str:
    return text[:1].upper() + text[1:]


def digits(number: int | None) -> str:
    """Write a number that identifies something, such as a stream."""
    return UNKNOWN if number is None else str(number)


def plural(number: int, one: str, many: str | None = None) -> str:
    """A count and its noun: 1 step, 2 steps."""
    return f"{count(number)}\u00a0{one if number == 1 else many or one + 's'}"


def step(number: int, again: int = 0) -> str:
    return wording.step(number, again)


def numbered(numbers: Iterable[int]) -> str:
    return wording.numbered(numbers)


def significant(value: float | None) -> str:
    return UNKNOWN if value is None else wording.significant(value).translate(_GLUE)


def duration(nanoseconds: float | None) -> str:
    return UNKNOWN if nanoseconds is None else wording.duration(nanoseconds).translate(_GLUE)


def since(start: int) -> Callable[[int], str]:
    """Make a format that writes moments as the time since ``start``."""
    return lambda moment: duration(moment - start)


def shift(nanoseconds: int) -> str:
    """What was added to the times of a file, with its sign; of more than a year only that they were brought to the epoch."""
    if abs(nanoseconds) > 366 * 86_400 * 10**9:
        return "brought to the epoch"
    return f"{'−' if nanoseconds < 0 else '+'}{duration(abs(nanoseconds))}"


def size(value: float | None) -> str:
    return UNKNOWN if value is None else wording.size(value).translate(_GLUE)


def percent(value: float | None) -> str:
    return UNKNOWN if value is None else wording.percent(value).translate(_GLUE)


def percent_of(part: float, whole: float | None) -> float | None:
    return 100 * part / whole if whole else None


def points(difference: float | None) -> str:
    """A difference of two percentages, in percentage points with its sign."""
    if difference is None:
        return UNKNOWN
    near = round(difference, 1)
    return f"{'+' if near > 0 else '−' if near < 0 else ''}{abs(near):.1f}\u00a0pp"


def bandwidth(gb_per_s: float | None) -> str:
    return UNKNOWN if gb_per_s is None else f"{significant(gb_per_s)}\u00a0GB/s"


def quantity(value: float | None, unit: str) -> str:
    """A sampled metric in its own unit: percentages with one decimal, bytes in binary units, others with three significant digits."""
    if value is None:
        return UNKNOWN
    if unit.startswith("%") or unit == "percent":
        return percent(value)
    base, slash, per = unit.partition("/")
    if base in ("B", "bytes", "byte"):
        return size(value) + slash + per
    return f"{significant(value)}\u00a0{unit}".rstrip()


def glued(text: str) -> str:
    """``text`` with no-break spaces between numbers and their units, and between groups of digits."""
    return _UNIT.sub("\u00a0", text).replace(wording.THIN_SPACE, NARROW_SPACE)


def moment(nanoseconds: int | None, *, relative: bool = False) -> str:
    """A point in time: UTC to the second, or, where no source has an epoch, the time since the anchor."""
    if nanoseconds is None:
        return UNKNOWN
    return "+" + duration(nanoseconds) if relative else wording.moment(nanoseconds).replace(" UTC", "\u00a0UTC")


def printable(text: str) -> str:
    """``text`` without the characters that HTML and XML forbid: control characters, lone surrogates, non-characters."""
    if text.isprintable():
        return text
    return "".join(character if _allowed(ord(character)) else "\ufffd" for character in text)


def _allowed(code: int) -> bool:
    if code < 0x20:
        return code in (0x09, 0x0A)
    return not (0x7F <= code < 0xA0 or 0xD800 <= code < 0xE000 or 0xFDD0 <= code < 0xFDF0 or code & 0xFFFE == 0xFFFE)


def clip(text: str, limit: int, *, tail: float = 1 / 3) -> str:
    """``text`` of at most ``limit`` characters; what is too long loses its middle. ``tail``: the share of the rest that is its end."""
    if len(text) <= limit:
        return text
    end = int((limit - 1) * tail)
    return text[: limit - 1 - end] + "…" + text[len(text) - end :]


def sentences(text: str, limit: int) -> str:
    """As many whole sentences of ``text`` as have room in ``limit`` characters, and the first in any case. Only one that is longer than any
    that is meant to be read loses its end, after a word."""
    if len(text) <= limit:
        return text
    ends = [*(found.end() for found in _SENTENCE_END.finditer(text)), len(text)]
    end = max((end for end in ends if end <= limit), default=ends[0])
    if end <= _LONGEST_SENTENCE:
        return text[:end]
    return text[:_LONGEST_SENTENCE].rpartition(" ")[0].rstrip(",;:") + " …" if " " in text[:_LONGEST_SENTENCE] else clip(text, limit)


def first_sentences(text: str, most: int) -> tuple[str, str]:
    """The first ``most`` sentences of ``text``, and what follows them."""
    ends = [found.end() for found in _SENTENCE_END.finditer(text)]
    return (text, "") if len(ends) < most else (text[: ends[most - 1]], text[ends[most - 1] :].lstrip())
