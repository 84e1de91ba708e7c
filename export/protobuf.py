"""How is a protobuf message written by hand? Varints, lengths and fixed numbers, as the encoding of Protocol Buffers defines them.

First one value at a time, then columns: the same field of many messages at once.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

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


@cache
def _tag(field: int, kind: int) -> bytes:
    return varint(field << 3 | kind)


# -- columns ---------------------------------------------------------------------------------------------------------------


class Column(NamedTuple):
    """Bytes of one part of many messages: of each row of ``data`` the first ``sizes`` bytes count."""

    data: NDArray[np.uint8]
    sizes: NDArray[np.int64]


def constant(rows: int, value: bytes) -> Column:
    """The same bytes in every message."""
    return Column(np.broadcast_to(np.frombuffer(value, np.uint8), (rows, len(value))), np.full(rows, len(value)))


def varints(numbers: NDArray[Any]) -> Column:
    """Whole numbers of 64 bits; negative ones as their two's complement."""
    values = np.ascontiguousarray(numbers).astype(np.int64, copy=False).view(np.uint64)
    widest = max(1, (int(values.max()).bit_length() + 6) // 7) if len(values) else 1
    sizes = np.ones(len(values), np.int64)
    found = np.empty((len(values), widest), np.uint8)
    for place in range(widest):
        rest = values >> np.uint64(7 * place)
        more = rest > np.uint64(127)
        found[:, place] = (rest & np.uint64(127)) | (more.astype(np.uint64) << np.uint64(7))
        sizes += more
    return Column(found, sizes)


def wholes(field: int, numbers: NDArray[Any]) -> list[Column]:
    """A field of an integer type."""
    return [constant(len(numbers), _tag(field, 0)), varints(numbers)]


def fixeds(field: int, numbers: NDArray[np.int64]) -> list[Column]:
    """A field of type fixed64."""
    return _eights(field, numbers.astype("<i8", copy=False))


def reals(field: int, numbers: NDArray[np.float64]) -> list[Column]:
    """A field of type double."""
    return _eights(field, numbers.astype("<f8", copy=False))


def _eights(field: int, numbers: NDArray[Any]) -> list[Column]:
    plain = np.ascontiguousarray(numbers).view(np.uint8).reshape(len(numbers), 8)
    return [constant(len(numbers), _tag(field, 1)), Column(plain, np.full(len(numbers), 8))]


def enclosed(field: int, parts: Sequence[Column], more: NDArray[np.int64] | int = 0) -> list[Column]:
    """``parts`` as a message in a field. ``more``: bytes of each row that follow and belong to it."""
    sizes = sum((part.sizes for part in parts), np.zeros(len(parts[0].sizes), np.int64)) + more
    return [constant(len(sizes), _tag(field, 2)), varints(sizes), *parts]


def only(rows: NDArray[np.bool_], parts: Sequence[Column]) -> list[Column]:
    """``parts`` in some of the messages."""
    return [Column(part.data, part.sizes * rows) for part in parts]


def joined(parts: Sequence[Column]) -> tuple[NDArray[np.uint8], NDArray[np.int32]]:
    """The messages one after the other, and where each begins (one entry more than there are messages)."""
    rows, width = len(parts[0].sizes), sum(part.data.shape[1] for part in parts)
    every, counts = np.empty((rows, width), np.uint8), np.empty((rows, width), np.bool_)
    offsets = np.zeros(rows + 1, np.int32)
    at = 0
    for part in parts:
        end = at + part.data.shape[1]
        every[:, at:end] = part.data
        counts[:, at:end] = np.arange(end - at) < part.sizes[:, None]
        offsets[1:] += part.sizes.astype(np.int32)
        at = end
    return every[counts], np.cumsum(offsets, dtype=np.int32)
