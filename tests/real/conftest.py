"""Runs that several test files read, made once for all test processes."""

from __future__ import annotations

import json
import pickle
import subprocess
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from postrun.analysis import Options, analyze
from postrun.analysis.report import Report
from postrun.ingest import ingest

BuiltOnce = Callable[[str, Callable[[Path], object]], Path]
AT_NOON = Options(generated_at_ns=1_795_262_400_000_000_000)


@pytest.fixture(scope="session")
def report_of(built_once: BuiltOnce) -> Callable[[Path], Report]:
    """Return a function: trace, or folder of traces -> its report with all rules."""

    @cache
    def read(path: Path) -> Report:
        def write(folder: Path) -> None:
            with ingest([path]) as store:
                (folder / "report.pickle").write_bytes(pickle.dumps(analyze(store, AT_NOON)))

        report: Report = pickle.loads((built_once(f"report-of-{path.parent.name}-{path.name}", write) / "report.pickle").read_bytes())
        return report

    return read


@pytest.fixture(scope="session")
def syn1(shared_data: Path, built_once: BuiltOnce) -> Path:
    """The synthetic run of 2 x 2 GPUs."""
    script = shared_data / "syn1" / "make_syn1.py"
    if not script.is_file():
        pytest.skip(f"no synthetic run: {script} is no file")
    return built_once("syn1", lambda folder: subprocess.run([sys.executable, "-B", str(script), str(folder)], check=True))


@pytest.fixture(scope="session")
def syn1_figures(shared_data: Path) -> dict[str, Any]:
    """The expected figures of the synthetic run."""
    script = shared_data / "syn1" / "expected.py"
    if not script.is_file():
        pytest.skip(f"no synthetic run: {script} is no file")
    done = subprocess.run([sys.executable, "-B", str(script)], capture_output=True, text=True, check=True)
    figures: dict[str, Any] = json.loads(done.stdout)
    return figures
