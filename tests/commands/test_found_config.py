"""A configuration file that was found in the current folder, not named: it runs no code, redirects nothing and hides no issue."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import click
import pytest
from click.testing import CliRunner, Result
from postrun.cli import main
from postrun.commands import config_file as config
from postrun.errors import UsageError
from postrun.simulate import Problems, write_demo

EVIL = "from pathlib import Path\nPath('PWNED').touch()\n\nclass X:\n    pass\n"
BY_NAME = "[rules.StepOutlier]\nstddev = 4\n"


@pytest.fixture(scope="module")
def trace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("demo")
    write_demo(folder, steps=2, nodes=1, gpus_per_node=1, problems=Problems(straggler_rank=None))
    return next((folder / "kineto").iterdir())


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "here"
    folder.mkdir()
    monkeypatch.chdir(folder)
    monkeypatch.delenv("POSTRUN_CONFIG", raising=False)
    return folder


def postrun(*arguments: str | Path) -> Result:
    return CliRunner().invoke(main, [*map(str, arguments)])


def written(text: str, name: str = "postrun.toml") -> Path:
    if name == "pyproject.toml":
        text = f"[tool.postrun]\n{text}".replace("\n[r", "\n[tool.postrun.r")
    Path(name).write_text(text, encoding="utf-8")
    return Path(name)


@pytest.mark.parametrize("name", ["postrun.toml", "pyproject.toml"])
@pytest.mark.parametrize("text", ['custom-rule = ["evil.py:X"]', '[report]\ncustom_rule = "evil.py:X"'])
def test_no_python_code_is_run(here: Path, name: str, text: str) -> None:
    Path("evil.py").write_text(EVIL, encoding="utf-8")
    written(text, name)
    done = postrun("report", "absent.json")
    assert not Path("PWNED").exists()
    assert done.exit_code == 2
    assert f"postrun: ./{name}: custom-rule is accepted only from a file that you name" in done.stderr
    assert f"use --config ./{name} if you trust the file, or remove the key\n" in done.stderr
    assert {path.name for path in here.iterdir()} == {"evil.py", name}


@pytest.mark.parametrize(
    ("text", "key"),
    [
        ("fail_on = ['error']", "fail-on"),
        ("fail-on = ''", "fail-on"),
        ("rules = ['HostBound']", "rules"),
        ("rules = '-HostBound'", "rules"),
        ("[report]\nrules = ['HostBound']", "rules"),
        ("[rules]\nonly = ['HostBound']", "[rules] only"),
        ("[rules.HostBound]\nenabled = false", "[rules.HostBound] enabled = false"),
        ("[report.rules.HostBound]\nenabled = false", "[rules.HostBound] enabled = false"),
        ("fail_on = 'issues'\nrules = ['HostBound']", "fail-on and rules"),
    ],
)
def test_a_gate_does_not_turn_green_silently(here: Path, trace: Path, text: str, key: str) -> None:
    written(text)
    done = postrun("report", trace, "--quiet", "--fail-on", "issues")
    assert done.exit_code == 2
    assert done.stdout == ""
    verb, keys = ("are", "keys") if " and " in key else ("is", "key")
    assert done.stderr.startswith(f"postrun: ./postrun.toml: {key} {verb} accepted only from a file that you name;")
    assert f"use --config ./postrun.toml if you trust the file, or remove the {keys}\n" in done.stderr
    assert {path.name for path in here.iterdir()} == {"postrun.toml"}


@pytest.mark.parametrize(
    ("command", "text"),
    [
        (("demo", "--no-record"), "custom-rule = 'evil.py:X'"),
        (("compare", "a", "b"), "fail_on = ['slower']"),
        (("nightly", "absent", "--out", "out"), "[nightly]\nfail_on = ['issues']"),
        (("nightly", "absent", "--out", "out"), "[rules.HostBound]\nenabled = false"),
    ],
)
def test_the_gates_of_other_commands_hold(here: Path, command: tuple[str, ...], text: str) -> None:
    written(text)
    done = postrun(*command)
    assert done.exit_code == 2
    assert "accepted only from a file that you name" in done.stderr


def test_display_and_thresholds_are_taken_and_the_rest_is_noted(here: Path, trace: Path, tmp_path: Path) -> None:
    refused = {
        "output": f"'{tmp_path}/elsewhere'", "logo": "'/etc/hostname'", "logo-alt": "'x'", "generated-at": "'1999-01-01'", "json": "true",
        "quiet": "true", "memory-limit": "'1TB'", "threads": "3", "rule-timeout": "1", "sections": "['steps']",
    }  # fmt: skip
    text = "".join(f"{key} = {value}\n" for key, value in refused.items())
    written(f"{text}top = 3\ntitle = 'Team'\nformat = 'json'\n{BY_NAME}")
    done = postrun("report", trace)
    assert done.exit_code == 0, done.output
    assert not (tmp_path / "elsewhere").exists()
    assert sorted(path.name for path in Path("postrun-report").iterdir()) == ["report.json"]
    assert "note: using ./postrun.toml\n" in done.stderr
    note = f"note: ./postrun.toml: ignored: {', '.join(refused)} (only a file named with --config can set them)\n"
    assert note in done.stderr
    report_json = json.loads(Path("postrun-report/report.json").read_text("utf-8"))
    assert report_json["options"]["top"] == 3
    assert report_json["generator"]["generated_at_ns"] > 1e18
    assert next(rule for rule in report_json["rules"] if rule["rule"] == "StepOutlier")["parameters"]["stddev"] == 4


def test_a_file_that_is_named_may_set_everything(here: Path, trace: Path) -> None:
    written("output = 'named'\nformat = 'json'\nrules = ['HostBound']\nquiet = true\n")
    done = postrun("report", trace, "--config", "postrun.toml")
    assert (done.exit_code, done.output) == (0, "")
    assert [rule["rule"] for rule in json.loads(Path("named/report.json").read_text("utf-8"))["rules"]] == ["HostBound"]


def test_quiet_silences_the_notes(here: Path) -> None:
    written("top = 3\noutput = 'elsewhere'\n")
    assert "note:" not in postrun("report", "absent.json", "--quiet").stderr
    assert postrun("report", "absent.json").stderr.count("note:") == 2


@pytest.mark.parametrize(
    ("command", "text"),
    [
        (("report", "absent.json", "--quiet", "--fail-on", "issues"), BY_NAME),
        (("report", "absent.json", "--fail-on", "issues", "-q"), "preset = 'service'\n"),
        (("compare", "absent", "gone", "--quiet", "--fail-on", "slower"), "threshold = 900\n"),
        (("nightly", "absent", "--out", "out", "--quiet", "--fail-on", "regressions"), "regression-threshold = 90\n"),
    ],
)
def test_quiet_keeps_the_note_on_thresholds_of_a_gate(here: Path, command: tuple[str, ...], text: str) -> None:
    written(text)
    notes = [line for line in postrun(*command).stderr.splitlines() if line.startswith("note:")]
    assert notes == ["note: using ./postrun.toml"]
    words = [word for word in command if word not in ("--quiet", "-q")]
    assert "note: using" not in postrun(*words[: words.index("--fail-on")], "--quiet").stderr
    written("top = 3\ntitle = 'Team'\n")
    assert "note:" not in postrun(*command).stderr


def test_quiet_keeps_the_note_for_a_gate_of_the_environment(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    written(f"output = 'elsewhere'\n{BY_NAME}")
    monkeypatch.setenv("POSTRUN_FAIL_ON", "issues")
    monkeypatch.setenv("POSTRUN_QUIET", "1")
    done = postrun("report", "absent.json")
    assert [line for line in done.stderr.splitlines() if line.startswith("note:")] == ["note: using ./postrun.toml"]


@pytest.mark.parametrize("sections", [["-rules"], ["steps", "kernels"], "-data-quality", ["-run"]])
def test_sections_that_leave_out_findings_are_ignored(sections: object) -> None:
    values, notes = config.restrict(Path("postrun.toml"), {"sections": sections})
    assert values == {}
    assert notes == ["./postrun.toml: ignored: sections (only a file named with --config can set it)"]


def test_sections_that_keep_the_findings_are_taken() -> None:
    values = {"sections": ["-python-profile", "-launch-queue"]}
    assert config.restrict(Path("postrun.toml"), values) == (values, [])


def test_the_allow_list_names_options() -> None:
    group = main
    assert isinstance(group, click.Group)
    with click.Context(group) as ctx:
        commands = [group.get_command(ctx, name) for name in group.list_commands(ctx)]
    known = {option[2:].replace("-", "_") for one in commands if one for p in one.params for option in p.opts if option.startswith("--")}
    assert known >= config.FOUND_MAY_SET
    unsafe = {
        "output", "out", "custom_rule", "rule_timeout", "logo", "logo_alt", "fail_on", "attach", "to", "link", "key", "github_release",
        "insecure_http", "engine", "quiet", "json", "memory_limit", "memory", "timeout", "family", "config", "set", "dry_run",
    }  # fmt: skip
    assert known >= unsafe - {"set", "config"}
    assert not unsafe & config.FOUND_MAY_SET


# -- files that are ignored --------------------------------------------------------------------------------------------------


def ignored(*command: str | Path) -> str:
    """Return the note about a file with ``custom-rule``; the input is unusable."""
    done = postrun(*command)
    # A first night without runs succeeds.
    assert done.exit_code == (0 if command[0] == "nightly" else 4), done.output
    assert "using" not in done.stderr
    assert not Path("PWNED").exists()
    (line,) = [line for line in done.stderr.splitlines() if line.startswith("note:")]
    return line


def hostile(name: str = "postrun.toml") -> Path:
    Path("evil.py").write_text(EVIL, encoding="utf-8")
    return written('custom-rule = ["evil.py:X"]\nfail-on = "error"\n', name)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file to another user")
@pytest.mark.parametrize("name", ["postrun.toml", "pyproject.toml"])
def test_a_file_of_another_owner_is_ignored(here: Path, name: str) -> None:
    os.chown(hostile(name), 65534, -1)
    line = ignored("report", "absent.json")
    assert line == f"note: ignoring ./{name}: it belongs to another user; use --config ./{name} if you trust it"


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a link to another user")
def test_a_link_of_another_owner_is_ignored(here: Path, tmp_path: Path) -> None:
    hostile().rename(tmp_path / "mine.toml")
    Path("postrun.toml").symlink_to(tmp_path / "mine.toml")
    os.chown("postrun.toml", 65534, -1, follow_symlinks=False)
    assert "belongs to another user" in ignored("report", "absent.json")


def test_a_file_that_every_user_can_write_is_ignored(here: Path) -> None:
    hostile().chmod(0o666)
    assert "every user can write to it" in ignored("report", "absent.json")


@pytest.mark.parametrize(
    ("command", "source"),
    [
        *(("report", source) for source in (".", "..", "{here}", "file://{here}", "postrun.toml")),
        *((command, source) for command in ("nightly", "export", "compare") for source in (".", "{here}")),
    ],
)
def test_a_file_inside_the_input_is_ignored(here: Path, command: str, source: str) -> None:
    hostile()
    arguments = source.format(here=here)
    more = {"nightly": ("--out", "../out"), "export": ("-f", "chrome", "-o", "../out"), "compare": ("absent",)}.get(command, ())
    words = (command, "absent", arguments) if command == "compare" else (command, arguments, *more)
    reason = f"it is inside the input ({arguments})"
    assert ignored(*words) == f"note: ignoring ./postrun.toml: {reason}; use --config ./postrun.toml if you trust it"


def test_a_link_into_the_input_is_ignored(here: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    run.mkdir()
    hostile().rename(run / "settings.toml")
    Path("postrun.toml").symlink_to(run / "settings.toml")
    assert f"inside the input ({run})" in ignored("report", run)
    (tmp_path / "alias").symlink_to(run)
    assert "inside the input (../alias)" in ignored("report", "../alias")


def test_a_file_next_to_the_input_counts(here: Path, tmp_path: Path) -> None:
    (tmp_path / "here2").mkdir()
    written("top = 3\n")
    for source in ("absent", tmp_path / "here2", "s3://bucket/prefix"):
        assert config.find(None, here, [str(source)]) == here / "postrun.toml"


def test_a_broken_project_file_of_the_input_is_no_error(here: Path) -> None:
    Path("pyproject.toml").write_text("[tool.postrun\n", encoding="utf-8")
    done = postrun("report", ".")
    assert done.exit_code == 4
    assert "TOML" not in done.stderr
    done = postrun("report", "absent.json")
    assert done.exit_code == 2
    assert "pyproject.toml: is not valid TOML" in done.stderr
    Path("pyproject.toml").write_text("[tool]\npostrun = 5\n", encoding="utf-8")
    done = postrun("report", "absent.json")
    assert (done.exit_code, "tool.postrun = 5 is not a table" in done.stderr) == (2, True)


def test_an_ignored_file_does_not_hide_the_next(here: Path) -> None:
    hostile().chmod(0o666)
    written("top = 3\n", "pyproject.toml")
    notes: list[str] = []
    assert config.find(None, here, (), notes) == here / "pyproject.toml"
    assert len(notes) == 1


@pytest.mark.parametrize(
    ("text", "message"),
    [("a = " + "[" * 100_000, "nested too deeply"), ("#" * (1 << 20) + "\ntop = 3\n", "larger than 1 MiB")],
)
def test_a_file_that_is_no_configuration_is_one_clear_error(here: Path, text: str, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        config.read(written(text), {"report": frozenset({"top"})})


# -- files of other programs -------------------------------------------------------------------------------------------------


def test_settings_of_matplotlib_in_the_current_folder_are_not_read(here: Path) -> None:
    """They can start programs: text.usetex runs latex with the file's preamble.

    It can read any file into a figure.
    """
    Path("matplotlibrc").write_text("text.usetex: True\nfigure.hooks: evil:f\nbad\x1bkey: 3\n", encoding="utf-8")
    code = (
        "import sys; from postrun.report_templates.figures.heat_map import Heat, heat_map;"
        "from postrun.report_templates.figures.lines import Line, Panel, lines;"
        "from postrun.report_templates.output import comparison_page, pages, section_list;"
        "heat_map([Heat('a', [0], [[1.0]], 0, 1e9)], 'core'); lines([Panel('ms', [Line('a', [1.0], [1.0])])], 'step', x_time=False);"
        "print('matplotlib' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-P", "-c", code], capture_output=True, text=True, cwd=here, check=False)
    assert (done.stdout, done.stderr) == ("False\n", "")
