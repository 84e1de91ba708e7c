"""Numbers of seven bits a byte are read by the format's definition, with this processor's instructions and the portable code."""

from __future__ import annotations

import random
import struct
import subprocess
from pathlib import Path

import c_build
import pytest

FLAGS = ["-std=c11", "-D_GNU_SOURCE", "-g", "-O2", "-Wall", "-Wextra", "-Werror"]
SANITIZERS = ["-fsanitize=address,undefined", "-fno-sanitize-recover=all"]


def encoded(value: int) -> bytes:
    out = bytearray()
    while value >= 128:
        out.append(value & 127 | 128)
        value >>= 7
    return bytes([*out, value])


def records() -> list[tuple[bytes, int]]:
    """Bytes, and how many numbers to read of them."""
    draw = random.Random(1)
    actual = []
    for widest in (1, 2, 3, 4, 5, 9, 10):
        for count in (0, 1, 3, 7, 8, 15, 16, 17, 40, 300):
            lengths = [draw.choice(range(1, widest + 1)) if draw.random() < 0.5 else draw.choice((1, widest)) for _ in range(count)]
            numbers = [min(draw.randrange(1 << 7 * (n - 1), 1 << 7 * n) if n > 1 else draw.randrange(128), 2**64 - 1) for n in lengths]
            text = b"".join(map(encoded, numbers))
            actual += [(text, count), (text + bytes([200, 1, 5]), count)]
            if count:
                actual += [(text[:-1], count), (text[:-1] + b"\x80", count), (text, count - 1), (text, count + 1)]
    for first in range(256):  # every pattern of lengths among eight bytes
        pattern = bytes(draw.randrange(128) | (first >> i & 1) << 7 for i in range(8))
        text = pattern + bytes([1]) * 40
        actual.append((text, sum(byte < 128 for byte in text)))
    overlong = [b"\xff" * 9 + b"\x01", b"\xff" * 9 + b"\x02", b"\x80" * 10 + b"\x01", b"\x80\x00", b"\xff" * 64, b"\x80" * 9 + b"\x01"]
    return actual + [(text + b"\x07" * 30, 31) for text in overlong] + [(b"\x07" * 30 + text, 31) for text in overlong]


def expected(text: bytes, count: int) -> tuple[int, list[int]]:
    at, numbers = 0, []
    for _ in range(count):
        value = shift = 0
        while True:
            if at >= len(text) or shift > 63 or (shift == 63 and text[at] > 1):
                return -1, []
            value |= (text[at] & 127) << shift
            shift += 7
            at += 1
            if text[at - 1] < 128:
                break
        numbers.append(value)
    return at, numbers


@pytest.mark.parametrize("way", [[], ["-DPRT_PORTABLE"]], ids=["lanes", "portable"])
def test_numbers(project_root: Path, tmp_path: Path, way: list[str]) -> None:
    driver, data = tmp_path / "driver", tmp_path / "records"
    sources = [project_root / "tests" / "native" / "varints_driver.c", project_root / "native" / "src" / "reader" / "varints.c"]
    c_build.build(sources, driver, *FLAGS, *SANITIZERS, *way, f"-I{project_root / 'native' / 'src'}")
    cases = records()
    data.write_bytes(b"".join(struct.pack("<II", len(text), count) + text for text, count in cases))
    run = subprocess.run([str(driver), str(data)], capture_output=True, text=True, timeout=120)
    assert run.returncode == 0, run.stderr[-2000:]
    lines = run.stdout.splitlines()
    assert len(lines) == 2 * len(cases)
    for (text, count), plain, zigzag in zip(cases, lines[::2], lines[1::2], strict=True):
        taken, numbers = expected(text, count)
        signed = [(value >> 1) ^ (-(value & 1) & (2**64 - 1)) for value in numbers]
        assert plain.split() == ["plain", str(taken), *map(str, numbers)], (text, count)
        assert zigzag.split() == ["zigzag", str(taken), *map(str, signed)], (text, count)
