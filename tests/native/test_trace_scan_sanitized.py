"""The C scanner stays within its memory for any input (address and undefined-behavior sanitizers)."""

from __future__ import annotations

import gzip
import subprocess
from decimal import Decimal
from pathlib import Path

import pytest
from fuzz_seeds import HOSTILE, LAYOUTS, events, long_numbers
from fuzz_targets import build

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def driver(project_root: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(project_root, "trace_scan_fuzz", tmp_path_factory.mktemp("driver"))


def run(driver: Path, text: bytes, rounds: int, seed: int) -> tuple[int, int]:
    """Return rows and defects, summed over the rounds (0: the text as it is).

    The driver itself compares the complete text and chunks.
    """
    path = driver.parent / "text.json"
    path.write_bytes(text)
    command = [str(driver), str(rounds), str(seed), str(path)]
    done = subprocess.run(command, cwd=driver.parent, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr[-3000:]
    rows, defects = map(int, done.stdout.split()[::2])
    return rows, defects


@pytest.mark.parametrize("layout", sorted(LAYOUTS))
def test_damaged_text(driver: Path, layout: str) -> None:
    text = LAYOUTS[layout].encode()
    rows, defects = run(driver, text, 0, 1)
    assert defects == 0
    rowed = [("X", "B", "E"), ("X", "B", "E", "i")]  # also instants of the wide category
    assert rows == sum(e["ph"] in rowed[e["cat"] == "kernel"] for e in events(100 if layout == "indent" else 150))
    damaged_rows, damaged_defects = run(driver, text, 200, 1)
    assert damaged_defects > 0
    assert damaged_rows > 200 * rows * 0.5


@pytest.mark.parametrize("text", HOSTILE, ids=range(len(HOSTILE)))
def test_hostile_text(driver: Path, text: bytes) -> None:
    run(driver, text, 0, 1)
    if text:
        run(driver, text, 50, 1)


@pytest.mark.parametrize("quoted", [False, True], ids=["number", "text"])
def test_long_numbers(driver: Path, quoted: bool) -> None:
    """A number that no int64 can represent is dropped with a defect, without overflow."""
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
    run(driver, text, 200, 2)
