"""Tests that the sample configuration of the docs makes a report of a real trace."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner
from postrun.cli import main

PAGE = Path(__file__).parents[2] / "docs" / "configuration.md"
LINE = "# histogram = "


@pytest.mark.parametrize("histogram", [False, True])
def test_the_file_to_start_from(shared_data: Path, tmp_path: Path, *, histogram: bool) -> None:
    trace = shared_data / "kineto" / "h100" / "Qwen_Qwen1.5-0.5B-Chat__1016005.json.gz"
    if not trace.is_file():
        pytest.skip("the trace is not here")
    sample = PAGE.read_text("utf-8").partition("```toml\n")[2].partition("```")[0]
    assert LINE in sample
    config = tmp_path / "postrun.toml"
    config.write_text(sample.replace(LINE, LINE.removeprefix("# ")) if histogram else sample, encoding="utf-8")
    arguments = ["report", str(trace), "--config", str(config), "-o", str(tmp_path / "out"), "--format", "json"]
    done = CliRunner().invoke(main, arguments)
    assert done.exit_code == 0, done.output
    for name in ("Forward", "Backward"):
        note = f"note: histogram = {name!r} of the configuration: no annotated range of this run has this name"
        assert (note in done.output) == histogram
    refused = CliRunner().invoke(main, [*arguments, "--histogram", "Forward"])
    assert refused.exit_code == 2
    assert "--histogram Forward: no annotated range has this name" in refused.output
