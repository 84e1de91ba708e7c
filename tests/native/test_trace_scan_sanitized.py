"""Does the C scanner stay within its memory, whatever it is fed? (address and undefined-behaviour sanitizers)"""

from __future__ import annotations

import gzip
import json
import shutil
import subprocess
from decimal import Decimal
from pathlib import Path

import pytest

FLAGS = ["-std=c11", "-g", "-O1", "-Wall", "-Wextra", "-Werror", "-fsanitize=address,undefined", "-fno-sanitize-recover=all"]


def events(count: int) -> list[dict[str, object]]:
    names = ["aten::mm", "C:\\x\\y", "é\U0001f600\u0001", "a" * 300, "]}{[", '"']
    return [
        {
            "ph": "XBEiM"[i % 5],
            "cat": ["kernel", "cpu_op"][i % 2],
            "name": names[i % 6],
            "pid": [1, "Spans"][i % 2],
            "tid": i,
            "ts": 1712195495519689.5 + i,
            "dur": i / 7,
            "args": {
                "correlation": i,
                "External id": f"0x{i:x}",
                "grid": [i, 1, 1],
                "Input Dims": [[i, 2], []],
                "Call stack": names[i % 4],
            },
        }
        for i in range(count)
    ]


@pytest.fixture(scope="module")
def driver(project_root: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("no C compiler (cc)")
    built = tmp_path_factory.mktemp("driver") / "trace_scan_driver"
    sources = [project_root / "tests" / "native" / "trace_scan_driver.c", project_root / "native" / "src" / "trace_scan.c"]
    command = [compiler, *FLAGS, f"-I{project_root / 'native' / 'src'}", *map(str, sources), "-o", str(built)]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode and "sanitize" in done.stderr and "error: " not in done.stderr.replace("cannot find", ""):
        pytest.skip(f"the compiler has no sanitizers: {done.stderr[-200:]}")
    assert done.returncode == 0, done.stderr
    return built


def run(driver: Path, text: bytes, rounds: int, seed: int) -> tuple[int, int]:
    """Rows and defects, summed over the rounds; the driver itself compares whole text and chunks."""
    path = driver.parent / "text.json"
    path.write_bytes(text)
    command = [str(driver), str(path), str(rounds), str(seed)]
    done = subprocess.run(command, cwd=driver.parent, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr[-3000:]
    rows, defects = map(int, done.stdout.split())
    return rows, defects


LAYOUTS = {
    "one line": json.dumps({"a": [1, {"b": "c"}], "traceEvents": events(150), "z": "end"}),
    "indent": json.dumps({"traceEvents": events(100)}, indent=2),
    "array": json.dumps(events(150), ensure_ascii=False),
}


@pytest.mark.parametrize("layout", sorted(LAYOUTS))
def test_damaged_text(driver: Path, layout: str) -> None:
    text = LAYOUTS[layout].encode()
    rows, defects = run(driver, text, 0, 1)
    assert defects == 0
    rowed = [("X", "B", "E"), ("X", "B", "E", "i")]  # instants of the wide category, too
    assert rows == sum(e["ph"] in rowed[e["cat"] == "kernel"] for e in events(100 if layout == "indent" else 150))
    damaged_rows, damaged_defects = run(driver, text, 300, 1)
    assert damaged_defects > 0
    assert damaged_rows > 300 * rows * 0.5


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"{",
        b"[",
        b'"',
        b"\\",
        b"\xef\xbb\xbf",
        b'{"ph":' * 500,
        b'[{"ph":"X","name":"' + b"\\" * 999,
        b"[" * 5000,
        b'{"a":"' + b'"' * 999,
    ],
    ids=range(10),
)
def test_hostile_text(driver: Path, text: bytes) -> None:
    run(driver, text, 0, 1)
    if text:
        run(driver, text, 50, 1)


def long_numbers() -> list[str]:
    """Numbers of 1 to 40 digits: with a sign, a fraction, an exponent, leading zeros, and at the limits of int64."""
    numbers = [str(limit + step) for limit in (2**63, -(2**63), 2**64) for step in range(-2, 3)]
    for count in [*range(1, 26), 40]:
        for digits in ("9" * count, "1" + "0" * (count - 1), "0" * (count - 1) + "7"):
            numbers += [
                digits,
                "-" + digits,
                f"{digits}.9999",
                f"{digits[: count // 2]}.{digits[count // 2 :]}",
                f"{digits}e3",
                f"{digits}E-9",
            ]
    return [*numbers, f"1e{10**5}", f"1e-{10**5}"]


@pytest.mark.parametrize("quoted", [False, True], ids=["number", "text"])
def test_long_numbers(driver: Path, quoted: bool) -> None:
    """A number that no int64 can represent is dropped with a defect; it never overflows on the way."""
    numbers = [f'"{number}"' if quoted else number for number in long_numbers()]
    rows = [
        f'{{"ph":"X","cat":"kernel","name":"k","ts":{ts},"dur":{n},"pid":{n},"tid":{n},"args":{{"correlation":{n},"grid":[{n},{n},{n}]}}}}'
        for n in numbers
        for ts in ("1", n)
    ]
    kept, defects = run(driver, f"[{','.join(rows)}]".encode(), 0, 1)
    fit = sum(-(2**63) < 1000 * Decimal(number) < 2**63 for number in long_numbers())
    assert kept == len(numbers) + fit
    assert defects > 0


def test_damaged_real_trace(driver: Path, shared_data: Path) -> None:
    text = gzip.decompress((shared_data / "kineto" / "quirks" / "event_sync_trace.json.gz").read_bytes())
    rows, defects = run(driver, text, 0, 1)
    assert (rows, defects) == (57, 0)
    run(driver, text, 500, 2)
