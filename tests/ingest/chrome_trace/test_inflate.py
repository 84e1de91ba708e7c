"""Tests that damaged and compressed files give everything that can be read, and list their defects."""

from __future__ import annotations

import gzip
import os
import random
import zlib
from pathlib import Path

import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st
from postrun.errors import InputError
from postrun.ingest.chrome_trace.inflate import Inflate

SOURCE = random.Random(5)
TEXT = b"".join(b'{"ph": "X", "ts": %d, "name": "op %d"},\n' % (i, SOURCE.randrange(10**6)) for i in range(40_000))
HALF = len(TEXT) // 2


def read(path: Path, data: bytes, size: int = 1 << 18) -> tuple[bytes, Inflate]:
    path.write_bytes(data)
    stream = Inflate(path, size=size)
    pieces = list(stream)
    assert all(0 < len(piece) <= size for piece in pieces)
    assert stream.raw_bytes == sum(map(len, pieces))
    return b"".join(pieces), stream


@pytest.mark.parametrize(
    ("data", "compression"),
    [
        (TEXT, "none"),
        (b"", "none"),
        (b"\x1f", "none"),
        (gzip.compress(TEXT), "gzip"),
        (gzip.compress(b""), "gzip"),
        (gzip.compress(TEXT[:HALF]) + gzip.compress(b"") + gzip.compress(TEXT[HALF:]), "gzip"),
        (gzip.compress(TEXT) + bytes(1000), "gzip"),
        (zstandard.compress(TEXT), "zstd"),
        (zstandard.compress(TEXT[:HALF]) + zstandard.compress(TEXT[HALF:]), "zstd"),
        (b"\x50\x2a\x4d\x18\x03\x00\x00\x00abc" + zstandard.compress(TEXT), "zstd"),
    ],
    ids=["plain", "empty", "one byte", "gzip", "gzip empty", "gzip members", "gzip padded", "zstd", "zstd frames", "zstd skippable"],
)
@pytest.mark.parametrize("size", [1 << 20, 5000])
def test_whole_files(tmp_path: Path, data: bytes, compression: str, size: int) -> None:
    out, stream = read(tmp_path / "trace.json", data, size)  # the name does not matter
    assert stream.compression == compression
    assert out == (TEXT if len(data) > 1000 else data if compression == "none" else b"")
    assert stream.defects == []


@pytest.mark.parametrize("compress", [gzip.compress, zstandard.compress], ids=["gzip", "zstd"])
def test_a_cut_file_gives_what_is_there(tmp_path: Path, compress: object) -> None:
    data = gzip.compress(TEXT) if compress is gzip.compress else zstandard.compress(TEXT)
    for keep in (3, 11, 50, len(data) // 3, len(data) // 2, len(data) - 9, len(data) - 1):
        if keep < 4 and compress is not gzip.compress:
            continue  # not recognized
        out, stream = read(tmp_path / "x", data[:keep])
        assert TEXT.startswith(out)
        assert [(d.code, d.first_offset) for d in stream.defects] == [("cut_stream", len(out))]
        if compress is gzip.compress:
            assert len(out) == len(zlib.decompressobj(31).decompress(data[:keep]))
        else:
            assert len(out) >= len(TEXT) * keep / len(data) - 400_000  # blocks are read whole or not at all


def test_a_second_member_that_is_cut(tmp_path: Path) -> None:
    first = gzip.compress(TEXT[:HALF])
    for cut in (1, 2, 5, 12, 30_000):
        out, stream = read(tmp_path / "x", first + gzip.compress(TEXT[HALF:])[:cut])
        assert TEXT.startswith(out)
        assert len(out) >= HALF
        assert [d.code for d in stream.defects] == ["cut_stream"]


def test_all_before_corrupt_gzip_data_is_read(tmp_path: Path) -> None:
    """A stored block has no redundancy, so the offset of the damage is known."""
    stored = zlib.compressobj(0, zlib.DEFLATED, 31)
    head = stored.compress(TEXT[:HALF]) + stored.flush(zlib.Z_FULL_FLUSH)
    out, stream = read(tmp_path / "x", head + b"\xff" * 5000)
    assert out == TEXT[:HALF]
    assert [(d.code, d.first_offset) for d in stream.defects] == [("corrupt_stream", HALF)]


def test_a_wrong_checksum_costs_no_data(tmp_path: Path) -> None:
    data = bytearray(gzip.compress(TEXT))
    data[-6] ^= 1
    out, stream = read(tmp_path / "x", bytes(data))
    assert out == TEXT
    assert [d.code for d in stream.defects] == ["checksum"]
    data = bytearray(zstandard.ZstdCompressor(write_checksum=True).compress(TEXT))
    data[-1] ^= 1
    out, stream = read(tmp_path / "x", bytes(data))
    assert out == TEXT
    assert [d.code for d in stream.defects] == ["checksum"]


@pytest.mark.parametrize("data", [gzip.compress(TEXT), zstandard.compress(TEXT)], ids=["gzip", "zstd"])
def test_what_follows_the_stream_is_counted(tmp_path: Path, data: bytes) -> None:
    out, stream = read(tmp_path / "x", data + b"junk" * 1000)
    assert out == TEXT
    assert [(d.code, d.count, d.first_offset) for d in stream.defects] == [("trailing_garbage", 4000, len(TEXT))]
    assert stream.defects[0].example.startswith("junkjunk")


@given(st.sampled_from(["gzip", "zstd"]), st.integers(0, 2**32))
def test_any_damage_is_survived_and_said(tmp_path_factory: pytest.TempPathFactory, compression: str, seed: int) -> None:
    source = random.Random(seed)
    text = TEXT[: 1 << 16]
    data = bytearray(gzip.compress(text) if compression == "gzip" else zstandard.ZstdCompressor(write_checksum=True).compress(text))
    offset = source.randrange(20, len(data))
    data[offset] ^= source.randrange(1, 256)
    out, stream = read(tmp_path_factory.getbasetemp() / "damaged", bytes(data), 5000)
    assert out == text or stream.defects


def test_a_small_file_that_inflates_to_much_comes_in_pieces(tmp_path: Path) -> None:
    path = tmp_path / "x"
    for data in (gzip.compress(bytes(50_000_000)), zstandard.compress(bytes(50_000_000))):
        path.write_bytes(data)
        assert sum(len(piece) for piece in Inflate(path, size=100_000) if len(piece) <= 100_000) == 50_000_000


def test_what_cannot_be_opened_is_an_input_error(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no such file"):
        Inflate(tmp_path / "absent.json")
    with pytest.raises(InputError, match="folder"):
        Inflate(tmp_path)
    path = tmp_path / "secret.json"
    path.write_bytes(TEXT)
    path.chmod(0)
    if os.access(path, os.R_OK):
        pytest.skip("this user may read everything")
    with pytest.raises(InputError, match="permission"):
        Inflate(path)


def test_real_traces_inflate_as_gzip_inflates_them(shared_data: Path) -> None:
    path = shared_data / "kineto" / "v100_ddp" / "rank-0.Apr_03_18_51_38.1102.pt.trace.json.gz"
    assert b"".join(Inflate(path)) == gzip.decompress(path.read_bytes())
