"""Two runs with one output folder: the files there are those of one of them."""

from __future__ import annotations

import dataclasses
import fcntl
import json
import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from postrun.analysis.compare.build import compare
from postrun.analysis.report import Report
from postrun.errors import RenderError
from postrun.report_templates.output import output_folder as output_lock
from postrun.report_templates.output.comparison_page import render_comparison
from postrun.report_templates.output.pdf import Job
from postrun.report_templates.output.render import render


class FakePrinter:
    """Prints the attached JSON as the PDF, after ``before``."""

    def __init__(self, before: Callable[[], object] = lambda: None) -> None:
        self.before = before
        self.job: Job | None = None

    def start(self, job: Job) -> None:
        self.job = job

    def attach(self) -> None:
        pass

    def finish(self, _timeout_s: float) -> str | None:
        assert self.job is not None
        self.before()
        Path(self.job.output).write_bytes(Path(self.job.attachment).read_bytes())
        return None


def named(report: Report, name: str) -> Report:
    return dataclasses.replace(report, run=dataclasses.replace(report.run, name=name))


def names(folder: Path) -> list[str]:
    """The run of each file: JSON, PDF, HTML."""
    html = (folder / "report.html").read_text("utf-8")
    data = [json.loads((folder / file).read_text("utf-8"))["run"]["name"] for file in ("report.json", "report.pdf")]
    return [*data, "run-ada" if "run-ada" in html else "run-bob"]


def test_files_of_two_runs_are_not_mixed(small_reports: dict[str, Report], tmp_path: Path) -> None:
    report = small_reports["empty"]

    def second() -> None:
        render(named(report, "run-bob"), tmp_path, printer=FakePrinter())  # type: ignore[arg-type]
        assert names(tmp_path) == ["run-bob"] * 3

    render(named(report, "run-ada"), tmp_path, printer=FakePrinter(second))  # type: ignore[arg-type]
    assert names(tmp_path) == ["run-ada"] * 3
    assert names_in(tmp_path) == ["report.html", "report.json", "report.pdf"]


def names_in(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def hold(folder: Path) -> int:
    descriptor = os.open(folder, os.O_RDONLY)
    fcntl.flock(descriptor, fcntl.LOCK_EX)
    return descriptor


def test_a_run_waits_while_another_moves_its_files(small_reports: dict[str, Report], tmp_path: Path) -> None:
    descriptor = hold(tmp_path)
    done: list[Any] = []
    thread = threading.Thread(target=lambda: done.append(render(small_reports["empty"], tmp_path, ["json", "junit"])))
    thread.start()
    thread.join(0.5)
    assert (thread.is_alive(), [path.name for path in tmp_path.glob("report*")]) == (True, [])
    os.close(descriptor)
    thread.join(30)
    assert sorted(done[0]) == ["json", "junit"]


def test_a_comparison_waits_too(small_reports: dict[str, Report], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(output_lock, "_PATIENCE_S", 0.1)
    report = small_reports["empty"]
    comparison = compare(report, report, generator=report.generator)
    descriptor = hold(tmp_path)
    with pytest.raises(RenderError, match="another process has held its lock"):
        render_comparison(comparison, tmp_path, ["json"])
    assert names_in(tmp_path) == []
    os.close(descriptor)
    assert list(render_comparison(comparison, tmp_path, ["json"])) == ["json"]


def test_a_lock_that_nobody_releases_is_a_clear_error(
    small_reports: dict[str, Report], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(output_lock, "_PATIENCE_S", 0.1)
    descriptor = hold(tmp_path)
    with pytest.raises(RenderError, match="another process has held its lock"):
        render(small_reports["empty"], tmp_path, ["json"])
    os.close(descriptor)
    assert names_in(tmp_path) == []


def test_a_file_system_without_locks_is_used_without(
    small_reports: dict[str, Report], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def flock(*_: object) -> None:
        raise OSError(95, "Operation not supported")

    monkeypatch.setattr(fcntl, "flock", flock)
    render(small_reports["empty"], tmp_path, ["json"])
    assert names_in(tmp_path) == ["report.json"]
