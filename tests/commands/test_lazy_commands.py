"""Commands are listed without their modules, and behave like all others when they are called."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import click
import pytest
from click.testing import CliRunner
from postrun.cli import LAZY_COMMANDS, main

ROOT = Path(__file__).parent.parent.parent
CODE = """
import sys
from pathlib import Path
from postrun.cli import main
try:
    main(sys.argv[1:])
finally:
    print(*sorted(name for name in sys.modules if name.startswith("postrun.")), file=sys.stderr)
"""


def modules(*arguments: str) -> set[str]:
    done = subprocess.run([sys.executable, "-P", "-c", CODE, *arguments], capture_output=True, text=True, check=False)
    return set(done.stderr.split())


def test_help_lists_every_command_and_loads_none() -> None:
    result = CliRunner().invoke(main, ["--help"]).output
    context = click.Context(main)
    for name in main.list_commands(context):
        assert f"\n  {name} " in result
    loaded = modules("--help")
    assert "postrun.cli" in loaded
    assert not {f"postrun.commands.{name}" for name in LAZY_COMMANDS} & loaded
    assert "postrun.commands.compare" not in modules("nightly", "--help")


@pytest.mark.parametrize("name", LAZY_COMMANDS)
def test_a_command_is_what_the_list_says(name: str) -> None:
    command = main.get_command(click.Context(main), name)
    assert command is not None
    assert command.name == name
    assert command.get_short_help_str(200) == LAZY_COMMANDS[name]
    assert CliRunner().invoke(main, [name, "--help"]).output.startswith(f"Usage: main {name}")


def test_variables_of_their_options_are_known(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("POSTRUN_SHARD", "0/2")
    assert "unknown" not in CliRunner().invoke(main, ["rules"]).stderr
    for name in os.environ.copy():
        if name.startswith("POSTRUN_"):
            monkeypatch.delenv(name)
    sources = [ROOT / ".ci/run", *sorted((ROOT / "native/src").glob("*/*.c"))]
    read = re.findall(r'(?:export |")(POSTRUN_[A-Z_]+)', "".join(path.read_text() for path in sources))
    assert {"POSTRUN_SWIFT", "POSTRUN_CUPTI_WHEELS", "POSTRUN_CUPTI_STAY", "POSTRUN_GPU"} <= {*read}
    for name in read:
        monkeypatch.setenv(name, "")
    assert "unknown" not in CliRunner().invoke(main, ["rules"]).stderr
    monkeypatch.setenv("POSTRUN_SHARDD", "0/2")
    assert "did you mean POSTRUN_SHARD?" in CliRunner().invoke(main, ["rules"]).stderr


def test_a_misspelled_command_is_answered_with_the_nearest() -> None:
    done = CliRunner().invoke(main, ["reprot"])
    assert done.exit_code == 2
    assert "No such command 'reprot'. Did you mean 'report'?" in done.output


def test_a_command_of_a_group_is_answered_with_its_group() -> None:
    done = CliRunner().invoke(main, ["explain", "HostBound"])
    assert done.exit_code == 2
    assert "No such command 'explain'. Did you mean 'rules explain'?" in done.output
