"""A standard output that is full loses no file, no alarm and no exit code."""

from __future__ import annotations

import json
import sys
from contextlib import suppress
from pathlib import Path

import pytest
from postrun.cli import main
from small_runs import write_run

FULL = "postrun: standard output: No space left on device; a part of the result is not printed\n"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Write a source with a run and a damaged one."""
    folder = tmp_path_factory.mktemp("source")
    event = {"ph": "X", "cat": "kernel", "name": "mm", "ts": 1, "dur": 2, "pid": 0, "tid": 7, "args": {"device": 0, "stream": 7}}
    for name, text in (("good", json.dumps({"traceEvents": [event]})), ("bad", '{"traceEvents": [')):
        (folder / name).mkdir()
        (folder / name / "x.pt.trace.json").write_text(text)
    return folder


def code_of(monkeypatch: pytest.MonkeyPatch, *words: object, stream: str = "stdout") -> int:
    """Return the exit code of a command while a stream is full."""
    code: object = 0
    with suppress(OSError), Path("/dev/full").open("w", encoding="utf-8") as full, monkeypatch.context() as patch:
        patch.setattr(sys, stream, full)
        try:
            main([str(word) for word in words])
        except SystemExit as error:
            code = error.code
    assert isinstance(code, int)
    return code


def test_a_result_that_is_not_printed_is_no_success(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    assert code_of(monkeypatch, "rules") == 1
    assert capsys.readouterr().err == FULL


@pytest.mark.slow
def test_a_night_keeps_its_alarm_and_its_metrics(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    out, metrics = tmp_path / "out", tmp_path / "night.prom"
    words = ("nightly", folder, "--out", out, "--engine", "none", "--format", "json", "--settle", "0", "--metrics", metrics)
    assert code_of(monkeypatch, *words, "--fail-on", "error") == 3
    messages = capsys.readouterr().err
    assert messages.endswith(FULL)
    assert "postrun: --fail-on: no report of bad\n" in messages
    assert 'night_exit_code{out="' in metrics.read_text()
    assert code_of(monkeypatch, *words, "--fail-on", "error") == 1  # nothing new, and nothing printed
    assert code_of(monkeypatch, *words, "--force", "--fail-on", "error", stream="stderr") == 3


@pytest.mark.slow
def test_a_report_and_a_comparison_keep_their_alarm(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    report = ("report", write_run(tmp_path / "run"), "-o", tmp_path / "report", "--format", "json")
    assert code_of(monkeypatch, *report) == 1
    assert code_of(monkeypatch, *report, "--fail-on", "issues") == 3
    compare = ("compare", tmp_path / "report", tmp_path / "report", "-o", tmp_path / "comparison", "--format", "json")
    capsys.readouterr()
    assert code_of(monkeypatch, *compare) == 1
    assert code_of(monkeypatch, *compare, "--fail-on", "unlike") == 3
    assert capsys.readouterr().err.count(FULL) == 2
    assert (tmp_path / "comparison" / "comparison.json").is_file()
