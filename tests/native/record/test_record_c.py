"""A C program with a session of its own, the example, runs unchanged under postrun record, and is reported."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from postrun import native
from prt_reader import read

CLEAN = {key: value for key, value in os.environ.items() if not key.startswith(("POSTRUN_", "SLURM_", "OMPI_", "PMI"))}


@pytest.fixture(scope="module")
def example(project_root: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build examples/capture.c with the library of this installation."""
    compiler = shutil.which("cc")
    if compiler is None or not native.available():
        pytest.skip("no C compiler, or the C library was not built")
    built = tmp_path_factory.mktemp("example") / "capture"
    include, lib = native.include_dir(), native.include_dir().parent / "lib"
    command = [compiler, project_root / "examples" / "capture.c", f"-I{include}", f"-L{lib}", "-lpostrun", f"-Wl,-rpath,{lib}", "-lm"]
    subprocess.run([*map(str, command), "-o", str(built)], check=True)
    return built


@pytest.mark.slow
def test_the_example_in_c_runs_unchanged_under_the_recorder(example: Path, tmp_path: Path) -> None:
    command = [sys.executable, "-P", "-m", "postrun", "record", "--out", "run", "--report", "--format", "json", "--", str(example), "own"]
    done = subprocess.run(command, cwd=tmp_path, env=CLEAN, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert not (tmp_path / "own").exists(), "all of a job goes to its folder"
    traces = {path: read(path.read_bytes()) for path in (tmp_path / "run").glob("*.prt")}
    ((path, program),) = [(path, file) for path, file in traces.items() if file["annotation"]]
    assert done.stdout == f"{path}: 200 records, 0 lost\n"
    assert sorted(row["value"] for row in program["annotation"] if row["name"] == "step") == list(range(50))
    assert len(program["end"]) == 1
    assert program["metric"] == [], "the recorder samples"
    report = json.loads((tmp_path / "run" / "report" / "report.json").read_bytes())
    assert report["run"]["status"] == "completed"
    assert [one["pid"] for one in report["processes"]] == [program["process"][0]["pid"]]


def test_the_example_in_c_alone(example: Path, tmp_path: Path) -> None:
    done = subprocess.run([example, "own"], cwd=tmp_path, env=CLEAN, capture_output=True, text=True, timeout=60)
    (path,) = (tmp_path / "own").glob("*.prt")
    assert done.stdout == f"{path}: 200 records, 0 lost\n"
