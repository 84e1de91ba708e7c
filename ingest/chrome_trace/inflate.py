"""Decompresses trace files up to the first damage.

``Inflate`` streams a plain, gzip or zstd file in pieces; the compression is recognized by the first bytes, never by the
name. A file that is cut or corrupt gives everything before the damage, which is listed in ``defects``:

================  ========================================================================================
code              damage
================  ========================================================================================
cut_stream        the file ends inside a compressed stream (a job was killed, a copy stopped)
corrupt_stream    compressed data that cannot be decoded; the rest is not read
checksum          all data was decoded, but its checksum or length does not match
trailing_garbage  count = other bytes after the last compressed stream; not read
unpacked_limit    the file has more decompressed bytes than ``max_unpacked`` allows; the rest is not read
================  ========================================================================================
"""

from __future__ import annotations

import contextlib
import os
import sys
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, Final, Literal, cast

import zstandard
from isal import isal_zlib

from ...errors import InputError
from ..store.limits import unpacked_limit
from .defect import Defect

Compression = Literal["none", "gzip", "zstd"]

_GZIP_MAGIC: Final = b"\x1f\x8b"
_ZSTD_MAGIC: Final = b"\x28\xb5\x2f\xfd"
_ZSTD_SKIPPABLE: Final = b"\x2a\x4d\x18"  # after one byte 0x50 to 0x5f
_INPUT: Final = 1 << 18  # compressed bytes read at a time: some 4 MB of trace
_CAREFUL_INPUT: Final = 1 << 12  # gives 4 MB of gzip at most, 128 MB of zstd; ordinary traces 80 kB
_GZIP_WBITS: Final = 31
_GZIP_RATIO: Final = 1032  # of unpacked bytes to packed ones, at most: 258 bytes from 2 bits
_ISAL_ERROR: Final = cast(type[Exception], isal_zlib.IsalError)  # its stub declares an instance


