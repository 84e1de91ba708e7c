"""The options for a report's appearance reach it from the command line, the environment and a configuration file."""

from __future__ import annotations

import base64
import re
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from postrun import cli
from postrun.nightly.model import ReportOptions
from postrun.nightly.places import options_digest

LOGO = '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 4 2"><rect width="4" height="2" fill="{}"/></svg>'
MORE = ("--format", "html", "--timeline-events", "0")


@pytest.fixture(scope="module")
def run_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of one event, so that nothing takes long."""
    folder = tmp_path_factory.mktemp("look") / "run"
    folder.mkdir()
    (folder / "a.pt.trace.json").write_text(
        '{"schemaVersion": 1, "traceEvents": [{"ph": "X", "cat": "cpu_op", "name": "aten::mm", "pid": 1, "tid": 1, "ts": 1, "dur": 5}]}'
    )
    return folder


def call(*arguments: object) -> Result:
    return CliRunner().invoke(cli.main, [str(one) for one in arguments])


def page_of(run_folder: Path, *arguments: object) -> str:
    done = call("report", run_folder, "-o", "out", *MORE, *arguments)
    assert done.exit_code == 0, done.output
    return Path("out", "report.html").read_text("utf-8")


def sections_of(text: str) -> list[str]:
    return re.findall(r'<section id="([^"]*)"', text)


def test_file_environment_and_command_line_in_their_order(run_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    elsewhere = tmp_path / "company" / "brand"
    elsewhere.mkdir(parents=True)
    (elsewhere / "logo.svg").write_text(LOGO.format("red"))
    (tmp_path / "blue.svg").write_text(LOGO.format("blue"))
    config = elsewhere.parent / "pyproject.toml"
    config.write_text(
        '[tool.postrun]\nsections = ["steps", "-rules"]\ntheme = "dark"\ntitle = "Company report"\nlogo = "brand/logo.svg"\n'
        'logo-alt = "The Company"\n'
    )
    monkeypatch.chdir(tmp_path)
    text = page_of(run_folder, "--config", config)
    assert sections_of(text) == ["summary", "steps", "appendix"]
    assert '<html lang="en" data-theme="dark">' in text
    assert "Company report" in text
    assert base64.b64encode(LOGO.format("red").encode()).decode() in text, "a path in the file stands beside the file"
    assert 'alt="The Company"' in text
    for name, value in (("SECTIONS", "kernels"), ("THEME", "light"), ("TITLE", "Team report"), ("LOGO", "blue.svg"), ("LOGO_ALT", "Team")):
        monkeypatch.setenv(f"POSTRUN_{name}", value)
    text = page_of(run_folder, "--config", config)
    assert sections_of(text) == ["summary", "kernels", "appendix"]
    assert 'data-theme="light"' in text
    assert base64.b64encode(LOGO.format("blue").encode()).decode() in text
    assert 'alt="Team"' in text
    text = page_of(run_folder, "--config", config, "--sections", "-gpu,-training", "--theme", "auto", "--title", "Mine")
    assert sections_of(text)[1:-1] == ["job-statistics", "rules", "information", "data-quality", "without-content"]
    assert '<html lang="en">' in text
    assert "Mine" in text


@pytest.mark.parametrize("command", ["report", "demo", "nightly", "compare"])
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--sections", "kernel,steps"), "'kernel' is not a section (did you mean kernels"),
        (("--sections", ","), "nothing is named"),
        (("--theme", "blue"), "'blue' is not one of 'auto', 'light', 'dark'"),
        (("--title", "x" * 81), "81 characters"),
        (("--title", "red \x1b[31m"), "the title has control characters; leave them out"),
        (("--logo", "absent.png"), "absent.png: cannot be read"),
        (("--logo", "bad.svg"), "bad.svg: the SVG has the element script"),
        (("--logo-alt", "Company"), "--logo FILE"),
    ],
)
def test_mistakes_are_told_before_anything_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: str, arguments: tuple[str, ...], message: str
) -> None:
    if command == "compare" and arguments[0] == "--sections":
        pytest.skip("a comparison has all sections")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "bad.svg").write_text(LOGO.format("red").replace("<rect", "<script/><rect"))
    sources = {
        "report": ("absent.json",),
        "demo": ("-o", "out"),
        "nightly": ("absent", "--out", "out"),
        "compare": ("absent", "absent", "-o", "out"),
    }[command]
    done = call(command, *sources, *arguments)
    assert done.exit_code == 2
    assert arguments[0] in done.output
    assert message in done.output.replace("\n", " ")
    assert "Traceback" not in done.output
    assert not (tmp_path / "out").exists()


def test_a_mistake_in_the_environment_names_its_variable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("POSTRUN_SECTIONS", "kernel")
    assert "(from the environment variable POSTRUN_SECTIONS)" in call("report", "absent.json").output.replace("\n", " ")


def test_a_night_makes_its_reports_so(run_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "logo.svg").write_text(LOGO.format("red"))
    night = ("nightly", run_folder.parent, "--out", "out", "--engine", "none", "--settle", "0", *MORE, "--sections", "steps,rules")
    done = call(*night, "--theme", "dark", "--title", "Night report", "--logo", "logo.svg")
    assert done.exit_code == 0, done.output
    [report_json] = tmp_path.glob("out/runs/**/latest/report.html")
    text = report_json.read_text("utf-8")
    assert sections_of(text) == ["summary", "steps", "rules", "appendix"]
    assert 'data-theme="dark"' in text
    assert 'alt="Night report"' in text
    index = (tmp_path / "out" / "index.html").read_text("utf-8")
    assert 'data-theme="dark"' in index
    assert '<img class="logo" src="data:image/svg+xml;base64,' in index
    assert "postrun · <bdi>Night report</bdi>" in index
    others = [ReportOptions(), ReportOptions(sections=("steps",)), ReportOptions(theme="dark"), ReportOptions(logo=("data:", "Logo"))]
    assert len(set(map(options_digest, others))) == len(others), "another look makes a report new"
