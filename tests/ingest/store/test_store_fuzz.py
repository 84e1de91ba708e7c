"""Run stores with changed bytes and valid checksums end in a report or in one clear error.

A dozen tries by default; POSTRUN_FUZZ_STORES=500 makes as many, POSTRUN_FUZZ_SEED starts elsewhere.
"""

from __future__ import annotations

import os
import random
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import postrun
import pytest
from duckdb_blocks import blocks, valid, write_block
from postrun.errors import InputError
from postrun.ingest import ingest
from postrun.simulate import write_demo

TRIES = int(os.environ.get("POSTRUN_FUZZ_STORES") or 12)
SEED = int(os.environ.get("POSTRUN_FUZZ_SEED") or 1)
WORDS = (0, 1, 2**7, 2**8 - 1, 2**15, 2**16 - 1, 2**31 - 1, 2**32 - 1, 2**62, 2**63 - 1, 2**64 - 1)
KINDS = {
    "needed too much memory": "memory",
    "used too much processor time": "processor time",
    "gave no answer": "no answer",
    "ended with": "crash of the child",
    "contains something that no run store": "catalog",
    "a DuckDB file, but no run store": "catalog",
    "run store of format": "format",
    "cannot be opened as a run store": "database error",
    "contents that no postrun writes": "values",
    "contradictory contents": "analysis",
    "an answer that is not valid": "answer",
    "is longer than": "text",
    "nothing usable found": "another format",
}


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    folder = tmp_path_factory.mktemp("fuzz")
    write_demo(folder / "run", seed=1)
    traces = sorted((folder / "run").rglob("*trace*.json*"), key=lambda path: path.stat().st_size)
    ingest([traces[0]], folder / "run.duckdb").close()
    assert valid(folder / "run.duckdb")
    return (folder / "run.duckdb").read_bytes()


def mutated(data: bytes, random: random.Random) -> bytes:
    """Return the file with some changed bytes and right checksums."""
    out = bytearray(data)
    parts = list(blocks(data))
    weights = [4, 8, 8, *[6] * (len(parts) - 3)]
    for start, size in random.choices(parts, weights, k=random.choice((1, 1, 2))):
        used = np.flatnonzero(np.frombuffer(out, np.uint8, size - 8, start + 8)) + start + 8
        if not len(used):
            continue
        # Half of the changes are in the first bytes: metadata is written there.
        used = used[: random.choice((64, 512, len(used)))]
        for _ in range(random.choice((1, 1, 2, 8, 64))):
            page = int(used[random.randrange(len(used))])
            kind = random.randrange(4)
            if kind == 0:
                out[page] ^= 1 << random.randrange(8)
            elif kind == 1:
                out[page] = random.randrange(256)
            else:
                width = min(random.choice((1, 2, 4, 8)), start + size - page)
                if kind == 2:
                    out[page : page + width] = random.choice(WORDS).to_bytes(8, "little")[:width]
                else:
                    partner = int(used[random.randrange(len(used))])
                    out[page : page + width] = out[partner : min(partner + width, start + size)].ljust(width, b"\0")
        write_block(out, start, size)
    return bytes(out)


def outcomes(data: bytes, folder: Path) -> Iterator[tuple[int, str]]:
    for number in range(TRIES):
        path = folder / "run.duckdb"
        path.write_bytes(mutated(data, random.Random(SEED * 1_000_003 + number)))
        try:
            postrun.analyze(path, ["StepOutlier"], generated_at_ns=0)
        except InputError as error:
            text = str(error)
            assert text.startswith(f"{path}: ")
            kind = next((kind for words, kind in KINDS.items() if words in text), None)
            assert kind is not None, text
            assert "\n" not in text or kind == "another format"
            end = re.search(r"ended with (\w+( \w+)?)", text)
            yield number, f"error: {kind}" + (f" ({end[1]})" if end else "")
        else:
            yield number, "report"


@pytest.mark.slow
def test_changed_bytes_end_in_a_report_or_one_error(store: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "t").mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "t"))
    counts: Counter[str] = Counter()
    for number, kind in outcomes(store, tmp_path / "in"):
        counts[kind] += 1
        if number % 50 == 49:
            print(dict(counts), flush=True)
    assert counts.total() == TRIES
    assert list((tmp_path / "t").iterdir()) == []
    assert [one.name for one in (tmp_path / "in").iterdir()] == ["run.duckdb"]
