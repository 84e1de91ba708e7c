"""Blocks of a DuckDB file and their checksums, for tests that change bytes of a file.

A file has three headers of 4,096 bytes and then blocks of 256 KiB. Each begins with a checksum of 8 bytes over the rest: the words of 8
bytes, each mixed by a multiplication, are combined by exclusive or, and so is a hash of the bytes that are left over.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np

HEADER = 4096
BLOCK = 262_144
_FACTOR = np.uint64(0xBF58476D1CE4E5B9)
_START = 5381


def checksum(data: bytes | bytearray | memoryview) -> int:
    """Of data whose length is a multiple of 8."""
    return _START ^ int(np.bitwise_xor.reduce(np.frombuffer(data, "<u8") * _FACTOR))


def blocks(data: bytes | bytearray) -> Iterator[tuple[int, int]]:
    """Start and size of every part with a checksum."""
    for start in range(0, 3 * HEADER, HEADER):
        yield start, HEADER
    for start in range(3 * HEADER, len(data) - BLOCK + 1, BLOCK):
        yield start, BLOCK


def write_block(data: bytearray, start: int, size: int) -> None:
    """Write the checksum of a part that was changed."""
    data[start : start + 8] = checksum(memoryview(data)[start + 8 : start + size]).to_bytes(8, "little")


def valid(path: Path) -> bool:
    """Whether all checksums of a file are those that :func:`checksum` gives."""
    data = path.read_bytes()
    return all(data[start : start + 8] == checksum(data[start + 8 : start + size]).to_bytes(8, "little") for start, size in blocks(data))
