"""Fuzzing led by coverage (clang's libFuzzer, with address and undefined-behavior sanitizers) of the C code that reads foreign files.

A smoke test of two seconds per target; ``make fuzz`` makes it long: ``POSTRUN_FUZZ_SECONDS`` is the time per target and
``POSTRUN_FUZZ_CORPUS`` a folder that keeps the corpora from run to run. An input that fails stays there, as ``<target>-crash-*``.
"""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

pytest.importorskip("postrun.native._native")

from fuzz_seeds import reader_seeds, scan_seeds
from fuzz_targets import TARGETS, build

pytestmark = pytest.mark.slow

SEEDS: dict[str, Callable[[Path], None]] = {"trace_scan_fuzz": scan_seeds, "trace_reader_fuzz": reader_seeds}


@pytest.mark.parametrize("target", sorted(TARGETS))
def test_fuzz(target: str, project_root: Path, tmp_path: Path) -> None:
    program = build(project_root, target, tmp_path, coverage=True)
    seconds = int(os.environ.get("POSTRUN_FUZZ_SECONDS", "2"))
    kept = Path(os.environ.get("POSTRUN_FUZZ_CORPUS") or tmp_path / "corpus").resolve()
    actual, seeds = kept / target, tmp_path / "seeds"
    actual.mkdir(parents=True, exist_ok=True)
    seeds.mkdir()
    SEEDS[target](seeds)
    options = {"max_total_time": seconds, "max_len": 1 << 17, "timeout": 20, "rss_limit_mb": 3000, "malloc_limit_mb": 800}
    options |= {"print_final_stats": 1, "verbosity": 1, "artifact_prefix": f"{kept}/{target}-"}
    command = [str(program), *(f"-{name}={value}" for name, value in options.items()), str(actual), str(seeds)]
    done = subprocess.run(command, capture_output=True, text=True, errors="replace", timeout=2 * seconds + 600, cwd=tmp_path)
    assert done.returncode == 0, done.stderr[-6000:]
    lines = [line for line in done.stderr.splitlines() if re.search(r"cov: .* corp: |stat::|slowest input", line)]
    totals = [line for line in lines if "DONE" in line or "cov:" not in line]
    print(f"{target}, {seconds} s:", *totals, done.stdout.strip(), sep="\n  ")
    executed = int(re.search(r"number_of_executed_units: (\d+)", done.stderr)[1])  # type: ignore[index]
    assert executed > 50
    assert int(done.stdout.split()[0]) > 50  # rows or files: the target did read something
