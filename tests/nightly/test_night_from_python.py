"""A night from Python, with an executor of the caller."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import postrun
import pytest
import small_runs as small
from postrun.errors import InputError, UsageError
from postrun.nightly.model import ReportOptions


@pytest.mark.slow
@pytest.mark.parametrize("with_executor", [True, False])
def test_a_night_with_an_executor_of_the_caller_or_with_processes(tmp_path: Path, with_executor: bool) -> None:
    small.write_run(tmp_path / "in" / "a", 1)
    (tmp_path / "in" / "bad").mkdir()
    (tmp_path / "in" / "bad" / "trace.json").write_text("no trace")
    options = ReportOptions(formats=("json",), rules=("StepOutlier",))
    with ThreadPoolExecutor(1) as threads:
        executor = threads if with_executor else None
        night = postrun.run_night(tmp_path / "in", tmp_path / "out", options=options, executor=executor, workers=1, settle_s=0)
        assert [row.id for row in night.reported] == ["a"]
        assert [(row.id, row.reason is not None) for row in night.failed] == [("bad", True)]
        assert (night.index, sorted(night.rows), night.stopped) == (f"{tmp_path}/out/index.html", ["a", "bad"], None)
        again = postrun.run_night(tmp_path / "in", tmp_path / "out", options=options, executor=executor, workers=1, settle_s=0)
        assert (again.reported, again.failed, sorted(again.rows)) == ((), (), ["a", "bad"])
        if with_executor:
            assert threads.submit(int).result() == 0  # it stays open
    assert json.loads((tmp_path / "out" / "index.json").read_text())["runs_total"] == 2


def test_mistakes_are_errors_of_postrun(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no such folder"):
        postrun.run_night(tmp_path / "absent", tmp_path / "out")
    with pytest.raises(UsageError, match="at least 1"):
        postrun.run_night(tmp_path, tmp_path / "out", workers=0)
