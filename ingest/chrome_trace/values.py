"""Decodes the top-level members and the M events of a Chrome trace: JSON text -> Python data.

The scanners hand over these texts as the file has them. Damaged text is repaired as the C scanner repairs events, such as unescaped quotes
inside a string. Text that cannot be repaired comes back as str.
"""

from __future__ import annotations

import json
import re
from typing import Any, Final, NoReturn

_WHITE: Final = b" \t\r\n"
_SKIP_WHITE: Final = re.compile(rb"[ \t\r\n]*")
_QUOTE_OR_ESCAPE: Final = re.compile(rb'["\\]')
_BARE_WORD: Final = re.compile(rb'[^ \t\r\n,:\[\]{}"\x00-\x1f\x7f-\xff]+')
_NUMBER: Final = re.compile(r"[+-]?(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][+-]?\d+)?", re.ASCII)
_LONGEST_INT: Final = 4000  # digits; int() refuses more than 4300
_WORDS: Final = {"true": True, "false": False, "null": None}
_EVENT_KEY: Final = re.compile(rb'"(?:ph|cat|name|pid|tid|ts|dur|args|id|id2|s|bp|tts|tdur|cname|sf|scope)"[ \t\r\n]{0,64}:')
_OPENING_BEFORE: Final = re.compile(rb"\{[ \t\r\n]{0,64}\Z")
# The next key: after a backslash and a quote it shows that the string nevertheless ends there.
_NEXT_KEY: Final = re.compile(rb'[ \t\r\n]{0,64},[ \t\r\n]{0,64}"(?![ \t\r\n]*[,}\]])[^"\\\x00-\x1f]{1,64}"[ \t\r\n]{0,64}:')
_ESCAPE: Final = re.compile(
    r'\\u(?P<high>[dD][89abAB][0-9a-fA-F]{2})\\u(?P<low>[dD][c-fC-F][0-9a-fA-F]{2})|\\u(?P<unit>[0-9a-fA-F]{4})|\\(?P<plain>["\\/bfnrt])'
)
_PLAIN: Final = dict(zip('"\\/bfnrt', '"\\/\b\f\n\r\t', strict=True))


class _DamagedError(Exception):
    """The text cannot be repaired, or needs repair."""


def _needs_repair(*_: object) -> NoReturn:
    raise _DamagedError


def decode_value(raw: bytes) -> Any:
    """Return the value of the text ``raw``, or the text itself if it cannot be read."""
    try:
        text = raw.decode("utf-8")
        if "\\ud" not in text.lower():  # perhaps half of a surrogate pair
            return json.loads(text, parse_constant=_needs_repair)
    except (ValueError, RecursionError, _DamagedError):
        pass
    try:
        # In the file, a comma and a quote follow the value, and end a bare word or a string.
        value, end = _Repair(raw + b',"').value(0, 0, in_array=False)
        if end >= len(raw.rstrip(_WHITE)):
            return value
    except (RecursionError, _DamagedError):
        pass
    return raw.decode("utf-8", "replace")


