"""Font files of the sfnt kind: their tables <-> bytes, as TrueType or as WOFF (OpenType 1.9, W3C WOFF 1.0)."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Mapping
from typing import Final

_HEAD: Final = struct.Struct(">4sHHHH")
_ENTRY: Final = struct.Struct(">4sIII")
_WOFF_HEAD: Final = struct.Struct(">4s4sIHHIHHIIIII")
_WOFF_ENTRY: Final = struct.Struct(">4sIIII")
_TRUETYPE: Final = b"\0\1\0\0"


def tables(font: bytes) -> dict[str, bytes]:
    """Return tag -> table of a TrueType font."""
    count = _HEAD.unpack_from(font)[1]
    entries = (_ENTRY.unpack_from(font, _HEAD.size + number * _ENTRY.size) for number in range(count))
    return {tag.decode("latin-1"): font[start : start + length] for tag, _, start, length in entries}


def font_file(content: Mapping[str, bytes]) -> bytes:
    """Join tables into a TrueType font."""
    content = _with_zero_sum(content)
    start = _HEAD.size + len(content) * _ENTRY.size
    entries, data = [], []
    for tag, table in content.items():
        entries.append(_ENTRY.pack(tag.encode("latin-1"), _sum(table), start, len(table)))
        data.append(_padded(table))
        start += len(data[-1])
    font = _directory(len(content)) + b"".join(entries) + b"".join(data)
    # The sum of the entire font is stored in "head", whose own sum is of zero instead.
    at = len(font) - sum(map(len, data)) + sum(len(_padded(table)) for tag, table in content.items() if tag < "head") + 8
    return font[:at] + struct.pack(">I", (0xB1B0AFBA - _sum(font)) & 0xFFFFFFFF) + font[at + 4 :]


def woff(font: bytes) -> bytes:
    """Compress a TrueType font for HTML."""
    content = tables(font)
    start = _WOFF_HEAD.size + len(content) * _WOFF_ENTRY.size
    entries, data = [], []
    for tag, table in sorted(content.items()):
        packed = zlib.compress(table, 9)
        stored = packed if len(packed) < len(table) else table
        sum_of = _sum(table[:8] + bytes(4) + table[12:]) if tag == "head" else _sum(table)
        entries.append(_WOFF_ENTRY.pack(tag.encode("latin-1"), start, len(stored), len(table), sum_of))
        data.append(_padded(stored))
        start += len(data[-1])
    head = _WOFF_HEAD.pack(b"wOFF", _TRUETYPE, start, len(content), 0, len(font), 1, 0, 0, 0, 0, 0, 0)
    return head + b"".join(entries) + b"".join(data)


def character_map(glyphs: Mapping[int, int]) -> bytes:
    """Return a table "cmap" of format 4: code point below U+FFFF -> glyph."""
    segments: list[tuple[int, int, int]] = []  # first and last code point, difference to their glyphs
    for code, glyph in sorted(glyphs.items()):
        if segments and segments[-1][1] == code - 1 and segments[-1][2] == glyph - code:
            segments[-1] = (segments[-1][0], code, segments[-1][2])
        else:
            segments.append((code, code, glyph - code))
    segments.append((0xFFFF, 0xFFFF, 1))
    count = len(segments)
    firsts, lasts, shifts = (list(values) for values in zip(*segments, strict=True))
    words = [2 * count, *_search(count, 2), *lasts, 0, *firsts, *(shift & 0xFFFF for shift in shifts), *[0] * count]
    body = struct.pack(f">{len(words)}H", *words)
    subtable = struct.pack(">HHH", 4, len(body) + 6, 0) + body
    return struct.pack(">HHHHIHHI", 0, 2, 0, 3, 20, 3, 1, 20) + subtable  # of Unicode, and of Windows


def _search(count: int, unit: int) -> tuple[int, int, int]:
    """Return numbers for a binary search.

    They are the largest power of two in units, its exponent, and the rest.
    """
    power = count.bit_length() - 1
    return unit << power, power, (count - (1 << power)) * unit


def _directory(count: int) -> bytes:
    return _HEAD.pack(_TRUETYPE, count, *_search(count, 16))


def _with_zero_sum(content: Mapping[str, bytes]) -> dict[str, bytes]:
    """Return the tables in order, and "head" without the sum of the font."""
    return {tag: table[:8] + bytes(4) + table[12:] if tag == "head" else table for tag, table in sorted(content.items())}


def _sum(data: bytes) -> int:
    padded = _padded(data)
    words: tuple[int, ...] = struct.unpack(f">{len(padded) // 4}I", padded)
    return sum(words) & 0xFFFFFFFF


def _padded(data: bytes) -> bytes:
    return data + bytes(-len(data) % 4)
