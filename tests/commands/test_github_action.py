"""The action in examples/github-action: each of its steps runs as GitHub runs it, with stand-ins for `postrun` and GitHub's API."""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from postrun.simulate import Problems, write_demo
from ticket_fakes import FakeGitHub

yaml = pytest.importorskip("yaml", reason="no PyYAML")
if not all(map(shutil.which, ("bash", "curl", "jq"))):
    pytest.skip("no bash, curl or jq", allow_module_level=True)

POSTRUN = """#!/bin/sh
printf '%s\\n' "$@" > arguments
mkdir -p "$EXPECTED_OUTPUT"
[ "$CODE" -gt 3 ] || echo "**slower** by 12%" > "$EXPECTED_OUTPUT/comparison.md"
exit "$CODE"
"""
HOSTILE = "$(touch pwned)`touch pwned`'\"; touch pwned #\\ *"


@pytest.fixture(scope="module")
def folder(project_root: Path) -> Path:
    return project_root / "examples" / "github-action"


@pytest.fixture(scope="module")
def action(folder: Path) -> Any:
    return yaml.safe_load((folder / "action.yml").read_text())


class Runner:
    """Runs the steps like GitHub: inputs with defaults, conditions, outputs; `uses` is only recorded."""

    def __init__(self, action: Any, folder: Path, work: Path, variables: Mapping[str, str], pull_request: str = "7") -> None:
        self.action, self.folder, self.work, self.variables = action, folder, work, variables
        self.context = {"github.token": FakeGitHub.token, "github.event.pull_request.number": pull_request}
        self.used: list[dict[str, str]] = []
        self.printed = ""

    def value(self, text: str) -> str:
        return re.sub(r"\$\{\{ (\S+) \}\}", lambda match: self.context.get(match[1], ""), text)

    def holds(self, condition: str) -> bool:
        """Evaluate comparisons and names that && joins."""
        for part in condition.split(" && "):
            name, _, comparison = part.partition(" ")
            value = self.context.get(name, "")
            if not (eval(f"{value!r} {comparison}", {}) if comparison else value):
                return False
        return True

    def run(self, **inputs: str) -> int:
        known = self.action["inputs"]
        assert {name.replace("_", "-") for name in inputs} <= known.keys()
        for name, description in known.items():
            default = self.value(str(description.get("default", "")))
            self.context[f"inputs.{name}"] = inputs.get(name.replace("-", "_"), default)
        for step in self.action["runs"]["steps"]:
            if not self.holds(step.get("if", "")) and "if" in step:
                continue
            if "uses" in step:
                self.used.append({name: self.value(text) for name, text in step["with"].items()})
                continue
            assert step["shell"] == "bash"
            assert "${{" not in step["run"]  # only environment variables reach a script
            environment = {name: self.value(text) for name, text in step["env"].items()}
            output = self.work / "github-output"
            output.write_text("")
            base = {
                "PATH": f"{self.work}/bin:/usr/bin:/bin", "HOME": str(self.work), "GITHUB_OUTPUT": str(output), "PYTHONSAFEPATH": "1",
                "GITHUB_STEP_SUMMARY": str(self.work / "summary.md"), "GITHUB_ACTION_PATH": str(self.folder), **self.variables,
            }  # fmt: skip
            command = ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", step["run"]]
            done = subprocess.run(command, cwd=self.work, env=base | environment, capture_output=True, text=True, check=False, timeout=300)
            self.printed += done.stdout + done.stderr
            self.context |= {
                f"steps.{step.get('id')}.outputs.{line.partition('=')[0]}": line.partition("=")[2]
                for line in output.read_text().splitlines()
            }
            if done.returncode:
                return done.returncode
        return 0


@pytest.fixture
def github() -> Iterator[FakeGitHub]:
    with FakeGitHub().serving() as fake:
        yield fake


@pytest.fixture
def runner(action: Any, folder: Path, tmp_path: Path, github: FakeGitHub) -> Runner:
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "postrun").write_text(POSTRUN)
    (tmp_path / "bin" / "postrun").chmod(0o755)
    variables = {
        "GITHUB_API_URL": f"{github.url}/api/v3", "GITHUB_REPOSITORY": "owner/repo", "GITHUB_SERVER_URL": "https://github.com",
        "GITHUB_RUN_ID": "99", "CODE": "0", "EXPECTED_OUTPUT": "postrun-comparison",
    }  # fmt: skip
    return Runner(action, folder, tmp_path, variables)


def with_code(runner: Runner, code: int, **more: str) -> Runner:
    runner.variables = {**runner.variables, "CODE": str(code), **more}
    return runner


INPUTS = {"base": "main/report.json", "new": "new", "author": "bot"}


def test_the_comment_is_written_once_and_updated(runner: Runner, github: FakeGitHub) -> None:
    assert runner.run(**INPUTS) == 0, runner.printed
    arguments = (runner.work / "arguments").read_text().splitlines()
    assert arguments == [
        "compare", "--output", "postrun-comparison", "--format", "html,json,md,junit", "--fail-on", "slower,verdicts", "--",
        "main/report.json", "new",
    ]  # fmt: skip
    assert runner.used == [{"name": "postrun-comparison", "path": "postrun-comparison"}]
    assert (runner.work / "summary.md").read_text() == "**slower** by 12%\n"
    assert runner.run(**INPUTS) == 0
    (comment,) = github.written.values()
    assert comment["body"] == (
        "<!-- postrun compare comparison -->\n**slower** by 12%\n\n\n"
        "Files and messages of the comparison: [this run](https://github.com/owner/repo/actions/runs/99).\n"
    )
    assert [request.method for request in github.requests] == ["GET", "POST", "GET", "PATCH"]
    assert FakeGitHub.token not in runner.printed
    assert runner.run(**INPUTS, key="other run") == 0
    assert len(github.written) == 2