class Inflate:
    """Iterates once over the decompressed bytes of ``path`` in pieces of at most ``size`` bytes.

    ``max_unpacked``: the value of --max-unpacked. ``raw_bytes``: decompressed bytes so far; ``read_bytes``: bytes read from the file.
    ``defects`` is complete after the iteration; its offsets are positions in the decompressed text. Raises InputError if the file cannot
    be opened or read.
    """

    def __init__(self, path: Path, *, size: int = 4 << 20, max_unpacked: str | None = None) -> None:
        self._path = path
        self._size = size
        self._max_unpacked = max_unpacked
        self.raw_bytes = 0
        self.read_bytes = 0
        self.defects: list[Defect] = []
        with self._open() as file:
            self.compression: Compression = _compression(self._read(file, 4))

    def __iter__(self) -> Iterator[bytes]:
        readers = {"none": self._plain, "gzip": self._gzip, "zstd": self._zstd}
        with self._open() as file:
            gathered: list[bytes] = []
            length = 0
            limit = sys.maxsize if self.compression == "none" else unpacked_limit(os.fstat(file.fileno()).st_size, self._max_unpacked)
            for piece in readers[self.compression](file):
                if self.raw_bytes + len(piece) > limit:
                    gathered.append(piece[: limit - self.raw_bytes])
                    self.raw_bytes = limit
                    self._defect("unpacked_limit", 1, "")
                    break
                self.raw_bytes += len(piece)
                length += len(piece)
                gathered.append(piece)
                if length >= self._size // 4:
                    yield from self._pieces(gathered[0] if len(gathered) == 1 else b"".join(gathered))
                    gathered, length = [], 0
            if gathered:
                yield from self._pieces(b"".join(gathered))

    def _open(self) -> BinaryIO:
        try:
            return self._path.open("rb")
        except FileNotFoundError:
            raise InputError(f"{self._path}: no such file; check the path") from None
        except IsADirectoryError:
            raise InputError(f"{self._path}: is a folder; a trace file is needed here") from None
        except OSError as error:
            raise InputError(f"{self._path}: cannot be opened: {error.strerror}; check its permissions") from error

    def _read(self, file: BinaryIO, size: int) -> bytes:
        try:
            data = file.read(size)
        except OSError as error:
            raise InputError(f"{self._path}: cannot be read: {error.strerror}; copy the file again") from error
        self.read_bytes += len(data)
        return data

    def _defect(self, code: str, count: int, what: str) -> None:
        self.defects.append(Defect(code, count, self.raw_bytes, what))

    def _plain(self, file: BinaryIO) -> Iterator[bytes]:
        while piece := self._read(file, self._size):
            yield piece

    def _pieces(self, data: bytes) -> Iterator[bytes]:
        for start in range(0, len(data), self._size):
            yield data[start : start + self._size] if len(data) > self._size else data

    # gzip

    def _gzip(self, file: BinaryIO) -> Iterator[bytes]:
        """Decode members with isal; a member with an error is read again carefully."""
        pending = self._read(file, _INPUT)
        member_start = 0
        while pending:
            before = self.raw_bytes
            decoder = isal_zlib.decompressobj(_GZIP_WBITS)
            broken = False
            taken = 0  # compressed bytes of this member handed to the decoder
            while not decoder.eof:
                if not pending:
                    pending = self._read(file, _INPUT)
                if not pending:
                    broken = True
                    break
                try:
                    piece = decoder.decompress(pending, self._size)
                except (_ISAL_ERROR, ValueError):
                    broken = True
                    break
                left = decoder.unused_data if decoder.eof else decoder.unconsumed_tail
                taken += len(pending) - len(left)
                pending = left
                if piece:
                    yield piece
            if broken:
                yield from self._careful_gzip(file, member_start, self.raw_bytes - before)
                return
            member_start += taken
            while not pending.strip(b"\0"):  # padding, as tape and block devices leave it
                member_start += len(pending)
                pending = self._read(file, _INPUT)
                if not pending:
                    return
            padding = len(pending) - len(pending.lstrip(b"\0"))
            member_start += padding
            pending = pending[padding:]
            if len(pending) < len(_GZIP_MAGIC):
                pending += self._read(file, _INPUT)
            if not _GZIP_MAGIC.startswith(pending[:2]):
                self._trailing_garbage(file, pending)
                return

    def _careful_gzip(self, file: BinaryIO, start: int, delivered: int) -> Iterator[bytes]:
        """Yield the member at ``start`` without its first ``delivered`` bytes.

        A zlib call that fails returns nothing, so input that fails is decoded again byte by byte.
        """
        file.seek(start)
        decoder = zlib.decompressobj(_GZIP_WBITS)
        position = 0
        while not decoder.eof:
            block = self._read(file, _CAREFUL_INPUT)
            if not block:
                self._defect("cut_stream", 1, "the file ends inside a gzip stream")
                return
            saved = decoder.copy()
            try:
                pieces = [decoder.decompress(block)]
                problem = ""
            except zlib.error as error:
                pieces = _until_it_fails(saved, block)
                problem = str(error)
            for piece in pieces:
                position += len(piece)
                if position > delivered:
                    yield piece[-(position - delivered) :]
                    delivered = position
            if problem:
                checksum = "incorrect data check" in problem or "incorrect length check" in problem
                self._defect("checksum" if checksum else "corrupt_stream", 1, problem)
                return
        self._defect("corrupt_stream", 1, "only the slower of two decoders could read this gzip stream; compare its source")

    def _trailing_garbage(self, file: BinaryIO, pending: bytes) -> None:
        count, example = len(pending), pending[:60]
        while more := self._read(file, self._size):
            count += len(more)
        self._defect("trailing_garbage", count, example.decode("utf-8", "replace"))

    # zstd

    def _zstd(self, file: BinaryIO) -> Iterator[bytes]:
        """Decode frame after frame; a frame with an error is read again byte by byte."""
        pending = self._read(file, _CAREFUL_INPUT)
        frame_start = 0
        while pending:
            if len(pending) < 4:
                pending += self._read(file, _CAREFUL_INPUT)
            if _compression(pending[:4]) != "zstd":
                if _ZSTD_MAGIC.startswith(pending):
                    self._defect("cut_stream", 1, "the file ends inside a zstd frame header")
                else:
                    self._trailing_garbage(file, pending)
                return
            decoder = zstandard.ZstdDecompressor().decompressobj()
            taken = 0
            while not decoder.eof:
                pending = pending or self._read(file, _CAREFUL_INPUT)
                if not pending:
                    self._defect("cut_stream", 1, "the file ends inside a zstd frame")
                    return
                try:
                    piece = decoder.decompress(pending)
                except zstandard.ZstdError as error:
                    yield from self._careful_zstd(file, frame_start, taken, pending)
                    kind = "checksum" if "checksum" in str(error) else "corrupt_stream"
                    self._defect(kind, 1, str(error))
                    return
                left = decoder.unused_data if decoder.eof else b""
                taken += len(pending) - len(left)
                pending = left
                yield piece
            frame_start += taken
            pending = pending or self._read(file, _CAREFUL_INPUT)

    def _careful_zstd(self, file: BinaryIO, start: int, taken: int, failing: bytes) -> Iterator[bytes]:
        """Yield the valid part of ``failing``, after ``taken`` bytes of the frame."""
        file.seek(start)
        decoder = zstandard.ZstdDecompressor().decompressobj()
        try:
            while taken:
                again = self._read(file, min(taken, _CAREFUL_INPUT))
                if not again:
                    return
                taken -= len(again)
                decoder.decompress(again)
            for i in range(len(failing)):
                yield decoder.decompress(failing[i : i + 1])
        except zstandard.ZstdError:
            return


def over_limit(path: Path, max_unpacked: str | None) -> str | None:
    """Return a message if ``path`` unpacks to more than the limit, else None."""
    packed = path.stat().st_size
    limit = unpacked_limit(packed, max_unpacked)
    inflate = Inflate(path, max_unpacked=max_unpacked)
    if inflate.compression == "none" or (inflate.compression == "gzip" and packed * _GZIP_RATIO <= limit):
        return None
    for _ in inflate:
        pass
    if not any(defect.code == "unpacked_limit" for defect in inflate.defects):
        return None
    return f"unpacked it has more than {limit:,} bytes, the limit; raise --max-unpacked to read it"


def _until_it_fails(decoder: zlib._Decompress, block: bytes) -> list[bytes]:
    pieces = []
    with contextlib.suppress(zlib.error):
        for i in range(len(block)):
            pieces.append(decoder.decompress(block[i : i + 1]))
    return pieces


def _compression(head: bytes) -> Compression:
    if head.startswith(_GZIP_MAGIC):
        return "gzip"
    if head == _ZSTD_MAGIC or (len(head) == 4 and 0x50 <= head[0] <= 0x5F and head[1:] == _ZSTD_SKIPPABLE):
        return "zstd"
    return "none"
