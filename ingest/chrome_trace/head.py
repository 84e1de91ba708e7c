"""The head of a file, decompressed, from which its format is recognized."""

from __future__ import annotations

import zlib
from pathlib import Path
from typing import Final

HEAD_BYTES: Final = 16 << 10  # bytes that show the format of most files
TRACE_HEAD_BYTES: Final = 1 << 20  # bytes of a JSON file that show its format and the metadata of a trace


def read_head(path: Path, size: int = HEAD_BYTES) -> bytes:
    """Read the first ``size`` bytes, decompressed; fewer if damaged. Raises OSError."""
    with path.open("rb") as file:
        raw = file.read(size)
    if raw.startswith(b"\x1f\x8b"):
        try:
            return zlib.decompressobj(31).decompress(raw, size)
        except zlib.error:
            return b""
    if raw.startswith(b"\x28\xb5\x2f\xfd"):
        import zstandard

        head = b""
        decoder = zstandard.ZstdDecompressor().decompressobj()
        try:
            for start in range(0, len(raw), 256):
                head += decoder.decompress(raw[start : start + 256])
                if len(head) >= size or decoder.eof:
                    break
        except zstandard.ZstdError:
            pass
        return head[:size]
    return raw