def test_a_comment_of_another_user_or_with_the_marker_inside_is_left_alone(runner: Runner, github: FakeGitHub) -> None:
    marker = "<!-- postrun compare comparison -->\n"
    for number in range(150):
        github.written[str(number)] = {"body": f"{marker}mine", "author": "somebody"}
    github.written["200"] = {"body": f"> {marker}quoted", "author": "bot"}
    github.written["201"] = {"body": f"{marker}ours", "author": "bot"}
    assert runner.run(**INPUTS) == 0
    assert [number for number, one in github.written.items() if "slower" in one["body"]] == ["201"]
    assert [request.query["page"] for request in github.sent("GET")] == ["1", "2"]


@pytest.mark.parametrize("code", [0, 1, 2, 3, 4])
def test_the_exit_code_decides_at_the_end(runner: Runner, github: FakeGitHub, code: int) -> None:
    """After a match of fail-on the comment and the files are still written."""
    assert with_code(runner, code).run(**INPUTS) == code
    assert runner.context["steps.compare.outputs.exit-code"] == str(code)
    assert (len(github.written), len(runner.used)) == (1, int(code <= 3))


def test_a_comparison_of_an_earlier_call_is_not_posted(runner: Runner, github: FakeGitHub) -> None:
    (runner.work / "postrun-comparison").mkdir()
    (runner.work / "postrun-comparison" / "comparison.md").write_text("old")
    assert with_code(runner, 4).run(**INPUTS) == 4
    (comment,) = github.written.values()
    assert "old" not in comment["body"]


@pytest.mark.parametrize("code", [4, 130])
def test_a_comment_does_not_keep_the_comparison_of_an_earlier_commit(runner: Runner, github: FakeGitHub, code: int) -> None:
    assert runner.run(**INPUTS) == 0
    assert with_code(runner, code).run(**INPUTS) == code
    (comment,) = github.written.values()
    assert comment["body"] == (
        f"<!-- postrun compare comparison -->\n**No comparison:** `postrun compare` ended with exit code {code}."
        " Its messages are in the log of the job.\n\n\n"
        "Files and messages of the comparison: [this run](https://github.com/owner/repo/actions/runs/99).\n"
    )
    assert with_code(runner, 0).run(**INPUTS) == 0
    (comment,) = github.written.values()
    assert "**slower** by 12%" in comment["body"]


@pytest.mark.parametrize("status", [403, 404, 500])
def test_a_token_that_may_not_comment_is_a_warning(runner: Runner, github: FakeGitHub, status: int) -> None:
    github.faults += [("POST", "comments", (status, {}))]
    assert with_code(runner, 3).run(**INPUTS) == 3
    assert "::warning::" in runner.printed
    assert len(runner.used) == 1
    assert len(github.sent("POST")) == 1  # no second comment by a retry


def test_without_a_pull_request_comment_or_artifact(runner: Runner, github: FakeGitHub) -> None:
    assert runner.run(**INPUTS, comment="false", artifact="") == 0
    runner.context["github.event.pull_request.number"] = ""
    assert runner.run(**INPUTS) == 0
    assert (github.requests, len(runner.used)) == ([], 1)


def test_inputs_are_never_commands(runner: Runner, github: FakeGitHub) -> None:
    inputs = dict.fromkeys(("base", "new", "fail_on", "threshold", "key", "output"), HOSTILE)
    assert with_code(runner, 0, EXPECTED_OUTPUT=HOSTILE).run(**inputs, baseline=f"one run\n\n{HOSTILE}\n", author="bot") == 0, (
        runner.printed
    )
    assert (runner.work / "arguments").read_text().splitlines() == [
        "compare", "--output", HOSTILE, "--format", "html,json,md,junit", "--fail-on", HOSTILE, "--threshold", HOSTILE, "--baseline",
        "one run", "--baseline", HOSTILE, "--", HOSTILE, HOSTILE,
    ]  # fmt: skip
    assert not list(runner.work.rglob("pwned"))
    (comment,) = github.written.values()
    assert re.match(r"<!-- postrun compare [A-Za-z0-9._-]+ -->\n\*\*slower", comment["body"])


def test_scripts_are_posix_shell_and_inputs_are_described(action: Any, folder: Path) -> None:
    assert subprocess.run(["sh", "-n", str(folder / "comment.sh")], capture_output=True, check=False).returncode == 0
    assert all(one["description"] for one in (*action["inputs"].values(), *action["outputs"].values()))
    used = set(re.findall(r"inputs\.([a-z-]+)", (folder / "action.yml").read_text()))
    assert used == set(action["inputs"])


@pytest.mark.slow
def test_the_action_compares_two_runs(runner: Runner, github: FakeGitHub) -> None:
    (runner.work / "bin" / "postrun").write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -P -m postrun.cli "$@"\n')
    for name in ("base", "new"):
        write_demo(runner.work / name, steps=3, nodes=1, gpus_per_node=1, problems=Problems(straggler_rank=None))
    assert runner.run(base="base", new="new", author="bot", fail_on="slower") == 0, runner.printed
    (comment,) = github.written.values()
    assert "base" in comment["body"]
    assert {"comparison.html", "comparison.json", "comparison.md", "comparison.junit.xml"} <= {
        one.name for one in (runner.work / "postrun-comparison").iterdir()
    }
