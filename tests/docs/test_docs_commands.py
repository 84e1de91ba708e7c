"""The commands, options and programs in the documents exist."""

from __future__ import annotations

import ast
import json
import os
import re
import shutil
import subprocess
import sys
import textwrap
import tomllib
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
from postrun import cli
from postrun.native import available

ROOT = Path(__file__).resolve().parent.parent.parent
COMMANDS = cli.main.list_commands(click.Context(cli.main))
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]

_FENCE = re.compile(r"^( *)```(\w*)\n(.*?)^\1```", re.MULTILINE | re.DOTALL)
_INLINE = re.compile(r"`([^`\n]*\bpostrun [a-z][^`\n]*)`")
_CALL = re.compile(r"(?:^|(?<=[\s;|&\"'/({]))postrun +(?P<rest>[a-z][^\n]*)", re.MULTILINE)


def blocks(page: Path, *languages: str) -> list[str]:
    text = page.read_text(encoding="utf-8")
    return [textwrap.dedent(body) for _, language, body in _FENCE.findall(text) if language in languages]


def calls(page: Path) -> Iterator[tuple[str, list[str]]]:
    """Yield the command and its arguments of every call of postrun in a page."""
    text = page.read_text(encoding="utf-8")
    code = blocks(page, "console", "sh", "yaml", "dockerfile", "") + _INLINE.findall(_FENCE.sub("", text))
    for body in code:
        for match in _CALL.finditer(body.replace("\\\n", " ")):
            words = re.split(r"\s(?:\||;|&&|#|->|>)|;|`", match["rest"])[0].split()
            names = [" ".join(words[:count]).strip(".,:)\"'") for count in (2, 1)]
            if command := next((name for name in names if name in COMMANDS), None):
                yield command, words[len(command.split()) :]


def options(command: click.Command) -> set[str]:
    return {name for parameter in command.params for name in (*parameter.opts, *parameter.secondary_opts)} | {"--help", "-h"}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_option_of_a_command_is_one_that_it_has(page: Path) -> None:
    wrong = []
    for name, words in calls(page):
        command = cli.main.get_command(click.Context(cli.main), name)
        assert command is not None
        for word in words:
            if word == "--":
                break
            option = re.match(r"--[a-z][\w-]*|-[a-z]$", word)
            if option is not None and option[0] not in options(command):
                wrong.append(f"postrun {name} {word}")
    assert not wrong


def test_the_check_itself_sees_the_commands() -> None:
    seen = [name for page in PAGES for name, _ in calls(page)]
    assert len(seen) > 80
    assert set(seen) == set(COMMANDS)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_programs_and_files_can_be_read(page: Path) -> None:
    for body in blocks(page, "python"):
        ast.parse(body)
    for body in blocks(page, "toml"):
        tomllib.loads(body)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_scripts_of_the_shell_can_be_read(page: Path) -> None:
    for body in blocks(page, "sh"):
        done = subprocess.run(["bash", "-n"], input=body, capture_output=True, text=True, check=False)
        assert done.returncode == 0, f"{done.stderr}\n{body}"


@pytest.mark.slow
def test_the_loop_of_the_pages_records_steps(tmp_path: Path) -> None:
    """Run the lines of README, quick start and recipes under the recorder."""
    if not available():
        pytest.skip("the C library was not built")
    actual = [body for page in PAGES for body in blocks(page, "python") if "for i, batch in enumerate(loader)" in body]
    (loop,) = {body for body in actual if "session" not in body}
    before = "import time\nloader = range(30)\ntrain = lambda batch: time.sleep(0.001)\n"
    (tmp_path / "train.py").write_text(before + loop, encoding="utf-8")
    command = [sys.executable, "-P", "-m", "postrun", "record", "--out", "run", "--format", "json", "--report", "--"]
    subprocess.run([*command, sys.executable, "train.py"], cwd=tmp_path, check=True, capture_output=True)
    report = (tmp_path / "run" / "report" / "report.json").read_text(encoding="utf-8")
    assert '"index": 29' in report or '"index":29' in report


@pytest.mark.slow
def test_the_program_in_cpp_is_built_and_recorded(tmp_path: Path) -> None:
    for tool in ("c++", "pkg-config", "bash"):
        if shutil.which(tool) is None:
            pytest.skip(f"no {tool}")
    if not available():
        pytest.skip("the C library was not built")
    page = ROOT / "docs" / "recipes.md"
    (program,) = blocks(page, "cpp")
    (script,) = (body for body in blocks(page, "sh") if "train.cpp" in body)
    (tmp_path / "train.cpp").write_text(program, encoding="utf-8")
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    known = {name: value for name, value in os.environ.items() if not name.startswith("POSTRUN_")}
    command = ["bash", "-eu", "-c", script.replace("--report", "--report --format json")]
    done = subprocess.run(command, cwd=tmp_path, env={**known, "PATH": path}, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert len(json.loads((tmp_path / "run" / "report" / "report.json").read_bytes())["steps"]["steps"]) == 100


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_yaml_can_be_read(page: Path) -> None:
    yaml = pytest.importorskip("yaml", reason="no PyYAML")
    for body in blocks(page, "yaml"):
        assert yaml.safe_load(body)


def test_messages_are_quoted_as_they_are_printed() -> None:
    """Find each quoted message of troubleshooting.md in the source.

    Messages are in the first column of tables; the parts between … are compared.
    """
    page = (ROOT / "docs" / "troubleshooting.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| (.+?) \| .+ \|$", page, re.MULTILINE)
    quoted = [message for row in rows for message in re.findall(r"`([^`]+)`", row)]
    assert len(quoted) > 30
    folders = [
        folder for folder in ROOT.iterdir() if folder.is_dir() and folder.name not in ("tests", "docs", "build", "site", "benchmarks")
    ]
    files = [file for folder in folders if folder.name[0] != "." for ending in ("*.py", "*.[ch]") for file in folder.rglob(ending)]
    texts = [(file.suffix, file.read_text(encoding="utf-8")) for file in [*files, ROOT / "cli.py"]]
    code = "\n".join(re.sub(r"\{[^{}\n]*\}" if ending == ".py" else r"%[.\d]*[su]", "…", text) for ending, text in texts)
    code = re.sub(r'"\s*\n\s*f?"', "", code)
    missing = []
    for message in quoted:
        parts = [part.strip(" ();,:") for part in re.sub(r"SIGKILL|SIGSEGV", "…", message).split("…")]
        missing += [message for part in parts if len(part) > 3 and part not in code]
    assert not missing
