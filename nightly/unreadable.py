"""Files that begin like no run's file because they are damaged: the first bytes -> the reason, so that no file disappears silently.

Only what is certainly damaged has a reason: JSON of other programs has another syntax, or several values.
"""

from __future__ import annotations

import json
import re
import zlib
from typing import Final

_GZIP: Final = b"\x1f\x8b"
_ZSTD: Final = b"\x28\xb5\x2f\xfd"
_MOST: Final = 1 << 20  # decompressed bytes that are checked
_EARLY: Final = "JSON that ends too early"
_CUT: Final = re.compile(r"|t|tr|tru|f|fa|fal|fals|n|nu|nul|-|[.eE][+-]?")  # the rest of a text whose last value is cut


def reason(path: str, head: bytes, complete: bool) -> str | None:
    """Return why a JSON file cannot be read, or None.

    ``complete``: it has no more bytes."""
    name = path.lower()
    if not name.endswith((".json", ".json.gz", ".json.zst")):
        return None
    if complete and not head:
        return "an empty file"
    if name.endswith(".gz"):
        return _of_gzip(head, complete)
    if name.endswith(".zst"):
        return _of_zstd(head, complete)
    return _of_text(head, complete)


def _of_gzip(head: bytes, complete: bool) -> str | None:
    if not head.startswith(_GZIP):
        return "not compressed by gzip, although its name ends in .gz"
    decoder = zlib.decompressobj(31)
    try:
        text = decoder.decompress(head, _MOST)
    except zlib.error:
        return "damaged gzip data"
    if complete and not decoder.eof and not decoder.unconsumed_tail:
        return "gzip data that ends too early"
    return _of_text(text, decoder.eof)


def _of_zstd(head: bytes, complete: bool) -> str | None:
    import zstandard

    if not head.startswith(_ZSTD):
        return "not compressed by zstd, although its name ends in .zst"
    text, decoder = b"", zstandard.ZstdDecompressor().decompressobj()
    try:
        for start in range(0, len(head), 256):
            text += decoder.decompress(head[start : start + 256])
            if decoder.eof or len(text) > _MOST:
                break
    except zstandard.ZstdError:
        return "damaged zstd data"
    if complete and not decoder.eof and len(text) <= _MOST:
        return "zstd data that ends too early"
    return _of_text(text, decoder.eof)


def _of_text(data: bytes, complete: bool) -> str | None:
    try:
        text = data.decode("utf-8-sig").strip()
    except UnicodeDecodeError as error:
        cut = error.start >= len(data) - 3 and data.lstrip()[:1] in (b"{", b"[")  # the last character
        return (_EARLY if complete else None) if cut else "not a text in UTF-8"
    if not complete:
        return None
    try:
        json.JSONDecoder().raw_decode(text)
    except json.JSONDecodeError as error:
        return _EARLY if error.msg.startswith("Unterminated") or _CUT.fullmatch(text[error.pos :]) else None
    except RecursionError:
        return None
    return None
