"""A second implementation of the trace scanner, simple rather than quick: the oracle for the C scanner and for ``PythonScanner``.

It repairs damaged text by the rules of ``native/src/scan``. Events that are plain JSON go through :mod:`json`, the others through
the tolerant reader ``_Reader``.

The text is cut into *units*: an event, or a top-level member. A unit is read only when it is there completely, and leaves
nothing behind if it cannot be read, so results do not depend on how the text was cut into chunks.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from typing import Any, Final, NoReturn, TypeGuard

from postrun.ingest.store.limits import LEFT_OUT, cut_text

_WHITE: Final = b" \t\r\n"
_WORD_END: Final = frozenset(b' \t\r\n,:]}["{')
_SKIP_WHITE: Final = re.compile(rb"[ \t\r\n]*")
_WORD: Final = re.compile(rb'[^ \t\r\n,:\[\]{}"\x00-\x1f\x7f-\xff]*')
_NUMBER: Final = re.compile(r"([+-]?)(?:([0-9]+)(?:\.([0-9]*))?|\.([0-9]+))(?:[eE]([+-]?)([0-9]+))?\Z")
_HEXADECIMAL: Final = re.compile(r"0[xX]([0-9a-fA-F]+)\Z")
_EVENT_KEYS: Final = rb"(?:ph|cat|name|pid|tid|ts|dur|args|id|id2|s|bp|tts|tdur|cname|sf|scope)"
_RESTART: Final = re.compile(rb'\{[ \t\r\n]{0,64}"' + _EVENT_KEYS + rb'"[ \t\r\n]{0,64}:|("traceEvents"[ \t\r\n]{0,64}:[ \t\r\n]{0,64}\[)')
_RESTART_LONGEST: Final = 160
_EVENT_KEY_HERE: Final = re.compile(rb'"' + _EVENT_KEYS + rb'"[ \t\r\n]{0,64}:')
_OPENING_BEFORE: Final = re.compile(rb"\{[ \t\r\n]{0,64}\Z")
_LIKE_JSON_LINES: Final = re.compile(rb'\{[ \t\r\n]{0,64}"ph"[ \t\r\n]{0,64}:')
_LIKE_EVENTS: Final = re.compile(rb"\[[ \t\r\n]{0,64}" + _LIKE_JSON_LINES.pattern)
# what follows a backslash and a quote if the string ends there all the same: the next key
_NEXT_KEY: Final = re.compile(rb'[ \t\r\n]{0,64},[ \t\r\n]{0,64}"(?![ \t\r\n]*[,}\]])[^"\\\x00-\x1f]{1,64}"[ \t\r\n]{0,64}:')
_IN_STRING: Final = re.compile(rb'["\\]')
_IN_RAW: Final = re.compile(rb'["\\\x00-\x1f\x80-\xff]')
_HEX4: Final = re.compile(rb"[0-9a-fA-F]{4}")
_ESCAPES: Final = {ord(k): v for k, v in zip('"\\/bfnrt', ('"', "\\", "/", "\b", "\f", "\n", "\r", "\t"), strict=True)}
_WORDS: Final[dict[bytes, Any]] = {b"true": True, b"false": False, b"null": None}
_INT64: Final = range(-(2**63) + 1, 2**63)
_TEXT_ID_BASE: Final = -(2**62)
_EXAMPLE: Final = 60
_WINDOW: Final = 1 << 16  # json's error messages count the lines before an error, so its text is kept short
_METADATA_BYTES: Final = 64  # what an M event takes in addition to its text
_STRIPPED: Final = " \t\r\n"
_LONGEST_INT: Final = 4000  # digits; int() refuses more than 4300


class _Number(str):
    """The text of a number."""

    __slots__ = ()


class _Object(list[tuple[str, Any]]):
    """Members in the order of the text, duplicates kept; ``span`` is set by the tolerant reader only."""

    span: tuple[int, int] | None = None


class _Array(list[Any]):
    span: tuple[int, int] | None = None


class _NeedMoreError(Exception):
    """The unit goes on behind the text that is there."""


class _BrokenError(Exception):
    """The unit cannot be read; ``position`` is where that became clear, ``reason`` a Defect code or None."""

    def __init__(self, position: int, reason: str | None = None) -> None:
        super().__init__(position, reason)
        self.position = position
        self.reason = reason


class _NotPlainError(Exception):
    """The text needs the tolerant reader."""


def _not_plain(*_: object) -> NoReturn:
    raise _NotPlainError


_PLAIN: Final = json.JSONDecoder(object_pairs_hook=_Object, parse_int=_Number, parse_float=_Number, parse_constant=_not_plain, strict=True)

_Note = Callable[[str, int], None]


def decode_string(raw: bytes, at: int, note: _Note) -> str:
    """Return the text inside of a JSON string; call ``note(code, offset)`` per repair."""
    out: list[str] = []
    i, n = 0, len(raw)
    while i < n:
        special = _IN_RAW.search(raw, i)
        if special is None:
            out.append(raw[i:].decode("ascii"))
            break
        j = special.start()
        out.append(raw[i:j].decode("ascii"))
        i = j
        c = raw[i]
        if c == 0x22:
            note("bare_quote", at + i)
            out.append('"')
            i += 1
        elif c < 0x20:
            note("control_character", at + i)
            out.append(chr(c))
            i += 1
        elif c >= 0x80:
            text, size = _decode_utf8(raw, i)
            if text == "\ufffd" and raw[i : i + size] != b"\xef\xbf\xbd":
                note("invalid_utf8", at + i)
            out.append(text)
            i += size
        else:
            follows = raw[i + 1] if i + 1 < n else -1
            if follows in _ESCAPES:
                out.append(_ESCAPES[follows])
                i += 2
            elif follows == 0x75 and _HEX4.match(raw, i + 2):
                unit = int(raw[i + 2 : i + 6], 16)
                size = 6
                if 0xD800 <= unit < 0xDC00 and raw[i + 6 : i + 8] == b"\\u" and _HEX4.match(raw, i + 8):
                    low = int(raw[i + 8 : i + 12], 16)
                    if 0xDC00 <= low < 0xE000:
                        unit = 0x10000 + ((unit - 0xD800) << 10) + (low - 0xDC00)
                        size = 12
                if 0xD800 <= unit < 0xE000:
                    note("lone_surrogate", at + i)
                    unit = 0xFFFD
                out.append(chr(unit))
                i += size
            else:
                note("invalid_escape", at + i)
                out.append("\\")
                i += 1
    return "".join(out)


def _decode_utf8(raw: bytes, i: int) -> tuple[str, int]:
    """Return a character, or U+FFFD for a damaged one, and its length in bytes."""
    piece = raw[i : i + 4]
    try:
        character = piece.decode("utf-8")[0]
    except UnicodeDecodeError as error:
        if error.start == 0:
            return "\ufffd", error.end
        character = piece[: error.start].decode("utf-8")[0]
    return character, len(character.encode())


class _Reader:
    """Reads one value of tolerated JSON from ``text[start:end]``, without recursion."""

    def __init__(self, text: bytes, end: int, depth_limit: int, note: _Note) -> None:
        self.text = text
        self.end = end
        self.depth_limit = depth_limit
        self.note = note
        self.stack: list[_Object | _Array] = []

    def white(self, i: int) -> int:
        match = _SKIP_WHITE.match(self.text, i, self.end)
        i = match.end() if match else i
        if i >= self.end:
            raise _NeedMoreError
        return i

    def key(self, i: int) -> tuple[str, int]:
        """The key that starts at the quote ``i``, and where its value may start."""
        j = i + 1
        while True:
            special = _IN_STRING.search(self.text, j, self.end)
            if special is None:
                raise _NeedMoreError
            j = special.start()
            if self.text[j] == 0x22:
                break
            j += 2
        colon = self.white(j + 1)
        if self.text[colon] != 0x3A:
            raise _BrokenError(j)
        return decode_string(self.text[i + 1 : j], i + 1, self.note), colon + 1

    def bare_string(self, i: int) -> int:
        """Return the end of a string instead of an event; it must not look like a key."""
        j = i + 1
        while True:
            special = _IN_STRING.search(self.text, j, self.end)
            if special is None:
                raise _NeedMoreError
            j = special.start()
            if self.text[j] == 0x22:
                break
            j += 2
        follows = self.white(j + 1)
        if self.text[follows] not in b",]":
            raise _BrokenError(follows)
        decode_string(self.text[i + 1 : j], i + 1, self.note)
        return j + 1

    def _ends(self, quote: int, in_array: bool) -> bool:
        """Whether the quote ends a value, by what follows it."""
        i = self.white(quote + 1)
        c = self.text[i]
        if c == 0x2C:
            return in_array or self.text[self.white(i + 1)] in b'"}'
        if c == (0x5D if in_array else 0x7D):
            return len(self.stack) < 2 or self.text[self.white(i + 1)] in b",}]"
        return False

    def string(self, i: int) -> tuple[str, int]:
        """The value string that starts at the quote ``i``, and where it ends."""
        in_array = bool(self.stack) and isinstance(self.stack[-1], _Array)
        j = i + 1
        while True:
            special = _IN_STRING.search(self.text, j, self.end)
            if special is None:
                raise _NeedMoreError
            j = special.start()
            if self.text[j] == 0x22:
                if self._ends(j, in_array):
                    break
                if _EVENT_KEY_HERE.match(self.text, j, self.end):
                    opening = _OPENING_BEFORE.search(self.text, max(i + 1, j - 65), j)
                    if opening:
                        raise _BrokenError(opening.start())
                j += 1
            else:
                if j + 1 >= self.end:
                    raise _NeedMoreError
                if self.text[j + 1] == 0x22 and _NEXT_KEY.match(self.text, j + 2, self.end):
                    j += 1
                    break
                j += 2
        return decode_string(self.text[i + 1 : j], i + 1, self.note), j + 1

    def word(self, i: int) -> tuple[Any, int]:
        """A number, true, false or null; anything else printable is null with a Defect."""
        match = _WORD.match(self.text, i, self.end)
        j = match.end() if match else i
        if j >= self.end:
            raise _NeedMoreError
        if j == i or self.text[j] not in _WORD_END:
            raise _BrokenError(j)
        word = self.text[i:j]
        if word in _WORDS:
            return _WORDS[word], j
        text = word.decode("ascii")
        if _NUMBER.match(text):
            return _Number(text), j
        self.note("bare_word", i)
        return None, j

    def value(self, i: int) -> tuple[Any, int]:
        """The value at or after ``i``, and where it ends."""
        text = self.text
        stack = self.stack
        keys: list[str] = []
        starts: list[int] = []
        done: Any = None
        expect = "value"  # value | first key | key | first element | element | after
        while True:
            i = self.white(i)
            c = text[i]
            if expect in ("first key", "key"):
                if c == 0x22:
                    key, i = self.key(i)
                    keys.append(key)
                    expect = "value"
                elif c == 0x7D:
                    if expect == "key":
                        self.note("trailing_comma", i)
                    expect = "after"
                elif c == 0x2C:
                    self.note("trailing_comma", i)
                    expect = "key"
                    i += 1
                else:
                    raise _BrokenError(i)
                continue
            if expect == "after":
                container = stack[-1]
                in_array = isinstance(container, _Array)
                if c == 0x2C:
                    expect = "element" if in_array else "key"
                    i += 1
                    continue
                if c != (0x5D if in_array else 0x7D):
                    raise _BrokenError(i)
                i += 1
                stack.pop()
                container.span = (starts.pop(), i)
                done = container
            elif c == 0x5D and expect in ("first element", "element"):
                if expect == "element":
                    self.note("trailing_comma", i)
                expect = "after"
                continue
            elif c == 0x7B or c == 0x5B:
                if len(stack) >= self.depth_limit:
                    raise _BrokenError(i, "too_deep")
                stack.append(_Object() if c == 0x7B else _Array())
                starts.append(i)
                expect = "first key" if c == 0x7B else "first element"
                i += 1
                continue
            elif c == 0x22:
                done, i = self.string(i)
            elif c == 0x2C or c == 0x7D or c == 0x5D:
                self.note("empty_value", i)
                done = None
            else:
                done, i = self.word(i)
            # a value is complete
            if not stack:
                return done, i
            if isinstance(stack[-1], _Array):
                stack[-1].append(done)
            else:
                stack[-1].append((keys.pop(), done))
            expect = "after"


def decode_value(raw: bytes) -> Any:
    """Return a value of tolerated JSON as Python data; unreadable text as str."""
    try:
        text = raw.decode("utf-8")
        if "\\ud" not in text.lower():
            return json.loads(text, parse_constant=_not_plain)
    except (ValueError, RecursionError, _NotPlainError):
        pass
    try:
        # the comma and the quote end a bare word or a string, as the text behind the value does in the file
        tree, end = _Reader(raw + b',"', len(raw) + 2, 10**6, lambda code, offset: None).value(0)
        return _plain(tree) if end >= len(raw.rstrip(_WHITE)) else raw.decode("utf-8", "replace")
    except (_NeedMoreError, _BrokenError, RecursionError):
        return raw.decode("utf-8", "replace")


def _plain(tree: Any) -> Any:
    if isinstance(tree, _Object):
        return {key: _plain(value) for key, value in tree}
    if isinstance(tree, list):
        return [_plain(value) for value in tree]
    if isinstance(tree, _Number):
        return _python_number(tree)
    return tree


def _python_number(text: str) -> int | float | str:
    if len(text) > _LONGEST_INT:
        return str(text)
    return int(text) if text.lstrip("+-").isdigit() else float(text)


def scaled_int(text: str, decimals: int) -> int | None:
    """Return a number's text times 10**decimals, cut toward zero; None beyond int64."""
    match = _NUMBER.match(text)
    if match is None:
        raise ValueError(f"not a number: {text!r}")
    sign, integer, fraction, only_fraction, exponent_sign, exponent = match.groups()
    integer = integer or ""
    fraction = fraction or only_fraction or ""
    digits = (integer + fraction).lstrip("0")
    if not digits:
        return 0
    power = min(int(exponent), 10**9) if exponent and len(exponent.lstrip("0")) < 10 else (10**9 if exponent else 0)
    if exponent_sign == "-":
        power = -power
    point = len(digits) - len(fraction) + power + decimals  # how many digits are before the decimal point
    if point <= 0:
        return 0
    if point > 19:
        return None
    number = int(digits[:point].ljust(point, "0"))
    if sign == "-":
        number = -number
    return number if number in _INT64 else None


