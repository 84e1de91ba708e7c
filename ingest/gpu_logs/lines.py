"""Reads the lines of a text log, plain or compressed, in portions that fit in memory.

Logs are UTF-8, or UTF-16 (redirected output of Windows PowerShell), with or without a byte order mark. Lines end with LF, CR LF or CR.
Invalid bytes are replaced.
"""

from __future__ import annotations

import codecs
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import polars as pl

from ..chrome_trace.inflate import Inflate
from ..chrome_trace.notes import note_defects
from ..store.store import Store
from .recognize import ends_with_cr, utf16_of

BATCH_BYTES: Final = 2 << 20
LONGEST_LINE: Final = 64 << 10  # bytes; logs have no longer lines
_BLANK: Final = re.compile(rb"\n[\n\r\t \0]+")  # empty lines: each line of a series takes memory, and a packed file can have millions


class LogLines:
    """Iterates once over the lines of ``path``, in series of texts without line ends.

    ``cut``: the last line has no end, so it may be incomplete and is left out. ``too_long``: number of lines that were left out because
    they exceed ``LONGEST_LINE`` bytes. ``part``: the fraction of the file that has been read. Raises InputError on read errors.
    """

    def __init__(self, path: Path, max_unpacked: str | None = None) -> None:
        self._size = path.stat().st_size
        self._inflate = Inflate(path, max_unpacked=max_unpacked)
        self.cut = False
        self.too_long = 0
        self._zeros = 0

    @property
    def part(self) -> float:
        return min(self._inflate.read_bytes / self._size, 1.0) if self._size else 1.0

    @property
    def damaged(self) -> bool:
        return bool(self._inflate.defects)

    def note_defects(self, store: Store, source: int, file: str) -> None:
        """Note the defects of a compressed file and zero bytes, after the iteration."""
        note_defects(store, source, file, self._inflate.defects)
        if self._zeros:
            text = (
                "Zero bytes were left out, as a file system leaves them where a machine goes down while a file is written: what stood there"
                " is missing."
            )
            store.note("warning", "zero_bytes", text, count=self._zeros, source=source, file=file)

    def __iter__(self) -> Iterator[pl.Series]:
        rest = b""
        skipping = False
        for piece in self._text():
            if skipping:
                _, end, piece = piece.partition(b"\n")
                skipping = not end
            rest += piece
            if len(rest) >= BATCH_BYTES:
                complete, _, rest = rest.rpartition(b"\n")
                yield from self._series(complete)
                if len(rest) > LONGEST_LINE:
                    rest, skipping = b"", True
                    self.too_long += 1
        complete, _, rest = rest.rpartition(b"\n")
        yield from self._series(complete)
        if len(rest) > LONGEST_LINE:
            self.too_long += 1
        else:
            self._zeros += rest.count(b"\0")
            self.cut = bool(rest.strip(b" \t\r\0"))

    def _series(self, raw: bytes) -> Iterator[pl.Series]:
        if not raw:
            return
        self._zeros += raw.count(b"\0")  # a file system leaves them if the machine goes down during a write
        text = _BLANK.sub(b"\n", raw).decode("utf-8", "replace").replace("\0", " ")
        lines = pl.Series("line", [text]).str.split("\n").explode().str.strip_chars(" \t\r\ufeff")
        lines = lines.filter(lines.str.len_bytes() > 0)
        short = lines.filter(lines.str.len_bytes() <= LONGEST_LINE)
        self.too_long += len(lines) - len(short)
        if len(short):
            yield short

    def _text(self) -> Iterator[bytes]:
        decoder: codecs.IncrementalDecoder | None = None
        first, carriage = True, False
        for piece in self._inflate:
            if first:
                first = False
                if name := utf16_of(piece):
                    decoder = codecs.getincrementaldecoder(name)("replace")
                carriage = ends_with_cr(piece)
            text = piece if decoder is None else decoder.decode(piece).encode("utf-8", "replace")
            yield text.replace(b"\r", b"\n") if carriage else text
