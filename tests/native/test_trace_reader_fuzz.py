"""Does the trace reader stay within its memory and its time, whatever file it is given? (address and undefined-behaviour sanitizers)

A few seconds here; ``POSTRUN_FUZZ_SECONDS=3600`` (of processor time) and ``POSTRUN_FUZZ_SEED`` make it long. The corpus is the golden
files and some that reach what those do not.
"""

from __future__ import annotations

import os
import shutil
import struct
import subprocess
from pathlib import Path

import pytest

pytest.importorskip("postrun.native._native")

import prt_reader
from postrun.native import _native
from prt_writer import PrtWriter

FLAGS = [
    "-std=c11",
    "-D_GNU_SOURCE",
    "-g",
    "-O1",
    "-Wall",
    "-Wextra",
    "-Werror",
    "-fsanitize=address,undefined",
    "-fno-sanitize-recover=all",
]
SOURCES = ["reader.c", "reader_arrow.c", "trace_clock.c", "trace_columns.c", "varints.c", "block.c", "crc32c.c", "zstd_loader.c"]
GOLDEN = Path(__file__).parent / "golden"


def corpus(folder: Path) -> list[Path]:
    """Files that reach every encoding, several streams, many names, damage and compression."""
    files = sorted(GOLDEN.glob("*.prt"))
    anchors = [(i * 10**9, i * 10**9, 10**18 + i * 10**9) for i in range(5)]
    for level in (0, 3) if _native.zstd_available() else (0,):
        writer = PrtWriter(zstd_level=level).prelude([f"n{i}" for i in range(300)], anchors)
        count = 200
        for table in prt_reader.RANGES:
            columns = {number: [(i * number) % (number + 3) for i in range(count)] for number in prt_reader.COLUMNS[table]}
            columns |= {
                1: [i * i % 300 for i in range(count)],
                2: [i * 1000 + i % 7 for i in range(count)],
                3: [i % 9 * 100 for i in range(count)],
            }
            writer.add(table, columns, first_time=0)
        writer.add("counter", {1: [1] * 50, 2: [*range(50)], 3: [i / 8 for i in range(50)]})
        writer.add("metric", {1: [1] * 50, 2: [-1] * 50, 3: [*range(50)], 4: [i / 3 for i in range(50)]})
        path = folder / f"corpus-{level}.prt"
        path.write_bytes(writer.end().data())
        files.append(path)
    path = folder / "corpus-little.prt"
    path.write_bytes(with_little_in_it())
    for encoding in range(len(PAYLOADS)):
        files.append(folder / f"corpus-encoding-{encoding}.prt")
        files[-1].write_bytes(with_encoding(encoding))
    return [*files, path]


def varint(value: int) -> bytes:
    return bytes([value & 127 | 128]) + varint(value >> 7) if value > 127 else bytes([value])


ROWS = 9
PAYLOADS = [  # nine rows in each encoding
    struct.pack("<9q", *range(ROWS)),
    b"".join(varint(300 * i) for i in range(ROWS)),
    b"".join(varint(2 * i + 1) for i in range(ROWS)),
    bytes(2 * (i % 3) for i in range(ROWS)),
    bytes([2, 2, 7, 4]),
    bytes([1, 2, 8, 0]),
    b"".join(bytes([i % 4]) + b"text"[: i % 4] for i in range(ROWS)),
    bytes(2 * (i % 5) for i in range(ROWS)),
    bytes(14 * i for i in range(ROWS)),
    b"\2" + bytes(2 * i for i in range(ROWS)),
    bytes([9, 6]),
]


def with_encoding(encoding: int) -> bytes:
    """Blocks of all types whose columns are in one encoding, where that is allowed."""
    data = PrtWriter().prelude(["a", "b", "é"], [(0, 0, 10**18), (10**9, 10**9, 10**18 + 10**9)]).data()
    for kind, table in enumerate(prt_reader.TYPES, 1):
        payload = b""
        for number in prt_reader.COLUMNS[table]:
            how = encoding
            if (table, number) in prt_reader.TEXTS:
                how = 6
            elif (table, number) in prt_reader.DOUBLES:
                how = 0 if encoding == 0 else 9
            elif encoding in (6, 9) or (number == 1 and encoding in (7, 10)) or (number != 2 and encoding == 8):
                how = 4
            payload += struct.pack("<BBHI", number, how, 0, len(PAYLOADS[how])) + PAYLOADS[how]
        header = struct.pack("<4sHBBIIIIQq", b"PRBK", kind, 0, 0, len(payload), len(payload), ROWS, 0, 0, 0)
        header += struct.pack("<I", prt_reader.crc32c(header))
        data += header + struct.pack("<I", prt_reader.crc32c(header + payload)) + payload
    return data


def with_little_in_it() -> bytes:
    """A file whose first text is empty, and whose blocks have one row of one column each (or none that is known)."""
    writer = PrtWriter().add("strings", {1: [1], 2: [""]}).add("meta", {1: [""], 2: [""]})
    for table, columns in prt_reader.COLUMNS.items():
        for number in columns:
            writer.add(table, {number: [""] if (table, number) in prt_reader.TEXTS else [1]})
        writer.add_raw(prt_reader.TYPES.index(table) + 1, [(31, 0, [1])])
    return writer.end().data()


@pytest.fixture(scope="module")
def driver(project_root: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("no C compiler (cc)")
    built = tmp_path_factory.mktemp("fuzz") / "trace_reader_fuzz"
    native = project_root / "native" / "src"
    sources = [project_root / "tests" / "native" / "trace_reader_fuzz.c", *(native / name for name in SOURCES)]
    command = [compiler, *FLAGS, f"-I{native}", *map(str, sources), "-o", str(built), "-pthread", "-ldl"]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode and "sanitize" in done.stderr and "error: " not in done.stderr.replace("cannot find", ""):
        pytest.skip(f"the compiler has no sanitizers: {done.stderr[-200:]}")
    assert done.returncode == 0, done.stderr
    return built


def test_damaged_files(driver: Path, tmp_path: Path) -> None:
    seconds = os.environ.get("POSTRUN_FUZZ_SECONDS", "5")
    seed = os.environ.get("POSTRUN_FUZZ_SEED", "1")
    command = [str(driver), seconds, seed, *map(str, corpus(tmp_path))]
    environment = {**os.environ, "ASAN_OPTIONS": "detect_leaks=1:max_allocation_size_mb=400"}
    done = subprocess.run(command, capture_output=True, text=True, timeout=60 + 20 * float(seconds), env=environment, cwd=tmp_path)
    assert done.returncode == 0, done.stdout[-500:] + done.stderr[-4000:]
    files, rows, refused, problems = (int(word) for word in done.stdout.split()[::2])
    assert files > 100
    assert rows > 50 * files
    assert 0 < refused < files / 2
    assert problems > files / 2