class _Repair:
    """Reads one value of damaged JSON. Positions are byte offsets, ``depth`` is the number of open arrays and objects."""

    def __init__(self, text: bytes) -> None:
        self._text = text

    def value(self, at: int, depth: int, *, in_array: bool) -> tuple[Any, int]:
        """Return the value at or after ``at``, and its end."""
        at = self._skip_white(at)
        match chr(self._text[at]):
            case "{":
                return self._object(at + 1, depth + 1)
            case "[":
                return self._array(at + 1, depth + 1)
            case '"':
                return self._string(at, depth, in_array)
            case "," | "}" | "]":  # the value is missing
                return None, at
        return self._word(at)

    def _skip_white(self, at: int) -> int:
        skipped = _SKIP_WHITE.match(self._text, at)
        at = skipped.end() if skipped else at
        if at >= len(self._text):
            raise _DamagedError
        return at

    def _object(self, at: int, depth: int) -> tuple[dict[str, Any], int]:
        members: dict[str, Any] = {}
        while True:
            at = self._skip_white(at)
            match chr(self._text[at]):
                case "}":
                    return members, at + 1
                case ",":
                    at += 1
                case '"':
                    key, at = self._key(at)
                    members[key], at = self.value(at, depth, in_array=False)
                    at = self._after_value(at, b",}")
                case _:
                    raise _DamagedError

    def _array(self, at: int, depth: int) -> tuple[list[Any], int]:
        elements: list[Any] = []
        while True:
            at = self._skip_white(at)
            if self._text[at] == ord("]"):
                return elements, at + 1
            element, at = self.value(at, depth, in_array=True)
            elements.append(element)
            at = self._after_value(at, b",]")

    def _after_value(self, at: int, allowed: bytes) -> int:
        at = self._skip_white(at)
        if self._text[at] not in allowed:
            raise _DamagedError
        return at + (self._text[at] == ord(","))

    def _key(self, at: int) -> tuple[str, int]:
        end = at + 1
        while self._text[(end := self._next_quote_or_escape(end))] != ord('"'):
            end += 2
        colon = self._skip_white(end + 1)
        if self._text[colon] != ord(":"):
            raise _DamagedError
        return _decoded(self._text[at + 1 : end]), colon + 1

    def _string(self, at: int, depth: int, in_array: bool) -> tuple[str, int]:
        end = at + 1
        while True:
            end = self._next_quote_or_escape(end)
            if self._text[end] == ord('"'):
                if self._ends_string(end, depth, in_array):
                    break
                if _EVENT_KEY.match(self._text, end) and _OPENING_BEFORE.search(self._text, max(at + 1, end - 65), end):
                    raise _DamagedError  # the next event begins inside the string
                end += 1
            elif self._text[end + 1 : end + 2] == b'"' and _NEXT_KEY.match(self._text, end + 2):
                end += 1
                break
            else:
                end += 2
        return _decoded(self._text[at + 1 : end]), end + 1

    def _next_quote_or_escape(self, at: int) -> int:
        special = _QUOTE_OR_ESCAPE.search(self._text, at)
        if special is None:
            raise _DamagedError
        return special.start()

    def _ends_string(self, quote: int, depth: int, in_array: bool) -> bool:
        """Decide by the following text whether a quote ends a string."""
        at = self._skip_white(quote + 1)
        if self._text[at] == ord(","):
            return in_array or self._text[self._skip_white(at + 1)] in b'"}'
        if self._text[at] == ord("]" if in_array else "}"):
            return depth < 2 or self._text[self._skip_white(at + 1)] in b",}]"
        return False

    def _word(self, at: int) -> tuple[Any, int]:
        """Read a number, true, false or null; None for another word."""
        word = _BARE_WORD.match(self._text, at)
        if word is None or self._text[word.end()] not in b' \t\r\n,:]}["{':
            raise _DamagedError
        text = word[0].decode("ascii")
        if _NUMBER.fullmatch(text):
            return _number(text), word.end()
        return _WORDS.get(text), word.end()


def _number(text: str) -> int | float | str:
    if len(text) > _LONGEST_INT:
        return text
    return int(text) if text.lstrip("+-").isdigit() else float(text)


def _decoded(raw: bytes) -> str:
    """Return the text inside the quotes of a string; unknown escapes stay."""
    return _ESCAPE.sub(_unescaped, raw.decode("utf-8", "replace"))


def _unescaped(match: re.Match[str]) -> str:
    if match["plain"]:
        return _PLAIN[match["plain"]]
    if match["high"]:
        return chr(0x10000 + ((int(match["high"], 16) - 0xD800) << 10) + int(match["low"], 16) - 0xDC00)
    unit = int(match["unit"], 16)
    return "\ufffd" if 0xD800 <= unit < 0xE000 else chr(unit)
