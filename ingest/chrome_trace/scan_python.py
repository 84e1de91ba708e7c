"""Scans undamaged Chrome traces with the standard library, for installations without the compiled extension.

The rules are those of ``native/src/scan``, simple rather than fast; the C scanner is tested against this one.

The text is cut into *units*: an event, or a top-level member. A unit is read only when it is there completely, and leaves
nothing behind if it cannot be read, so results do not depend on how the text was cut into chunks.
"""

from __future__ import annotations

import json
import re
from collections.abc import Generator, Sequence
from decimal import MAX_EMAX, MIN_EMIN, ROUND_DOWN, Context
from typing import Any, Final, NoReturn

from ...errors import InputError
from ..store.limits import LEFT_OUT, cut_text

_WHITE: Final = re.compile(r"[ \t\r\n]*")
_NUMBER: Final = re.compile(r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")
_HEXADECIMAL: Final = re.compile(r"0[xX][0-9a-fA-F]+")
_ONE_EVENT: Final = re.compile(r'\{[ \t\r\n]{0,64}"ph"[ \t\r\n]{0,64}:')
_EVENTS: Final = re.compile(r"\[[ \t\r\n]{0,64}" + _ONE_EVENT.pattern)
_CUT: Final = Context(prec=40, rounding=ROUND_DOWN, Emin=MIN_EMIN, Emax=MAX_EMAX, traps=[])
_INT64: Final = 2**63  # numbers of this size and more do not fit
_TEXT_ID_BASE: Final = -(2**62)
_STRIPPED: Final = " \t\r\n"
_EXAMPLE: Final = 60  # bytes
_METADATA_BYTES: Final = 64  # what an M event takes in addition to its text


class _Number(str):
    """The text of a number."""

    __slots__ = ()


class _Members(list[tuple[str, Any]]):
    """The members of an object in the order of the text, duplicates kept."""


def _refuse(word: str) -> NoReturn:
    raise ValueError(word)  # NaN and Infinity are not JSON


_JSON: Final = json.JSONDecoder(object_pairs_hook=_Members, parse_int=_Number, parse_float=_Number, parse_constant=_refuse)


class PythonScanner:
    """The scanner behind ``TraceScan`` without the C extension: same calls, same columns.

    ``_text`` has one character per byte, so positions in it are byte offsets. The methods that return a generator read one thing at
    ``_at``; they yield while the text ends inside it and more may follow.
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
        depth_limit: int,  # that of json is the interpreter's
        text_limit: int,
        string_limit: int,
        total_limit: int,
        parts: int = 0,
    ) -> None:
        self._kinds = [*kinds, *sparse_kinds, *wide_kinds, *["text"] * parts]
        self._all = len(self._kinds) - parts
        self._dense = len(kinds)
        self._narrow = len(kinds) + len(sparse_kinds)
        self._keys = {key.decode(): column for key, column in keys}
        self._wide_categories = {category.decode() for category in wide_categories}
        self._event_limit, self._member_limit = event_limit, member_limit
        self._text_limit, self._string_limit, self._total_limit = text_limit, string_limit, total_limit
        self._text, self._at, self._offset = "", 0, 0
        self._final = False
        self._reader = self._document()
        self._event_count = self._text_bytes = self._count_bytes = self._metadata_bytes = self._member_bytes = 0
        self._rows: tuple[list[list[int | None]], ...] = ([], [], [])
        self._ids: dict[str, int] = {}
        self._strings: list[str] = []
        self._combined: dict[tuple[str | None, ...], int] = {}
        self._combined_bytes = 0
        self._combinations: list[tuple[str | None, ...]] = []
        self._metadata: list[tuple[int, bytes]] = []
        self._members: list[tuple[bytes, bytes, bool]] = []
        self._counts: dict[tuple[str, str], int] = {}
        self._defects: dict[str, tuple[int, int, bytes]] = {"no_extension": (1, 0, b"")}

    def feed(self, data: bytes, /) -> None:
        self._text, self._offset, self._at = self._text[self._at :] + bytes(data).decode("latin-1"), self._offset + self._at, 0
        next(self._reader, None)

    def finish(self) -> None:
        self._final = True
        next(self._reader, None)

    def take(
        self,
    ) -> tuple[int, list[Any], int, list[Any], int, list[Any], list[str], list[tuple[int, bytes]], list[tuple[str | None, ...]]]:
        tables = []
        layouts = (8, self._kinds[: self._dense]), (1, self._kinds[self._dense : self._narrow]), (8, self._kinds[: self._all])
        for rows, (width, kinds) in zip(self._rows, layouts, strict=True):
            width += sum(3 if kind == "int3" else 1 for kind in kinds) + (rows is not self._rows[1] and len(self._kinds) > self._all)
            tables += [len(rows), [[row[i] for row in rows] for i in range(width)]]
        result = (*tables, self._strings, self._metadata, self._combinations)
        self._rows, self._strings, self._metadata, self._combinations = ([], [], []), [], [], []
        return result  # type: ignore[return-value]

    def members(self) -> list[tuple[bytes, bytes, bool]]:
        return self._members

    def counts(self) -> list[tuple[str, str, int]]:
        return [(phase, category, count) for (phase, category), count in self._counts.items()]

    def defects(self) -> list[tuple[str, int, int, bytes]]:
        return [(code, *first) for code, first in self._defects.items()]

    # the document

    def _document(self) -> Generator[None]:
        while len(self._text) < 3 and not self._final:
            yield
        self._at = 3 if self._text.startswith("\xef\xbb\xbf") else 0
        start = yield from self._next()
        if not start:
            self._defect("empty", 0, "")
        elif start not in "[{":
            self._damaged()
        elif start == "{" and not (yield from self._matches(_ONE_EVENT)):
            self._at += 1
            yield from self._object()
        else:
            self._at += start == "["
            yield from self._array("]", "")
        if (yield from self._next()):
            self._damaged()

    def _next(self) -> Generator[None, None, str]:
        """Skip white space; return the next character, "" at the end of the text."""
        while True:
            self._at = _behind(self._text, self._at)
            if self._at < len(self._text) or self._final:
                return self._text[self._at : self._at + 1]
            yield

    def _matches(self, pattern: re.Pattern[str]) -> Generator[None, None, bool]:
        while len(self._text) - self._at < 160 and not self._final:
            yield
        return pattern.match(self._text, self._at) is not None

    def _damaged(self) -> NoReturn:
        raise InputError(
            f"its text is damaged or beyond a limit at byte {self._offset + self._at:,}, and this installation lacks the compiled"
            " extension, which alone reads such a trace: reinstall postrun with a C compiler and without POSTRUN_NO_NATIVE"
        )

    def _value(self, limit: int) -> Generator[None, None, tuple[Any, str]]:
        """Read the next value, of at most ``limit`` bytes; return it and its text."""
        yield from self._next()
        while True:
            size = len(self._text) - self._at
            try:
                value, end = _JSON.raw_decode(self._text, self._at)
                if end < len(self._text) or self._final:  # else a number may go on
                    break
            except (ValueError, RecursionError):
                if self._final or size > limit:
                    self._damaged()
            while len(self._text) - self._at < 2 * size and not self._final:  # so that the work stays linear
                yield
        text = self._text[self._at : end]
        try:
            if not text.isascii():
                text = text.encode("latin-1").decode()
                value = _JSON.decode(text)
            if "\\ud" in text.lower():
                json.dumps(value, ensure_ascii=False).encode()  # halves of surrogate pairs
        except ValueError:
            self._damaged()
        if end - self._at > limit:
            self._damaged()
        self._at = end
        return value, text

    def _object(self) -> Generator[None]:
        first = True
        while (yield from self._goes_on(("}",), first)):
            first = False
            key, _ = yield from self._value(self._member_limit)
            if not isinstance(key, str) or isinstance(key, _Number) or (yield from self._next()) != ":":
                self._damaged()
            self._at += 1
            opening = yield from self._next()
            if key == "traceEvents" and opening == "[":
                self._at += 1
                yield from self._array("]")
            elif key == "traceEvents" or (yield from self._matches(_EVENTS)):
                self._damaged()
            else:
                _, text = yield from self._value(self._member_limit)
                self._member_bytes += len(text)
                if self._member_bytes > self._member_limit:
                    self._damaged()
                self._members.append((key.encode(), text.encode(), False))

    def _array(self, *closings: str) -> Generator[None]:
        first = True
        while (yield from self._goes_on(closings, first)):
            first = False
            event, text = yield from self._value(self._event_limit)
            self._event(event, text, self._offset + self._at - len(text.encode()))

    def _goes_on(self, closings: tuple[str, ...], first: bool) -> Generator[None, None, bool]:
        """Skip the comma before the next value (True) or one of ``closings`` (False).

        A closing "" is the end of the text.
        """
        character = yield from self._next()
        if character == "," and not first:
            self._at += 1
            if character := (yield from self._next()):
                return True
        if character in closings:
            self._at += len(character)
            return False
        if not first or not character:
            self._damaged()
        return True

    def _defect(self, code: str, at: int, text: str) -> None:
        count, at, example = self._defects.get(code, (0, at, text[:_EXAMPLE].encode()[:_EXAMPLE]))
        self._defects[code] = (count + 1, at, example)

    # one event

    def _event(self, event: Any, text: str, at: int) -> None:
        if not isinstance(event, _Members):
            self._defect("not_an_event", at, text)
            return
        fields, args = self._collect(event)
        texts, text_args = fields, args
        if any(isinstance(v, list) for v in (fields.get("cat"), fields.get("name"), *(args[i] for i in args if self._kinds[i] == "text"))):
            texts, text_args = self._collect(_spelled(text))
        phase, category = fields.get("ph"), _text(texts.get("cat"))
        if not isinstance(phase, str) or isinstance(phase, _Number):
            self._defect("no_phase", at, text)
            return
        self._count(phase, category or "")
        if phase == "M":
            size = len(text.encode()) + _METADATA_BYTES
            if self._metadata_bytes + size > self._member_limit:
                self._defect("metadata_left_out", at, text)
            else:
                self._metadata_bytes += size
                self._metadata.append((self._event_count, text.encode()))
        wide = category in self._wide_categories
        if phase not in ("X", "B", "E") and not (phase == "i" and wide):
            return

        def integer(value: Any, decimals: int = 0) -> int | None:
            number = _integer(value, decimals)
            if number is None or abs(number) < _INT64:
                return number
            self._defect("number_out_of_range", at, text)
            return None

        def time(value: Any) -> int | None:
            """Nanoseconds of microseconds."""
            return integer(value, 3) if isinstance(value, str) and _NUMBER.fullmatch(value.strip(_STRIPPED)) else None

        def text_id(string: str | None) -> int | None:
            return None if string is None else self._intern(string, at, text)

        def identifier(value: Any) -> int | None:
            """The number of a pid or tid, or what stands for its text."""
            number = None if isinstance(value, bool) else _integer(value)
            if isinstance(value, str) and not isinstance(value, _Number) and (number is None or abs(number) >= _INT64):
                return _TEXT_ID_BASE - self._intern(value, at, text)
            return None if number is None else integer(value)

        start = time(fields.get("ts"))
        if start is None:
            if phase != "i":
                self._defect("no_timestamp", at, text)
            return
        row = [self._event_count, ord(phase), text_id(category), text_id(_text(texts.get("name")))]
        row += [identifier(fields.get("pid")), identifier(fields.get("tid")), start, time(fields.get("dur"))]
        events, sparse, wide_events = self._rows
        row_of_sparse: list[int | None] = [len(events)]
        for column, kind in enumerate(self._kinds[: self._all if wide else self._narrow]):
            values = row if wide or column < self._dense else row_of_sparse
            value = args.get(column)
            if kind == "int":
                values.append(integer(value))
            elif kind == "text":
                values.append(text_id(_text(text_args.get(column))))
            else:
                numbers = value if isinstance(value, list) and not isinstance(value, _Members) else []
                values += [integer(number) for number in [*numbers[:3], None, None, None][:3]]
        if len(self._kinds) > self._all:
            row.append(self._combine([_text(text_args.get(column)) for column in range(self._all, len(self._kinds))], at, text))
        (wide_events if wide else events).append(row)
        if not wide and any(self._dense <= column < self._all for column in args):
            sparse.append(row_of_sparse)
        self._event_count += 1

    def _collect(self, event: _Members) -> tuple[dict[str, Any], dict[int, Any]]:
        """Return the last value of each member and of each column of args."""
        args = [member for key, value in event if key == "args" and isinstance(value, _Members) for member in value]
        return dict(event), {self._keys[key]: value for key, value in args if key in self._keys}

    def _intern(self, text: str, at: int, event: str) -> int:
        """Return the id of a text. Long texts are cut; a full table gives one id."""
        short = cut_text(text, self._text_limit)
        if short != text:
            self._defect("text_cut", at, event)
        if short not in self._ids:
            if len(self._ids) >= self._string_limit or self._text_bytes + len(short.encode()) > self._total_limit:
                self._defect("text_left_out", at, event)
                short = LEFT_OUT
            if short not in self._ids:
                self._ids[short] = len(self._ids)
                self._text_bytes += len(short.encode())
                self._strings.append(short)
        return self._ids[short]

    def _combine(self, texts: list[str | None], at: int, event: str) -> int | None:
        """Return the id of the texts of the parts together; null in a full table."""
        short = tuple(None if text is None else cut_text(text, self._text_limit) for text in texts)
        for text, cut in zip(texts, short, strict=True):
            if text != cut:
                self._defect("text_cut", at, event)
        if not any(text is not None for text in short):
            return None
        size = sum(4 + len((text or "").encode()) for text in short)
        if short not in self._combined:
            if len(self._combined) >= self._string_limit or self._combined_bytes + size > self._total_limit:
                self._defect("combination_left_out", at, event)
                return None
            self._combined[short] = len(self._combined)
            self._combined_bytes += size
            self._combinations.append(short)
        return self._combined[short]

    def _count(self, phase: str, category: str) -> None:
        """Count an event by phase and category; in a full table by phase alone."""
        key = cut_text(phase, self._text_limit), cut_text(category, self._text_limit)
        size = 4 + len(key[0].encode()) + len(key[1].encode())
        if key not in self._counts and (len(self._counts) >= self._string_limit or self._count_bytes + size > self._total_limit):
            key = (phase if len(phase.encode()) == 1 else "", "")
            size = 4 + len(key[0])
        if key not in self._counts:
            self._count_bytes += size
        self._counts[key] = self._counts.get(key, 0) + 1


def _spelled(text: str, inside: str | None = "args") -> _Members:
    """Read an object; nested values become JSON text, except in ``inside``."""
    members, at = _Members(), _behind(text, 1)
    while text[at] != "}":
        key, end = _JSON.raw_decode(text, at)
        at = _behind(text, _behind(text, end) + 1)  # the colon
        value, end = _JSON.raw_decode(text, at)
        if isinstance(value, list):
            value = _spelled(text[at:end], None) if key == inside and isinstance(value, _Members) else text[at:end]
        members.append((key, value))
        at = _behind(text, end)
        at = _behind(text, at + (text[at] == ","))
    return members


def _behind(text: str, at: int) -> int:
    white = _WHITE.match(text, at)
    return white.end() if white else at


def _text(value: Any) -> str | None:
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value) if isinstance(value, str) else None


def _integer(value: Any, decimals: int = 0) -> int | None:
    """Return a number, text or boolean times 10**decimals, cut toward zero, or None.

    Numbers that do not fit int64 may become any number beyond it.
    """
    if isinstance(value, bool):
        return int(value)
    text = value.strip(_STRIPPED) if isinstance(value, str) else ""
    if _HEXADECIMAL.fullmatch(text):
        return int(text, 16)
    if not _NUMBER.fullmatch(text):
        return None
    number = _CUT.create_decimal(text)
    if not number or number.adjusted() + decimals < 0:
        return 0
    return int(_CUT.scaleb(number, decimals)) if number.adjusted() + decimals < 20 else _INT64
