"""How is a protobuf message written by hand? Varints, lengths and fixed numbers, as the encoding of Protocol Buffers defines them."""

from __future__ import annotations

import struct
from functools import cache

_SMALL = [bytes([number]) for number in range(128)]


def varint(number: int) -> bytes:
    """A whole number from 0 to 2^64 - 1; a negative one as its 64-bit two's complement, as int32 and int64 fields have it."""
    if 0 <= number < 128:
        return _SMALL[number]
    number &= 0xFFFF_FFFF_FFFF_FFFF
    out = bytearray()
    while number > 127:
        out.append(number & 127 | 128)
        number >>= 7
    out.append(number)
    return bytes(out)


def whole(field: int, number: int) -> bytes:
    """A field of an integer, bool or enum type."""
    return _tag(field, 0) + varint(number)


def data(field: int, value: bytes) -> bytes:
    """A field of a bytes or message type."""
    return _tag(field, 2) + varint(len(value)) + value


def text(field: int, value: str) -> bytes:
    return data(field, value.encode("utf-8", "backslashreplace"))


def fixed(field: int, number: int) -> bytes:
    """A field of type fixed64."""
    return _tag(field, 1) + struct.pack("<Q", number)


def real(field: int, number: float) -> bytes:
    """A field of type double."""
    return _tag(field, 1) + struct.pack("<d", number)


@cache
def _tag(field: int, kind: int) -> bytes:
    return varint(field << 3 | kind)
