"""Calls of `postrun nightly` in the process of a test."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from click.testing import CliRunner, Result
from postrun.cli import main


def nightly(*arguments: str | Path) -> Result:
    return CliRunner().invoke(main, ["nightly", *map(str, arguments)])


def told(*arguments: str | Path, code: int = 0) -> Any:
    """Return the output with --json; the command must end with ``code``."""
    done = nightly(*arguments, "--json")
    assert done.exit_code == code, done.output
    return json.loads(done.stdout)
