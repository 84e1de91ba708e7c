"""The trace reader stays within its memory and its time for any file (address and undefined-behavior sanitizers).

A fixed number of mutations, by any compiler; test_fuzz.py fuzzes the same target led by coverage. The corpus is the golden files and some
that reach further code.
"""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

pytest.importorskip("postrun.native._native")

from fuzz_seeds import trace_files
from fuzz_targets import build

pytestmark = pytest.mark.slow


def test_damaged_files(project_root: Path, tmp_path: Path) -> None:
    driver = build(project_root, "trace_reader_fuzz", tmp_path)
    paths = [*map(str, trace_files(tmp_path))]
    environment = {**os.environ, "ASAN_OPTIONS": "detect_leaks=1:max_allocation_size_mb=800"}

    def totals(rounds: int) -> list[int]:
        command = [str(driver), str(rounds), "1", *paths]
        done = subprocess.run(command, capture_output=True, text=True, timeout=300, env=environment, cwd=tmp_path)
        assert done.returncode == 0, done.stdout[-500:] + done.stderr[-4000:]
        return [int(word) for word in done.stdout.split()[::2]]

    assert totals(0)[0::2] == [len(paths), 0]
    files, rows, refused, problems = totals(700)
    assert files == 700
    assert rows > 50 * files
    assert 0 < refused < files / 2
    assert problems > files / 2
