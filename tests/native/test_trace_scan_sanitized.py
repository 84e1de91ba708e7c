"""Does the C scanner stay within its memory, whatever it is fed? (address and undefined-behaviour sanitizers)"""

from __future__ import annotations

import gzip
import json
import shutil
import subprocess
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


def test_damaged_real_trace(driver: Path, shared_data: Path) -> None:
    text = gzip.decompress((shared_data / "kineto" / "quirks" / "event_sync_trace.json.gz").read_bytes())
    rows, defects = run(driver, text, 0, 1)
    assert (rows, defects) == (57, 0)
    run(driver, text, 500, 2)
