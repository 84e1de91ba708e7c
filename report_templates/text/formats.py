"""Formats of numbers, times, and names in tables and sentences.

The wording is that of :mod:`postrun.analysis.toolkit.wording`, with no-break spaces, and a dash for what is not known.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Sequence
from typing import Any, Final, TypeVar

from ...analysis.toolkit import wording
from ...messages import escape_of, escaped
from .glyphs import letters

T = TypeVar("T")

UNKNOWN: Final = "—"
_UNIT: Final = re.compile(r"(?<=\d) (?=(?:ns|µs|ms|s|min|h|d|[KMGT]iB|GB/s|B)(?![\w/]))")
_NUMBERED: Final = re.compile(r"\b([Rr]anks?|GPU|[Ss]teps?|[Ss]tage|[Ss]treams?) (?=\d)")
_SENTENCE_END: Final = re.compile(r"[.!?](?=\s+[A-Z0-9`\"(])")
# Code points without a character, which HTML and XML forbid; two end every plane.
_NO_CHARACTER: Final = re.compile(
    "[\ufdd0-\ufdef" + "".join(f"{chr(plane + 0xFFFE)}{chr(plane + 0xFFFF)}" for plane in range(0, 0x110000, 0x10000)) + "]"
)
_LONGEST_SENTENCE: Final = 900
_HEAD: Final = 12  # letters that stay at the start of a shortened name
_BEFORE: Final = 4  # letters that stay before those that distinguish a name
_GLUE: Final = str.maketrans({" ": "\u00a0", "-": "−"})


def _known(form: Callable[[T], str]) -> Callable[[T | None], str]:
    """Extend a format to None, and put no-break spaces into it."""
    return lambda value: UNKNOWN if value is None else form(value).translate(_GLUE)


count = _known(wording.count)
significant = _known(wording.significant)
duration = _known(wording.duration)  # of nanoseconds
size = _known(wording.size)  # of bytes
percent = _known(wording.percent)
signed_percent = _known(wording.signed_percent)  # of a change
threshold_text = _known(wording.threshold_text)
_PREFIXES: Final = ("", "k", "M", "G", "T", "P", "E")


def capitalized(text: str) -> str:
    return text[:1].upper() + text[1:]


def digits(number: int | None) -> str:
    """Write a number that identifies something, such as a stream."""
    return UNKNOWN if number is None else str(number)


def plural(number: int, noun: str, plural_noun: str | None = None) -> str:
    """Write a count and its noun: 1 step, 2 steps."""
    return f"{count(number)}\u00a0{noun if number == 1 else plural_noun or noun + ('es' if noun.endswith('s') else 's')}"


def tick(value: float) -> str:
    """Write a number of an axis without digits that float arithmetic adds: 0.3, 1,200."""
    return f"{value:,.10g}".replace("-", "−")


def united(number: str, unit: str) -> str:
    """Write a number before its unit: 12 ms, 70%, 70% of cores."""
    return f"{number}{'' if unit.startswith('%') else ' '}{unit}"


def since(start: int) -> Callable[[int], str]:
    """Make a format that writes moments as the time since ``start``."""
    return lambda moment: duration(moment - start)


def shift(nanoseconds: int) -> str:
    """Write the time added to a file's times; above a year, without a number."""
    if abs(nanoseconds) > 366 * 86_400 * 10**9:
        return "brought to the epoch"
    return f"{'−' if nanoseconds < 0 else '+'}{duration(abs(nanoseconds))}"


def percent_of(part: float, total: float | None) -> float | None:
    return 100 * part / total if total else None


def points(difference: float | None) -> str:
    """Write a difference of two percentages in percentage points with its sign."""
    if difference is None:
        return UNKNOWN
    near = round(difference, 1)
    return f"{'+' if near > 0 else '−' if near < 0 else ''}{abs(near):.1f}\u00a0pp"


def bandwidth(gb_per_s: float | None) -> str:
    return UNKNOWN if gb_per_s is None else f"{significant(gb_per_s)}\u00a0GB/s"


def scaled(value: float | None, unit: str) -> str:
    """Write a number of a unit with a decimal prefix: 17.2 GFLOP, 412 J, 3.1 kJ."""
    if value is None:
        return UNKNOWN
    power = 0
    while abs(value) >= 999.5 and power < len(_PREFIXES) - 1:
        value, power = value / 1000, power + 1
    return f"{significant(value)}\u00a0{_PREFIXES[power]}{unit}"


def shape(dims: Sequence[Any]) -> str:
    """Write the sizes of the tensors of a call: 32×128, 128×64."""
    return times_signed(wording.shape_text(dims)) or UNKNOWN


