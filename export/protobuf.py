"""Encoding of protobuf messages: varints, lengths and fixed numbers, as Protocol Buffers define them.

First one value at a time, then columns: the same field of many messages at once.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray


def varint(number: int) -> bytes:
    """Encode an integer of 64 bits; a negative one as its two's complement."""
    number &= 0xFFFF_FFFF_FFFF_FFFF
    out = bytearray()
    while number > 127:
        out.append(number & 127 | 128)
        number >>= 7
    out.append(number)
    return bytes(out)


def integer(field: int, number: int) -> bytes:
    """Encode a field of an integer, bool or enum type."""
    return _tag(field, 0) + varint(number)


def data(field: int, value: bytes) -> bytes:
    """Encode a field of a bytes or message type."""
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
    """Return the same bytes for every message."""
    return Column(np.broadcast_to(np.frombuffer(value, np.uint8), (rows, len(value))), np.full(rows, len(value)))


def varints(numbers: NDArray[Any]) -> Column:
    """Encode integers of 64 bits; negative ones as their two's complement."""
    values = np.ascontiguousarray(numbers).astype(np.int64, copy=False).view(np.uint64)
    widest = max(1, (int(values.max()).bit_length() + 6) // 7) if len(values) else 1
    sizes = np.ones(len(values), np.int64)
    encoded = np.empty((len(values), widest), np.uint8)
    for index in range(widest):
        rest = values >> np.uint64(7 * index)
        more = rest > np.uint64(127)
        encoded[:, index] = (rest & np.uint64(127)) | (more.astype(np.uint64) << np.uint64(7))
        sizes += more
    return Column(encoded, sizes)


def integers(field: int, numbers: NDArray[Any]) -> list[Column]:
    """Encode a field of an integer type."""
    return [constant(len(numbers), _tag(field, 0)), varints(numbers)]


def fixed64(field: int, numbers: NDArray[Any]) -> list[Column]:
    """Encode a field of type fixed64 (int64) or double (float64)."""
    little = np.ascontiguousarray(numbers.astype(numbers.dtype.newbyteorder("<"), copy=False))
    return [constant(len(numbers), _tag(field, 1)), Column(little.view(np.uint8).reshape(len(numbers), 8), np.full(len(numbers), 8))]


def enclosed(field: int, parts: Sequence[Column], more: NDArray[np.int64] | int = 0) -> list[Column]:
    """Make ``parts`` a message in a field; ``more``: bytes of each row that follow."""
    sizes = sum((part.sizes for part in parts), np.zeros(len(parts[0].sizes), np.int64)) + more
    return [constant(len(sizes), _tag(field, 2)), varints(sizes), *parts]


def only(rows: NDArray[np.bool_], parts: Sequence[Column]) -> list[Column]:
    """Keep ``parts`` in some of the messages."""
    return [Column(part.data, part.sizes * rows) for part in parts]


def joined(parts: Sequence[Column]) -> tuple[NDArray[np.uint8], NDArray[np.int32]]:
    """Concatenate the messages; also return where each begins, with one entry more."""
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
