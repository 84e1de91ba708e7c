"""Steps that a program marks only with NVTX are the steps of its report, from the injection to the figures."""

from __future__ import annotations

import subprocess
from pathlib import Path

import cupti_headers
import prt_reader
import pytest
from native_programs import Programs, environment, files
from postrun.analysis import Options, analyze
from postrun.ingest import ingest


@pytest.mark.slow
@pytest.mark.parametrize("how", ["name", "payload", "handle"])
def test_steps_of_a_program_with_nvtx(programs: Programs, tmp_path: Path, how: str) -> None:
    headers = cupti_headers.nvtx()
    program, out = tmp_path / "nvtx_steps", tmp_path / "out"
    programs.compile("plain", [programs.root / "tests" / "native" / "nvtx_steps.c"], program, "-isystem", str(headers))
    library = programs.library("plain") / "libpostrun.so"
    variables = environment(NVTX_INJECTION64_PATH=str(library), POSTRUN_CAPTURE="1", POSTRUN_DIR=str(out))
    done = subprocess.run([program, how], env=variables, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-2000:]
    (file,) = files(out)
    ranges = prt_reader.read(file.read_bytes())["annotation"]
    with ingest([out]) as store:
        report = analyze(store, Options(generated_at_ns=0))
    marked = {row["value"] if how == "payload" else int(row["name"][5:]): row for row in ranges if row["name"].startswith("step")}
    assert sorted(marked) == list(range(5, 25))
    assert {step.index: step.on_device for step in report.steps.steps} == dict.fromkeys(range(5, 25), False)
    for step in report.steps.steps:
        row = marked[step.index]
        assert abs(step.start_ns - row["start_ns"]) <= 1
        assert abs(step.host_duration_ns - row["duration_ns"]) <= 1
    groups = {group.name: group.quantiles.count for group in report.annotations.groups}
    assert groups == {"step": 20, "forward": 20}
    [parts] = report.steps.parts
    # A range inside a step is its part, also a range with a handle.
    inside = sum(row["duration_ns"] for row in ranges if row["name"] == "forward") / 20
    assert parts.annotated
    assert parts.mean_ns["forward"] == pytest.approx(float(inside), abs=2)