def times_signed(sizes: str | None) -> str | None:
    """Write the sizes of tensors with a multiplication sign: 32×128."""
    return None if sizes is None else re.sub(r"(?<=\d)x(?=\d)", "×", sizes)


def quantity(value: float | None, unit: str) -> str:
    """Write a sampled metric in its own unit, bytes in binary units."""
    if value is None:
        return UNKNOWN
    if unit.startswith("%") or unit == "percent":
        return percent(value)
    base, slash, per = unit.partition("/")
    if base in ("B", "bytes", "byte"):
        return size(value) + slash + per
    return f"{significant(value)}\u00a0{unit}".rstrip()


def glued(text: str) -> str:
    """Put no-break spaces between numbers and units."""
    return _UNIT.sub("\u00a0", text)


def numbered(text: str) -> str:
    """Put no-break spaces between "rank" and its number, for large type."""
    return _NUMBERED.sub("\\1\u00a0", text)


def moment(nanoseconds: int | None, *, relative: bool = False) -> str:
    """Write a point in time in UTC, or if ``relative``, as the time since the anchor."""
    if nanoseconds is None:
        return UNKNOWN
    return "+" + duration(nanoseconds) if relative else wording.moment(nanoseconds).replace(" UTC", "\u00a0UTC")


def printable(text: str) -> str:
    """Escape what HTML and XML forbid, and what changes the direction of text.

    The escapes are those of messages in a terminal: ``\\x1b``, ``\\u202e``."""
    return text if text.isprintable() else _NO_CHARACTER.sub(lambda found: escape_of(found[0]), escaped(text))


def clip(text: str, limit: int, *, tail: float = 1 / 3) -> str:
    """Shorten text in its middle to ``limit`` letters.

    ``tail``: the share of the rest that is its end. A character without a glyph in the PDF counts as the letters of its escape."""
    text = printable(text)
    if length_of(text) <= limit:
        return text
    end = int((limit - 1) * tail)
    return _start(text, limit - 1 - end) + "…" + _start(text[::-1], end)[::-1]


def length_of(text: str) -> int:
    """Return the number of letters of a text in the PDF."""
    return len(text) if text.isascii() else sum(map(letters, text))


def _start(text: str, room: int) -> str:
    """Return the characters at the start that fit into ``room`` letters."""
    if text.isascii():
        return text[:room]
    ends = itertools.accumulate(map(letters, text[:room]))
    return text[: sum(end <= room for end in ends)]


def ended(text: str, limit: int) -> str:
    """Shorten a sentence at its end, after a word; a long word in its middle."""
    text = printable(text)
    if length_of(text) <= limit:
        return text
    words = _start(text, limit - 1).rpartition(" ")[0].rstrip(",;: ")
    return f"{words} …" if len(words) >= limit // 2 else clip(text, limit)


def clipped(names: Sequence[str], limit: int) -> list[str]:
    """Shorten names in their middle, but keep the part that distinguishes them."""
    names = list(map(printable, names))
    short = [clip(name, limit) for name in names]
    alike: dict[str, list[str]] = {}
    for name, text in zip(names, short, strict=True):
        alike.setdefault(text, []).append(name)
    return [
        text if len(set(alike[text])) == 1 else _apart(name, _common(alike[text]), limit) for name, text in zip(names, short, strict=True)
    ]


def _common(names: Sequence[str]) -> int:
    """Return the number of letters with which all names begin."""
    first, last = min(names), max(names)
    return next((i for i, (one, another) in enumerate(zip(first, last, strict=False)) if one != another), len(first))


def _apart(name: str, common: int, limit: int) -> str:
    """Shorten a name around the letters that distinguish it."""
    if len(name) <= limit:
        return name
    begin = max(common - _BEFORE, 0)
    tail = clip(name[begin:], max(limit - 1 - _HEAD, _HEAD), tail=0.0)
    return f"{name[: max(limit - 1 - len(tail), _HEAD)]}…{tail}"


def sentences(text: str, limit: int) -> str:
    """Keep the first sentence and those after it that fit into ``limit`` characters.

    A first sentence that is too long to read loses its end, after a word.
    """
    if len(text) <= limit:
        return text
    ends = [*(match.end() for match in _SENTENCE_END.finditer(text)), len(text)]
    end = max((end for end in ends if end <= limit), default=ends[0])
    if end <= _LONGEST_SENTENCE:
        return text[:end]
    return ended(text, _LONGEST_SENTENCE if " " in text[:_LONGEST_SENTENCE] else limit)


def first_sentences(text: str, most: int) -> tuple[str, str]:
    """Return the first ``most`` sentences of ``text``, and the rest."""
    ends = [match.end() for match in _SENTENCE_END.finditer(text)]
    return (text, "") if len(ends) < most else (text[: ends[most - 1]], text[ends[most - 1] :].lstrip())