class OracleScanner:
    """A scanner for ``TraceScan``: same calls and same results as the C scanner.

    A state is a method that is given a position in the buffer, reads one thing there and returns the position behind it,
    or raises ``_NeedMoreError`` and changes nothing.
    """

    def __init__(
        self,
        kinds: Sequence[str],
        sparse_kinds: Sequence[str],
        wide_kinds: Sequence[str],
        keys: Sequence[tuple[bytes, int]],
        wide_categories: Sequence[bytes],
        event_limit: int,
        member_limit: int,
        depth_limit: int,
        text_limit: int,
        string_limit: int,
        total_limit: int,
        parts: int = 0,
    ) -> None:
        self._kinds = [*kinds, *sparse_kinds, *wide_kinds] + ["text"] * parts
        self._parts = range(len(self._kinds) - parts, len(self._kinds))
        self._combinations: list[tuple[str | None, ...]] = []
        self._taken = 0  # number of combinations that were taken
        self._dense = len(kinds)
        self._narrow = len(kinds) + len(sparse_kinds)
        self._keys = {key.decode(): index for key, index in keys}
        self._wide_categories = {c.decode() for c in wide_categories}
        self._event_limit = event_limit
        self._member_limit = member_limit
        self._depth_limit = depth_limit
        self._text_limit = text_limit
        self._string_limit = string_limit
        self._total_limit = total_limit
        self._buffer = b""
        self._base = 0  # offset of the buffer in the file
        self._window = ""  # a piece of the buffer, one character per byte
        self._window_start = 0
        self._retry_at = 0
        self._final = False
        self._state: Callable[[int], int] = self._start
        self._root = 0  # how the document starts: "{", "[" (a bare array), 0 not known
        self._after_element = False
        self._after_comma = False
        self._anything = False  # an element or a member has been read
        self._member_bytes = 0
        self._lost_from = 0
        self._lost_kind = "lost_event"
        self._lost_example = b""
        self._event_count = 0
        self._rows: list[list[int | None]] = []
        self._sparse_rows: list[list[int | None]] = []
        self._wide_rows: list[list[int | None]] = []
        self._ids: dict[str, int] = {}
        self._strings: list[str] = []
        self._text_bytes = 0
        self._metadata: list[tuple[int, bytes]] = []
        self._metadata_bytes = 0
        self._members: list[tuple[bytes, bytes, bool]] = []
        self._counts: dict[tuple[str, str], int] = {}
        self._count_bytes = 0
        self._defects: dict[str, tuple[int, int, bytes]] = {}
        self._noted: list[tuple[str, int]] = []  # repairs in the unit being read

    # what TraceScan calls

    def feed(self, data: bytes, /) -> None:
        self._buffer += bytes(data)
        if len(self._buffer) >= self._retry_at:
            self._scan()

    def finish(self) -> None:
        self._final = True
        self._scan()

    def take(
        self,
    ) -> tuple[int, list[Any], int, list[Any], int, list[Any], list[str], list[tuple[int, bytes]], list[tuple[str | None, ...]]]:
        combined = len(self._parts) > 0
        dense = 8 + sum(3 if kind == "int3" else 1 for kind in self._kinds[: self._dense]) + combined
        sparse = 1 + sum(3 if kind == "int3" else 1 for kind in self._kinds[self._dense : self._narrow])
        wide = 8 + sum(3 if kind == "int3" else 1 for kind in self._kinds[: self._parts.start]) + combined
        rows, sparse_rows, wide_rows = self._rows, self._sparse_rows, self._wide_rows
        result = (
            len(rows),
            [[row[i] for row in rows] for i in range(dense)],
            len(sparse_rows),
            [[row[i] for row in sparse_rows] for i in range(sparse)],
            len(wide_rows),
            [[row[i] for row in wide_rows] for i in range(wide)],
            self._strings,
            self._metadata,
            self._combinations[self._taken :],
        )
        self._taken = len(self._combinations)
        self._rows, self._sparse_rows, self._wide_rows, self._strings, self._metadata = [], [], [], [], []
        return result

    def members(self) -> list[tuple[bytes, bytes, bool]]:
        return self._members

    def counts(self) -> list[tuple[str, str, int]]:
        return [(ph, cat, n) for (ph, cat), n in self._counts.items()]

    def defects(self) -> list[tuple[str, int, int, bytes]]:
        return [(code, *found) for code, found in self._defects.items()]

    # small things

    def _scan(self) -> None:
        i = 0
        self._window = ""
        try:
            while True:
                i = self._state(i)
        except _NeedMoreError:
            pass
        self._buffer = self._buffer[i:]
        self._base += i
        self._window = ""
        self._retry_at = len(self._buffer) * 3 // 2

    def _defect(self, code: str, offset: int, example: bytes, count: int = 1) -> None:
        if count == 0:
            return
        if code in self._defects:
            before, offset, example = self._defects[code]
            count += before
        self._defects[code] = (count, offset, example)

    def _defect_here(self, code: str, i: int, end: int) -> None:
        self._defect(code, self._base + i, self._buffer[i : min(i + _EXAMPLE, end)])

    def _note(self, code: str, i: int) -> None:
        self._noted.append((code, i))

    def _commit_notes(self, end: int) -> None:
        for code, i in self._noted:
            self._defect_here(code, i, end)
        self._noted.clear()

    def _white(self, i: int) -> int:
        match = _SKIP_WHITE.match(self._buffer, i)
        return match.end() if match else i

    def _intern(self, text: str, at: int) -> int:
        """Return the id of a text: long texts are cut, and a full table has one for all."""
        short = cut_text(text, self._text_limit)
        if short != text:
            self._note("text_cut", at)
        known = self._ids.get(short)
        if known is None:
            size = len(short.encode())
            if len(self._ids) >= self._string_limit or self._text_bytes + size > self._total_limit:
                self._note("text_left_out", at)
                short, size = LEFT_OUT, len(LEFT_OUT)
                if short in self._ids:
                    return self._ids[short]
            known = self._ids[short] = len(self._ids)
            self._text_bytes += size
            self._strings.append(short)
        return known

    def _combined(self, texts: list[str | None], at: int) -> int | None:
        """Return the place of a combination among all.

        None for an empty one, and for a new one in a full table."""
        for text in texts:
            if text is not None and cut_text(text, self._text_limit) != text:
                self._note("text_cut", at)
        parts = tuple(None if text is None else cut_text(text, self._text_limit) for text in texts)
        if parts.count(None) == len(parts):
            return None
        if parts not in self._combinations:
            known, new = (sum(4 * len(all_texts) + sum(len(t.encode()) for t in all_texts if t) for all_texts in group)
                          for group in (self._combinations, [parts]))  # fmt: skip
            if len(self._combinations) >= self._string_limit or known + new > self._total_limit:
                self._note("combination_left_out", at)
                return None
            self._combinations.append(parts)
        return self._combinations.index(parts)

    def _count(self, phase: str, category: str) -> None:
        """Count an event of a phase and category, or of its phase if the table is full."""
        key = cut_text(phase, self._text_limit), cut_text(category, self._text_limit)
        size = 4 + len(key[0].encode()) + len(key[1].encode())
        if key not in self._counts and (len(self._counts) >= self._string_limit or self._count_bytes + size > self._total_limit):
            key = (phase if len(phase.encode()) == 1 else "", "")
            size = 4 + len(key[0])
        if key not in self._counts:
            self._counts[key] = 0
            self._count_bytes += size
        self._counts[key] += 1

    # the course of the document

    def _start(self, i: int) -> int:
        buffer = self._buffer
        if self._base + i == 0:
            if not self._final and len(buffer) < 3:
                raise _NeedMoreError
            if buffer.startswith(b"\xef\xbb\xbf"):
                return 3
        start, i = i, self._white(i)
        if i == len(buffer):
            if i > start:
                return i
            if self._final:
                self._defect("empty", 0, b"")
                self._state = self._end
            raise _NeedMoreError
        c = buffer[i]
        if c not in b"{[":
            return self._lose(i, i, "lost_event")
        if c == 0x7B and not self._final and len(buffer) - i < _RESTART_LONGEST:
            raise _NeedMoreError
        if c == 0x7B and not _LIKE_JSON_LINES.match(buffer, i):
            self._root = c
            self._after_element = self._after_comma = False
            self._state = self._object
            return i + 1
        self._root = 0x5B
        self._enter_array()
        return i + (c == 0x5B)

    def _enter_array(self) -> None:
        self._after_element = self._after_comma = False
        self._state = self._array

    def _next(self, i: int) -> int:
        """Return the next element of an array or object, or raise ``_NeedMoreError``."""
        i = self._white(i)
        if i == len(self._buffer) and self._final:
            if self._state != self._tail and self._root == 0x7B:
                self._defect_here("truncated", i, i)
            self._state = self._end
        return i

    def _comma(self, i: int) -> int:
        if not self._after_element:
            self._defect_here("trailing_comma", i, i + 1)
        self._after_element, self._after_comma = False, True
        return i + 1

    def _array(self, start: int) -> int:
        i = self._next(start)
        if i == len(self._buffer):
            if i > start:
                return i
            raise _NeedMoreError
        c = self._buffer[i]
        if c == 0x2C:
            return self._comma(i)
        if c != 0x5D:
            return self._element(i)
        if self._after_comma:
            self._defect_here("trailing_comma", i, i + 1)
        self._state = self._tail if self._root == 0x5B else self._object
        self._after_element, self._after_comma = True, False
        return i + 1

    def _object(self, start: int) -> int:
        i = self._next(start)
        if i == len(self._buffer):
            if i > start:
                return i
            raise _NeedMoreError
        c = self._buffer[i]
        if c == 0x2C:
            return self._comma(i)
        if c == 0x22:
            return self._member(i)
        if c != 0x7D:
            return self._lose(i, i, "lost_event")
        if self._after_comma:
            self._defect_here("trailing_comma", i, i + 1)
        self._state = self._tail
        return i + 1

    def _tail(self, start: int) -> int:
        i = self._next(start)
        if i == len(self._buffer):
            if i > start:
                return i
            raise _NeedMoreError
        return self._lose(i, i, "trailing_garbage")

    def _end(self, i: int) -> int:
        if i < len(self._buffer):
            return len(self._buffer)
        raise _NeedMoreError

    def _lose(self, start: int, at: int, kind: str, reason: str | None = None) -> int:
        """Skip text from ``start``; look for the next start of an event at ``at``."""
        self._noted.clear()
        self._lost_from = self._base + start
        self._lost_kind = kind
        self._lost_example = self._buffer[start : min(start + _EXAMPLE, max(at, start + 1))]
        if reason:
            self._defect(reason, self._lost_from, self._lost_example)
        self._state = self._resynchronize
        return at

    def _resynchronize(self, i: int) -> int:
        restart = _RESTART.search(self._buffer, i)
        if restart is None and not self._final:
            if len(self._buffer) - _RESTART_LONGEST > i:
                return len(self._buffer) - _RESTART_LONGEST
            raise _NeedMoreError
        stop = restart.start() if restart else len(self._buffer)
        lost = self._base + stop - self._lost_from
        if self._lost_kind == "trailing_garbage":
            self._defect("trailing_garbage", self._lost_from, self._lost_example, max(lost, 1))
        elif self._lost_kind == "lost_event" and not restart and not self._anything:
            self._defect("not_json", self._lost_from, self._lost_example)
        else:
            if self._lost_kind == "lost_event":
                self._defect("lost_event", self._lost_from, self._lost_example)
            self._defect("lost_bytes", self._lost_from, self._lost_example, lost)
        if restart is None:
            self._state = self._end
            return stop
        self._enter_array()
        return restart.end() if restart.group(1) else stop

    def _cut(self, start: int, limit: int) -> int:
        """Handle a unit from ``start`` that is longer than the text."""
        if start + limit <= len(self._buffer):
            return self._lose(start, start + limit, "lost_event", "too_long")
        self._noted.clear()
        if self._final:
            self._defect_here("truncated", start, len(self._buffer))
            example = self._buffer[start : start + _EXAMPLE]
            self._defect("lost_bytes", self._base + start, example, len(self._buffer) - start)
            self._state = self._end
        raise _NeedMoreError

    def _member(self, start: int) -> int:
        end = min(len(self._buffer), start + self._member_limit)
        reader = _Reader(self._buffer, end, self._depth_limit, self._note)
        self._noted.clear()
        if self._after_element:
            self._note("missing_comma", start)
        try:
            key, i = reader.key(start)
            i = reader.white(i)
        except _NeedMoreError:
            return self._cut(start, self._member_limit)
        except _BrokenError as broken:
            return self._lose(start, broken.position, "lost_event", broken.reason)
        if key != "traceEvents" and self._buffer[i] == 0x5B and not self._final and len(self._buffer) - i < 2 * _RESTART_LONGEST:
            raise _NeedMoreError
        if self._buffer[i] == 0x5B and (key == "traceEvents" or _LIKE_EVENTS.match(self._buffer, i)):
            self._commit_notes(i)
            if key != "traceEvents":
                self._defect_here("broken_member", start, i)  # its key was damaged
            self._enter_array()
            return i + 1
        name = key.encode()
        try:
            _, j = reader.value(i)
        except _NeedMoreError:
            if start + self._member_limit <= len(self._buffer) or self._final:
                self._members.append((name, self._buffer[i:end][: self._member_limit], True))
                self._defect_here("broken_member", start, end)
            return self._cut(start, self._member_limit)
        except _BrokenError as broken:
            self._members.append((name, self._buffer[i : broken.position], True))
            self._defect_here("broken_member", start, broken.position)
            return self._lose(start, broken.position, "broken_member", broken.reason)
        self._commit_notes(j)
        self._member_bytes += j - i
        if key == "traceEvents" or self._member_bytes > self._member_limit:
            self._defect_here("broken_member", start, j)
        else:
            self._members.append((name, self._buffer[i:j], False))
        self._anything = True
        self._after_element, self._after_comma = True, False
        return j

    def _element(self, start: int) -> int:
        buffer = self._buffer
        reader = _Reader(buffer, min(len(buffer), start + self._event_limit), self._depth_limit, self._note)
        self._noted.clear()
        if self._after_element:
            self._note("missing_comma", start)
        try:
            if buffer[start] == 0x7B:
                end = self._plain_event(start)
                if end is None:
                    event, end = reader.value(start)
                    self._commit_event(event, start, end)
            else:
                end = self._no_event(reader, start)
        except _NeedMoreError:
            return self._cut(start, self._event_limit)
        except _BrokenError as broken:
            return self._lose(start, broken.position, "lost_event", broken.reason)
        self._commit_notes(end)
        self._anything = True
        self._after_element, self._after_comma = True, False
        return end

    def _no_event(self, reader: _Reader, start: int) -> int:
        c = self._buffer[start]
        if c == 0x22:
            end = reader.bare_string(start)
        elif c == 0x5B:
            _, end = reader.value(start)
        else:
            _, end = reader.word(start)
            if any(code == "bare_word" for code, _ in self._noted):
                raise _BrokenError(start)
        self._note("not_an_event", start)
        return end

    # one event

    def _plain_event(self, start: int) -> int | None:
        """Reads an event that is JSON without any damage; None if it may not be."""
        buffer = self._buffer
        i = start - self._window_start
        if not self._window or i < 0 or i > len(self._window) - _WINDOW // 2:
            self._window = buffer[start : start + _WINDOW].decode("latin-1")
            self._window_start, i = start, 0
        try:
            event, end = _PLAIN.raw_decode(self._window, i)
            end += self._window_start
            raw = buffer[start:end]
            if raw.count(b"{") + raw.count(b"[") > self._depth_limit or b"\\ud" in raw.lower():
                return None
            if not raw.isascii():
                event, _ = _PLAIN.raw_decode(raw.decode("utf-8"))
            if end > start + self._event_limit:
                raise _NeedMoreError
            self._commit_event(event, start, end)
        except (ValueError, _NotPlainError):
            return None
        return end

    def _commit_event(self, event: _Object, start: int, end: int) -> None:
        fields: dict[str, Any] = {}
        args: dict[int, Any] = {}
        for key, value in event:
            fields[key] = value
            if key == "args" and isinstance(value, _Object):
                args.update((self._keys[k], v) for k, v in value if k in self._keys)
        texts = [fields.get("cat"), fields.get("name"), *(v for c, v in args.items() if self._kinds[c] == "text")]
        if any(isinstance(v, list) and getattr(v, "span", None) is None for v in texts):
            raise _NotPlainError  # their text is wanted
        phase = fields.get("ph")
        if not isinstance(phase, str) or isinstance(phase, _Number):
            self._note("no_phase", start)
            return
        category = self._as_text(fields.get("cat"))
        self._count(phase, category or "")
        if phase == "M":
            size = end - start + _METADATA_BYTES
            if self._metadata_bytes + size > self._member_limit:
                self._note("metadata_left_out", start)
            else:
                self._metadata_bytes += size
                self._metadata.append((self._event_count, self._buffer[start:end]))
        instant, wide = phase == "i", category in self._wide_categories
        if phase not in ("X", "B", "E") and not (instant and wide):
            return
        start_ns = self._as_time(fields.get("ts"), start)
        if start_ns is None:
            if not instant:
                self._note("no_timestamp", start)
            return
        name = self._as_text(fields.get("name"))
        row = [
            self._event_count,
            ord(phase),
            None if category is None else self._intern(category, start),
            None if name is None else self._intern(name, start),
            self._as_id(fields.get("pid"), start),
            self._as_id(fields.get("tid"), start),
            start_ns,
            self._as_time(fields.get("dur"), start),
        ]
        for column, kind in enumerate(self._kinds[: self._parts.start if wide else self._narrow]):
            value = args.get(column)
            if kind == "int":
                row.append(self._as_int(value, start))
            elif kind == "text":
                text = self._as_text(value)
                row.append(None if text is None else self._intern(text, start))
            else:
                three = [*value[:3], None, None, None] if _is_array(value) else [None] * 3
                row.extend(self._as_int(v, start) for v in three[:3])
        combination = [self._combined([self._as_text(args.get(column)) for column in self._parts], start)] if self._parts else []
        if wide:
            self._wide_rows.append(row + combination)
        else:
            dense = 8 + sum(3 if kind == "int3" else 1 for kind in self._kinds[: self._dense])
            if any(self._dense <= column < self._parts.start for column in args):
                self._sparse_rows.append([len(self._rows), *row[dense:]])
            self._rows.append(row[:dense] + combination)
        self._event_count += 1

    def _as_text(self, value: Any) -> str | None:
        if isinstance(value, str):
            return str(value)
        if isinstance(value, bool):
            return "true" if value else "false"
        if isinstance(value, _Object | _Array) and value.span:
            return self._buffer[value.span[0] : value.span[1]].decode("utf-8", "replace")
        return None

    def _as_time(self, value: Any, at: int) -> int | None:
        """Nanoseconds of microseconds."""
        if not isinstance(value, str) or not _NUMBER.match(value.strip(_STRIPPED)):
            return None
        time = scaled_int(value.strip(_STRIPPED), 3)
        if time is None:
            self._note("number_out_of_range", at)
        return time

    def _as_int(self, value: Any, at: int) -> int | None:
        if isinstance(value, bool):
            return int(value)
        if not isinstance(value, str):
            return None
        number, numeric = _integer(value)
        if numeric and number is None:
            self._note("number_out_of_range", at)
        return number

    def _as_id(self, value: Any, at: int) -> int | None:
        """A pid or tid: its number, or what stands for its text."""
        if isinstance(value, str) and not isinstance(value, _Number):
            number, _ = _integer(value)
            return _TEXT_ID_BASE - self._intern(value, at) if number is None else number
        return None if isinstance(value, bool) else self._as_int(value, at)


def _is_array(value: Any) -> TypeGuard[list[Any]]:
    return isinstance(value, list) and not isinstance(value, _Object)


def _integer(text: str) -> tuple[int | None, bool]:
    """Return the number of a text, cut toward zero, or None; and whether it is one."""
    text = text.strip(_STRIPPED)
    if _NUMBER.match(text):
        return scaled_int(text, 0), True
    hexadecimal = _HEXADECIMAL.match(text)
    if hexadecimal is None:
        return None, False
    digits = hexadecimal.group(1).lstrip("0") or "0"
    number = int(digits, 16) if len(digits) <= 16 else None
    return (number if number in _INT64 else None), True
