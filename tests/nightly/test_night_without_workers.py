"""Does a machine that can start no process leave the runs to the next night?"""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner
from postrun.cli import main
from postrun.simulate import Problems, write_demo


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
