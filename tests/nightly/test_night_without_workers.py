"""A machine that cannot start a process leaves the runs to the next night."""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner
from postrun.cli import main
from postrun.nightly import run_night as course
from postrun.simulate import Problems, write_demo


@pytest.mark.parametrize(
    ("lines", "files", "limits"),
    [
        ("0::/slurm/job_7/step\n", {"slurm/job_7/memory.max": "500", "slurm/memory.max": "max", "memory.max": "900"}, [500, 900, 900]),
        ("11:cpu,cpuacct:/a\n4:memory:/user/one\n", {"memory/user/memory.limit_in_bytes": "70"}, [70]),
        ("0::/../outside\n", {"memory.max": "900"}, [900, 900]),
        (None, {"memory.max": "900", "memory/memory.limit_in_bytes": "800"}, [900, 800]),
    ],
)
def test_the_control_groups_of_this_process_limit_its_memory(
    tmp_path: Path, lines: str | None, files: dict[str, str], limits: list[int]
) -> None:
    if lines is not None:
        (tmp_path / "proc/self").mkdir(parents=True)
        (tmp_path / "proc/self/cgroup").write_text(lines)
    for name, text in files.items():
        path = tmp_path / "sys/fs/cgroup" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    assert list(course._group_limits(tmp_path)) == limits


@pytest.mark.slow
def test_runs_are_not_blamed_for_workers_that_cannot_be_started(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_demo(tmp_path / "runs" / "a", steps=2, nodes=1, gpus_per_node=1, problems=Problems(straggler_rank=None))
    shutil.rmtree(tmp_path / "runs" / "a" / "profiler-output")
    out = tmp_path / "out"
    words = ["nightly", str(tmp_path / "runs"), "--out", str(out), "--settle", "0", "--format", "json", "--workers", "1", "--json"]
    with monkeypatch.context() as patched:
        patched.setattr(sys, "executable", str(tmp_path / "no-python"))
        done = CliRunner().invoke(main, words)
    assert done.exit_code == 0, done.output
    (failed,) = json.loads(done.stdout)["failed"]
    assert failed["id"] == "a"
    assert failed["reason"].startswith("no worker could be started: ")
    assert not (out / "runs" / "a" / "done.json").exists()
    again = CliRunner().invoke(main, words)
    assert json.loads(again.stdout)["reported"] == ["a"], again.output
